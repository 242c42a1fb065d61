"""Data with known clusters, of any size, made block by block."""

from snmf_dist.planted.generating import Planted, generate

__all__ = ["Planted", "generate"]
