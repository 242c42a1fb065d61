"""The only place where Dask tasks are made: layers of tasks, their submission, and Dask arrays of their results.

Work is described first and submitted later, as much of it at a time as there is: `begin` sends every task that the
given results need and that was not sent before, in one message. What Python still refers to is kept on the
cluster; all else Dask frees as soon as it is used.
"""

import uuid
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import count, pairwise
from typing import Any

import dask.array as da
import numpy as np
from dask.base import annotate
from dask.highlevelgraph import HighLevelGraph
from dask.task_spec import DataNode, List, Task, TaskRef

from snmf_dist.engine.halo import RowSource

Key = Any  # a text or a tuple, as Dask has them
_numbers = count()
_process = uuid.uuid4().hex[:8]


def unique_name(label: Any) -> str:
    """A name for tasks that no others have; the dashboard shows what stands before its last hyphens.

    Parameters
    ----------
    label : str or callable
        The name to show, or the function whose name to show.
    """
    text = label if isinstance(label, str) else getattr(label, "__name__", type(label).__name__)
    return f"{text.strip('_')}-{_process}-{next(_numbers)}"


class Layer:
    """Tasks that are described together.

    Parameters
    ----------
    tasks : dict
        The tasks by their keys.
    uses : iterable of Result
        The results that the tasks use; they are held until the tasks are sent.
    reads : sequence
        Results that the tasks ask of other workers, unseen by Dask: they are held until the layer is done.

    Attributes
    ----------
    begun : bool
        Whether the tasks were sent.
    done : bool
        Whether all of them are known to have ended.
    """

    def __init__(self, tasks: dict[Key, Task], uses: Iterable["Result"], reads: Sequence["Result"] = ()) -> None:
        self.tasks, self.uses, self.reads = tasks, list(uses), reads
        self.before = [result.layer for result in self.uses if not result.layer.done]
        self.results: list[weakref.ref[Result]] = []
        self.begun = False
        self.done: bool = False

    def alive(self) -> Iterator["Result"]:
        """The results that Python still refers to."""
        return (result for ref in self.results if (result := ref()) is not None)

    def finish(self) -> None:
        """Note that all tasks of the layer, and so of those before it, have ended."""
        layers = [self]
        while layers:
            layer = layers.pop()
            if not layer.done:
                layer.done = True
                layers += layer.before
                layer.before, layer.reads = [], ()


class Result:
    """What some tasks of a layer return: blocks of rows, or a small value.

    Parameters
    ----------
    layer : Layer
        The layer of the tasks.
    keys : list
        The keys of the tasks.
    """

    def __init__(self, layer: Layer, keys: list[Key]) -> None:
        self.layer, self.keys = layer, keys
        self.futures: list[Any] = []
        layer.results.append(weakref.ref(self))

    @property
    def refs(self) -> list[TaskRef]:
        """How other tasks refer to the results."""
        if self.layer.begun and not self.futures:
            raise AssertionError(f"{self.keys[0]} was not held; this is a bug in snmf_dist, please report it")
        return references(self.keys)


class ClusterRows(Result):
    """A matrix in row blocks on the workers; once it is begun `array` holds it.

    Parameters
    ----------
    layer : Layer
        The tasks that make it.
    name : str
        Block i is the chunk ``(name, i, 0)``.
    bounds : ndarray of int, (P + 1,)
        Where the blocks begin and end.
    width : int
        The number of columns.
    dtype : dtype
        The type of the entries.
    source : RowSource, optional
        Where a block may be found before its chunk is there.
    """

    def __init__(
        self, layer: Layer, name: str, bounds: np.ndarray, width: int, dtype: Any, source: RowSource | None = None
    ) -> None:
        super().__init__(layer, chunk_keys(name, len(bounds) - 1))
        self.name, self.bounds = name, bounds
        self.shape, self.dtype = (int(bounds[-1]), width), np.dtype(dtype)
        self.source = source or RowSource(name)
        self.sums: Any = None

    def move_to(self, name: str, futures: list[Any]) -> None:
        """Be the rows that are held under another name from now on, which no task has made."""
        self.layer = Layer({}, [])
        self.layer.begun = self.layer.done = True
        self.name, self.keys, self.futures = name, chunk_keys(name, len(self.keys)), futures
        self.source, self.sums = RowSource(name), None

    @property
    def array(self) -> Any:
        """The rows as a Dask array in row blocks; what is on the workers is not copied."""
        nodes = dict(zip(self.keys, self.futures, strict=True))
        return dask_array(self.name, nodes, np.diff(self.bounds).tolist(), self.shape[1], self.dtype)


