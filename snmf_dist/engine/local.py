"""Rows in one process: one array, cut into slices that threads work on side by side.

The slices are given with the graph and do not depend on the number of threads, nor does the shape of the tree in
which sums are added: so the answer is the same to the last bit on any machine with the same instructions.

The array may be on disk, as `disk` has it: a thread then lets go of a slice when it is done with it. `loading`
says where A itself is.
"""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import numpy as np

from snmf_dist.engine import tasks
from snmf_dist.engine.buffers import Buffers
from snmf_dist.engine.disk import empty_on_disk, let_go
from snmf_dist.engine.halo import Block
from snmf_dist.engine.machine import threads
from snmf_dist.engine.reduce import tree_sum
from snmf_dist.engine.rows import Rows, State, Step, Value
from snmf_dist.engine.spent import spending


class LocalRows:
    """Rows in one array.

    Parameters
    ----------
    data : ndarray, (n, m)
        The rows, C-contiguous.
    bounds : ndarray of int, (P + 1,)
        Where work on it is cut.
    on_disk : bool, default False
        Whether it is on disk.

    Attributes
    ----------
    sums : Any
        What was added up while the rows were made, or None.
    lent : bool
        Whether others may hold the array: it is then not written over.
    """

    def __init__(self, data: np.ndarray, bounds: np.ndarray, *, on_disk: bool = False) -> None:
        self.data, self.bounds, self.on_disk = data, bounds, on_disk
        self.sums: Any = None
        self.lent = False
        self.shape, self.dtype = data.shape, data.dtype

    def cut(self, i: int) -> np.ndarray:
        """Rows of slice i."""
        if len(self.bounds) == 2:  # small problems take many steps: what is not cut need not be looked up
            return self.data
        return self.data[self.bounds[i] : self.bounds[i + 1]]

    def let_go(self, i: int | None = None) -> None:
        """Say that slice i, or all, is not needed for now; matters for rows on disk."""
        if self.on_disk:
            let_go(self.data, *(() if i is None else self.bounds[i : i + 2].tolist()))

    def lend(self) -> np.ndarray:
        """The array, for those who may keep it."""
        self.lent = True
        return self.data

    @property
    def array(self) -> Any:
        """The rows as a Dask array; they are cut, not copied."""
        self.lent = True
        return tasks.array_of_pieces([self.cut(i) for i in range(len(self.bounds) - 1)])


