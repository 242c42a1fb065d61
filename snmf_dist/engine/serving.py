"""Rows from worker to worker: the blocks of A on the workers, and the servers they ask for the rows they need.

Each worker has one `RowServer` for a run, a Dask actor. A sweep asks the servers of the other workers for the rows
that its block needs of them, one message each, and reads what is on its own worker directly. Dask does not see
these rows as dependencies: whoever describes a sweep makes sure that they are there
(`cluster.ClusterGraph.sweep`). Rows that cannot be had end the task with `RowsLost`, never with wrong rows.
"""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from distributed import Future, get_client, get_worker

from snmf_dist.engine.buffers import Buffers
from snmf_dist.engine.halo import Block, Need, RowSource, find_needs, local_block
from snmf_dist.engine.metrics import counts
from snmf_dist.errors import RowsLost

ANSWER = 60.0  # seconds to wait for another worker's rows; a worker that is stopped or cut off does not answer
ASK_AFTER = 1.0  # seconds after which the scheduler is asked whether the server there is still wanted


class BlockPlaces(NamedTuple):
    """Where the blocks of a run are, and whom to ask for their rows.

    Attributes
    ----------
    homes : tuple of str
        For each block the address of the worker that has this block of A. Its rows are made there, as a rule.
    servers : mapping
        For each address the `RowServer` of that worker, an actor.
    """

    homes: tuple[str, ...]
    servers: Mapping[str, Any]


@dataclass(frozen=True)
class WorkerBlock:
    """A row block of A on a worker, held or read again in each sweep.

    Attributes
    ----------
    i : int
        The number of the block.
    bounds : ndarray of int, (P + 1,)
        Where the blocks begin and end.
    read : callable
        Reads rows start to stop of A.
    needs : tuple of Need
        Where the halo comes from, in the order of its rows.
    block : Block or None
        The rows, if they are held.
    run : str
        The run it belongs to.
    places : BlockPlaces or None
        Where the other blocks are.
    """

    i: int
    bounds: np.ndarray
    read: Callable[[int, int], Any]
    needs: tuple[Need, ...]
    block: Block | None
    run: str
    places: BlockPlaces | None = None

    def open(self) -> Block:
        """The rows, read now if they are not held."""
        if self.block is not None:
            return self.block
        A = self.read(int(self.bounds[self.i]), int(self.bounds[self.i + 1]))
        return local_block(A, self.bounds, self.i, self.needs)

    def __sizeof__(self) -> int:
        lists = sum(need.rows.nbytes for need in self.needs if need.rows is not None)
        return 1000 + lists + (0 if self.block is None else self.block.nbytes)


@dataclass(eq=False)
class Room:
    """What a run keeps on one worker: free memory, and the lists of rows that blocks elsewhere ask for."""

    buffers: Buffers = field(default_factory=Buffers)
    wanted: dict[tuple[int, int], np.ndarray | None] = field(default_factory=dict)


_rooms: dict[tuple[str, str], Room] = {}


def room_of(run: str) -> Room:
    """The room of a run on the worker that this task is on; an empty one if the run has none there."""
    return _rooms.get((run, get_worker().address)) or Room()


class RowServer:
    """Answers the other workers' requests for rows; a Dask actor, one for each worker of a run.

    Parameters
    ----------
    run : str
        The run it belongs to. What the run keeps on this worker goes with the server.
    prepare : callable, optional
        Called once before the server is ready, for instance to compile kernels.
    """

    def __init__(self, run: str, prepare: Callable[[], Any] | None = None) -> None:
        self.worker = get_worker()
        self.place = (run, self.worker.address)
        _rooms[self.place] = self.room = Room()
        if prepare is not None:
            prepare()

    def want(self, i: int, lists: Mapping[int, np.ndarray | None]) -> None:
        """Remember which rows of the blocks held here block i needs: the lists travel once."""
        self.room.wanted.update({(i, j): rows for j, rows in lists.items()})

    def take(self, i: int, blocks: Sequence[int], source: RowSource) -> np.ndarray | None:
        """The rows that block i needs of these blocks, one below the other; None if one is not here."""
        found = [held_block(self.worker, source, j) for j in blocks]
        if any(rows is None or (i, j) not in self.room.wanted for j, rows in zip(blocks, found, strict=True)):
            return None
        lists = [self.room.wanted[i, j] for j in blocks]
        sent = pack([rows for rows in found if rows is not None], lists, self.room.buffers)
        counts().add(sent)
        return sent

    def pick(self, wanted: Mapping[int, np.ndarray | None], source: RowSource) -> dict[int, np.ndarray | None]:
        """Rows of blocks held here; None for a block that is not."""
        found = pick_rows(self.worker, wanted, source)
        for rows in found.values():
            counts().add(rows)
        return found

    def __del__(self) -> None:
        with contextlib.suppress(AttributeError):  # of a server that was never ready
            _rooms.pop(self.place, None)


