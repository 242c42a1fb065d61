"""fit_many(): a queue of runs over the current cluster, kept in one folder that the same call resumes."""

import inspect
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from datetime import UTC, datetime
from typing import Any

from snmf_dist import storage
from snmf_dist.api import fit
from snmf_dist.assembling import versions
from snmf_dist.engine import client as cluster
from snmf_dist.errors import InputError
from snmf_dist.listeners import Listener
from snmf_dist.locks import only_writer
from snmf_dist.study.folder import StudyFolder
from snmf_dist.study.queue import Priority, in_order
from snmf_dist.study.spec import HOW, PLACES, Graphs, Run, StudyGraph, check_common, expand, open_graphs
from snmf_dist.study.view import Study
from snmf_dist.study.work import Work
from snmf_dist.validation import choice, synchronous, whole_number

ON_ERROR = ("continue", "stop")
OR_JOIN = "wait for it, choose another output, or help it: join=True of fit_many, --join of batch"


def fit_many(
    graphs: Graphs,
    *,
    ks: int | Iterable[int] | None = None,
    seeds: int | Iterable[int] = 1,
    solvers: str | Iterable[str] = ("admm",),
    inits: str | Iterable[str] = ("kmeans",),
    rhos: float | str | Iterable[float | str] = ("auto",),
    runs: Iterable[Mapping[str, Any]] = (),
    out: str | os.PathLike[str],
    on_error: str = "continue",
    max_at_once: int | None = None,
    priority: Priority = None,
    labels: Any = None,
    join: bool = False,
    dry_run: bool = False,
    progress: Callable[[Study], None] | None = None,
    listeners: Sequence[Listener] = (),
    **settings: Any,
) -> Study:
    """Run `fit` on every combination of graphs and settings, and keep all results in one folder.

    The same call resumes: runs that are done stay, those that failed or were interrupted go again (from their
    checkpoints), a larger grid adds runs. It runs on the current `distributed.Client` if there is one, else on
    threads.

    Parameters
    ----------
    graphs : path, GraphStore, or a sequence or mapping of these
        What `fit` takes; a mapping gives the names in the table.
    ks : int or iterable of int
        Numbers of clusters.
    seeds : int or iterable of int, default 1
        How many seeds, counted from 0, or the seeds themselves.
    solvers, inits, rhos : value or iterable of values
        As in `fit`, one or several; starts are given by name.
    runs : iterable of mapping, optional
        Further runs, each by its settings, as ``{"k": 10, "rho": 0.1}``; ``graph`` names the graph if there are
        several.
    out : str or path-like
        The folder of the study, or a URL. On a cluster, one that all workers see.
    on_error : {"continue", "stop"}, default "continue"
        What to do when a run fails: keep its traceback and go on, or raise the error. A full disk and a lost
        cluster always end the study.
    max_at_once : int, optional
        Runs under way at the same time, at most. By default as many as memory allows.
    priority : callable or str, optional
        Which runs go first: a function of a run's settings, lowest first, or the name of a setting ("k", "-k"). By
        default one seed of everything goes first, and values of k from coarse to fine.
    labels : array, path, or mapping from names of graphs to these, optional
        Known labels: the table then has ac, nmi and ari.
    join : bool, default False
        Help another process that works on this study: take the runs that it has not begun. Without it a study that
        is being worked on is refused.
    dry_run : bool, default False
        Check everything and return the study as it would be; nothing is run or written.
    progress : callable, optional
        Called with the study whenever a run begins or ends.
    listeners : sequence of Listener, optional
        Called at each iteration of each run.
    **settings
        Other settings of `fit`, for all runs.

    Returns
    -------
    Study
        The table and the results.

    Examples
    --------
    >>> import numpy as np, scipy.sparse, snmf_dist, tempfile
    >>> folder = tempfile.mkdtemp()
    >>> cliques = scipy.sparse.block_diag([np.ones((4, 4)), np.ones((3, 3))])
    >>> _ = snmf_dist.import_graph(cliques, folder + "/cliques.zarr")
    >>> study = snmf_dist.fit_many(folder + "/cliques.zarr", ks=[1, 2], out=folder + "/study")
    >>> study.counts["done"], sorted(study.best(k=2).sizes.tolist())
    (2, [3, 4])
    """
    choice("on_error", on_error, ON_ERROR)
    if max_at_once is not None:
        whole_number("max_at_once", max_at_once, 1)
    common = check_common(settings)
    options = common.get("storage_options")
    opened = open_graphs(graphs, labels, common)
    grid = {"k": ks, "seed": seeds, "solver": solvers, "init": inits, "rho": rhos}
    shared = {name: value for name, value in common.items() if name not in (*HOW, *PLACES)}
    folder = StudyFolder(storage.normal_path(out), options)
    before = folder.read_spec() if folder.exists() else None
    wanted = expand(opened, grid, runs, shared, [] if before is None else before["runs"])
    client = synchronous(cluster.current_client())
    if client is not None:
        for graph in opened:
            cluster.check_workers(client, graph.store.path, graph.store.options)
    ordered = in_order(wanted, priority)
    folder.check()
    if dry_run:
        return Study(folder, _describe(folder, opened, wanted, shared, join=join))
    with nullcontext() if join else only_writer(folder.path, or_else=OR_JOIN):
        spec = _describe(folder, opened, wanted, shared, join=join)
        folder.prepare()
        if not join:
            folder.write_spec(spec)
        if client is not None:
            cluster.check_workers(client, folder.path, options)
        how = {name: value for name, value in common.items() if name in (*HOW, "storage_options")}
        study = Study(folder, spec)
        ways: Any = {"stop": on_error == "stop", "joined": join, "limit": max_at_once}
        work = Work(study, opened, how, listeners=listeners, progress=progress, **ways)
        work.through(ordered)
    return study


