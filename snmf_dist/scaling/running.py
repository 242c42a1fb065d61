"""scaling_study(): many sizes, one after the other, in a folder that the same call resumes."""

import os
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import Any

import numpy as np
from scipy import sparse

from snmf_dist import storage
from snmf_dist.api import fit
from snmf_dist.assembling import versions
from snmf_dist.engine import machine
from snmf_dist.engine.client import current_client, n_workers
from snmf_dist.engine.own import own_workers
from snmf_dist.errors import ClusterError, InputError, NoRoom, ResultNotSaved
from snmf_dist.graph.ingest import import_graph
from snmf_dist.graph.store import GraphStore, open_graph
from snmf_dist.locks import only_writer
from snmf_dist.result.records import Status
from snmf_dist.scaling.grid import Point, make_grid
from snmf_dist.scaling.making import make_apart
from snmf_dist.scaling.measure import Measured, measure_run
from snmf_dist.scaling.view import ScalingStudy
from snmf_dist.study.folder import SCALING, StudyFolder
from snmf_dist.study.table import measured
from snmf_dist.validation import positive_number, synchronous, whole_number

SPARE_TIME = 1.3  # a run is begun only if so many times what it is expected to take is left


def scaling_study(
    out: str | os.PathLike[str],
    *,
    rows: Iterable[int],
    ks: Iterable[int] = (20,),
    workers: Iterable[int] | None = None,
    degrees: Iterable[float] = (15.0, 30.0),
    repeats: int = 5,
    hours: float | None = None,
    mixing: float = 0.2,
    seed: int = 0,
    memory_limit: int | str | None = None,
    progress: Callable[[ScalingStudy], None] | None = None,
) -> ScalingStudy:
    """Measure how time, memory and traffic grow with rows, entries, K and workers, on graphs with known clusters.

    The same call resumes; one with more values or repeats adds runs. Small sizes go first, and a repeat counts as
    if it doubled the work, so that an early end leaves a usable answer.

    Parameters
    ----------
    out : str or path-like
        The folder of the study, on this machine; graphs are made in it and removed when their runs are done.
    rows : iterable of int
        Sizes of the graphs.
    ks : iterable of int, default (20,)
        Numbers of clusters. A graph has as many planted clusters as are looked for.
    workers : iterable of int, optional
        Worker processes of one thread each, started on this machine; 0 stands for the threads of this process. By
        default those of the current `distributed.Client`, or 0 and 1 up to the number of cores.
    degrees : iterable of float, default (15, 30)
        Mean numbers of entries of a row.
    repeats : int, default 5
        Equal runs of each.
    hours : float, optional
        Begin no run that is not expected to end within so many hours from now; by default all are run.
    mixing : float, default 0.2
        As in `generate`: the share of edges that lead to another cluster.
    seed : int, default 0
        Seed of the graphs and of the fits.
    memory_limit : int or str, optional
        As in `fit`.
    progress : callable, optional
        Called with the study after each run.

    Returns
    -------
    ScalingStudy
        The tables.

    Examples
    --------
    >>> import snmf_dist, tempfile
    >>> study = snmf_dist.scaling_study(
    ...     tempfile.mkdtemp() + "/scaling", rows=[500], ks=[3], workers=[0], degrees=[12], repeats=1
    ... )
    >>> [row["state"] for row in study.rows], len(study.phases)
    (['done'], 11)
    """
    client = synchronous(current_client())
    if client is not None and workers is not None:
        raise InputError(
            "workers are given, and there is a Dask client too; leave workers out, or close the client"
        )
    if hours is not None:
        positive_number("hours", hours)
    whole_number("seed", seed, 0)
    if workers is None:
        workers = range(machine.cores() + 1) if client is None else [n_workers()]
    points = make_grid(rows, degrees, ks, workers, repeats)
    path = storage.normal_path(out)
    if storage.is_url(path):
        raise InputError(f"{path}: is a URL; expected a folder on this machine")
    folder = StudyFolder(path)
    folder.check()
    settings = {"study": SCALING, "mixing": float(mixing), "seed": int(seed)}
    with only_writer(folder.path):
        study = ScalingStudy(folder, _describe(folder, points, settings))
        folder.prepare()
        folder.write_spec(study.spec)
        deadline = None if hours is None else time.monotonic() + 3600 * hours
        work = _Work(study, client, settings, memory_limit=memory_limit, deadline=deadline, progress=progress)
        try:
            work.through(points)
        finally:
            study.write_tables()
            study.write_model()
    return study


