"""One small job with a known answer: plant points, build their graph, fit, lose a worker, compare the partition.

The answer depends on no machine, number of workers or blocks: the points lie in well-separated groups, all pairs
of them are compared exactly, and clusters are numbered by their first row before the partition is hashed.
"""

import hashlib
import os
import signal
import threading
import time
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from snmf_dist import storage
from snmf_dist.api import fit
from snmf_dist.engine.asking import ask_scheduler, ask_worker
from snmf_dist.engine.client import current_client
from snmf_dist.engine.waiting import worker_addresses
from snmf_dist.errors import NotConverged
from snmf_dist.graph.build import build_graph
from snmf_dist.listeners import Listener

ROWS, GROUPS, BLOCK_ROWS = 4000, 8, 1000
LABEL_HASH = "5a49795ea6823325"
KILL_AT = 3  # iteration
SETTINGS = {"stop": "paper", "tol": 2e-6, "max_iter": 12, "block_rows": BLOCK_ROWS}


@dataclass
class Smoke:
    """What the small job saw.

    Attributes
    ----------
    hash : str
        Hash of the partition that was found.
    place : str
        "threads" or "cluster".
    workers : int
        Worker processes at the start.
    killed : str or None
        The address of the worker that was killed.
    spared : str
        Why none was killed.
    said : list of str
        What the run said while it went on.
    seconds : float
        Seconds of the whole job.
    """

    hash: str = ""
    place: str = ""
    workers: int = 0
    killed: str | None = None
    spared: str = ""
    said: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether the partition is the planted one."""
        return self.hash == LABEL_HASH


def plant() -> tuple[np.ndarray, np.ndarray]:
    """Points in well-separated groups, (n, d), in mixed order, and the group of each.

    Examples
    --------
    >>> points, groups = plant()
    >>> points.shape, np.bincount(groups).tolist()
    ((4000, 8), [500, 500, 500, 500, 500, 500, 500, 500])
    """
    groups = np.arange(ROWS) * 1237 % ROWS * GROUPS // ROWS
    noise = np.random.default_rng(0).standard_normal((ROWS, GROUPS))
    return (10 * np.eye(GROUPS)[groups] + 1.5 * noise).astype(np.float32), groups


def partition_hash(labels: np.ndarray) -> str:
    """Hash a partition; the numbers of its clusters do not matter.

    Examples
    --------
    >>> partition_hash(np.array([2, 2, 0])) == partition_hash(np.array([0, 0, 1]))
    True
    """
    _, first, number = np.unique(labels, return_index=True, return_inverse=True)
    by_first_row = np.argsort(np.argsort(first))[number]
    return hashlib.sha256(by_first_row.astype("<i4").tobytes()).hexdigest()[:16]


def run_smoke(
    store: str, *, kill: bool | None = None, connect: Callable[[], Any] | None = None, name: str = "smoke"
) -> Smoke:
    """Run the small job.

    Parameters
    ----------
    store : str
        Folder or URL for graph and result; what is there under their names is replaced.
    kill : bool, optional
        Whether to kill a worker. By default one is killed if there are several, a nanny starts it again, and no
        other client uses the cluster.
    connect : callable, optional
        Gives a context with a Dask client; without it the current client is used, or threads of this process.
    name : str, default "smoke"
        Begins the names of graph and result.
    """
    begin, seen = time.monotonic(), Smoke()
    store = store.rstrip("/")
    graph_path, result_path = f"{store}/{name}-graph.zarr", f"{store}/{name}-result.zarr"
    points, _ = plant()
    if storage.is_url(store):  # workers need not share a folder with us for the files of a build
        graph = build_graph(points, graph_path, overwrite=True, resume=False, exact=True)
    with connect() if connect is not None else nullcontext():
        if not storage.is_url(store):
            graph = build_graph(points, graph_path, overwrite=True, resume=False, exact=True)
        client = current_client()
        addresses = [] if client is None else worker_addresses(client)
        seen.workers = len(addresses)
        seen.spared = "not asked for" if kill is False else _why_not(client, addresses, asked=kill is True)
        killer = _Killer(client, "" if seen.spared else addresses[0], seen)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NotConverged)
            saving: Any = {"out": result_path, "overwrite": True, "resume": False, "checkpoint_every": 2}
            found = fit(graph, GROUPS, listeners=[killer], **saving, **SETTINGS)  # type: ignore[arg-type]
    seen.place, seen.hash = found.provenance["place"], partition_hash(found.labels)
    seen.seconds = time.monotonic() - begin
    return seen


class _Killer(Listener):
    """Kills a worker in the middle of a run, and remembers what the run said."""

    sees_state = False

    def __init__(self, client: Any, victim: str, seen: Smoke) -> None:
        self.client, self.victim, self.seen = client, victim, seen

    def on_iteration(self, record: Any, state: Any) -> None:
        if self.victim and record.iteration >= KILL_AT:
            self.seen.killed, self.victim = self.victim, ""
            ask_worker(self.client, self.seen.killed, _end_soon)

    def on_wait(self, why: str) -> None:
        self.seen.said.append(why)


def _end_soon() -> None:
    threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGKILL)).start()  # after this call has been answered


def _why_not(client: Any, addresses: list[str], *, asked: bool) -> str:
    """Why no worker may be killed; nothing if one may."""
    if client is None:
        return "there are no worker processes"
    if len(addresses) < 2:
        return "there is one worker only"
    if asked:
        return ""
    if ask_scheduler(client, _other_clients).value:
        return "other clients use this cluster"
    return "" if ask_worker(client, addresses[0], _has_nanny).value else "no nanny would start it again"


def _other_clients(dask_scheduler: Any) -> int:
    names = [name for name in dask_scheduler.clients if name.startswith("Client-")]
    return sum(1 for name in names if not name.startswith("Client-worker-")) - 1  # workers have clients too


def _has_nanny(dask_worker: Any) -> bool:
    return dask_worker.nanny is not None
