"""Rows as others see them: Dask arrays. What is read from a store, shown to listeners, written, or put in order.

Alone in importing dask.array.
"""

import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import dask
import dask.array as da
import numpy as np
from dask.delayed import Delayed
from dask.highlevelgraph import HighLevelGraph

from snmf_dist.blocks import Blocks
from snmf_dist.cluster import current_client
from snmf_dist.whole import Whole


def load_rows(read: Callable[..., Any], bounds: Iterable[int], width: int, *, meta: Any) -> da.Array:
    """Rows in blocks: block i is ``read(bounds[i], bounds[i+1])``, read inside its task.

    Parameters
    ----------
    read : callable
        Importable by name or picklable; returns (stop - start, width) rows.
    bounds : iterable of int, length P+1
        Where the blocks begin and end.
    width : int
        Columns.
    meta : array
        An empty array of the kind and dtype of a block.
    """
    ranges = [(int(start), int(stop)) for start, stop in pairwise(bounds)]
    name = f"load-{uuid.uuid4().hex}"
    tasks = {(name, i, 0): (read, start, stop) for i, (start, stop) in enumerate(ranges)}
    return _array(name, tasks, [], tuple(stop - start for start, stop in ranges), width, meta)


def as_array(rows: Any) -> da.Array:
    """Rows of the solver as a Dask array; what is in memory is cut, not copied."""
    if isinstance(rows, da.Array):
        return rows
    if isinstance(rows, np.ndarray):
        rows = Whole(rows, np.array([0, len(rows)]))
    name, needs = f"rows-{uuid.uuid4().hex}", []
    if isinstance(rows, Whole):  # not da.from_array, which copies
        rows.lend()
        tasks: dict[Any, Any] = {(name, i, 0): rows.cut(i) for i in range(len(rows.bounds) - 1)}
    else:
        tasks = {(name, i, 0): (_Pick(rows.part), rows.key(i)) for i in range(len(rows.bounds) - 1)}
        needs = [rows]
    sizes = tuple(int(size) for size in np.diff(rows.bounds))
    return _array(name, tasks, needs, sizes, rows.shape[1], np.empty((0, 0), rows.dtype))


def as_blocks(rows: Any, like: Blocks, dtype: Any) -> Blocks:
    """A Dask array or an array in memory as blocks like those of `like`."""
    sizes = tuple(int(size) for size in np.diff(like.bounds))
    array = as_array(rows).rechunk((sizes, -1)).astype(dtype)
    return Blocks(array.name, None, like.bounds, rows.shape[1], np.dtype(dtype), array.__dask_graph__())


def export_rows(rows: Any, write: Callable[..., Any], *, block_rows: int) -> list[Any]:
    """Call ``write(start, block)`` for blocks of `block_rows` rows; return what each call returns.

    Blocks begin at multiples of `block_rows`, wherever the row blocks were before, so that each is
    one chunk of a Zarr array and no two writers share a chunk.
    """
    n = rows.shape[0]
    starts = range(0, n, block_rows)
    if isinstance(rows, np.ndarray):
        return [write(start, rows[start : start + block_rows]) for start in starts]
    cut = rows.rechunk((tuple(min(block_rows, n - start) for start in starts), -1))
    values = []
    for i, start in enumerate(starts):
        key = f"export-{uuid.uuid4().hex}"
        graph = HighLevelGraph.from_collections(key, {key: (write, start, (cut.name, i, 0))}, dependencies=[cut])
        values.append(Delayed(key, graph))
    return list(dask.compute(*values))


def gather_rows(rows: Any) -> np.ndarray:
    """Bring rows of few columns into memory, whole."""
    if isinstance(rows, Whole):
        return rows.lend()
    return as_array(rows).compute() if isinstance(rows, Blocks | da.Array) else rows


def take_rows(rows: Any, index: np.ndarray) -> Any:
    """``rows[index]``: the same rows in another order, or some of them; gathered when they are used."""
    if isinstance(rows, np.ndarray):
        return rows[index]
    source = as_array(rows)
    if current_client() is not None:
        return source[index]
    sizes = source.chunks[0]
    name, keys = f"take-{uuid.uuid4().hex}", [(source.name, j, 0) for j in range(len(sizes))]
    parts = [index[start : start + max(sizes)] for start in range(0, len(index), max(sizes))]
    take = _Take(np.cumsum([0, *sizes]), source.shape[1], source.dtype)
    tasks = {(name, i, 0): (take, keys, _Held(part)) for i, part in enumerate(parts)}
    return _array(name, tasks, [source], tuple(map(len, parts)), source.shape[1], source._meta)


@dataclass(frozen=True)
class _Held:
    """An array that Dask is not to look into."""

    array: np.ndarray


@dataclass(frozen=True)
class _Take:
    """Gathers rows of all blocks, in one process."""

    bounds: np.ndarray
    width: int
    dtype: np.dtype

    def __call__(self, blocks: list[np.ndarray], chosen: _Held) -> np.ndarray:
        index = chosen.array
        found = np.empty((len(index), self.width), self.dtype)
        block = np.searchsorted(self.bounds, index, side="right") - 1
        for j in np.unique(block):
            here = np.flatnonzero(block == j)
            found[here] = blocks[j][index[here] - self.bounds[j]]
        return found


class _Pick:
    """One of the blocks that a task made."""

    def __init__(self, part: int | None) -> None:
        self.part = part

    def __call__(self, made: Any) -> np.ndarray:
        return made if self.part is None else made[self.part]


def _array(
    name: str, tasks: dict[Any, Any], needs: Any, sizes: tuple[int, ...], width: int, meta: Any
) -> da.Array:
    graph = HighLevelGraph.from_collections(name, tasks, dependencies=needs)
    return da.Array(graph, name, (sizes, (width,)), meta=meta)
