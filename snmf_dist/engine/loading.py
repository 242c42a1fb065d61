"""A in one process: held in memory or in temporary files, or streamed from its store in every sweep."""

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from scipy import sparse

from snmf_dist.engine.disk import empty_on_disk, let_go
from snmf_dist.engine.halo import SPARE, Block, whole_block
from snmf_dist.engine.local import LocalGraph, each
from snmf_dist.engine.machine import release_memory, threads
from snmf_dist.engine.plan import SLICE

Read = Callable[[int, int], sparse.csr_matrix]


class HeldGraph(LocalGraph):
    """A in memory, or on disk, as the kernels want it.

    Parameters
    ----------
    block : Block
        All rows.
    bounds : ndarray of int, (P + 1,)
        Where work is cut.
    on_disk : bool, default False
        Whether A is on disk, and other rows are made there.
    """

    def __init__(self, block: Block, bounds: np.ndarray, *, on_disk: bool = False) -> None:
        parts = [range(i, i + 1) for i in range(len(bounds) - 1)]
        super().__init__(bounds, block.data.dtype, parts, on_disk=on_disk)
        self.block = block

    def slices(self, part: range) -> Iterator[Block]:
        """The slices of a part; their entries lie among those of all."""
        if len(self.bounds) == 2:
            yield self.block
            return
        for i in part:
            block = self.block._replace(indptr=self.block.indptr[self.bounds[i] : self.bounds[i + 1] + 1])
            yield block
            if self.on_disk:
                let_go(self.block.indices, *block.indptr[[0, -1]].tolist())
                let_go(self.block.data, *block.indptr[[0, -1]].tolist())


class StreamedGraph(LocalGraph):
    """A in its store: a part is read each time that it is worked on. Other rows are in memory.

    Parameters
    ----------
    read : callable
        Reads rows start to stop of A.
    dtype : dtype
        The type of the entries.
    starts : ndarray of int
        Where the parts that are read at a time begin and end; each is also one of the bounds.
    bounds : ndarray of int, (P + 1,)
        Where work is cut.
    """

    def __init__(self, read: Read, dtype: Any, starts: np.ndarray, bounds: np.ndarray) -> None:
        cuts = np.searchsorted(bounds, starts)
        super().__init__(bounds, dtype, [range(first, last) for first, last in pairwise(cuts.tolist())])
        self.read = read

    def slices(self, part: range) -> Iterator[Block]:
        """The slices of a part, which is read now."""
        start, stop = int(self.bounds[part[0]]), int(self.bounds[part[-1] + 1])
        block = whole_block(self.read(start, stop))
        for i in part:
            low, high = self.bounds[i] - start, self.bounds[i + 1] - start
            yield block._replace(indptr=block.indptr[low : high + 1])


def load_local(
    read: Read,
    nnz: int,
    dtype: Any,
    *,
    parts: np.ndarray,
    bounds: np.ndarray | None = None,
    rows: int = SLICE,
    held: bool = True,
    on_disk: bool = False,
) -> LocalGraph:
    """A for work in this process, read part by part, each by a thread.

    Parameters
    ----------
    read : callable
        Reads rows start to stop of A.
    nnz : int
        The number of entries of A.
    dtype : dtype
        The type of the entries.
    parts : ndarray of int
        Where the parts begin and end that are read at a time.
    bounds : ndarray of int, optional
        Where work is cut, and a streamed A is read. By default each part is cut into slices of `rows` rows.
    rows : int, default `SLICE`
        The most rows of a slice, if `bounds` are not given.
    held : bool, default True
        Keep A; else it is read again in every sweep.
    on_disk : bool, default False
        Keep A, and all other rows, in temporary files.
    """
    starts = parts if bounds is None else bounds
    if bounds is None:
        pieces = [np.linspace(a, b, -(-int(b - a) // rows) + 1)[:-1] for a, b in pairwise(parts)]
        bounds = np.append(np.concatenate(pieces), parts[-1]).astype(np.int64)
    if not held:
        return StreamedGraph(read, dtype, starts, bounds)
    new: Callable[..., np.ndarray] = empty_on_disk if on_disk else np.zeros
    block = Block(new((int(parts[-1]) + 1,), np.int64), new((nnz + SPARE,), np.uint32), new((nnz,), dtype))
    done = 0
    for row, A in zip(parts, _read_in_turn(read, parts), strict=False):
        entries = slice(done, done + A.nnz)
        block.indices[entries], block.data[entries] = A.indices, A.data
        block.indptr[row : row + A.shape[0] + 1] = A.indptr + done
        done += A.nnz
        for array in block:
            let_go(array)
    release_memory()
    return HeldGraph(block, bounds, on_disk=on_disk)


def in_memory(A: Any, bounds: Sequence[int] | None = None) -> HeldGraph:
    """A SciPy matrix as a graph; work is cut at `bounds`, by default nowhere."""
    cuts = np.array([0, A.shape[0]] if bounds is None else bounds)
    return HeldGraph(whole_block(sparse.csr_matrix(A)), cuts)


def _read_in_turn(read: Read, parts: np.ndarray) -> Iterator[sparse.csr_matrix]:
    """The parts one after the other; no more are read at a time than there are threads."""
    ranges = [(int(a), int(b)) for a, b in pairwise(parts)]
    for first in range(0, len(ranges), threads()):
        some = ranges[first : first + threads()]
        yield from each(lambda i, some=some: read(*some[i]), len(some))  # type: ignore[misc]