def _describe(folder: StudyFolder, points: Sequence[Point], settings: dict[str, Any]) -> dict[str, Any]:
    """What the study is, with the runs it had before; one begun with other settings is refused."""
    listed = [point.run(settings["seed"]) for point in points]
    graphs = {point.graph: {"rows": point.rows, "degree": point.degree, "k": point.k} for point in points}
    if not folder.exists():
        created = datetime.now(UTC).isoformat(timespec="seconds")
        return {
            "settings": settings,
            "graphs": graphs,
            "runs": listed,
            "created": created,
            "versions": dict(versions()),
            "machine": {"processor": machine.processor(), "cores": machine.cores(), "memory": machine.memory()},
        }
    before = folder.read_spec()
    was = before["settings"]
    if was.get("study") != SCALING:
        raise InputError(f"{folder.path}: holds a study of other runs; choose another folder")
    for name, value in settings.items():
        if was.get(name) != value:
            raise InputError(
                f"{folder.path}: the study was begun with {name}={was.get(name)!r}, now it is {value!r}; give "
                "another out, or what it was begun with"
            )
    known = {run["run_id"] for run in before["runs"]}
    fresh = [run for run in listed if run["run_id"] not in known]
    return {**before, "graphs": {**before["graphs"], **graphs}, "runs": [*before["runs"], *fresh]}


