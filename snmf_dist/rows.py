"""Row-blocked arrays: the few words that carry all distribution. Alone in importing dask.array.

A matrix with n rows is either in memory (NumPy, SciPy) or a Dask array cut into row blocks. Given matrices in
memory each word just calls the function; given Dask arrays it describes the work, one task a block, and
`settle` starts it. So a solver's text runs in memory, on threads and on a cluster.

=================  ================================================================
`load_rows`        rows from a function of (start, stop): a store, or a generator
`rows_like`        the same, in the blocks of other rows; `rows_as` for rows there are
`map_rows`         a function of aligned row blocks -> rows
`multiply`         A · B: with `sum_pairs` the words that need rows of other blocks
`sum_rows`         a function of aligned row blocks, added up over the blocks
`sum_pairs`        the same for a function of A's entries and the rows at both their ends
`central`          a function of small values (K × K, sums), computed once
`hold`             compute now and keep, where it was made, what many steps will use
`settle`           start the work described; wait for the numbers
`in_blocks`        the same rows as Dask arrays, for those who look at them from outside
`export_rows`      hand each row block to a writer
`gather_rows`      rows of few columns, whole, in memory
`take_rows`        rows in another order
=================  ================================================================

Graphs are built by hand, not with `da.map_blocks`: half the time per task, and names that say what they do.
Sums are added in a tree of fixed shape, so for the same blocks the answer is the same to the last bit on any
number of threads or workers.
"""

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from itertools import pairwise
from operator import add
from typing import Any, TypeVar

import dask
import dask.array as da
import numpy as np
from dask.delayed import Delayed
from dask.highlevelgraph import HighLevelGraph
from scipy import sparse

from snmf_dist.cluster import current_client

Rows = Any  # numpy.ndarray, scipy.sparse.csr_matrix or dask.array.Array
State = TypeVar("State", bound=tuple)

FAN_IN = 8  # values added by one task of a tree sum


def load_rows(
    read: Callable[..., Any], bounds: Iterable[int], width: int, *, meta: Any, **scalars: Any
) -> da.Array:
    """Rows in blocks: block i is ``read(bounds[i], bounds[i+1], **scalars)``, read inside its task.

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
    call, lazy = _bind(read, scalars)
    name = _name(read)
    tasks = {
        (name, i, 0): (call, start, stop, *(value.key for value in lazy)) for i, (start, stop) in enumerate(ranges)
    }
    chunks = (tuple(stop - start for start, stop in ranges), (width,))
    return _array(name, tasks, lazy, chunks, meta)


def rows_like(A: Rows, read: Callable[..., Any], width: int, *, dtype: Any, **scalars: Any) -> Rows:
    """Rows made by ``read(start, stop, **scalars)``, in memory or in blocks as the rows of `A` are."""
    if not _is_lazy(A):
        return read(0, A.shape[0], **scalars)
    meta = np.empty((0, 0), dtype=dtype)
    return load_rows(read, bounds_of(A), width, meta=meta, **scalars)


def rows_as(A: Rows, rows: Rows, *, dtype: Any) -> Rows:
    """The same rows, in memory or in blocks as the rows of `A` are."""
    if not _is_lazy(A):
        return np.ascontiguousarray(gather_rows(rows), dtype=dtype)
    if not _is_lazy(rows):
        return rows_like(A, Slices(np.asarray(rows, dtype=dtype)), rows.shape[1], dtype=dtype)
    return rows.rechunk((A.chunks[0], -1)).astype(dtype)


@dataclass(frozen=True)
class Slices:
    """Rows of an array in memory, for `load_rows` and `rows_like`; on a cluster it travels with each task."""

    array: np.ndarray

    def __call__(self, start: int, stop: int) -> np.ndarray:
        """Rows `start` to `stop`."""
        return self.array[start:stop]


def map_rows(
    f: Callable[..., Any], *blocks: Rows, width: int | None = None, dtype: Any = None, **scalars: Any
) -> Rows:
    """``f(*row blocks, **scalars)`` for each row block; scalars may be results of `central`.

    `width` and `dtype` are the number of columns and the type of the result, if not those of the first block.
    """
    if not _is_lazy(blocks[0]):
        return f(*blocks, **scalars)
    call, lazy = _bind(f, scalars)
    name = _name(f)
    tasks = {
        (name, i, 0): (call, *((b.name, i, 0) for b in blocks), *(value.key for value in lazy))
        for i in range(blocks[0].numblocks[0])
    }
    chunks = blocks[0].chunks if width is None else (blocks[0].chunks[0], (width,))
    meta = blocks[0]._meta if dtype is None else np.empty((0, 0), dtype=dtype)
    return _array(name, tasks, [*blocks, *lazy], chunks, meta)


def multiply(A: Rows, B: Rows) -> Rows:
    """A · B for a sparse n × n A and n × K rows B: block i needs A's block i and all blocks of B."""
    if not _is_lazy(A):
        return A @ B
    name = _name(multiply)
    parts = [(B.name, j, 0) for j in range(B.numblocks[0])]
    tasks = {(name, i, 0): (_multiply, (A.name, i, 0), parts) for i in range(A.numblocks[0])}
    return _array(name, tasks, [A, B], (A.chunks[0], B.chunks[1]), B._meta)


