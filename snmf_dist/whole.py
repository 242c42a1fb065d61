"""Rows in one array, for work in one process. It is cut into slices, which threads do side by side.

The slices are given with the rows and do not depend on the number of threads, nor does the shape of the tree in
which sums are added: so the answer is the same to the last bit on any machine with the same instructions.

The array may be on disk, as `ondisk` has it, and so may A: a thread then lets go of a slice when it is done with
it. Or A may be streamed from its store: a thread reads some slices at a time, and does them one after the other.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise
from typing import Any

import dask
import numpy as np
from scipy import sparse

from snmf_dist import spares
from snmf_dist.cluster import cores
from snmf_dist.halo import Block, whole_block
from snmf_dist.ondisk import empty_on_disk, let_go
from snmf_dist.trees import tree_sum


class Whole:
    """Rows in one array.

    Parameters
    ----------
    array : ndarray, (n, m)
        C-contiguous.
    bounds : ndarray of int, (P + 1,)
        Where work on it is cut.
    on_disk : bool, default False
        Whether it is on disk, as what is made from it will be.

    Attributes
    ----------
    sums : Any
        What was added up while the rows were made, or None.
    lent : bool
        Whether others may hold the array: it is then not written over.
    """

    def __init__(self, array: np.ndarray, bounds: np.ndarray, *, on_disk: bool = False) -> None:
        self.array, self.bounds, self.on_disk = array, bounds, on_disk
        self.sums: Any = None
        self.lent = False
        self.shape, self.dtype = array.shape, array.dtype

    def cut(self, i: int) -> np.ndarray:
        """Rows of slice i."""
        if len(self.bounds) == 2:  # small problems take many steps: what is not cut need not be looked up
            return self.array
        return self.array[self.bounds[i] : self.bounds[i + 1]]

    def let_go(self, i: int | None = None) -> None:
        """Say that slice i, or all, is not needed for now; matters for rows on disk."""
        if self.on_disk:
            let_go(self.array, *(() if i is None else self.bounds[i : i + 2].tolist()))

    def lend(self) -> np.ndarray:
        """The array, for those who may keep it."""
        self.lent = True
        return self.array


class WholeGraph:
    """A in memory, or on disk as the kernels want it.

    Parameters
    ----------
    block : Block
        All rows.
    bounds : ndarray of int, (P + 1,)
        Where work on it is cut.
    on_disk : bool, default False
        Whether it is on disk, as other rows will be.

    Attributes
    ----------
    parts : list of range
        The slices that a thread does in turn: here each by itself.
    """

    def __init__(self, block: Block, bounds: np.ndarray, *, on_disk: bool = False) -> None:
        self.block, self.bounds, self.on_disk = block, bounds, on_disk
        self.shape, self.dtype = (int(bounds[-1]),) * 2, block.data.dtype
        self.parts = [range(i, i + 1) for i in range(len(bounds) - 1)]

    def cut(self, i: int) -> Block:
        """Rows of slice i; their entries lie among those of all."""
        if len(self.bounds) == 2:
            return self.block
        low, high = self.bounds[i], self.bounds[i + 1]
        return Block(self.block.indptr[low : high + 1], self.block.indices, self.block.data)

    def slices(self, part: range) -> Iterator[Block]:
        """The slices of a part."""
        for i in part:
            block = self.cut(i)
            yield block
            if self.on_disk:
                let_go(self.block.indices, *block.indptr[[0, -1]].tolist())
                let_go(self.block.data, *block.indptr[[0, -1]].tolist())


class StreamedGraph:
    """A in its store: a part is read each time that it is worked on.

    Parameters
    ----------
    read : callable
        Rows start to stop of A.
    dtype
        Of the entries.
    starts : ndarray of int
        Where the parts begin and end: bounds among
    bounds : ndarray of int, (P + 1,)
        those where work is cut.
    """

    on_disk = False  # other rows are in memory

    def __init__(
        self, read: Callable[[int, int], sparse.csr_matrix], dtype: Any, starts: np.ndarray, bounds: np.ndarray
    ) -> None:
        self.read, self.bounds = read, bounds
        self.shape, self.dtype = (int(bounds[-1]),) * 2, np.dtype(dtype)
        cuts = np.searchsorted(bounds, starts)
        self.parts = [range(first, last) for first, last in pairwise(cuts.tolist())]

    def slices(self, part: range) -> Iterator[Block]:
        """The slices of a part, which is read now."""
        start, stop = int(self.bounds[part[0]]), int(self.bounds[part[-1] + 1])
        block = whole_block(self.read(start, stop))
        for i in part:
            low, high = self.bounds[i] - start, self.bounds[i + 1] - start
            yield block._replace(indptr=block.indptr[low : high + 1])


def empty(bounds: np.ndarray, width: int, dtype: Any, *, on_disk: bool) -> Whole:
    """Rows to be written to."""
    array = spares.empty((int(bounds[-1]), width), dtype, empty_on_disk if on_disk else np.empty)
    return Whole(array, bounds, on_disk=on_disk)


def rows_like(
    A: WholeGraph | StreamedGraph, read: Callable[..., Any], width: int, dtype: Any, scalars: dict[str, Any]
) -> Whole:
    """Rows made by ``read(start, stop, **scalars)``."""
    out = empty(A.bounds, width, dtype, on_disk=A.on_disk)

    def work(i: int) -> None:
        out.cut(i)[:] = read(int(A.bounds[i]), int(A.bounds[i + 1]), **scalars)
        out.let_go(i)

    each(work, A.bounds)
    return out


def from_array(A: WholeGraph | StreamedGraph, rows: Any, dtype: Any) -> Whole:
    """The rows of a Dask array, brought here a block of it at a time."""
    out = empty(A.bounds, rows.shape[1], dtype, on_disk=A.on_disk)
    start = 0
    for block in rows.blocks:
        values = block.compute()
        out.array[start : start + len(values)] = values
        start += len(values)
        out.let_go()
    return out


def map_rows(
    f: Callable[..., Any], blocks: Sequence[Any], width: int, dtype: Any, scalars: dict[str, Any]
) -> Whole:
    """``f(*row blocks, **scalars)`` for each slice."""
    out = empty(blocks[0].bounds, width, dtype, on_disk=blocks[0].on_disk)

    def work(i: int) -> None:
        out.cut(i)[:] = f(*(block.cut(i) for block in blocks), **scalars)
        for rows in (*blocks, out):
            rows.let_go(i)

    each(work, out.bounds)
    return out


def sum_rows(f: Callable[..., Any], blocks: Sequence[Any], scalars: dict[str, Any]) -> Any:
    """Sum of ``f(*row blocks, **scalars)`` over the slices."""
    if isinstance(blocks[0], WholeGraph | StreamedGraph):
        (A,) = blocks
        return _over_parts(A, lambda rows, i: f(rows, **scalars))

    def work(i: int) -> Any:
        total = f(*(block.cut(i) for block in blocks), **scalars)
        for rows in blocks:
            rows.let_go(i)
        return total

    return tree_sum(each(work, blocks[0].bounds))


def sweep(
    f: Callable[..., Any],
    A: WholeGraph | StreamedGraph,
    B: Whole,
    blocks: Sequence[Any],
    widths: Sequence[int],
    over: Sequence[int | None],
    scalars: dict[str, Any],
) -> tuple[list[Whole], Any]:
    """``f(A's rows, own, halo, *row blocks, out=…, **scalars)`` for each slice: what it wrote, and its sum.

    All of B is own; outputs that may be written over a block are.
    """
    out = []
    for width, place in zip(widths, over, strict=True):
        old = None if place is None else blocks[place]
        if old is None or old.lent:
            out.append(empty(A.bounds, width, B.dtype, on_disk=A.on_disk))
        else:
            out.append(Whole(old.array, A.bounds, on_disk=old.on_disk))
            old.lent = True  # the array is the new rows' now

    def work(rows_of_A: Block, i: int) -> Any:
        rows = [block.cut(i) for block in blocks]
        total = f(rows_of_A, B.array, B.array, *rows, out=[rows.cut(i) for rows in out], **scalars)
        if A.on_disk:
            for one in (*blocks, *out):
                one.let_go(i)
            B.let_go()
        return total

    return out, _over_parts(A, work)


def _over_parts(A: WholeGraph | StreamedGraph, work: Callable[[Block, int], Any]) -> Any:
    """Sum of ``work(rows of slice i, i)`` over the slices, part by part."""
    if len(A.bounds) == 2:
        (total,) = [work(rows, 0) for rows in A.slices(A.parts[0])]
        return total

    def of_part(p: int) -> list[Any]:
        return [work(rows, i) for rows, i in zip(A.slices(A.parts[p]), A.parts[p], strict=True)]

    return tree_sum([one for part in each(of_part, range(len(A.parts) + 1)) for one in part])


def each(work: Callable[[int], Any], bounds: Sequence[int] | np.ndarray) -> list[Any]:
    """Call `work` for each slice, on all threads."""
    slices = range(len(bounds) - 1)
    if len(slices) == 1 or threads() == 1:
        return [work(i) for i in slices]
    return list(_pool(threads(), os.getpid()).map(work, slices))


def in_turn(work: Callable[[int], Any], bounds: np.ndarray) -> Iterator[Any]:
    """What `each` returns, one after the other; no more are done at a time than there are threads."""
    for first in range(0, len(bounds) - 1, threads()):
        some = bounds[first : first + threads() + 1]
        yield from each(lambda i, first=first: work(first + i), some)  # type: ignore[misc]


def threads() -> int:
    """How many threads work: Dask's ``num_workers``, or one for each core."""
    return int(dask.config.get("num_workers", None) or cores())


@cache
def _pool(number: int, process: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(number, thread_name_prefix="snmf")