class Small(Result):
    """A small value that is not known yet: a number, a few K × K matrices, or the sum of several of these.

    Parameters
    ----------
    to_add : bool
        Whether the value is the sum of what the tasks return. Whoever uses it adds them up.
    covers : frozenset of str
        The rows all of whose blocks exist when this value does, by their names.
    """

    def __init__(self, layer: Layer, keys: list[Key], *, to_add: bool, covers: frozenset[str]) -> None:
        super().__init__(layer, keys)
        self.to_add, self.covers = to_add, covers

    @property
    def argument(self) -> Any:
        """How a task takes it as an argument."""
        return listed(self.keys) if self.to_add else self.refs[0]


def known(scalars: Mapping[str, Any]) -> dict[str, Any]:
    """The scalars that are known already."""
    return {name: value for name, value in scalars.items() if not isinstance(value, Small)}


def aligned(rows: Sequence[Result], late: Mapping[str, Small]) -> list[tuple[Any, ...]]:
    """The arguments of each block's task: its row blocks, then the scalars that other tasks compute."""
    small = [value.argument for value in late.values()]
    return [(*refs, *small) for refs in zip(*(one.refs for one in rows), strict=True)]


def values_of(numbers: Any) -> list[Any]:
    """The values of a mapping, or the one value there is."""
    return list(numbers.values()) if isinstance(numbers, Mapping) else [numbers]


class Home:
    """Where the task of a key is wished to run: on the worker that has its block of A.

    Parameters
    ----------
    addresses : sequence of str
        The worker of each block.
    """

    def __init__(self, addresses: Sequence[str]) -> None:
        self.addresses = list(addresses)

    def __call__(self, key: Key) -> list[str]:
        """The worker, or none for tasks of no block."""
        return [self.addresses[key[1]]] if isinstance(key, tuple) and self.addresses else []


def begin(client: Any, results: Iterable[Result], homes: Sequence[str] = ()) -> None:
    """Send all work that the results need and that was not sent before.

    Parameters
    ----------
    client : distributed.Client
        The client of the cluster.
    results : iterable of Result
        The results wanted.
    homes : sequence of str, optional
        For each block the worker on which its tasks should run. It is a wish: where that worker is gone, or
        another one idle, a task runs elsewhere.
    """
    layers, waiting = [], [result.layer for result in results]
    used = []  # what was sent before must not be let go of until this is sent
    while waiting:
        layer = waiting.pop()
        if not layer.begun:
            layer.begun = True
            layers.append(layer)
            waiting += layer.before
            used += [result for result in layer.uses if result.futures]
            layer.uses = []
    held = [result for layer in layers for result in layer.alive()]
    keys = [key for result in held for key in result.keys]
    if not keys:
        return
    tasks = {key: task for layer in layers for key, task in layer.tasks.items()}
    with annotate(workers=Home(homes), allow_other_workers=True):
        futures = dict(zip(keys, client.get(tasks, keys, sync=False), strict=True))
    for layer in layers:
        layer.tasks = {}
    for result in held:
        result.futures = [futures[key] for key in result.keys]


def row_tasks(
    name: str, call: Callable[..., Any], arguments: Iterable[Sequence[Any]], *, chunks: bool = True
) -> dict[Key, Task]:
    """One task a row block: block i is ``call(*arguments of i)``.

    Parameters
    ----------
    chunks : bool, default True
        Name the tasks as the chunks of a Dask array are named.
    """
    keys = ((name, i, 0) if chunks else (name, i) for i in count())
    return {key: Task(key, call, *given) for key, given in zip(keys, arguments, strict=False)}