def sum_rows(f: Callable[..., Any], *blocks: Rows, **scalars: Any) -> Any:
    """Sum of ``f(*row blocks, **scalars)`` over the row blocks, in a tree of fixed shape."""
    if not _is_lazy(blocks[0]):
        return f(*blocks, **scalars)
    call, lazy = _bind(f, scalars)
    tasks = [
        (call, *((b.name, i, 0) for b in blocks), *(value.key for value in lazy))
        for i in range(blocks[0].numblocks[0])
    ]
    return _tree_sum(_name(f), tasks, [*blocks, *lazy])


def sum_pairs(f: Callable[..., Any], A: Rows, B: Rows) -> Any:
    """Sum of ``f(A's block, all rows of B, B's block)`` over the row blocks: for sums over the entries of A."""
    if not _is_lazy(A):
        return f(A, B, B)
    parts = [(B.name, j, 0) for j in range(B.numblocks[0])]
    tasks = [(_pairs, f, (A.name, i, 0), parts, part) for i, part in enumerate(parts)]
    return _tree_sum(_name(f), tasks, [A, B])


def central(f: Callable[..., Any], *values: Any, **scalars: Any) -> Any:
    """``f(*values, **scalars)`` of small values, once for all rows."""
    call, lazy = _bind(f, scalars)
    waiting = [value for value in (*values, *lazy) if isinstance(value, Delayed)]
    if not waiting:
        return f(*values, **scalars)
    name = _name(f)
    arguments = [v.key if isinstance(v, Delayed) else v for v in (*values, *lazy)]
    return _value(name, {name: (call, *arguments)}, waiting)


def hold(rows: Rows) -> Rows:
    """Compute `rows` now and keep them where they were made: on this machine or its worker."""
    return dask.persist(rows, optimize_graph=False)[0] if _is_lazy(rows) else rows


def settle(state: State, numbers: Any) -> tuple[State, Any]:
    """Start all the work described, keep the state where it is made, and wait for the numbers.

    Parameters
    ----------
    state : named tuple of rows
        What the next step starts from.
    numbers : value or mapping of values
        Small results of `central` or `sum_rows`.
    """
    named = numbers if isinstance(numbers, Mapping) else {"": numbers}
    lazy = [x for x in (*state, *named.values()) if dask.is_dask_collection(x)]
    if not lazy:
        return state, numbers
    started = iter(dask.persist(*lazy, optimize_graph=False))
    rows = [next(started) if _is_lazy(x) else x for x in state]
    values = [next(started) if isinstance(x, Delayed) else x for x in named.values()]
    # Without a cluster the values are here already: no pool is needed to pick them up.
    results = dask.compute(*values, scheduler="sync" if current_client() is None else None)
    done = dict(zip(named, results, strict=True))
    return _rebuild(state, rows), done if isinstance(numbers, Mapping) else done[""]


def in_blocks(state: State) -> State:
    """The same state as Dask arrays: what is in memory becomes one block, without a copy."""
    return _rebuild(state, [x if _is_lazy(x) else da.from_array(x, chunks=-1, name=False) for x in state])


