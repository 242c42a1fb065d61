"""The Dask cluster, if there is one: connecting, and checks before work starts.

Alone in importing distributed. Without a client everything runs on threads of this process.
"""

import asyncio
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from snmf_dist import storage
from snmf_dist.engine import machine
from snmf_dist.engine.machine import cores, release_memory
from snmf_dist.errors import ClusterError, RowsLost, WorkLost

TIMEOUT = 15.0
LOOK_EVERY = 5.0  # seconds between two looks at the cluster while work is waited for
NO_WORKERS = 60.0  # seconds that a cluster may be without workers
CHECKED = ("scipy", "zarr", "snmf-dist")  # besides what Dask itself tells of a worker


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
    try:
        client = distributed.Client(address, timeout=timeout)
    except (OSError, TimeoutError, ValueError) as error:
        raise ClusterError(
            f"{address}: no Dask scheduler answers there ({type(error).__name__}); check the "
            "address, or start one with `dask scheduler`"
        ) from error
    with client:
        try:
            client.wait_for_workers(1, timeout=timeout)
        except TimeoutError:
            raise ClusterError(
                f"{address}: the scheduler has no workers; start some with `dask worker {address}`"
            ) from None
        yield client


def check_workers(client: Any, path: str, options: storage.Options = None) -> None:
    """Refuse a cluster whose workers run other versions than this process, or do not see `path`."""
    versions = client.get_versions()
    if not versions["workers"]:
        raise ClusterError("the cluster has no workers; start some with `dask worker`, or scale it up")
    here = _dask_versions(versions["client"])
    for address, found in versions["workers"].items():
        _compare(address, here, _dask_versions(found))
    try:
        around = client.run(_look_around, path, options)
    except ModuleNotFoundError as error:
        raise ClusterError(
            f"{error.name} is not installed on the workers; install the same environment there"
        ) from error
    here = {name: version(name) for name in CHECKED}
    for address, found in around.items():
        _compare(address, here, found["versions"])
        if not found["sees"]:
            raise ClusterError(
                f"worker {address} does not see {path}; put it on storage that all workers share, or give a URL"
            )


def wait_for(client: Any, futures: Sequence[Any], *, workers: Iterable[str] = ()) -> None:
    """Wait until tasks have ended, and look at the cluster now and then.

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
        The cluster has had no workers for a minute.
    Exception
        Whatever ended one of the tasks.
    """
    from distributed import wait
    from distributed.client import FuturesCancelledError

    watch = _Watch(client, workers)
    while True:
        try:
            wait(futures, timeout=LOOK_EVERY)
            break
        except FuturesCancelledError as error:
            raise RowsLost("results went with the worker that held them") from error
        except TimeoutError:
            watch.look()
    for future in futures:
        if future.status == "error":
            future.result()
        if future.status != "finished":
            raise RowsLost(f"{future.key} was lost ({future.status})")


def gather(client: Any, futures: Any) -> Any:
    """What tasks returned, in the structure of `futures`; look at the cluster now and then while it is on its way.

    Raises
    ------
    WorkLost
        The cluster has had no workers for a minute.
    """
    watch = _Watch(client)
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


class _Watch:
    """Looks at a cluster while work is waited for, and raises when the wait is in vain.

    Parameters
    ----------
    client : distributed.Client
        The client of the cluster.
    needed : iterable of str
        Addresses of workers that the work cannot do without.
    """

    def __init__(self, client: Any, needed: Iterable[str] = ()) -> None:
        self.client, self.needed, self.alone = client, tuple(needed), 0.0

    def look(self) -> None:
        """Look, `LOOK_EVERY` seconds after the last time."""
        if self.client.status != "running":
            raise ConnectionError("the client lost its scheduler")
        there = set(worker_addresses(self.client))
        gone = [address for address in self.needed if address not in there]
        if gone:
            raise RowsLost(f"worker {gone[0]} was lost before its work was done")
        self.alone = 0.0 if there else self.alone + LOOK_EVERY
        if self.alone >= NO_WORKERS:
            raise WorkLost(
                f"the cluster has had no workers for {self.alone:.0f} s; start some, and the run again: it "
                "continues from its checkpoint, if it writes to out="
            )


def worker_addresses(client: Any) -> list[str]:
    """The addresses of all workers."""
    return list(client.scheduler_info(n_workers=-1)["workers"])


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
        if not lost and not isinstance(error, CommClosedError | FutureCancelledError):
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
) -> list[Any]:
    """Call `f` on each item, on the workers of the current client or on threads; results in order.

    Parameters
    ----------
    f : callable
        Picklable; a task that is lost with its worker is run again.
    threads : int, optional
        How many at a time without a client; by default one for each core.
    done : callable, optional
        Told how many are finished, after each.
    """
    client = current_client()
    f = _Tidy(f)
    results: dict[int, Any] = {}
    with ExitStack() as stack:
        if client is None:
            pool = stack.enter_context(ThreadPoolExecutor(threads or cores()))
            futures = {pool.submit(f, item): i for i, item in enumerate(items)}
            finished: Iterable[Any] = as_completed(futures)
        else:
            from distributed import as_completed as as_completed_there

            stack.enter_context(explain_losses())
            futures = {future: i for i, future in enumerate(client.map(f, items, pure=False))}
            finished = as_completed_there(futures)
        try:
            for future in finished:
                results[futures[future]] = future.result()
                if done:
                    done(len(results))
        finally:
            for future in futures:  # after an error the rest is not worth waiting for
                future.cancel()
    return [results[i] for i in range(len(items))]


@dataclass(frozen=True)
class _Tidy:
    """Calls a function, then gives the memory it freed back: a build would swell by half without."""

    f: Callable[[Any], Any]

    def __call__(self, item: Any) -> Any:
        try:
            return self.f(item)
        finally:
            release_memory()


def worker_threads() -> int:
    """Threads a task may use for itself: those of the smallest worker, or all cores without a client."""
    client = current_client()
    return cores() if client is None else min(client.nthreads().values(), default=1)


def n_workers() -> int:
    """Workers of the current client; 1 without one."""
    client = current_client()
    return 1 if client is None else max(1, len(client.nthreads()))


def memory_limit(limit: int | str | None) -> float:
    """Bytes that a process may use: as given, or those of the smallest worker, or half of the machine's."""
    return machine.memory_limit(limit, worker=worker_memory())


def worker_memory() -> float | None:
    """Memory limit of the smallest worker, in bytes; None without a client, or without limits."""
    client = current_client()
    if client is None:
        return None
    limits = [worker["memory_limit"] for worker in client.scheduler_info(n_workers=-1)["workers"].values()]
    return float(min((limit for limit in limits if limit), default=0)) or None


def _compare(address: str, here: dict[str, str], there: dict[str, str]) -> None:
    differ = [f"{name} {there[name]} (here {here[name]})" for name in here if there[name] != here[name]]
    if differ:
        raise ClusterError(
            f"worker {address} runs other versions than this process: {', '.join(differ)}; "
            "install the same environment on both"
        )


def _dask_versions(found: dict[str, Any]) -> dict[str, str]:
    packages = found["packages"]
    python = ".".join(packages["python"].split(".")[:2])  # patch releases share their byte code
    return {"python": python, **{name: packages[name] for name in ("dask", "distributed", "numpy")}}


def _look_around(path: str, options: storage.Options) -> dict[str, Any]:
    """Run on a worker: its versions, and whether it sees `path`."""
    versions = {name: version(name) for name in CHECKED}
    return {"versions": versions, "sees": storage.exists(path, options)}
