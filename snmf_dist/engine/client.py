"""The Dask cluster, if there is one: connecting, and checks before work starts.

Without a client everything runs on threads of this process.
"""

import gc
import logging
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import numpy as np

from snmf_dist import storage
from snmf_dist.engine import machine
from snmf_dist.engine.asking import limited
from snmf_dist.engine.machine import cores, release_memory
from snmf_dist.engine.tasks import written_rows
from snmf_dist.engine.waiting import (
    NO_WORKERS,
    Watch,
    gather,
    wait_a_while,
    wait_for,
    worker_addresses,
    workers_of,
)
from snmf_dist.errors import ClusterError, RowsLost, WorkLost

logger = logging.getLogger(__name__)

TIMEOUT = 15.0
CHECK = 30.0  # seconds that workers have to answer before work starts
CHECKED = ("dask", "distributed", "numpy", "scipy", "zarr", "snmf-dist")  # versions that must be the same
DEATHS = 3  # times that a task is given out anew after Dask gave it up, because its workers died
ACTOR_GONE = "Worker holding Actor was lost"  # how Dask says it, in a RuntimeError


def current_client() -> Any | None:
    """Return the current `distributed.Client`, or None."""
    if "distributed" not in sys.modules:
        return None
    import distributed  # waits if another thread is half way through importing it

    try:
        client = distributed.Client.current()
    except ValueError:
        return None
    return client if client.status == "running" else None


@contextmanager
def connect(address: str, *, timeout: float | None = None) -> Iterator[Any]:
    """Connect to the scheduler at `address` for the body; its work then runs there.

    Parameters
    ----------
    address : str
        As ``tcp://host:8786`` or ``tls://host:8786``; TLS settings are Dask's own configuration.
    timeout : float, default `TIMEOUT`
        Seconds to wait for the scheduler, and then for a first worker.

    Raises
    ------
    ClusterError
        The scheduler does not answer, or has no workers.
    """
    import distributed

    timeout = TIMEOUT if timeout is None else timeout
    gc.collect()  # a client that could not connect closes when it is collected: not while this one starts
    try:
        client = distributed.Client(address, timeout=timeout)
    except (OSError, TimeoutError, ValueError, TypeError) as error:  # TypeError: tls:// without certificates
        raise ClusterError(
            f"{address}: no Dask scheduler answers there ({type(error).__name__}); check the "
            "address and Dask's TLS settings, or start one with `dask scheduler`"
        ) from error
    with client:
        _wait_for_a_worker(client, timeout)
        yield client


def _wait_for_a_worker(client: Any, timeout: float) -> None:
    address = client.scheduler_info()["address"]
    try:
        client.wait_for_workers(1, timeout=timeout)
    except TimeoutError:
        raise ClusterError(
            f"{address}: the scheduler has no workers; start some with `dask worker {address}`"
        ) from None


def check_workers(client: Any, path: str, options: storage.Options = None) -> None:
    """Refuse a cluster whose workers run other versions than this process, or do not see `path`.

    Each worker is asked by a task of its own. One that dies meanwhile, or is too busy to answer, is passed over.
    """
    addresses = worker_addresses(client)
    if not addresses:
        raise ClusterError("the cluster has no workers; start some with `dask worker`, or scale it up")
    asked = {
        address: client.submit(_look_around, path, options, workers=[address], pure=False) for address in addresses
    }
    watch, deadline, waiting = Watch(client), time.monotonic() + CHECK, list(asked.values())
    while waiting and time.monotonic() < deadline:
        wait_a_while(waiting, watch, all_of_them=True)
        here_still = worker_addresses(client)
        waiting = [future for address, future in asked.items() if address in here_still and not future.done()]
    if not worker_addresses(client):  # all of them died; a nanny starts its worker again
        _wait_for_a_worker(client, NO_WORKERS)
        check_workers(client, path, options)
        return
    here = _versions()
    for address, future in asked.items():
        if future.status == "error":
            _explain_check(address, future.exception())
        elif future.status != "finished":
            if future in waiting:
                logger.warning("worker %s has not answered for %.0f s; it was not checked", address, CHECK)
            continue
        try:
            found = gather(client, future, workers=[address])
        except RowsLost:  # it died after it had answered; Dask would wait for its return
            continue
        _compare(address, here, found["versions"])
        if not found["sees"]:
            raise ClusterError(
                f"worker {address} does not see {path}; put it on storage that all workers share, or give a URL"
            )


def _explain_check(address: str, error: Any) -> None:
    if isinstance(error, ModuleNotFoundError):
        raise ClusterError(
            f"{error.name} is not installed on the workers; install the same environment there"
        ) from error
    raise ClusterError(
        f"worker {address} could not do a first small task ({type(error).__name__}: {error}); install the same "
        "environment on the client and the workers"
    ) from error


@contextmanager
def explain_losses() -> Iterator[None]:
    """Turn Dask's errors for work that was lost into one that a user can act on."""
    if "distributed" not in sys.modules:
        yield
        return
    from distributed import KilledWorker
    from distributed.client import FutureCancelledError
    from distributed.comm.core import CommClosedError

    client = current_client()
    try:
        yield
    except KilledWorker as error:
        raise WorkLost(
            f"workers died again and again on the same work ({error.task}); most often they ran out "
            "of memory: give them more, or pass a smaller block_rows"
        ) from error
    except Exception as error:
        lost = client is not None and client.status != "running"  # what fails then may look like anything
        if (
            not lost
            and not isinstance(error, CommClosedError | FutureCancelledError)
            and ACTOR_GONE not in str(error)
        ):
            raise
        if not lost:
            raise RowsLost(f"results went with the worker that held them ({type(error).__name__})") from error
        raise WorkLost(
            f"the connection to the Dask scheduler was lost ({type(error).__name__}); start the cluster and "
            "the run again"
        ) from error