class _Work:
    """Does the runs of a study that are not done."""

    def __init__(
        self,
        study: ScalingStudy,
        client: Any,
        settings: dict[str, Any],
        *,
        memory_limit: int | str | None,
        deadline: float | None,
        progress: Callable[[ScalingStudy], None] | None,
    ) -> None:
        self.study, self.folder, self.settings = study, study.folder, settings
        self.memory_limit, self.deadline, self.progress = memory_limit, deadline, progress
        self.given, self.cluster, self.client = client, ExitStack(), client
        self.at: int | None = None
        self.took: dict[Point, float] = {}

    def through(self, points: Sequence[Point]) -> None:
        """Do what is not done, in order, as far as the time goes."""
        rows = {row["run_id"]: row for row in self.study.rows}
        left = [point for point in points if rows[self._id(point)]["state"] != "done"]
        for run in self.study.measured:
            self.took[Point.of(run)] = run["seconds_in_all"]
        with self.cluster:
            while left:
                point = left.pop(0)
                if not self._has_time(point):
                    continue
                self._do(point)
                if not any(other.graph == point.graph for other in left):
                    self.folder.remove(f"graphs/{point.graph}.zarr")
                    self.folder.remove(f"graphs/{point.graph}.npy")
                self.study.write_tables()
                if self.progress is not None:
                    self.progress(self.study)

    def _id(self, point: Point) -> str:
        return str(point.run(self.settings["seed"])["run_id"])

    def _has_time(self, point: Point) -> bool:
        """Whether a run can be expected to end before the deadline; the runs nearest in work tell."""
        if self.deadline is None or not self.took:
            return True
        near = min(self.took, key=lambda one: (abs(np.log(one.work / point.work)), one.workers != point.workers))
        expected = self.took[near] * max(point.work / near.work, 1.0)
        return time.monotonic() + SPARE_TIME * expected < self.deadline

    def _do(self, point: Point) -> None:
        run_id, began = self._id(point), time.monotonic()
        self.folder.add_event("started", run_id)
        try:
            store, truth = self._graph(point)
            client = self._workers(point)
            found = self._measure(point, run_id, store, client)
        except KeyboardInterrupt:
            self.folder.add_event("stopped", run_id)
            raise
        except (NoRoom, ResultNotSaved, ClusterError) as error:
            self._failed(run_id, error)
            raise
        except Exception as error:
            self._failed(run_id, error)
            self.at = None  # the next run gets new workers: these may be what failed
            return
        if found.solution.status is Status.OUT_OF_TIME:
            self.folder.add_event("stopped", run_id)
            return
        facts = {**measured(found.solution, np.load(truth)), **found.facts}
        facts |= {"seconds": found.wall, "wall": found.wall, "cpu_seconds": sum(_cpu(one) for one in found.phases)}
        facts |= {"graph_bytes": _size_of(store.path), "result_bytes": _size_of(self._result(run_id)), "stack": 1}
        self.folder.remove(f"runs/{run_id}.zarr")
        self.took[point] = time.monotonic() - began
        facts |= {"phases": found.phases, "seconds_in_all": self.took[point], "cores": machine.cores()}
        self.folder.add_event("done", run_id, **facts)
        self.folder.remove(f"errors/{run_id}.txt")

    def _measure(self, point: Point, run_id: str, store: GraphStore, client: Any) -> Measured:
        limit = None if self.deadline is None else max(self.deadline - time.monotonic(), 1.0)
        settings = {"seed": self.settings["seed"], "memory_limit": self.memory_limit, "time_limit": limit}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            return measure_run(store, point.k, self._result(run_id), client, **settings)

    def _result(self, run_id: str) -> str:
        return self.folder.result(run_id)

    def _failed(self, run_id: str, error: BaseException) -> None:
        self.folder.write(f"errors/{run_id}.txt", "".join(traceback.format_exception(error)).encode())
        self.folder.add_event("failed", run_id, error=str(error).splitlines()[0] if str(error) else repr(error))

    def _graph(self, point: Point) -> tuple[GraphStore, str]:
        """The graph of a point and the path of its true clusters, made if they are not there."""
        place = os.path.join(self.folder.path, "graphs")
        path, truth = os.path.join(place, f"{point.graph}.zarr"), os.path.join(place, f"{point.graph}.npy")
        if os.path.exists(path) and os.path.exists(truth):
            return open_graph(path), truth
        os.makedirs(place, exist_ok=True)
        make_apart(
            path=path,
            truth=truth,
            rows=point.rows,
            k=point.k,
            seed=self.settings["seed"],
            memory_limit=self.memory_limit,
            model={"degree": point.degree, "mixing": self.settings["mixing"], "shuffle": False},
        )
        return open_graph(path), truth

    def _workers(self, point: Point) -> Any:
        """The client of as many workers as the point wants, which have done a small piece of work before."""
        if self.at == point.workers:
            return self.client
        self.at = None
        if self.given is None:
            self.cluster.close()
            self.client = self.cluster.enter_context(own_workers(point.workers)) if point.workers else None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            fit(self._first_graph(), 2, max_iter=1)
        self.at = point.workers
        return self.client

    def _first_graph(self) -> GraphStore:
        """A small graph for a first piece of work, which compiles kernels and loads packages in every process."""
        path = os.path.join(self.folder.path, "graphs", "first.zarr")
        ring = sparse.diags_array([1.0] * 4, offsets=[-2, -1, 1, 2], shape=(2000, 2000), format="csr")
        return open_graph(path) if os.path.exists(path) else import_graph(ring, path, reorder=False)


def _cpu(phase: dict[str, Any]) -> float:
    return float(sum(phase[name] for name in ("cpu_client", "cpu_scheduler", "cpu_workers")))


def _size_of(path: str) -> int:
    """Bytes of all files in a folder."""
    return sum(os.path.getsize(os.path.join(place, name)) for place, _, names in os.walk(path) for name in names)
