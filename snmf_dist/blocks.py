"""Rows in blocks, described as a Dask graph, for the workers of a cluster.

A task makes one block, or several at once: those share its key and differ in `part`, so that none needs a task to
be picked out. The rows that a block needs of another are packed where they are, and only they travel.
"""

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import dask
import numpy as np
from dask.delayed import Delayed
from dask.highlevelgraph import HighLevelGraph
from scipy import sparse

from snmf_dist import spares
from snmf_dist.cluster import current_client
from snmf_dist.halo import Block, Need, local_block
from snmf_dist.trees import FAN_IN, add_up

URGENT = 1  # the priority of sums and of what is made of them: every block waits for it


@dataclass(frozen=True, eq=False)
class Blocks:
    """Rows in blocks: a Dask collection.

    Attributes
    ----------
    name : str
        Block i is what task ``(name, i, 0)`` makes, or
    part : int or None
        this part of it.
    bounds : ndarray of int, (P + 1,)
        Where the blocks begin and end.
    width, dtype
        Columns, and their type.
    graph : HighLevelGraph
        The tasks.
    sums : Delayed or None
        What was added up while the rows were made.
    """

    name: str
    part: int | None
    bounds: np.ndarray
    width: int
    dtype: np.dtype
    graph: HighLevelGraph
    sums: Any = None

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return int(self.bounds[-1]), self.width

    def key(self, i: int) -> tuple[str, int, int]:
        """The task that makes block i."""
        return (self.name, i, 0)

    def __dask_graph__(self) -> HighLevelGraph:
        return self.graph

    def __dask_keys__(self) -> list[Any]:
        return [self.key(i) for i in range(len(self.bounds) - 1)]

    def __dask_layers__(self) -> tuple[str]:
        return (self.name,)

    def __dask_tokenize__(self) -> Any:
        return (self.name, self.part)

    __dask_scheduler__ = staticmethod(dask.threaded.get)

    def __dask_postcompute__(self) -> Any:
        return list, ()

    def __dask_postpersist__(self) -> Any:
        return _persisted, (self,)


@dataclass(frozen=True, eq=False)
class BlockedGraph(Blocks):
    """A in blocks: each a `Block`, or a `Streamed` one that is read whenever it is used.

    Attributes
    ----------
    coupled : mapping
        Block i -> the blocks it needs rows of, in their order, and whether of each it needs all.
    packed : mapping
        (i, j) -> the numbers of the rows that i needs of j, unless it needs all.
    """

    coupled: Any = None
    packed: Any = None


@dataclass(frozen=True)
class Streamed:
    """A block of A that is not held: it is read when a task opens it."""

    read: Callable[[int, int], sparse.csr_matrix]
    bounds: np.ndarray
    i: int
    needs: tuple[Need, ...]

    def open(self) -> Block:
        """Read it."""
        A = self.read(int(self.bounds[self.i]), int(self.bounds[self.i + 1]))
        return local_block(A, self.bounds, self.i, self.needs)


def _opened(value: Any) -> Any:
    return value.open() if isinstance(value, Streamed) else value


def load_blocks(
    read: Callable[[int, int], sparse.csr_matrix],
    bounds: np.ndarray,
    dtype: Any,
    *,
    held: bool = True,
) -> BlockedGraph:
    """A from a function of (start, stop), in blocks.

    Parameters
    ----------
    held : bool, default True
        Keep each block where it was read; else it is read again in every sweep.
    """
    name, n = _name("rows of A"), int(bounds[-1])
    make = partial(_read_block, read, bounds, held)
    graph = _layer(name, {(name, i, 0): (make, i) for i in range(len(bounds) - 1)}, [])
    A = hold(BlockedGraph(name, None, bounds, n, np.dtype(dtype), graph))
    couplings = [_value(f"{name}-needs-{i}", (_coupling, A.key(i)), [A]) for i in range(len(bounds) - 1)]
    coupled = dict(enumerate(dask.compute(*couplings)))
    # The lists of rows travel once, to where the rows are.
    keys = {
        (i, j): f"{name}-want-{i}-{j}" for i, needs in coupled.items() for j, all_rows in needs if not all_rows
    }
    wanted = [_value(key, (_wanted, A.key(i), j), [A]) for (i, j), key in keys.items()]
    held_wants = dask.persist(*wanted, optimize_graph=False)
    return replace(A, coupled=coupled, packed=dict(zip(keys, held_wants, strict=True)))


