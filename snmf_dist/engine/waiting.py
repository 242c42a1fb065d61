"""Waiting for work on a cluster, never in vain for long.

Every wait of ours is cut into pieces of a few seconds, with a look at the cluster in between. The look notices
workers that are gone, workers that have stopped answering, workers that are paused, and a cluster on which nothing
moves; it says so while there is hope, and ends the wait when there is none.
"""

import asyncio
import logging
import time
import weakref
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from snmf_dist.engine.asking import ask_scheduler, limited
from snmf_dist.errors import RowsLost, WorkLost

logger = logging.getLogger(__name__)

LOOK_EVERY = 2.0  # seconds between two looks
NO_WORKERS = 60.0  # seconds that a cluster may be without workers
SILENT = 60.0  # seconds without a sign of life after which a worker is given up; Dask itself waits five minutes
STALLED = 120.0  # seconds in which no worker does anything
SAY_AFTER = 15.0  # seconds after which the user is told that nothing moves
GIVE_UP = 8.0  # seconds that giving up workers may take
CONTINUES = "start the run again: it continues from its checkpoint, if it writes to out="

_signs: "weakref.WeakKeyDictionary[Any, dict[str, tuple[float, float]]]" = weakref.WeakKeyDictionary()


def wait_for(client: Any, futures: Sequence[Any], *, workers: Iterable[str] = ()) -> None:
    """Wait until tasks have ended.

    Parameters
    ----------
    client : distributed.Client
        The client of the cluster.
    futures : sequence of Future
        The tasks.
    workers : iterable of str
        Addresses of workers that none of the tasks can do without.

    Raises
    ------
    RowsLost
        A worker or a result that the tasks need is gone.
    WorkLost
        The cluster has had no workers for a minute, or nothing has moved on it for two.
    Exception
        Whatever ended one of the tasks.
    """
    from distributed import KilledWorker

    watch, left = Watch(client, workers), futures
    while left := wait_a_while(left, watch, all_of_them=True):
        lost = [future.key for future in left if future.status in ("lost", "cancelled")]
        if lost:
            raise RowsLost(f"{lost[0]} went with the worker that held it")
    for future in futures:
        if future.status == "error":
            try:
                future.result()
            except KilledWorker as error:
                raise RowsLost(f"workers died again and again on the same work ({error.task})") from error
        if future.status != "finished":
            raise RowsLost(f"{future.key} was lost ({future.status})")


def wait_a_while(futures: Sequence[Any], watch: "Watch", *, all_of_them: bool) -> Sequence[Any]:
    """Wait until all tasks, or one of them, have ended, or for `LOOK_EVERY` seconds; those that have not ended."""
    from distributed import wait
    from distributed.client import FuturesCancelledError

    when = "ALL_COMPLETED" if all_of_them else "FIRST_COMPLETED"
    try:
        return list(wait(futures, timeout=LOOK_EVERY, return_when=when).not_done)
    except FuturesCancelledError as error:
        raise RowsLost("results went with the worker that held them") from error
    except TimeoutError:
        watch.look()
        return futures


def gather(client: Any, futures: Any, *, workers: Iterable[str] = ()) -> Any:
    """What tasks returned, in the structure of `futures`; parameters and errors are those of `wait_for`."""
    watch = Watch(client, workers)
    work = asyncio.run_coroutine_threadsafe(client.gather(futures, asynchronous=True), client.loop.asyncio_loop)
    while True:
        try:
            return work.result(timeout=LOOK_EVERY)
        except TimeoutError:
            if work.done():  # a task raised it
                raise
            try:
                watch.look()
            except BaseException:
                work.cancel()
                raise


class Watch:
    """Looks at a cluster while work is waited for, and raises when the wait is in vain.

    Parameters
    ----------
    client : distributed.Client
        The client of the cluster.
    needed : iterable of str
        Addresses of workers that the work cannot do without.
    """

    def __init__(self, client: Any, needed: Iterable[str] = ()) -> None:
        self.client, self.needed = client, tuple(needed)
        self.last_move = time.monotonic()
        self.said = ""

    def look(self) -> None:
        """Look at the cluster now."""
        if self.client.status != "running":
            raise ConnectionError("the client lost its scheduler")
        found = workers_of(self.client)
        silent = silent_workers(self.client, found)
        if silent:
            give_up(self.client, silent)
            found = {address: one for address, one in found.items() if address not in silent}
        gone = [address for address in self.needed if address not in found]
        if gone:
            raise RowsLost(f"worker {gone[0]} was lost before its work was done")
        now = time.monotonic()
        if any(_is_busy(one) for one in found.values()):
            self.last_move, self.said = now, ""
            return
        self._nothing_moves(found, now - self.last_move)

    def _nothing_moves(self, found: Mapping[str, Any], seconds: float) -> None:
        """Say that nothing moves, or end the wait."""
        paused = [address for address, one in found.items() if one["status"] == "paused"]
        if not found:
            why, limit = "the cluster has had no workers", NO_WORKERS
        elif len(paused) == len(found):
            why, limit = f"all {len(paused)} workers are paused, their memory is full,", STALLED
        else:
            more = f" ({', '.join(paused)}: paused, the memory is full)" if paused else ""
            why, limit = f"no worker has done anything{more}", STALLED
        if seconds >= limit:
            remedy = "start some, and then" if not found else "give them more memory, and then"
            raise WorkLost(f"{why} for {seconds:.0f} s; {remedy} {CONTINUES}")
        if seconds >= SAY_AFTER and why != self.said:
            self.said = why
            logger.warning("%s for %.0f s; the run is given up after %.0f s of that", why, seconds, limit)


def workers_of(client: Any) -> dict[str, Any]:
    """What the scheduler knows of each worker, by address."""
    found: dict[str, Any] = limited(client.scheduler_info, n_workers=-1)["workers"]
    return found


def worker_addresses(client: Any) -> list[str]:
    """The addresses of all workers."""
    return list(workers_of(client))


def silent_workers(client: Any, found: Mapping[str, Any]) -> list[str]:
    """The workers whose last sign of life was the same one `SILENT` seconds ago, by the clock of this process."""
    before, now = _signs.get(client, {}), time.monotonic()
    signs = {}
    for address, one in found.items():
        last, since = before.get(address, (None, now))
        signs[address] = (one["last_seen"], since if last == one["last_seen"] else now)
    _signs[client] = signs
    return [address for address, (_, since) in signs.items() if now - since >= SILENT]


def give_up(client: Any, addresses: Sequence[str]) -> None:
    """Have the scheduler remove workers that do not answer; one that has a nanny is started again by it."""
    logger.warning("no sign of life for %.0f s: given up %s", SILENT, ", ".join(addresses))
    ask_scheduler(client, _remove, list(addresses))  # what cannot be removed now is tried again at the next look


async def _remove(addresses: list[str], dask_scheduler: Any) -> None:
    """Run on the scheduler: what it does itself with workers that are silent for five minutes."""
    await dask_scheduler.restart_workers(
        addresses, timeout=GIVE_UP, wait_for_workers=False, on_error="return", stimulus_id="snmf_dist-silent"
    )


def _is_busy(worker: Mapping[str, Any]) -> bool:
    """Whether a worker runs a task or waits for data that it has asked for."""
    counts = worker["metrics"].get("task_counts", {})
    return any(counts.get(state, 0) for state in ("executing", "long-running", "flight"))
