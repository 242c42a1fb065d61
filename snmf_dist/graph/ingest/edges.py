"""Edges in batches: what every kind of source becomes before an import files them."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from snmf_dist.graph.store import GraphStore
from snmf_dist.ids import Ids

BATCH = 1 << 18  # edges in a batch: 6 MB, a few times over while it is filed


class Edges(NamedTuple):
    """A batch of entries of A: ``A[rows[e], columns[e]] += weights[e]``."""

    rows: np.ndarray
    columns: np.ndarray
    weights: np.ndarray


Piece = Callable[[], Iterator[Edges]]


@dataclass(frozen=True)
class EdgeSource:
    """A square matrix as batches of edges.

    Attributes
    ----------
    n : int
        Number of its rows.
    n_edges : int
        How many edges `batches` yields.
    batches : callable
        Yields `Edges`; may be called again.
    made : dict
        Where it came from, for people.
    store : GraphStore or None
        Set if the source is a graph store: its order, degrees and normalisation are kept.
    ids : Ids or None
        The user's own ids of the rows, if they are not their numbers.
    pieces : tuple of callable
        What `batches` yields in parts, one after the other, if workers can read those; picklable.
    """

    n: int
    n_edges: int
    batches: Callable[[], Iterator[Edges]]
    made: dict[str, Any] = field(default_factory=dict)
    store: GraphStore | None = None
    ids: Ids | None = None
    pieces: tuple[Piece, ...] = ()


@dataclass(frozen=True)
class IdRules:
    """How the ids of an edge list become row numbers; see `import_graph`.

    Attributes
    ----------
    kind : {"auto", "rows", "numbers", "text"}
        What ids are.
    n, first_id
        As in `import_graph`.
    folder : str
        Folder for the files of a dictionary of ids.
    memory : int
        Bytes that it may use.
    """

    kind: str
    n: int | None
    first_id: int
    folder: str
    memory: int


def row_ranges(indptr: np.ndarray) -> Iterator[slice]:
    """Cut the rows into ranges of about `BATCH` entries, a row at least."""
    start, n = 0, len(indptr) - 1
    while start < n:
        stop = int(np.searchsorted(indptr, indptr[start] + BATCH, side="right")) - 1
        stop = min(max(stop, start + 1), n)
        yield slice(start, stop)
        start = stop


def expand(indptr: np.ndarray, rows: slice, indices: Any, data: Any) -> Edges:
    """The entries of some rows of a CSR matrix as edges."""
    counts = np.diff(indptr[rows.start : rows.stop + 1])
    numbers = np.repeat(np.arange(rows.start, rows.stop), counts)
    return Edges(numbers, np.asarray(indices, dtype=np.int64), np.asarray(data, dtype=np.float64))
