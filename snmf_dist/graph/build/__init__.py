"""Points to a similarity graph A on disk."""

from snmf_dist.graph.build.building import build_graph
from snmf_dist.graph.build.points import is_points, is_similarity_matrix

__all__ = ["build_graph", "is_points", "is_similarity_matrix"]
