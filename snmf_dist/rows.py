"""The few words that carry all distribution: a solver says what happens to rows, not where they are.

A matrix with n rows is `Whole` in this process, in memory or on disk, or in `Blocks` on a cluster. Given whole
rows a word does its work, slice by slice on threads; given blocks it describes the work, one task a block,
and `begin` starts it. So a solver's text runs in memory, out of core and on a cluster.

=================  ================================================================
`load_whole`       A from a function of (start, stop), in memory; `load_blocks` in blocks
`in_memory`        a SciPy matrix or an array as whole rows
`rows_like`        rows from a function of (start, stop), as those of A are; `rows_as` for rows there are
`map_rows`         a function of aligned row blocks -> rows
`sweep`            a function of A's rows, the rows of B they touch and aligned row blocks -> rows, and sums
`multiply`         A · B, the simplest sweep
`sum_rows`         a function of aligned row blocks, added up over the blocks
`central`          a function of small values (K × K, sums), computed once
`hold`             compute now and keep, where it was made, what many steps will use
`begin`, `finish`  start the work described; wait for its numbers
`settle`           both
=================  ================================================================

`stored` shows rows to others as Dask arrays.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
from dask.delayed import Delayed
from scipy import sparse

from snmf_dist import blocks, whole
from snmf_dist.blocks import Blocks, load_blocks
from snmf_dist.cluster import current_client, give_back
from snmf_dist.halo import SPARE, Block, whole_block
from snmf_dist.memory import SLICE
from snmf_dist.ondisk import empty_on_disk, let_go
from snmf_dist.solve.kernels import product
from snmf_dist.stored import as_array, as_blocks
from snmf_dist.whole import StreamedGraph, Whole, WholeGraph

__all__ = ["load_blocks"]  # and all below

Rows = Any  # Whole or Blocks; for A WholeGraph or BlockedGraph
State = TypeVar("State", bound=tuple)


def load_whole(
    read: Callable[[int, int], sparse.csr_matrix],
    nnz: int,
    dtype: Any,
    *,
    parts: np.ndarray,
    bounds: np.ndarray | None = None,
    rows: int = SLICE,
    held: bool = True,
    on_disk: bool = False,
) -> WholeGraph | StreamedGraph:
    """A for rows in memory, read part by part, each by a thread.

    Parameters
    ----------
    parts : ndarray of int
        Where the parts begin and end that are read at a time.
    bounds : ndarray of int, optional
        Where work is cut, and a streamed A read; by default each part into slices
    rows : int, default `SLICE`
        of so many rows at most.
    held : bool, default True
        Keep A; else it is read again in every sweep.
    on_disk : bool, default False
        Keep it, and all other rows, in temporary files.
    """
    starts = parts if bounds is None else bounds
    if bounds is None:
        pieces = [np.linspace(a, b, -(-int(b - a) // rows) + 1)[:-1] for a, b in pairwise(parts)]
        bounds = np.append(np.concatenate(pieces), parts[-1]).astype(np.int64)
    if not held:
        return StreamedGraph(read, dtype, starts, bounds)
    n, new = int(parts[-1]), empty_on_disk if on_disk else np.zeros
    block = Block(new((n + 1,), np.int64), new((nnz + SPARE,), np.uint32), new((nnz,), dtype))
    done = 0

    def read_part(i: int) -> sparse.csr_matrix:
        return read(int(parts[i]), int(parts[i + 1]))

    for row, A in zip(parts, whole.in_turn(read_part, parts), strict=False):
        entries = slice(done, done + A.nnz)
        block.indices[entries], block.data[entries] = A.indices, A.data
        block.indptr[row : row + A.shape[0] + 1] = A.indptr + done
        done += A.nnz
        for array in block[:3]:
            let_go(array)
    give_back()
    return WholeGraph(block, bounds, on_disk=on_disk)


def in_memory(rows: Any, bounds: Sequence[int] | None = None) -> Any:
    """A SciPy matrix or an array as whole rows; work is cut at `bounds`, by default nowhere."""
    cuts = np.array([0, rows.shape[0]] if bounds is None else bounds)
    if sparse.issparse(rows):
        return WholeGraph(whole_block(sparse.csr_matrix(rows)), cuts)
    found = Whole(np.ascontiguousarray(rows), cuts)
    found.lend()  # the caller has it too
    return found


def rows_like(A: Rows, read: Callable[..., Any], width: int, *, dtype: Any, **scalars: Any) -> Rows:
    """Rows made by ``read(start, stop, **scalars)``, where the rows of `A` are."""
    if isinstance(A, WholeGraph | StreamedGraph):
        return whole.rows_like(A, read, width, dtype, scalars)
    return blocks.rows_like(A, read, width, dtype, scalars)


def rows_as(A: Rows, rows: Any, *, dtype: Any) -> Rows:
    """A Dask array or an array in memory as rows where those of `A` are."""
    if isinstance(A, WholeGraph | StreamedGraph):
        if isinstance(rows, np.ndarray):
            return whole.rows_like(A, Slices(rows), rows.shape[1], dtype, {})
        return whole.from_array(A, as_array(rows), dtype)
    if isinstance(rows, np.ndarray):
        return rows_like(A, Slices(rows.astype(dtype)), rows.shape[1], dtype=dtype)
    return as_blocks(rows, A, dtype)


@dataclass(frozen=True)
class Slices:
    """Rows of an array in memory, for `rows_like`; on a cluster it travels with each task."""

    array: np.ndarray

    def __call__(self, start: int, stop: int) -> np.ndarray:
        """Rows `start` to `stop`."""
        return self.array[start:stop]


def map_rows(
    f: Callable[..., Any], *rows: Rows, width: int | None = None, dtype: Any = None, **scalars: Any
) -> Rows:
    """``f(*row blocks, **scalars)`` for each row block; scalars may be results of `central`.

    `width` and `dtype` are the number of columns and the type of the result, if not those of the first rows.
    """
    width = rows[0].shape[1] if width is None else width
    dtype = rows[0].dtype if dtype is None else dtype
    return _home(rows[0]).map_rows(f, rows, width, dtype, scalars)


def sweep(
    f: Callable[..., Any],
    A: Rows,
    B: Rows,
    *rows: Rows,
    widths: Sequence[int],
    over: Sequence[int | None] | None = None,
    **scalars: Any,
) -> tuple[list[Rows], Any]:
    """Go over A once: rows made from A · B and aligned rows, and what is added up on the way.

    Parameters
    ----------
    f : callable
        Called as ``f(block, own, halo, *row blocks, out=[…], **scalars)``: writes to `out`, and returns a value
        or a tuple of values that are added up. `block` are rows of A, whose columns are numbered as the
        rows of `own` above those of `halo`.
    widths : sequence of int
        Columns of each result.
    over : sequence of int or None, optional
        Which of the aligned rows each result may be written over; these are not to be used afterwards.
    """
    over = [None] * len(widths) if over is None else over
    if isinstance(A, WholeGraph | StreamedGraph):
        return whole.sweep(f, A, B, rows, widths, over, scalars)
    return blocks.sweep(f, A, B, rows, widths, scalars)


def multiply(A: Rows, B: Rows) -> Rows:
    """A · B."""
    (AB,), _ = sweep(product, A, B, widths=[B.shape[1]])
    return AB


def sum_rows(f: Callable[..., Any], *rows: Rows, **scalars: Any) -> Any:
    """Sum of ``f(*row blocks, **scalars)`` over the row blocks, in a tree of fixed shape."""
    return _home(rows[0]).sum_rows(f, rows, scalars)


def central(f: Callable[..., Any], *values: Any, **scalars: Any) -> Any:
    """``f(*values, **scalars)`` of small values, once for all rows."""
    if any(isinstance(value, Delayed) for value in (*values, *scalars.values())):
        return blocks.central(f, values, scalars)
    return f(*values, **scalars)


def with_sums(rows: Rows, sums: Any) -> Rows:
    """The rows, with what was added up while they were made; it is at hand as ``rows.sums``."""
    if isinstance(rows, Blocks):
        return blocks.with_sums(rows, sums)
    rows.sums = sums
    return rows


def hold(rows: Rows) -> Rows:
    """Compute `rows` now and keep them where they were made."""
    return blocks.hold(rows) if isinstance(rows, Blocks) else rows


def begin(*described: tuple[State, Any]) -> list[tuple[State, Any]]:
    """Start all the work described, at once; the same pairs, under way.

    Parameters
    ----------
    *described : pairs of a tuple of rows and of a value or mapping of values
        What a next step starts from, and small results of `central` or `sum_rows`.
    """
    named = [numbers if isinstance(numbers, Mapping) else {"": numbers} for _, numbers in described]
    pairs = [(state, list(values.values())) for (state, _), values in zip(described, named, strict=True)]
    found = []
    for (state, numbers), names, (rows, values) in zip(described, named, blocks.begin(pairs), strict=True):
        begun = dict(zip(names, values, strict=True))
        found.append((_rebuild(state, rows), begun if isinstance(numbers, Mapping) else begun[""]))
    return found


def finish(numbers: Any) -> Any:
    """Wait for numbers that are under way."""
    named = numbers if isinstance(numbers, Mapping) else {"": numbers}
    done = dict(zip(named, blocks.finish(list(named.values())), strict=True))
    return done if isinstance(numbers, Mapping) else done[""]


def settle(state: State, numbers: Any) -> tuple[State, Any]:
    """Start all the work described, keep the state where it is made, and wait for the numbers."""
    ((state, numbers),) = begin((state, numbers))
    return state, finish(numbers)


def waits(rows: Rows) -> bool:
    """Whether work on these rows waits for `begin`; on whole rows it is done at once."""
    return isinstance(rows, Blocks)


def runs_elsewhere(rows: Rows) -> bool:
    """Whether work on these rows goes to a cluster, and numbers come back from there."""
    return isinstance(rows, Blocks) and current_client() is not None


def in_blocks(state: State) -> State:
    """The same state as Dask arrays, for those who look at it from outside."""
    return _rebuild(state, [as_array(rows) for rows in state])


def _rebuild(state: State, rows: list[Any]) -> State:
    return type(state)(*rows) if hasattr(state, "_fields") else type(state)(rows)


def _home(rows: Rows) -> Any:
    """The module that knows how to work on these rows."""
    return blocks if isinstance(rows, Blocks) else whole
