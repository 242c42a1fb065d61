"""Rows as Dask arrays on the workers of a cluster, and the graph whose words describe work on them.

X, Y, L, Λ and Γ are Dask arrays in row blocks, each chunk a plain ndarray. One iteration of ADMM on P blocks, from
the loop to the kernel:

1. ``ADMM.step`` calls `sweep` for X, `central` for the K × K factor, `sweep` for Y, L, Λ, Γ, and `central` again.
2. `sweep` describes a task a block (`calls.SweepCall`), one to pick each result out of what that returns, and one
   for its sums: 3 P tasks for X and 6 P for the rest, whatever rows the blocks need of each other.
3. ``begin`` sends the tasks of several iterations to the scheduler in one message (`tasks.begin`).
4. On its worker the sweep's task asks the servers of the other workers for its halo (`serving.fetch_halo`), and
   calls the kernel.
5. The sums meet in one task (`calls.CentralCall`), whose result all sweeps of the next half depend on. So a sweep
   runs only when the rows it asks others for are there.

Dask cannot compute a lost block again, since it does not see what a sweep asked of others: a loss is `RowsLost`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from snmf_dist.engine import tasks
from snmf_dist.engine.asking import limited
from snmf_dist.engine.calls import (
    CentralCall,
    ReadCall,
    RowCall,
    SweepCall,
    WriteCall,
    converted,
    nothing,
    pick,
    same_value,
    some_rows,
)
from snmf_dist.engine.halo import RowSource
from snmf_dist.engine.lineage import cut_lineage
from snmf_dist.engine.plan import STEPS_AHEAD
from snmf_dist.engine.reduce import FAN_IN, add_up, in_groups
from snmf_dist.engine.rows import Rows, State, Step, Value
from snmf_dist.engine.servers import Servers
from snmf_dist.engine.serving import connect_block, read_block, reorder_block
from snmf_dist.engine.tasks import ClusterRows, Layer, Result, Small
from snmf_dist.engine.waiting import gather, wait_for


class ClusterGraph:
    """A in row blocks on the workers of a cluster.

    Parameters
    ----------
    client : distributed.Client
        The client of the cluster.
    read : callable
        Picklable; reads rows start to stop of A.
    bounds : ndarray of int, (P + 1,)
        Where the blocks begin and end.
    dtype : dtype
        The type of the entries.
    held : bool, default True
        Keep each block where it was read; else it is read again in every sweep.
    prepare : callable, optional
        Called once on each worker before work starts.

    A worker that is lost while A is read is a `RowsLost`, here and in every word.
    """

    ahead = STEPS_AHEAD

    def __init__(
        self,
        client: Any,
        read: Callable[[int, int], Any],
        bounds: np.ndarray,
        dtype: Any,
        *,
        held: bool = True,
        prepare: Callable[[], Any] | None = None,
    ) -> None:
        self.client, self.bounds, self.run = client, np.asarray(bounds), tasks.unique_name("run")
        self.shape, self.dtype = (int(bounds[-1]),) * 2, np.dtype(dtype)
        self.homes: tuple[str, ...] = ()
        self.servers = Servers(client, self.run, prepare)
        name, blocks = tasks.unique_name("read_A"), range(len(bounds) - 1)
        call = RowCall(read_block, scalars={"run": self.run, "held": held})
        read_tasks = tasks.row_tasks(name, call, [(read, self.bounds, i) for i in blocks])
        self.blocks = ClusterRows(Layer(read_tasks, []), name, self.bounds, self.shape[0], dtype)
        self._wait_for(self.blocks)
        self.places = self.servers.find(self.blocks)
        self.homes = self.places.homes
        name = tasks.unique_name("A")
        arguments = [(ref, self.places) for ref in self.blocks.refs]
        layer = Layer(tasks.row_tasks(name, connect_block, arguments), [self.blocks])
        connected = ClusterRows(layer, name, self.bounds, self.shape[0], dtype)
        self._wait_for(connected)
        self.blocks = connected

    def rows(self, read: Callable[..., np.ndarray], width: int, *, dtype: Any, **scalars: Any) -> ClusterRows:
        """Rows start to stop of a new matrix are ``read(start, stop, **scalars)``."""
        return self._beside_A(read, ReadCall(read, scalars), [], width, dtype)

    def rows_from(self, array: Any, *, dtype: Any, order: np.ndarray | None = None) -> ClusterRows:
        """The rows of a NumPy or Dask array; with `order`, row i is row order[i] of it."""
        if isinstance(array, np.ndarray):
            rows = self._scattered(array if order is None else array[order], dtype)
            order = None
        else:
            sizes = tuple(np.diff(self.bounds).tolist())
            there = self.client.persist(array.rechunk((sizes, -1)))
            rows = ClusterRows(Layer({}, []), there.name, self.bounds, array.shape[1], array.dtype)
            rows.layer.begun = True
            graph = dict(there.dask)
            rows.futures = [graph[key] for key in rows.keys]
            self._wait_for(rows)
        if order is not None:
            rows = self._reordered(rows, order)
        return self._beside_A(converted, partial(converted, type=np.dtype(dtype)), [rows], rows.shape[1], dtype)

    def map(
        self, f: Callable[..., np.ndarray], *rows: Any, width: int | None = None, dtype: Any = None, **scalars: Any
    ) -> ClusterRows:
        """``f(*row blocks, **scalars)`` for each row block."""
        name, late, first = tasks.unique_name(f), self._late(scalars), rows[0]
        call = RowCall(f, tuple(late), tasks.known(scalars))
        layer = Layer(tasks.row_tasks(name, call, tasks.aligned(rows, late)), [*rows, *late.values()])
        width, dtype = first.shape[1] if width is None else width, first.dtype if dtype is None else dtype
        return ClusterRows(layer, name, self.bounds, width, dtype)

    def sum(self, f: Callable[..., Any], *rows: Any, **scalars: Any) -> Small:
        """The sum of ``f(*row blocks, **scalars)`` over the row blocks."""
        name, late = tasks.unique_name(f), self._late(scalars)
        call = RowCall(f, tuple(late), tasks.known(scalars))
        arguments = tasks.aligned(rows, late)
        leaves = tasks.row_tasks(name, call, arguments, chunks=False)
        return self._add_up(
            leaves, list(leaves), [*rows, *late.values()], covers=frozenset(one.name for one in rows)
        )

    def sum_entries(self, f: Callable[..., Any]) -> Small:
        """The sum of ``f(block of A)`` over the row blocks of A."""
        return self.sum(f, self.blocks)

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
        """Go over A once: a task a block, and one for each of its results."""
        widths = tuple(makes.values())
        if not adds_up:
            (width,) = widths
            name, work, uses = self._sweep_tasks(f, B, rows, widths, scalars, adds_up=False)
            return (ClusterRows(Layer(work, uses, [B]), name, self.bounds, width, B.dtype),)
        name, work, uses = self._sweep_tasks(f, B, rows, widths, scalars, adds_up=True)
        names = [tasks.unique_name(label) for label in makes]
        made = tasks.references(work)
        for part, label in enumerate(names):
            work |= tasks.row_tasks(label, pick, [(ref, part) for ref in made])
        leaves = tasks.row_tasks(tasks.unique_name("sums"), pick, [(ref, -1) for ref in made], chunks=False)
        sums = self._add_up(work | leaves, list(leaves), uses, covers=frozenset([name, *names]), reads=[B])
        results = []
        for part, (label, width) in enumerate(zip(names, widths, strict=True)):
            one = ClusterRows(sums.layer, label, self.bounds, width, B.dtype, RowSource(label, name, part))
            one.sums = sums
            results.append(one)
        return tuple(results)

    def sweep_sum(self, f: Callable[..., Any], B: Any, *, rows: Mapping[str, Any], **scalars: Any) -> Small:
        """Go over A once, and add up what `f` returns."""
        name, work, uses = self._sweep_tasks(f, B, rows, (), scalars, adds_up=True)
        return self._add_up(work, list(work), uses, covers=frozenset([name]), reads=[B])

    def central(self, f: Callable[..., Any], *values: Value, **scalars: Any) -> Value:
        """``f(*values, **scalars)`` of small values: one task, if one of them is not known yet."""
        late = [value for value in values if isinstance(value, Small)]
        if not late:
            return f(*values, **scalars)
        name = tasks.unique_name(f)
        call = CentralCall(f, tuple(isinstance(value, Small) and value.to_add for value in values), scalars)
        given = [value.argument if isinstance(value, Small) else value for value in values]
        layer = Layer(tasks.one_task(name, call, *given), late)
        return Small(layer, [name], to_add=False, covers=frozenset().union(*(value.covers for value in late)))

    def begin(self, *steps: tuple[Any, Any]) -> list[Step]:
        """Start all the work described, at once."""
        described = [x for state, numbers in steps for x in (*state, *tasks.values_of(numbers))]
        tasks.begin(self.client, [x for x in described if isinstance(x, Result)], self.homes)
        return [Step(*step) for step in steps]

    def finish(self, numbers: Any) -> Any:
        """Wait for small values that were begun, all at a time."""
        named = numbers if isinstance(numbers, Mapping) else {"": numbers}
        small = {name: value for name, value in named.items() if isinstance(value, Small)}
        wait_for(self.client, [future for value in small.values() for future in value.futures], workers=self.homes)
        found = gather(self.client, {name: value.futures for name, value in small.items()}, workers=self.homes)
        for value in small.values():
            value.layer.finish()
        known = {k: add_up(list(v)) if small[k].to_add else v[0] for k, v in found.items()}
        done = {name: known.get(name, value) for name, value in named.items()}
        return done if isinstance(numbers, Mapping) else done[""]

    def settle(self, state: State, numbers: Any) -> tuple[State, Any]:
        """Start all the work described, keep the state where it is made, and wait for both."""
        self.begin((state, numbers))
        numbers = self.finish(numbers)
        for rows in state:
            if not rows.layer.done:
                self._wait_for(rows)
        return state, numbers

    def hold(self, rows: Rows) -> Rows:
        """Start the work on these rows now, and keep them."""
        self.begin(((rows,), {}))
        return rows

    def fetch(self, rows: Any, index: np.ndarray | None = None) -> np.ndarray:
        """Bring some rows, or all of a matrix of few columns, into this process."""
        if index is not None:
            name, parts = tasks.unique_name("fetch"), np.split(index, np.searchsorted(index, self.bounds[1:-1]))
            wanted = [(ref, part - start) for ref, part, start in zip(rows.refs, parts, self.bounds, strict=False)]
            layer = Layer(tasks.row_tasks(name, some_rows, wanted), [rows])
            rows = ClusterRows(layer, name, self.bounds, rows.shape[1], rows.dtype)
        self._wait_for(rows)
        return np.concatenate(gather(self.client, rows.futures, workers=self.homes))

    def reorder(self, rows: Any, index: np.ndarray) -> Any:
        """Row i of the result, a Dask array, is row index[i]; each block's task asks the workers for its rows."""
        self.settle((rows,), {})
        return self._reordered(rows, index).array

    @property
    def write_rows(self) -> int:
        """Rows of a block; all blocks but the last have as many."""
        return int(self.bounds[1])

    def write(self, rows: Any, write: Callable[[int, np.ndarray], int]) -> Small:
        """Call ``write(start, rows)`` for each block, where it is."""
        name, starts = tasks.unique_name("write"), self.bounds[:-1].tolist()
        assert np.array_equal(starts, np.arange(len(starts)) * self.write_rows), "blocks are of equal size"
        leaves = tasks.row_tasks(name, WriteCall(write), list(zip(starts, rows.refs, strict=True)), chunks=False)
        return self._add_up(leaves, list(leaves), [rows], covers=frozenset([rows.name]))

    def cut_lineage(self, rows: Iterable[Any]) -> None:
        """Have the scheduler forget the tasks that made these rows."""
        cut_lineage(self.client, rows, self.homes)

    def more_workers(self) -> bool:
        """Whether workers have joined that could take blocks of those that have most."""
        return self.servers.could_spread(self.homes)

    def ready(self, numbers: Any) -> bool:
        """Whether `finish` would return at once."""
        small = [value for value in tasks.values_of(numbers) if isinstance(value, Small)]
        return all(future.done() for value in small for future in value.futures)

    def close(self) -> None:
        """Let go of A and of the servers; results stay on the workers as long as they are referred to."""
        self.servers.close()
        self.blocks.futures.clear()

    def _reordered(self, rows: ClusterRows, index: np.ndarray) -> ClusterRows:
        places = self.servers.find(rows)
        name = tasks.unique_name("in-order")
        call = RowCall(reorder_block, scalars={"bounds": self.bounds, "places": places, "source": rows.source})
        parts = np.split(index, self.bounds[1:-1])
        shape = (rows.shape[1], rows.dtype)
        layer = Layer(tasks.row_tasks(name, call, [(part, *shape) for part in parts]), [rows], [rows])
        result = ClusterRows(layer, name, self.bounds, *shape)
        self._wait_for(result)
        return result

    def _beside_A(
        self, label: Any, call: Callable[..., Any], rows: Sequence[Any], width: int, dtype: Any
    ) -> ClusterRows:
        """Rows made by ``call(block of A, *row blocks)``: where that block is, since Dask moves little data."""
        name = tasks.unique_name(label)
        layer = Layer(tasks.row_tasks(name, call, tasks.aligned([self.blocks, *rows], {})), [self.blocks, *rows])
        return ClusterRows(layer, name, self.bounds, width, dtype)

    def _sweep_tasks(
        self,
        f: Callable[..., Any],
        B: ClusterRows,
        rows: Mapping[str, Any],
        widths: tuple[int, ...],
        scalars: Mapping[str, Any],
        *,
        adds_up: bool,
    ) -> tuple[str, dict[Any, Any], list[Result]]:
        """The name of a sweep, its tasks, and the results that they use."""
        name, late = tasks.unique_name(f), self._late(scalars)
        call = SweepCall(f, tuple(rows), tuple(late), tasks.known(scalars), widths, adds_up, B.source)
        if not B.layer.done and not any(B.name in value.covers for value in late.values()):
            late["after"] = self.central(nothing, self.sum(nothing, B))  # all blocks of B are there
        refs = zip(self.blocks.refs, B.refs, *(one.refs for one in rows.values()), strict=True)
        small = [value.argument for value in late.values()]
        work = tasks.row_tasks(name, call, [(*ref, *small) for ref in refs], chunks=not adds_up)
        return name, work, [self.blocks, B, *rows.values(), *late.values()]

    def _late(self, scalars: Mapping[str, Any]) -> dict[str, Small]:
        """The scalars that are not known yet, each as the result of one task: sums are added up once for all."""
        late = {name: value for name, value in scalars.items() if isinstance(value, Small)}
        return {name: self.central(same_value, value) if value.to_add else value for name, value in late.items()}

    def _add_up(
        self,
        work: dict[Any, Any],
        leaves: list[Any],
        uses: Sequence[Result],
        *,
        covers: frozenset[str],
        reads: Any = (),
    ) -> Small:
        """The sum of what the leaf tasks return, in the tree of `reduce`; who uses it adds up its last level."""
        level = leaves
        while len(level) > FAN_IN:
            name = tasks.unique_name("add_up")
            groups = [(tasks.listed(group),) for group in in_groups(level)]
            sums = tasks.row_tasks(name, add_up, groups, chunks=False)
            work, level = work | sums, list(sums)
        return Small(Layer(work, uses, reads), level, to_add=True, covers=covers)

    def _scattered(self, array: np.ndarray, dtype: Any) -> ClusterRows:
        """Rows of an array in this process, each block sent to the worker that has this block of A."""
        pieces = np.split(array.astype(dtype, copy=False), self.bounds[1:-1])
        futures = [
            limited(self.client.scatter, [piece], workers=[self.places.homes[i]], hash=False)[0]
            for i, piece in enumerate(pieces)
        ]
        name = tasks.unique_name("given")
        sources = [(ref,) for ref in tasks.references(future.key for future in futures)]
        layer = Layer(tasks.row_tasks(name, RowCall(np.array), sources), [])
        rows = ClusterRows(layer, name, self.bounds, array.shape[1], dtype)
        self._wait_for(rows)
        return rows

    def _wait_for(self, rows: ClusterRows) -> None:
        """Wait until all blocks are there."""
        self.begin(((rows,), {}))
        wait_for(self.client, rows.futures, workers=self.homes)
        rows.layer.finish()