def references(keys: Iterable[Key]) -> list[TaskRef]:
    """How a task refers to the results of others."""
    return [TaskRef(key) for key in keys]


def listed(keys: Iterable[Key]) -> List:
    """Results of several tasks as one argument, a list."""
    return List(*references(keys))


def one_task(name: str, call: Callable[..., Any], *arguments: Any) -> dict[Key, Task]:
    """A task by itself."""
    return {name: Task(name, call, *arguments)}


def chunk_keys(name: str, blocks: int) -> list[Key]:
    """The keys of the chunks of a Dask array of one column of blocks."""
    return [(name, i, 0) for i in range(blocks)]


# Dask arrays


def dask_array(name: str, nodes: dict[Key, Any], sizes: Sequence[int], width: int, dtype: Any) -> da.Array:
    """A Dask array of row blocks, given what each chunk is: a task, or a future."""
    chunks = (tuple(int(size) for size in sizes), (int(width),))
    return da.Array(nodes, name, chunks, meta=np.empty((0, 0), dtype))


def array_of_pieces(pieces: Sequence[np.ndarray]) -> da.Array:
    """Row blocks in this process as a Dask array; they are not copied."""
    name = unique_name("rows")
    nodes = {key: DataNode(key, piece) for key, piece in zip(chunk_keys(name, len(pieces)), pieces, strict=True)}
    return dask_array(name, nodes, [len(piece) for piece in pieces], pieces[0].shape[1], pieces[0].dtype)


def array_from_reader(
    read: Callable[[int, int], Any], bounds: Iterable[int], width: int, *, dtype: Any
) -> da.Array:
    """A Dask array whose block i is ``read(bounds[i], bounds[i + 1])``, read inside its task.

    Parameters
    ----------
    read : callable
        Picklable; returns (stop − start, width) rows.
    bounds : iterable of int, (P + 1,)
        Where the blocks begin and end.
    width : int
        The number of columns.
    dtype : dtype
        The type of the entries.
    """
    ranges = [(int(start), int(stop)) for start, stop in pairwise(bounds)]
    name = unique_name("read")
    return dask_array(name, row_tasks(name, read, ranges), [b - a for a, b in ranges], width, dtype)


def array_in_order(rows: np.ndarray, index: np.ndarray, *, block_rows: int) -> da.Array:
    """``rows[index]`` as a Dask array whose blocks are gathered when they are used."""
    parts = [index[start : start + block_rows] for start in range(0, len(index), block_rows)]
    name = unique_name("in-order")
    take = _Taker(rows)
    return dask_array(
        name, row_tasks(name, take, [(part,) for part in parts]), list(map(len, parts)), rows.shape[1], rows.dtype
    )


class _Taker:
    """Takes rows of an array; an object, so that Dask does not look into the array."""

    def __init__(self, rows: np.ndarray) -> None:
        self.rows = rows

    def __call__(self, index: np.ndarray) -> np.ndarray:
        return np.asarray(self.rows[index])


def written_rows(rows: da.Array, write: Callable[[int, np.ndarray], Any], *, block_rows: int) -> da.Array:
    """What ``write(start, block)`` returns for each block of `block_rows` rows, called when it is computed."""
    starts = range(0, rows.shape[0], block_rows)
    sizes = [min(block_rows, rows.shape[0] - start) for start in starts]
    cut = rows.rechunk((tuple(sizes), -1))
    name = unique_name("write")
    chunks = zip(starts, chunk_keys(cut.name, len(sizes)), strict=True)
    tasks = row_tasks(name, _Writer(write), [(start, TaskRef(key)) for start, key in chunks])
    graph = HighLevelGraph.from_collections(name, tasks, dependencies=[cut])
    return da.Array(graph, name, ((1,) * len(sizes), (1,)), meta=np.empty((0, 0), np.int64))


class _Writer:
    """Writes one block, and returns what the writer returned as an array of one entry."""

    def __init__(self, write: Callable[[int, np.ndarray], Any]) -> None:
        self.write = write

    def __call__(self, start: int, block: np.ndarray) -> np.ndarray:
        return np.array([[self.write(start, block)]], dtype=np.int64)