def _read_block(read: Any, bounds: np.ndarray, held: bool, i: int) -> Block | Streamed:
    block = local_block(read(int(bounds[i]), int(bounds[i + 1])), bounds, i)
    return block if held else Streamed(read, bounds, i, block.needs)


def _coupling(A: Block | Streamed) -> list[tuple[int, bool]]:
    return [(need.block, need.rows is None) for need in A.needs]


def _wanted(A: Block, j: int) -> np.ndarray | None:
    return next(need.rows for need in A.needs if need.block == j)


def rows_like(
    A: BlockedGraph,
    read: Callable[..., Any],
    width: int,
    dtype: Any,
    scalars: dict[str, Any],
) -> Blocks:
    """Rows made by ``read(start, stop, **scalars)``, in the blocks of A."""
    name, (call, lazy) = _name(read), _bind(read, scalars, 2 * (None,))
    tasks = {
        (name, i, 0): (call, int(start), int(stop), *map(_argument, lazy))
        for i, (start, stop) in enumerate(pairwise(A.bounds))
    }
    return Blocks(name, None, A.bounds, width, np.dtype(dtype), _layer(name, tasks, lazy))


def map_rows(
    f: Callable[..., Any], blocks: Sequence[Blocks], width: int, dtype: Any, scalars: dict[str, Any]
) -> Blocks:
    """``f(*row blocks, **scalars)`` for each block."""
    first, name = blocks[0], _name(f)
    call, lazy = _bind(f, scalars, tuple(b.part for b in blocks))
    tasks = {
        (name, i, 0): (call, *(b.key(i) for b in blocks), *map(_argument, lazy))
        for i in range(len(first.bounds) - 1)
    }
    graph = _layer(name, tasks, [*blocks, *lazy])
    return Blocks(name, None, first.bounds, width, np.dtype(dtype), graph)


def sum_rows(f: Callable[..., Any], blocks: Sequence[Blocks], scalars: dict[str, Any]) -> Delayed:
    """Sum of ``f(*row blocks, **scalars)`` over the blocks."""
    call, lazy = _bind(f, scalars, tuple(b.part for b in blocks))
    leaves = [(call, *(b.key(i) for b in blocks), *map(_argument, lazy)) for i in range(len(blocks[0].bounds) - 1)]
    name = _name(f)
    return _Small(name, partial(_tree, name, leaves, [*blocks, *lazy]))


def sweep(
    f: Callable[..., Any],
    A: BlockedGraph,
    B: Blocks,
    blocks: Sequence[Blocks],
    widths: Sequence[int],
    scalars: dict[str, Any],
) -> tuple[list[Blocks], Delayed]:
    """``f(A's block, own, halo, *row blocks, out=…, **scalars)`` for each block: what it wrote, and its sum.

    Scalars made of what was added up with B come with its rows, if each block gets rows of each other one.
    """
    name, P = _name(f), len(A.bounds) - 1
    lazy = {key: value for key, value in scalars.items() if isinstance(value, Delayed)}
    plain = {key: value for key, value in scalars.items() if key not in lazy}
    close = P <= FAN_IN and all(len(needs) == P - 1 for needs in A.coupled.values())
    by_parcel = {key: value.call for key, value in lazy.items() if close and _is_of_sums(value, B)}
    by_key = {key: value for key, value in lazy.items() if key not in by_parcel}
    parts = tuple(b.part for b in blocks)
    call = _Sweep(f, plain, by_parcel, tuple(by_key), B.part, parts, tuple(widths), B.dtype)
    tasks: dict[Any, Any] = {}
    for i in range(P):
        parcels = []
        for j, all_rows in A.coupled[i]:
            parcels.append((f"parcel-{name}", j) if all_rows else (f"parcel-{name}", i, j))
            tasks[parcels[-1]] = (_Pack(B.part), B.key(j), None if all_rows else A.packed[i, j].key)
        small = map(_argument, by_key.values())
        rows = (b.key(i) for b in blocks)
        tasks[name, i, 0] = (call, i, A.key(i), B.key(i), parcels, *rows, *small)
    graph = _layer(name, tasks, [A, B, *blocks, *by_key.values(), *A.packed.values()])
    made = Blocks(name, None, A.bounds, 0, B.dtype, graph)
    return [replace(made, part=k, width=width) for k, width in enumerate(widths)], _Sum(made)


