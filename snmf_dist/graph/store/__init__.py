"""A graph on disk: its layout, reading, writing, checking."""

from snmf_dist.graph.store.layout import KIND, Progress, normalize, row_bounds, silent
from snmf_dist.graph.store.reader import GraphStore, open_graph
from snmf_dist.graph.store.writer import BlockRecord, GraphWriter

__all__ = [
    "KIND",
    "BlockRecord",
    "GraphStore",
    "GraphWriter",
    "Progress",
    "normalize",
    "open_graph",
    "row_bounds",
    "silent",
]
