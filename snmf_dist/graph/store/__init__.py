"""A graph on disk: its layout, reading, writing, checking."""

from snmf_dist.graph.store.components import Components, edges_above, find_anchors, find_components
from snmf_dist.graph.store.kept import Kept, read_kept, write_kept
from snmf_dist.graph.store.layout import GRAPH, StageProgress, normalize, row_bounds, silent
from snmf_dist.graph.store.reader import GraphStore, open_graph
from snmf_dist.graph.store.writer import BlockRecord, GraphWriter

__all__ = [
    "GRAPH",
    "BlockRecord",
    "Components",
    "GraphStore",
    "GraphWriter",
    "Kept",
    "StageProgress",
    "edges_above",
    "find_anchors",
    "find_components",
    "normalize",
    "open_graph",
    "read_kept",
    "row_bounds",
    "silent",
    "write_kept",
]
