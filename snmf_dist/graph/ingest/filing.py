"""The stages of an import: edges to runs, runs to blocks of W, W moved, blocks of A written.

Each is a map over pieces of the source or over blocks, on threads or on the workers of the current client.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from scipy import sparse

from snmf_dist.engine.client import run_stream, run_tasks
from snmf_dist.engine.machine import threads
from snmf_dist.errors import InputError
from snmf_dist.graph.ingest.buckets import EdgeBuckets, Merged
from snmf_dist.graph.ingest.edges import Edges, EdgeSource, Piece
from snmf_dist.graph.store import BlockRecord, GraphWriter, StageProgress
from snmf_dist.graph.store import normalize as ncut

EDGE_COST = 160  # bytes of memory while an edge is filed
MOST_EDGES, LEAST_EDGES = 1 << 20, 1 << 14  # of a run
RUNS = 200  # that are aimed at: each is opened for each block
MERGE_COST = 60  # bytes of memory while an entry of a block is merged


@dataclass
class Filing:
    """An import under way.

    Attributes
    ----------
    buckets : EdgeBuckets
        The files.
    entries : int
        About how many entries W has.
    memory : float
        Bytes that a process may use for what is under way.
    on_workers : bool
        Whether the workers of the current client do the work.
    progress : callable
        Called as ``progress(stage, done, total)``.
    edges : list of str
        The names of the runs that hold the edges.
    moved : list of str
        The names of the runs that hold W in another order, if it was moved.
    """

    buckets: EdgeBuckets
    entries: int
    memory: float
    on_workers: bool
    progress: StageProgress
    edges: list[str] = field(default_factory=list)
    moved: list[str] = field(default_factory=list)

    @property
    def blocks(self) -> range:
        """The row blocks."""
        return range(len(self.buckets.bounds) - 1)

    def read(self, source: EdgeSource) -> None:
        """File all edges, in runs of a bounded size; the answer does not depend on where they end."""
        fits = self.memory / (EDGE_COST * threads())
        size = int(np.clip(min(fits, source.n_edges / RUNS), LEAST_EDGES, MOST_EDGES))
        if self.on_workers and len(source.pieces) > 1:
            work: Any = partial(_file_piece, self.buckets, source.pieces, size)
            found = self._run(work, range(len(source.pieces)), "read edges")
            self.edges = [name for names in found for name in names]
            return

        def reported() -> Iterator[Edges]:
            done = 0
            for edges in source.batches():
                done += len(edges.rows)
                yield edges
                self.progress("read edges", done, source.n_edges)

        named = ((str(i), run) for i, run in enumerate(_runs(reported(), size)))
        self.edges = run_stream(lambda item: self.buckets.file(*item), named, threads=threads())

    def merge(self) -> list[Merged]:
        """Make the blocks of W."""
        found = self._run(partial(self.buckets.merge, self.edges), self.blocks, "merge")
        self.buckets.remove_edges(self.edges)
        return found

    def move(self, rank: np.ndarray) -> None:
        """Move row and column r of W to ``rank[r]``."""
        path = self._kept("rank", rank)
        self.moved = self._run(partial(self.buckets.move, path), self.blocks, "move")
        self.buckets.remove_blocks()

    def write(self, writer: GraphWriter, root: np.ndarray | None) -> list[BlockRecord]:
        """Write the blocks of A: W divided by the roots of the degrees, or W as it is."""
        path = None if root is None else self._kept("root", root)
        return self._run(partial(_write_block, self.buckets, self.moved, writer, path), self.blocks, "write")

    def _run(self, work: Callable[[int], Any], items: range, stage: str) -> list[Any]:
        """Do work on each item; as many at a time as fit in memory."""
        n = int(self.buckets.bounds[-1])
        a_task = MERGE_COST * 2 * self.entries / len(self.blocks) + n
        return run_tasks(
            work,
            items,
            threads=int(np.clip(self.memory // a_task, 1, threads())),
            done=lambda done: self.progress(stage, done, len(items)),
            on_workers=self.on_workers,
        )

    def _kept(self, name: str, values: np.ndarray) -> str:
        """Write a number for each row to a file, which tasks map and do not load."""
        path = os.path.join(self.buckets.folder, f"{name}.npy")
        np.save(path, values)
        return path


def _runs(batches: Iterable[Edges], size: int) -> Iterator[list[Edges]]:
    """Batches cut and put together, so that a run has `size` edges or more, but less than twice as many."""
    run: list[Edges] = []
    for edges in batches:
        for start in range(0, len(edges.rows), size):
            run.append(Edges(*(ends[start : start + size] for ends in edges)))
            if sum(len(one.rows) for one in run) >= size:
                yield run
                run = []
    if run:
        yield run


def _file_piece(buckets: EdgeBuckets, pieces: Sequence[Piece], size: int, p: int) -> list[str]:
    """File one piece of the source."""
    return [buckets.file(f"{p}-{r}", run) for r, run in enumerate(_runs(pieces[p](), size))]


def _write_block(
    buckets: EdgeBuckets, moved: Sequence[str], writer: GraphWriter, root: str | None, i: int
) -> BlockRecord:
    W = buckets.moved(moved, i) if moved else buckets.block(i)
    if root is None:
        _check_fits(W, writer.dtype)
        return writer.write_block(i, W)
    roots = np.load(root, mmap_mode="r", allow_pickle=False)
    own = np.asarray(roots[buckets.bounds[i] : buckets.bounds[i + 1]])
    return writer.write_block(i, ncut(W, own, roots))


def _check_fits(A: sparse.csr_matrix, dtype: np.dtype) -> None:
    """Refuse entries that the store's dtype would turn into infinity or into nothing."""
    with np.errstate(over="ignore"):
        kept = A.data.astype(dtype)
    bad = ~np.isfinite(kept) | (kept == 0)
    if bad.any():
        value = A.data[np.argmax(bad)]
        raise InputError(
            f"A has an entry {value:g}, beyond what {dtype} holds; scale the weights, or pass dtype='float64'"
        )