class LocalGraph:
    """A in one process; how its slices are had is the business of the two kinds in `loading`.

    Parameters
    ----------
    bounds : ndarray of int, (P + 1,)
        Where work is cut.
    dtype : dtype
        The type of the entries.
    parts : list of range
        The slices that one thread does in turn.
    on_disk : bool, default False
        Whether rows are made on disk.
    """

    ahead = 0
    write_rows = 65_536

    def __init__(self, bounds: np.ndarray, dtype: Any, parts: list[range], *, on_disk: bool = False) -> None:
        self.bounds, self.parts, self.on_disk = bounds, parts, on_disk
        self.shape, self.dtype = (int(bounds[-1]),) * 2, np.dtype(dtype)
        self.buffers = Buffers()

    def slices(self, part: range) -> Iterator[Block]:
        """The rows of A of each slice of a part."""
        raise NotImplementedError

    def rows(self, read: Callable[..., np.ndarray], width: int, *, dtype: Any, **scalars: Any) -> LocalRows:
        """Rows start to stop of a new matrix are ``read(start, stop, **scalars)``."""
        out = self._empty(width, dtype)

        def work(i: int) -> None:
            out.cut(i)[:] = read(int(self.bounds[i]), int(self.bounds[i + 1]), **scalars)
            out.let_go(i)

        each(work, len(self.bounds) - 1)
        return out

    def rows_from(self, array: Any, *, dtype: Any, order: np.ndarray | None = None) -> LocalRows:
        """The rows of a NumPy or Dask array, a block at a time; with `order`, row i is row order[i] of it."""
        out = self._empty(array.shape[1], dtype)
        pieces = [array] if isinstance(array, np.ndarray) else array.blocks
        place = None if order is None else np.argsort(order)
        start = 0
        for piece in pieces:
            values = np.asarray(piece)
            where = slice(start, start + len(values))
            out.data[where if place is None else place[where]] = values
            start += len(values)
            out.let_go()
        return out

    def map(
        self, f: Callable[..., np.ndarray], *rows: Any, width: int | None = None, dtype: Any = None, **scalars: Any
    ) -> LocalRows:
        """``f(*row blocks, **scalars)`` for each slice."""
        first = rows[0]
        out = self._empty(first.shape[1] if width is None else width, first.dtype if dtype is None else dtype)

        def work(i: int) -> None:
            out.cut(i)[:] = f(*(one.cut(i) for one in rows), **scalars)
            for one in (*rows, out):
                one.let_go(i)

        each(work, len(self.bounds) - 1)
        return out

    def sum(self, f: Callable[..., Any], *rows: Any, **scalars: Any) -> Any:
        """The sum of ``f(*row blocks, **scalars)`` over the slices."""

        def work(i: int) -> Any:
            total = f(*(one.cut(i) for one in rows), **scalars)
            for one in rows:
                one.let_go(i)
            return total

        return tree_sum(each(work, len(self.bounds) - 1))

    def sum_entries(self, f: Callable[..., Any]) -> Any:
        """The sum of ``f(block of A)`` over the slices."""
        return self._over_parts(lambda block, i: f(block))

    def sweep(
        self,
        f: Callable[..., Any],
        B: Any,
        *,
        rows: Mapping[str, Any],
        makes: Mapping[str, int],
        over: Mapping[str, str] | None = None,
        adds_up: bool = True,
        **scalars: Any,
    ) -> tuple[Any, ...]:
        """Go over A once; all of B is own, and results are written over rows where they may be."""
        out = tuple(
            self._written_over(rows.get((over or {}).get(name, "")), makes[name], B.dtype) for name in makes
        )

        def work(block: Block, i: int) -> Any:
            given = {name: one.cut(i) for name, one in rows.items()}
            total = f(block, B.data, B.data, **given, out=[one.cut(i) for one in out], **scalars)
            if self.on_disk:
                for one in (*rows.values(), *out):
                    one.let_go(i)
                B.let_go()
            return total

        with _sweeping(f):
            total = self._over_parts(work)
        for one in out:
            one.sums = total if adds_up else None
        return out

    def sweep_sum(self, f: Callable[..., Any], B: Any, *, rows: Mapping[str, Any], **scalars: Any) -> Any:
        """Go over A once, and add up what `f` returns."""

        def work(block: Block, i: int) -> Any:
            total = f(block, B.data, B.data, **{k: one.cut(i) for k, one in rows.items()}, out=[], **scalars)
            if self.on_disk:
                for one in rows.values():
                    one.let_go(i)
                B.let_go()
            return total

        with _sweeping(f):
            return self._over_parts(work)

    def central(self, f: Callable[..., Any], *values: Value, **scalars: Any) -> Value:
        """``f(*values, **scalars)``, now."""
        with spending("central"):
            return f(*values, **scalars)

    def begin(self, *steps: tuple[Any, Any]) -> list[Step]:
        """The steps as they are: their work is done."""
        return [Step(*step) for step in steps]

    def finish(self, numbers: Any) -> Any:
        """The numbers as they are."""
        return numbers

    def settle(self, state: State, numbers: Any) -> tuple[State, Any]:
        """State and numbers as they are: their work is done."""
        return state, numbers

    def hold(self, rows: Rows) -> Rows:
        """The rows as they are: they are there."""
        return rows

    def fetch(self, rows: Any, index: np.ndarray | None = None) -> np.ndarray:
        """The rows, or some of them, as an array."""
        return np.asarray(rows.lend() if index is None else rows.data[index])

    def reorder(self, rows: Any, index: np.ndarray) -> Any:
        """The rows in another order, as a Dask array that gathers them when they are used."""
        block_rows = int(np.diff(self.bounds).max())
        return tasks.array_in_order(rows.lend(), index, block_rows=block_rows)

    def write(self, rows: Any, write: Callable[[int, np.ndarray], int]) -> list[int]:
        """Call ``write(start, rows)`` for blocks of `write_rows` rows, now."""
        starts = range(0, self.shape[0], self.write_rows)

        def work(i: int) -> int:
            stop = starts[i] + self.write_rows
            found = write(starts[i], rows.data[starts[i] : stop])
            if rows.on_disk:
                let_go(rows.data, starts[i], min(stop, len(rows.data)))
            return found

        return each(work, len(starts))

    def cut_lineage(self, rows: Iterable[Any]) -> None:
        """Nothing is remembered."""

    def more_workers(self) -> bool:
        """No: there are none."""
        return False

    def ready(self, numbers: Any) -> bool:
        """Yes: all work is done."""
        return True

    def close(self) -> None:
        """Give up free memory."""
        self.buffers.clear()

    def _empty(self, width: int, dtype: Any) -> LocalRows:
        """Rows to be written to."""
        shape = (self.shape[0], width)
        data = self.buffers.empty(shape, dtype, empty_on_disk if self.on_disk else np.empty)
        return LocalRows(data, self.bounds, on_disk=self.on_disk)

    def _written_over(self, old: LocalRows | None, width: int, dtype: Any) -> LocalRows:
        """Rows to be written to, in the memory of others unless somebody may hold those."""
        if old is None or old.lent:
            return self._empty(width, dtype)
        old.lent = True  # the array is the new rows' now
        return LocalRows(old.data, self.bounds, on_disk=old.on_disk)

    def _over_parts(self, work: Callable[[Block, int], Any]) -> Any:
        """The sum of ``work(rows of slice i, i)`` over the slices, part by part."""
        if len(self.bounds) == 2:
            (total,) = [work(block, 0) for block in self.slices(self.parts[0])]
            return total

        def of_part(p: int) -> list[Any]:
            pairs = zip(self.slices(self.parts[p]), self.parts[p], strict=True)
            return [work(block, i) for block, i in pairs]

        return tree_sum([one for part in each(of_part, len(self.parts)) for one in part])


def _sweeping(f: Callable[..., Any]) -> Any:
    """Count the body as a sweep of all threads."""
    return spending(f"sweep of {getattr(f, '__name__', type(f).__name__)}", time.process_time)


def each(work: Callable[[int], Any], number: int) -> list[Any]:
    """``work(0)``, ``work(1)``, …, on all threads."""
    if number == 1 or threads() == 1:
        return [work(i) for i in range(number)]
    return list(_pool(threads(), os.getpid()).map(work, range(number)))


@cache
def _pool(number: int, process: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(number, thread_name_prefix="snmf")