def pack(blocks: Sequence[np.ndarray], lists: Sequence[np.ndarray | None], buffers: Buffers) -> np.ndarray:
    """The rows listed of each block, one below the other; all rows where there is no list."""
    if len(blocks) == 1 and lists[0] is None:
        return blocks[0]
    sizes = [len(rows) if wanted is None else len(wanted) for rows, wanted in zip(blocks, lists, strict=True)]
    ends = np.cumsum([0, *sizes])
    out = buffers.empty((int(ends[-1]), blocks[0].shape[1]), blocks[0].dtype)
    for rows, wanted, (start, stop) in zip(blocks, lists, pairwise(ends), strict=True):
        if wanted is None:
            out[start:stop] = rows
        else:
            rows.take(wanted, axis=0, out=out[start:stop], mode="clip")  # "raise" would copy once more
    return out


def held_block(worker: Any, source: RowSource, j: int) -> np.ndarray | None:
    """Block j of some rows, if this worker holds it, in memory or spilled."""
    for _ in range(2):  # between two looks the chunk may take the place of what it is picked from
        with contextlib.suppress(KeyError):
            return np.asarray(worker.data[source.name, j, 0])
        if source.task is not None:
            with contextlib.suppress(KeyError):
                return np.asarray(worker.data[source.task, j][source.part])
    return None


def read_block(
    read: Callable[[int, int], Any], bounds: np.ndarray, i: int, run: str, *, held: bool
) -> WorkerBlock:
    """Read row block i of A, and find out which rows of others it needs."""
    A = read(int(bounds[i]), int(bounds[i + 1]))
    needs = find_needs(A.indices, bounds, i)
    return WorkerBlock(i, bounds, read, needs, local_block(A, bounds, i, needs) if held else None, run)


def keep_here(publication: str, names: Sequence[str], *blocks: np.ndarray) -> None:
    """Hold one block of some rows under other names, as data of this worker that no task has made.

    The cluster holds them for whoever calls `Client.get_dataset(publication)`, until it is unpublished.
    """
    client = get_client()
    kept = client.scatter(dict(zip(names, blocks, strict=True)))
    client.publish_dataset(list(kept.values()), name=publication)


def connect_block(A: WorkerBlock, places: BlockPlaces) -> WorkerBlock:
    """Tell the servers of the other workers which rows this block will ask them for."""
    A, here = replace(A, places=places), get_worker().address
    asked = [
        (address, _ask(places.servers, address, "want", A.i, {A.needs[p].block: A.needs[p].rows for p in some}))
        for address, some in _by_address(A).items()
        if address != here
    ]
    for address, answer in asked:
        _answer(answer, places.servers[address], address)
    return A


def fetch_halo(A: WorkerBlock, source: RowSource, own: np.ndarray, buffers: Buffers) -> np.ndarray:
    """The rows of other blocks that block A.i needs, in the order of its needs."""
    if not A.needs:
        return own[:0]
    assert A.places is not None, "a block is connected before it is used"
    worker, servers = get_worker(), A.places.servers
    away = {address: some for address, some in _by_address(A).items() if address != worker.address}
    asked = {
        address: _ask(servers, address, "take", A.i, [A.needs[p].block for p in some], source)
        for address, some in away.items()
    }
    pieces: dict[tuple[int, ...], np.ndarray] = {}
    for address, some in away.items():
        rows = _answer(asked[address], servers[address], address)
        if rows is not None:
            pieces[tuple(some)] = rows
    found = {p for some in pieces for p in some}
    for p, need in enumerate(A.needs):  # those on this worker, and those that are not where they should be
        if p not in found:
            block = held_block(worker, source, need.block)
            rows = pack([block], [need.rows], buffers) if block is not None else None
            pieces[p,] = rows if rows is not None else look_for(need.block, need.rows, source, servers)
    if len(pieces) == 1:
        return next(iter(pieces.values()))
    starts = np.cumsum([0, *(need.size for need in A.needs)])
    halo = buffers.empty((int(starts[-1]), own.shape[1]), own.dtype)
    for places, rows in pieces.items():
        done = 0
        for p in places:
            size = A.needs[p].size
            halo[starts[p] : starts[p] + size] = rows[done : done + size]
            done += size
    return halo