def _describe(
    folder: StudyFolder, graphs: Sequence[StudyGraph], runs: Sequence[Run], common: dict[str, Any], *, join: bool
) -> dict[str, Any]:
    """What the study is, with the runs it had before; one begun with other graphs or settings is refused."""
    here = {
        one.name: {"path": one.store.path, "fingerprint": one.store.fingerprint, "n": one.store.n}
        for one in graphs
    }
    listed = [{"run_id": run.run_id, "graph": run.graph, "settings": dict(run.settings)} for run in runs]
    created = datetime.now(UTC).isoformat(timespec="seconds")
    spec: dict[str, Any] = {"settings": common, "graphs": here, "runs": listed}
    spec |= {"created": created, "versions": versions()}
    if not folder.exists():
        if join:
            raise InputError(f"{folder.path}: there is no study to join; leave join out to begin one")
        return spec
    before = folder.read_spec()
    other = f"give another out, or what {folder.path} was begun with"
    defaults = {name: one.default for name, one in inspect.signature(fit).parameters.items()}
    for name in sorted({*common, *before["settings"]}):
        was, now = (settings.get(name, defaults.get(name)) for settings in (before["settings"], common))
        if was != now:
            raise InputError(f"{folder.path}: the study was begun with {name}={was!r}, now it is {now!r}; {other}")
    for name, graph in here.items():
        known = before["graphs"].get(name)
        if known is not None and known["fingerprint"] != graph["fingerprint"]:
            raise InputError(
                f"{folder.path}: the graph {name} ({graph['path']}) is not the one of before; {other}"
            )
    known_ids = {run["run_id"] for run in before["runs"]}
    fresh = [run for run in listed if run["run_id"] not in known_ids]
    if fresh and join:
        raise InputError(
            f"{folder.path}: {len(fresh)} runs are not in the study to join; leave them, or join, out"
        )
    return {**before, "graphs": {**before["graphs"], **here}, "runs": [*before["runs"], *fresh]}
