"""A graph on disk: its layout, reading, writing, checking."""

from snmf_dist.graph.store.components import Components, edges_above, find_components
from snmf_dist.graph.store.layout import KIND, Progress, normalize, row_bounds, silent
from snmf_dist.graph.store.reader import GraphStore, open_graph
from snmf_dist.graph.store.writer import BlockRecord, GraphWriter

__all__ = [
    "KIND",
    "BlockRecord",
    "Components",
    "GraphStore",
    "GraphWriter",
    "Progress",
    "edges_above",
    "find_components",
    "normalize",
    "open_graph",
    "row_bounds",
    "silent",
]