def _by_address(A: WorkerBlock) -> dict[str, list[int]]:
    """For each worker which of the block's needs it answers."""
    assert A.places is not None, "a block is connected before it is used"
    found: dict[str, list[int]] = {}
    for p, need in enumerate(A.needs):
        found.setdefault(A.places.homes[need.block], []).append(p)
    return found


def look_for(j: int, rows: np.ndarray | None, source: RowSource, servers: Mapping[str, Any]) -> np.ndarray:
    """Rows of a block that is not where it should be: ask the scheduler where it is, and the server there."""
    client, keys = get_client(), [(source.name, j, 0), *([] if source.task is None else [(source.task, j)])]
    for _ in range(2):  # between two looks the chunk may take the place of what it is picked from
        holders = client.who_has([Future(key, client) for key in keys])
        for address in dict.fromkeys(address for key in keys for address in holders.get(key, ())):
            if address in servers:
                asked = _ask(servers, address, "pick", {j: rows}, source)
                found = _answer(asked, servers[address], address)[j]
                if found is not None:
                    return np.asarray(found)
    raise RowsLost(f"rows of block {j} are needed, but no worker holds it any more")


def _ask(servers: Mapping[str, Any], address: str, what: str, *given: Any) -> Any:
    """Ask a server for something; the answer comes later. Dask refuses if it knows that the server is gone."""
    try:
        return getattr(servers[address], what)(*given)
    except RuntimeError:
        raise _gone(address) from None


def _gone(address: str) -> RowsLost:
    return RowsLost(f"worker {address} is gone, or the run has let go of its rows there")


def _answer(answer: Any, server: Any, address: str) -> Any:
    """What a server answered; while it does not, ask the scheduler now and then whether the server is still there.

    It goes with its worker, and with its run: Dask never answers a request to an actor that was let go while the
    request was under way, and a task that waits holds a thread of its worker.
    """
    for _ in range(round(ANSWER / ASK_AFTER)):
        try:
            return answer.result(timeout=ASK_AFTER)
        except TimeoutError:
            client = get_client()
            if address not in client.who_has([Future(server.key, client)]).get(server.key, ()):
                raise _gone(address) from None
        except Exception as error:  # whatever a lost connection looks like
            raise RowsLost(f"worker {address} cannot be asked for rows ({type(error).__name__})") from error
    raise RowsLost(f"worker {address} has not answered for {ANSWER:.0f} s")


def reorder_block(
    index: np.ndarray, width: int, dtype: Any, *, bounds: np.ndarray, places: BlockPlaces, source: RowSource
) -> np.ndarray:
    """Rows `index` of all rows, asked of the workers that hold them, one message each.

    Parameters
    ----------
    index : ndarray of int
        The numbers of the rows wanted.
    width : int
        The number of columns of the rows.
    dtype : dtype
        The type of their entries.
    bounds : ndarray of int, (P + 1,)
        Where the blocks that hold them begin and end.
    places : BlockPlaces
        Where those blocks are.
    source : RowSource
        Where the rows are held.
    """
    block = np.searchsorted(bounds, index, side="right") - 1
    where = {j: np.flatnonzero(block == j) for j in np.unique(block).tolist()}
    wanted = {j: index[here] - bounds[j] for j, here in where.items()}
    by_address: dict[str, list[int]] = {}
    for j in where:
        by_address.setdefault(places.homes[j], []).append(j)
    asked = {
        address: _ask(places.servers, address, "pick", {j: wanted[j] for j in some}, source)
        for address, some in by_address.items()
    }
    out = np.empty((len(index), width), dtype)
    for address, answer in asked.items():
        for j, rows in _answer(answer, places.servers[address], address).items():
            out[where[j]] = look_for(j, wanted[j], source, places.servers) if rows is None else rows
    return out


def pick_rows(
    worker: Any, wanted: Mapping[int, np.ndarray | None], source: RowSource
) -> dict[int, np.ndarray | None]:
    """Rows of blocks that this worker holds, all where there is no list; None for a block it does not hold."""
    blocks = {j: held_block(worker, source, j) for j in wanted}
    return {
        j: None if block is None else block if wanted[j] is None else block[wanted[j]]
        for j, block in blocks.items()
    }