class Parcel(NamedTuple):
    """What one block sends another: rows, and what was added up while they were made, if anything was."""

    rows: np.ndarray
    sums: Any


@dataclass(frozen=True)
class _Pack:
    """Packs the rows that one block needs of another, where they are."""

    part: int | None

    def __call__(self, made: Any, wanted: np.ndarray | None) -> Parcel:
        found, sums = (made, None) if self.part is None else (made[self.part], made[-1])
        if wanted is not None:
            room = spares.empty((len(wanted), found.shape[1]), found.dtype)
            found = found.take(wanted, axis=0, out=room, mode="clip")
        return Parcel(found, sums)


@dataclass(frozen=True)
class _Sweep:
    """The task of one block in a sweep."""

    f: Callable[..., Any]
    scalars: dict[str, Any]
    by_parcel: dict[str, Callable[[Any], Any]]
    by_key: tuple[str, ...]
    part: int | None
    parts: tuple[int | None, ...]
    widths: tuple[int, ...]
    dtype: np.dtype

    def __call__(self, i: int, A: Any, B: Any, parcels: list[Parcel], *values: Any) -> tuple[Any, ...]:
        own, halo = _part(B, self.part), [parcel.rows for parcel in parcels]
        cut = len(self.parts)
        blocks = [_part(v, p) for v, p in zip(values[:cut], self.parts, strict=True)]
        late = dict(zip(self.by_key, values[cut:], strict=True))
        if self.by_parcel:
            sums = [parcel.sums for parcel in parcels]
            total = add_up([*sums[:i], B[-1], *sums[i:]])
            late |= {key: call(total) for key, call in self.by_parcel.items()}
        made = [spares.empty((len(own), width), self.dtype) for width in self.widths]
        around = halo[0] if len(halo) == 1 else np.concatenate([own[:0], *halo])
        return (*made, self.f(_opened(A), own, around, *blocks, out=made, **self.scalars, **late))


def _part(made: Any, part: int | None) -> Any:
    """One of the things that a task made."""
    return made if part is None else made[part]


def hold(rows: Any) -> Any:
    """Compute `rows` now and keep them where they were made."""
    return _persist(rows)


def _persist(collection: Any) -> Any:
    """What `dask.persist` does with a single collection, without the detours that it takes to find it."""
    client = current_client()
    if client is None:
        return dask.persist(collection, optimize_graph=False)[0]
    return client.persist(collection, optimize_graph=False)


def begin(described: Sequence[tuple[tuple[Any, ...], Sequence[Any]]]) -> list[tuple[list[Any], list[Any]]]:
    """Start the work described, as pairs of a state and of values, all at once; the same pairs, under way."""
    everything = [x for state, values in described for x in (*state, *values)]
    lazy = {_identity(x): x for x in everything if isinstance(x, Blocks | Delayed)}
    batch = _Batch(list(lazy.values()))
    started = dict(zip(lazy, _persist(batch), strict=True)) if lazy else {}

    def now(x: Any) -> Any:
        found = started.get(_identity(x), x)
        return with_sums(found, _Sum(found)) if isinstance(x, Blocks) and x.sums is not None else found

    return [([*map(now, state)], [*map(now, values)]) for state, values in described]


