"""Edges of any source to a similarity graph A on disk."""

from snmf_dist.graph.ingest.importing import import_graph

__all__ = ["import_graph"]