def export_rows(rows: Rows, write: Callable[..., Any], *, block_rows: int) -> list[Any]:
    """Call ``write(start, block)`` for blocks of `block_rows` rows; return what each call returns.

    Blocks begin at multiples of `block_rows`, wherever the row blocks were before, so that each is
    one chunk of a Zarr array and no two writers share a chunk.
    """
    n = rows.shape[0]
    starts = range(0, n, block_rows)
    if not _is_lazy(rows):
        return [write(start, rows[start : start + block_rows]) for start in starts]
    sizes = tuple(min(block_rows, n - start) for start in starts)
    cut = rows.rechunk((sizes, -1))
    name = _name(export_rows)
    tasks = {f"{name}-{i}": (write, start, (cut.name, i, 0)) for i, start in enumerate(starts)}
    values = [_value(key, {key: task}, [cut]) for key, task in tasks.items()]
    return list(dask.compute(*values))


def gather_rows(rows: Rows) -> np.ndarray:
    """Bring rows of few columns into memory, whole."""
    return rows.compute() if _is_lazy(rows) else rows


def take_rows(rows: Rows, index: np.ndarray) -> Rows:
    """``rows[index]``: the same rows in another order."""
    return rows[index]


def bounds_of(rows: da.Array) -> np.ndarray:
    """Where the row blocks of `rows` begin and end, (P+1,)."""
    return np.cumsum((0, *rows.chunks[0]))


def _multiply(A: sparse.csr_matrix, parts: list[np.ndarray]) -> np.ndarray:
    return A @ (parts[0] if len(parts) == 1 else np.concatenate(parts))


def _pairs(f: Callable[..., Any], A: sparse.csr_matrix, parts: list[np.ndarray], own: np.ndarray) -> Any:
    return f(A, parts[0] if len(parts) == 1 else np.concatenate(parts), own)


def _tree_sum(name: str, leaves: list[Any], needs: Sequence[Any]) -> Delayed:
    """The sum of what the leaf tasks return, in a tree of fixed shape."""
    level = [f"{name}-{i}" for i in range(len(leaves))]
    tasks: dict[Any, Any] = dict(zip(level, leaves, strict=True))
    while len(level) > 1:
        groups = [level[i : i + FAN_IN] for i in range(0, len(level), FAN_IN)]
        level = [f"{group[0]}+{len(group)}" for group in groups]
        tasks.update({key: (_add, group) for key, group in zip(level, groups, strict=True)})
    return _value(level[0], tasks, needs)


def _add(values: list[Any]) -> Any:
    return reduce(add, values)


@dataclass(frozen=True)
class _Call:
    """A function with its plain keywords; lazy ones arrive behind the positional arguments."""

    f: Callable[..., Any]
    scalars: dict[str, Any]
    lazy: tuple[str, ...]

    def __call__(self, *values: Any) -> Any:
        cut = len(values) - len(self.lazy)
        late = dict(zip(self.lazy, values[cut:], strict=True))
        return self.f(*values[:cut], **self.scalars, **late)


def _bind(f: Callable[..., Any], scalars: dict[str, Any]) -> tuple[Callable[..., Any], list[Any]]:
    lazy = {key: value for key, value in scalars.items() if isinstance(value, Delayed)}
    plain = {key: value for key, value in scalars.items() if key not in lazy}
    return (_Call(f, plain, tuple(lazy)) if scalars else f), list(lazy.values())


def _rebuild(state: State, rows: list[Any]) -> State:
    return type(state)(*rows) if hasattr(state, "_fields") else type(state)(rows)


def _array(name: str, tasks: dict[Any, Any], needs: Sequence[Any], chunks: Any, meta: Any) -> Any:
    graph = HighLevelGraph.from_collections(name, tasks, dependencies=needs)
    return da.Array(graph, name, chunks, meta=meta)


def _value(key: str, tasks: dict[Any, Any], needs: Sequence[Any]) -> Delayed:
    graph = HighLevelGraph.from_collections(key, tasks, dependencies=needs)
    return Delayed(key, graph)


def _name(f: Callable[..., Any]) -> str:
    while isinstance(f, partial):
        f = f.func
    return f"{getattr(f, '__name__', type(f).__name__)}-{uuid.uuid4().hex}"


def _is_lazy(rows: Rows) -> bool:
    return isinstance(rows, da.Array)