@dataclass(frozen=True, eq=False)
class _Batch:
    """Many rows and values as one Dask collection: each by itself would cost a graph of its own."""

    lazy: list[Any]

    def __dask_graph__(self) -> HighLevelGraph:
        return HighLevelGraph.merge(*(x.__dask_graph__() for x in self.lazy))

    def __dask_keys__(self) -> list[Any]:
        return list(dict.fromkeys(key for x in self.lazy for key in x.__dask_keys__()))

    def __dask_tokenize__(self) -> Any:
        return [_identity(x) for x in self.lazy]

    __dask_scheduler__ = staticmethod(dask.threaded.get)

    def __dask_postcompute__(self) -> Any:
        return list, ()

    def __dask_postpersist__(self) -> Any:
        return _begun, (self.lazy,)


def _begun(results: Any, lazy: list[Any], rename: Any = None) -> list[Any]:
    found = []
    for x in lazy:
        rebuild, arguments = x.__dask_postpersist__()
        found.append(rebuild({key: results[key] for key in x.__dask_keys__()}, *arguments))
    return found


def finish(values: Sequence[Any]) -> list[Any]:
    """Wait for values that are under way."""
    return [_found(value) if isinstance(value, Delayed) else value for value in values]


def _found(value: Delayed) -> Any:
    """What a persisted value is: asked of the cluster by a message, not by a graph of its own."""
    held = value.dask[value.key]
    return held.result() if hasattr(held, "result") else value.compute(scheduler="sync")


def _identity(x: Any) -> Any:
    return (x.name, x.part) if isinstance(x, Blocks) else x.key if isinstance(x, Delayed) else None


class _Small(Delayed):
    """A small value with a recipe: tasks that use it make it themselves, which saves a trip to the scheduler.

    Parameters
    ----------
    key : str
        The task that makes it, for those who want it by itself.
    describe : callable
        Gives the tasks, the recipe, and what they need. Called when one of these is asked for: often none is.
    call, values
        The function and the values that it is made of, if it is `central`.
    """

    __slots__ = ("_describe", "_recipe", "call", "values")

    def __init__(
        self,
        key: str,
        describe: Callable[[], tuple[dict[Any, Any], Any, Sequence[Any]]],
        call: "_Call | None" = None,
        values: Sequence[Any] = (),
    ) -> None:
        super().__init__(key, None)
        self._describe, self.call, self.values = describe, call, values

    def _describe_once(self) -> None:
        if self._dask is None:
            tasks, self._recipe, needs = self._describe()
            with dask.annotate(priority=URGENT):
                self._dask = _layer(self.key, tasks, needs)

    @property
    def dask(self) -> HighLevelGraph:
        """The tasks."""
        self._describe_once()
        return self._dask

    @property
    def recipe(self) -> Any:
        """What a task names to have the value."""
        self._describe_once()
        return self._recipe


class _Sum(_Small):
    """What a sweep added up: the last thing that each of its tasks made, summed."""

    __slots__ = ("made",)

    def __init__(self, made: Blocks) -> None:
        key, P = f"sum-{made.name}", len(made.bounds) - 1
        super().__init__(key, partial(_tree, key, [(_part, made.key(i), -1) for i in range(P)], [made]))
        self.made = made


def with_sums(rows: Blocks, sums: _Sum) -> Blocks:
    """The rows, with what was added up by the tasks that made them."""
    assert sums.made.name == rows.name, "these sums are of other rows"
    return replace(rows, sums=sums)


def _argument(value: Any) -> Any:
    """How a task names a value."""
    if isinstance(value, _Small):
        return value.recipe
    return value.key if isinstance(value, Delayed) else value


def _is_of_sums(value: Any, B: Blocks) -> bool:
    """Whether a value is made of nothing but what was added up while B was made."""
    if not isinstance(value, _Small) or value.call is None or value.call.lazy or B.part is None:
        return False
    return [v.made.name for v in value.values if isinstance(v, _Sum)] == [B.name] and len(value.values) == 1


