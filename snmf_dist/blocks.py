"""Rows in blocks, described as a Dask graph, for the workers of a cluster.

A task makes one block, or several at once: those share its key and differ in `part`, so that none needs a task to
be picked out. The rows that a block needs of another are packed where they are, and only they travel.
"""

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any

import dask
import numpy as np
from dask.delayed import Delayed
from dask.highlevelgraph import HighLevelGraph
from scipy import sparse

from snmf_dist import spares
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
        Block i -> the blocks it needs rows of, and whether of each it needs all.
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
    return _tree_sum(_name(f), leaves, [*blocks, *lazy])


def sweep(
    f: Callable[..., Any],
    A: BlockedGraph,
    B: Blocks,
    blocks: Sequence[Blocks],
    widths: Sequence[int],
    scalars: dict[str, Any],
) -> tuple[list[Blocks], Delayed]:
    """``f(A's block, own, halo, *row blocks, out=…, **scalars)`` for each block: what it wrote, and its sum."""
    name, P = _name(f), len(A.bounds) - 1
    lazy = {key: value for key, value in scalars.items() if isinstance(value, Delayed)}
    plain = {key: value for key, value in scalars.items() if key not in lazy}
    call = _Sweep(f, plain, tuple(lazy), B.part, tuple(b.part for b in blocks), tuple(widths), B.dtype)
    tasks: dict[Any, Any] = {}
    for i in range(P):
        packs = []
        for j, all_rows in A.coupled[i]:
            packs.append((f"pack-{name}", j) if all_rows else (f"pack-{name}", i, j))
            tasks[packs[-1]] = (_Pack(B.part), B.key(j), None if all_rows else A.packed[i, j].key)
        small = map(_argument, lazy.values())
        rows = (b.key(i) for b in blocks)
        tasks[name, i, 0] = (call, A.key(i), B.key(i), packs, *rows, *small)
    graph = _layer(name, tasks, [A, B, *blocks, *lazy.values(), *A.packed.values()])
    made = Blocks(name, None, A.bounds, 0, B.dtype, graph)
    last = len(widths)
    total = _tree_sum(f"sum-{name}", [(_part, made.key(i), last) for i in range(P)], [made])
    return [replace(made, part=k, width=width) for k, width in enumerate(widths)], total


@dataclass(frozen=True)
class _Pack:
    """Packs the rows that one block needs of another, where they are."""

    part: int | None

    def __call__(self, rows: Any, wanted: np.ndarray | None) -> np.ndarray:
        found: np.ndarray = _part(rows, self.part)
        if wanted is None:
            return found
        return found.take(
            wanted, axis=0, out=spares.empty((len(wanted), found.shape[1]), found.dtype), mode="clip"
        )


@dataclass(frozen=True)
class _Sweep:
    """The task of one block in a sweep."""

    f: Callable[..., Any]
    scalars: dict[str, Any]
    lazy: tuple[str, ...]
    part: int | None
    parts: tuple[int | None, ...]
    widths: tuple[int, ...]
    dtype: np.dtype

    def __call__(self, A: Any, own: Any, packs: list[np.ndarray], *values: Any) -> tuple[Any, ...]:
        own = _part(own, self.part)
        halo = packs[0] if len(packs) == 1 else np.concatenate([own[:0], *packs])
        cut = len(self.parts)
        blocks = [_part(v, p) for v, p in zip(values[:cut], self.parts, strict=True)]
        late = dict(zip(self.lazy, values[cut:], strict=True))
        made = [spares.empty((len(own), width), self.dtype) for width in self.widths]
        return (*made, self.f(_opened(A), own, halo, *blocks, out=made, **self.scalars, **late))


def _part(made: Any, part: int | None) -> Any:
    """One of the things that a task made."""
    return made if part is None else made[part]


def hold(rows: Any) -> Any:
    """Compute `rows` now and keep them where they were made."""
    return dask.persist(rows, optimize_graph=False)[0]


def begin(described: Sequence[tuple[tuple[Any, ...], Sequence[Any]]]) -> list[tuple[list[Any], list[Any]]]:
    """Start the work described, as pairs of a state and of values, all at once; the same pairs, under way."""
    everything = [x for state, values in described for x in (*state, *values)]
    everything += [rows.sums for rows in everything if isinstance(rows, Blocks)]
    lazy = {_identity(x): x for x in everything if isinstance(x, Blocks | Delayed)}
    begun = dask.persist(*lazy.values(), optimize_graph=False) if lazy else ()
    started = dict(zip(lazy, begun, strict=True))

    def now(x: Any) -> Any:
        found = started.get(_identity(x), x)
        return replace(found, sums=now(x.sums)) if isinstance(x, Blocks) else found

    return [([*map(now, state)], [*map(now, values)]) for state, values in described]


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
    """A small value, with a recipe: tasks that use it make it themselves, which saves a trip to the scheduler."""

    __slots__ = ("recipe",)

    def __init__(self, key: str, graph: HighLevelGraph, recipe: Any) -> None:
        super().__init__(key, graph)
        self.recipe = recipe


def _argument(value: Any) -> Any:
    """How a task names a value."""
    if isinstance(value, _Small):
        return value.recipe
    return value.key if isinstance(value, Delayed) else value


def central(f: Callable[..., Any], values: Sequence[Any], scalars: dict[str, Any]) -> Delayed:
    """``f(*values, **scalars)``, once for all rows."""
    name = _name(f)
    call, lazy = _bind(f, scalars, tuple(None for _ in values))
    recipe = (call, *map(_argument, (*values, *lazy)))
    needs = [v for v in (*values, *lazy) if isinstance(v, Delayed)]
    with dask.annotate(priority=URGENT):
        return _Small(name, _layer(name, {name: recipe}, needs), recipe)


def _tree_sum(name: str, leaves: list[Any], needs: Sequence[Any]) -> Delayed:
    """The sum of what the leaf tasks return, in the tree of `trees`."""
    level = [f"{name}-{i}" for i in range(len(leaves))]
    tasks: dict[Any, Any] = dict(zip(level, leaves, strict=True))
    recipe: Any = level[0]
    while len(level) > 1:
        groups = [level[i : i + FAN_IN] for i in range(0, len(level), FAN_IN)]
        level = [f"{group[0]}+{len(group)}" for group in groups]
        tasks.update({key: (add_up, group) for key, group in zip(level, groups, strict=True)})
        recipe = (add_up, groups[0])
    with dask.annotate(priority=URGENT):
        return _Small(level[0], _layer(level[0], tasks, needs), recipe)


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