def run_tasks(
    f: Callable[[Any], Any],
    items: Sequence[Any],
    *,
    threads: int | None = None,
    done: Callable[[int], None] | None = None,
    on_workers: bool = True,
) -> list[Any]:
    """Call `f` on each item, on the workers of the current client or on threads; results in order.

    Parameters
    ----------
    f : callable
        Picklable; a task that is lost with its worker is run again.
    threads : int, optional
        How many at a time without a client; by default one for each core.
    done : callable, optional
        Called with the number that are finished, after each.
    on_workers : bool, default True
        False stays in this process even if there is a client.
    """
    client, f = current_client() if on_workers else None, _Tidy(f)
    if client is not None:
        with explain_losses():
            return _run_on_workers(client, f, items, done or (lambda finished: None))
    results: dict[int, Any] = {}
    with ThreadPoolExecutor(threads or cores()) as pool:
        futures = {pool.submit(f, item): i for i, item in enumerate(items)}
        try:
            for future in as_completed(futures):
                results[futures[future]] = future.result()
                if done:
                    done(len(results))
        finally:
            for future in futures:  # after an error the rest is not worth waiting for
                future.cancel()
    return [results[i] for i in range(len(items))]


def run_stream(f: Callable[[Any], Any], items: Iterable[Any], *, threads: int) -> list[Any]:
    """Call `f` on each item on threads while the next ones are made; no more are held than there are threads."""
    results: list[Any] = []
    with ThreadPoolExecutor(threads) as pool:
        waiting: deque[Any] = deque()
        for item in items:
            if len(waiting) >= threads:
                results.append(waiting.popleft().result())
            waiting.append(pool.submit(f, item))
            del item
        return results + [future.result() for future in waiting]


def _run_on_workers(
    client: Any, f: Callable[[Any], Any], items: Sequence[Any], done: Callable[[int], None]
) -> list[Any]:
    """Call `f` on each item on the workers; what Dask gives up because its workers died is given out anew."""
    from distributed import KilledWorker

    results: dict[int, Any] = {}
    deaths = dict.fromkeys(range(len(items)), 0)
    waiting = dict(zip(client.map(f, items, pure=False), range(len(items)), strict=True))
    watch = Watch(client)
    try:
        while waiting:
            left = set(wait_a_while(list(waiting), watch, all_of_them=False))
            for future in [future for future in waiting if future not in left]:
                i = waiting.pop(future)
                try:
                    results[i] = gather(client, future)
                except KilledWorker:
                    deaths[i] += 1
                    if deaths[i] > DEATHS:
                        raise
                    waiting[client.submit(f, items[i], pure=False)] = i
                else:
                    done(len(results))
    finally:
        for future in waiting:
            future.cancel()
    return [results[i] for i in range(len(items))]


def write_rows(rows: Any, write: Callable[[int, np.ndarray], Any], *, block_rows: int) -> list[int]:
    """Call ``write(start, block)`` for blocks of `block_rows` rows; the whole numbers that the calls return.

    Blocks begin at multiples of `block_rows`, wherever the row blocks were before, so that each is one chunk of a
    Zarr array and no two writers share a chunk.
    """
    if isinstance(rows, np.ndarray):
        starts = range(0, rows.shape[0], block_rows)
        return [write(start, rows[start : start + block_rows]) for start in starts]
    written, client = written_rows(rows, write, block_rows=block_rows), current_client()
    if client is None:
        return [int(value) for value in written.compute().ravel()]
    with explain_losses():
        future = client.compute(written)
        wait_for(client, [future])
        return [int(value) for value in gather(client, future).ravel()]


@dataclass(frozen=True)
class _Tidy:
    """Calls a function, then gives the memory it freed back: a build would swell by half without."""

    f: Callable[[Any], Any]

    def __call__(self, item: Any) -> Any:
        try:
            return self.f(item)
        except SystemError:  # CPython's issue 106905: `np.load` in two threads at a time may stumble
            return self.f(item)
        finally:
            release_memory()


def worker_threads() -> int:
    """Threads a task may use for itself: those of the smallest worker, or all cores without a client."""
    client = current_client()
    return cores() if client is None else min(limited(client.nthreads).values(), default=1)


def n_workers() -> int:
    """Workers of the current client; 1 without one."""
    client = current_client()
    return 1 if client is None else max(1, len(limited(client.nthreads)))


def memory_limit(limit: int | str | None) -> float:
    """Bytes that a process may use: as given, or those of the smallest worker, or half of the machine's."""
    return machine.memory_limit(limit, worker=worker_memory())


def worker_memory() -> float | None:
    """Memory limit of the smallest worker, in bytes; None without a client, or without limits."""
    client = current_client()
    if client is None:
        return None
    limits = [worker["memory_limit"] for worker in workers_of(client).values()]
    return float(min((limit for limit in limits if limit), default=0)) or None


def _compare(address: str, here: dict[str, str], there: dict[str, str]) -> None:
    differ = [f"{name} {there[name]} (here {here[name]})" for name in here if there[name] != here[name]]
    if differ:
        raise ClusterError(
            f"worker {address} runs other versions than this process: {', '.join(differ)}; "
            "install the same environment on both"
        )


def _versions() -> dict[str, str]:
    """What must be the same in all processes; patch releases of Python share their byte code."""
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    return {"python": python, **{name: version(name) for name in CHECKED}}


def _look_around(path: str, options: storage.Options) -> dict[str, Any]:
    """Run on a worker: its versions, and whether it sees `path`."""
    return {"versions": _versions(), "sees": storage.exists(path, options)}