def central(f: Callable[..., Any], values: Sequence[Any], scalars: dict[str, Any]) -> Delayed:
    """``f(*values, **scalars)``, once for all rows."""
    name = _name(f)
    call, lazy = _bind(f, scalars, tuple(None for _ in values))

    def describe() -> tuple[dict[Any, Any], Any, Sequence[Any]]:
        if all(isinstance(v, _Sum) and len(v.made.bounds) <= FAN_IN + 1 for v in values):
            # one task a block picks out all the sums
            leaves = [f"{name}-{i}" for i in range(len(values[0].made.bounds) - 1)]
            tasks = {leaf: (_last_of, [v.made.key(i) for v in values]) for i, leaf in enumerate(leaves)}
            given: Any = [(_add_place, k, leaves) for k in range(len(values))]
            needs = [*(v.made for v in values), *lazy]
        else:
            tasks, given = {}, map(_argument, values)
            needs = [v for v in (*values, *lazy) if isinstance(v, Delayed)]
        recipe = (call, *given, *map(_argument, lazy))
        return {**tasks, name: recipe}, recipe, needs

    return _Small(name, describe, call, values)


def _last_of(made: list[tuple[Any, ...]]) -> list[Any]:
    return [one[-1] for one in made]


def _add_place(k: int, leaves: list[list[Any]]) -> Any:
    return add_up([leaf[k] for leaf in leaves])


def _tree(key: str, leaves: list[Any], needs: Sequence[Any]) -> tuple[dict[Any, Any], Any, Sequence[Any]]:
    """The sum of what the leaf tasks return, in the tree of `trees`: its tasks, recipe, and what they need."""
    if len(leaves) == 1:
        return {key: leaves[0]}, key, needs
    level = [f"{key}-{i}" for i in range(len(leaves))]
    tasks: dict[Any, Any] = dict(zip(level, leaves, strict=True))
    while len(level) > FAN_IN:
        groups = [level[i : i + FAN_IN] for i in range(0, len(level), FAN_IN)]
        level = [f"{group[0]}+{len(group)}" for group in groups]
        tasks.update({group_key: (add_up, group) for group_key, group in zip(level, groups, strict=True)})
    recipe = (add_up, level)
    return {**tasks, key: recipe}, recipe, needs


@dataclass(frozen=True)
class _Call:
    """A function with its plain keywords; lazy ones arrive behind the positional arguments."""

    f: Callable[..., Any]
    scalars: dict[str, Any]
    lazy: tuple[str, ...]
    parts: tuple[int | None, ...]

    def __call__(self, *values: Any) -> Any:
        cut = len(self.parts)
        late = dict(zip(self.lazy, values[cut:], strict=True))
        blocks = [_opened(_part(v, p)) for v, p in zip(values[:cut], self.parts, strict=True)]
        return self.f(*blocks, **self.scalars, **late)


def _bind(
    f: Callable[..., Any], scalars: dict[str, Any], parts: tuple[int | None, ...]
) -> tuple[_Call, list[Any]]:
    lazy = {key: value for key, value in scalars.items() if isinstance(value, Delayed)}
    plain = {key: value for key, value in scalars.items() if key not in lazy}
    return _Call(f, plain, tuple(lazy), parts), list(lazy.values())


def _persisted(results: Any, rows: Any, rename: Any = None) -> Any:
    return replace(rows, graph=HighLevelGraph.from_collections(rows.name, dict(results), dependencies=()))


def _layer(name: str, tasks: dict[Any, Any], needs: Sequence[Any]) -> HighLevelGraph:
    return HighLevelGraph.from_collections(name, tasks, dependencies=needs)


def _value(key: str, task: Any, needs: Sequence[Any]) -> Delayed:
    return Delayed(key, _layer(key, {key: task}, needs))


def _name(f: Any) -> str:
    while isinstance(f, partial):
        f = f.func
    text = f if isinstance(f, str) else getattr(f, "__name__", type(f).__name__)
    return f"{text}-{uuid.uuid4().hex}"
