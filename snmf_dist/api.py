"""The verbs: check, wire the stages, return."""

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

import numpy as np

from snmf_dist import storage
from snmf_dist.arguments import check_fit, find_graph, name_start, open_start
from snmf_dist.assembling import save_solution
from snmf_dist.engine import client as cluster
from snmf_dist.engine import machine
from snmf_dist.engine.plan import Plan, plan
from snmf_dist.errors import InputError
from snmf_dist.fitting import solve_graph
from snmf_dist.gauges import Gauges
from snmf_dist.graph.store import GraphStore, open_graph
from snmf_dist.keeping import CheckpointKeeper, open_keeper
from snmf_dist.listeners import Guarded, Listener, LogLines
from snmf_dist.locks import only_writer
from snmf_dist.result import files
from snmf_dist.result.advice import warn_of
from snmf_dist.result.files import RESULT
from snmf_dist.result.records import Status
from snmf_dist.result.solution import Solution
from snmf_dist.solve.pipeline import INITS
from snmf_dist.solve.solvers import SOLVERS
from snmf_dist.validation import choice, synchronous, whole_number


def fit(
    zarr_path: str | os.PathLike[str] | GraphStore,
    k: int,
    *,
    solver: str = "admm",
    init: str | os.PathLike[str] | Solution | np.ndarray = "kmeans",
    rho: float | str = "auto",
    stop: str = "auto",
    tol: float | None = None,
    max_iter: int = 1000,
    n_init: int = 1,
    basis_columns: int | None = None,
    specks: str = "drop",
    seed: int = 0,
    out: str | os.PathLike[str] | None = None,
    save_state: bool = False,
    block_rows: int | None = None,
    memory_limit: int | str | None = None,
    evaluate_every: int = 10,
    graph_settings: Mapping[str, Any] | None = None,
    listeners: Sequence[Listener] | None = None,
    overwrite: bool = False,
    resume: bool = True,
    checkpoint_every: int | str | None = "auto",
    time_limit: float | None = None,
    storage_options: storage.Options = None,
) -> Solution:
    """Cluster a similarity graph: A ≈ LLᵀ with L ≥ 0, (n, k).

    Runs on the current `distributed.Client` if there is one, else on threads of this process.

    Parameters
    ----------
    zarr_path : str, path-like or GraphStore
        A graph store, as `build_graph` and `import_graph` write it, by path or URL; or the path of points that
        `build_graph` reads, whose graph is then built beside them as ``<points>.graph.zarr``, or reused if it is
        there and was made from the same data with the same settings. A sparse ``.npz`` that is square,
        symmetric and nonnegative is refused: it may be a similarity matrix, which `import_graph` takes.
    k : int
        Number of clusters, 1 to n.
    solver : {"admm", "apg", "hals"}, default "admm"
        The paper's SNMF_ADMM or SNMF_APG, or column sweeps on the same problem as APG.
    init : {"kmeans", "spectral", "random"}, array, Solution or path of a result, default "kmeans"
        Where L begins. "kmeans" refines spectral clustering and gives the best labels; "spectral" rotates the
        leading eigenvectors and reaches the best objective; "random" is the paper's, uniform on
        [0, 2·sqrt(mean(A)/k)). An array (n, k) in the input's own order is taken as it is. A solution, or the
        path of a saved one, is resumed: exactly, if it holds its solver's state (`save_state`) and was found on
        this graph by this solver, else from its membership. If both graphs have ids, rows are matched by them, and
        the graph may have more or other rows: cluster 7 stays cluster 7.
    rho : float or "auto", default "auto"
        Penalty. "auto" begins ADMM at 0.15 times the largest eigenvalue of A and balances its residuals; for
        "apg" and "hals" it is that eigenvalue. A number stays as it is: the paper has 0.1 for ADMM.
    stop : {"auto", "kkt", "paper"}, default "auto"
        "paper": when the change of an iteration is at most `tol`. "kkt": when the KKT distance is. "auto": at the
        first of the paper's criterion, a KKT distance of 1e-4, clusters that have settled (over ten iterations
        at most 1 % of the labels and 0.05 % of the captured energy changed) and, with ``init="kmeans"``, a
        fall of the labels' score by 1 % below its best, to which the run then goes back. The score is ∜(Q r³),
        of their modularity Q and their assortativity r.
    tol : float, optional
        Tolerance of the stopping rule; by default 1e-5, or 1e-4 for ``stop="kkt"``.
    max_iter : int, default 1000
        Maximum number of iterations.
    n_init : int, default 1
        Number of runs, side by side, so that A is read once for all. The best is returned: the one whose labels
        have the highest score with ``init="kmeans"`` and ``stop="auto"``, otherwise the one that captures most.
        Run r begins as a fit with ``seed + r`` does ("random"), at a perturbed start ("spectral"), or at the
        clustering that is r places behind the best of 16 ("kmeans").
    basis_columns : int, optional
        Number of eigenvectors that "kmeans" and "spectral" compute, of which they use the first k; by default k.
        If it is given, the eigenvectors do not depend on `seed`, so that runs can share them, as in `fit_many`.
    specks : {"drop", "own", "join"}, default "drop"
        What becomes of small parts of the graph that no edge joins to the rest: those of fewer rows than a
        twentieth of a mean cluster (a limit of 2 to 1000 rows). "drop" gives them label −1, so that the clusters
        go to the large parts; "own" lets them take clusters of their own; "join", for graphs built from points,
        gives them the label of the nearest row outside.
    seed : int, default 0
        Seed of the random number generator.
    out : str or path-like, optional
        Where to save the solution too. No other run may write there meanwhile, and room for it must be free
        before the run begins. If it cannot be written nevertheless, the error `ResultNotSaved` holds it. The
        solution that is returned holds what was saved: its `state` is None unless `save_state` is set.
    save_state : bool, default False
        Save the solver's state too, so that the run can be resumed exactly; the result is then up to six times
        as large.
    block_rows : int, optional
        Number of rows of a block: work is cut, and sums are added up, in these pieces. By default the plan
        chooses it.
    memory_limit : int or str, optional
        Bytes a process may use, as ``"4GiB"``; by default a worker's limit, or half of this machine's memory. If
        A and the state do not fit they are streamed from disk, as `plan_fit` shows. If no way fits, `DoesNotFit`
        is raised and nothing runs.
    evaluate_every : int, default 10
        Evaluate objective, KKT distance and labels every `evaluate_every` iterations; an evaluation costs half
        an iteration or a little more.
    graph_settings : mapping, optional
        Settings of `build_graph`, if `zarr_path` holds points.
    listeners : sequence of Listener, optional
        Called at each iteration. By default lines go to the logger ``snmf_dist.listeners``.
    overwrite : bool, default False
        Replace the result at `out`.
    resume : bool, default True
        Continue the run that was interrupted while it wrote to `out`, if there is one: its checkpoint is in the
        folder ``<out>.checkpoint``. `max_iter`, `tol` and `memory_limit` may differ; other settings are refused.
        False removes that checkpoint and starts over.
    checkpoint_every : int, "auto" or None, default "auto"
        With `out`, write a checkpoint every `checkpoint_every` iterations. "auto" writes them so rarely that they
        cost at most 3 % of the time; None writes none.
    time_limit : float, optional
        Seconds after which the run ends, with a checkpoint and the best solution so far, which is returned and not
        saved. The same call continues.
    storage_options : mapping, optional
        Passed to fsspec for URLs.

    Returns
    -------
    Solution
        The best solution found; a run that did not converge warns with `NotConverged`.

    Examples
    --------
    >>> import scipy.sparse, snmf_dist, tempfile
    >>> path = tempfile.mkdtemp() + "/cliques.zarr"
    >>> cliques = scipy.sparse.block_diag([np.ones((4, 4)), np.ones((3, 3))])
    >>> _ = snmf_dist.import_graph(cliques, path)
    >>> solution = snmf_dist.fit(path, 2)
    >>> solution.status.converged, sorted(solution.sizes.tolist())
    (True, [3, 4])
    """
    k = whole_number("k", k, 1)
    result_path = None if out is None else storage.normal_path(out)
    if save_state and result_path is None:
        raise InputError("save_state is set, but there is nowhere to save to; give out= too")
    if result_path is not None:
        storage.check_free(result_path, RESULT, overwrite=overwrite, options=storage_options)
    with nullcontext() if result_path is None else only_writer(result_path):
        graph = find_graph(zarr_path, graph_settings, storage_options)
        settings = check_fit(
            graph,
            k=k,
            solver=solver,
            init=init,
            rho=rho,
            stop=stop,
            tol=tol,
            max_iter=max_iter,
            n_init=n_init,
            basis_columns=basis_columns,
            specks=specks,
            seed=seed,
            block_rows=block_rows,
            evaluate_every=evaluate_every,
        )
        warm = open_start(graph, init, settings, storage_options)
        client = synchronous(cluster.current_client())
        if client is not None:
            cluster.check_workers(client, graph.path, graph.options)
        chosen = _plan(
            graph,
            k,
            solver=solver,
            init=settings["init"],
            n_init=n_init,
            basis_columns=settings["basis_columns"],
            memory_limit=memory_limit,
            block_rows=block_rows,
        )
        listeners = [LogLines()] if listeners is None else listeners
        given = [listeners] if isinstance(listeners, Listener) else listeners
        guarded: list[Listener] = [Guarded(listener) for listener in given]
        save = None
        if result_path is not None:
            files.check_room(result_path, graph.n, k, graph.dtype, state=SOLVERS[solver].arrays * save_state)
            saving = {"save_state": save_state, "overwrite": overwrite, "options": storage_options}
            save = partial(save_solution, result_path, saving)
        limits: Any = {"every": checkpoint_every, "time_limit": time_limit, "resume": resume}
        keeper = open_keeper(graph.fingerprint, settings, result_path, **limits, options=storage_options)
        if client is not None and chosen.workers:
            guarded.append(Gauges(client, result_path or graph.path, keeper))
        how: Any = {"plan": chosen, "client": client, "keeper": keeper, "save": save, "out": result_path}
        solution = _solve(graph, settings, warm, guarded, **how)
    warn_of(solution)
    return solution


def _solve(
    graph: GraphStore,
    settings: dict[str, Any],
    warm: Solution | np.ndarray | None,
    listeners: list[Listener],
    *,
    plan: Plan,
    client: Any,
    keeper: CheckpointKeeper,
    save: Callable[[Solution], Solution] | None = None,
    out: str | None = None,
) -> Solution:
    """Run, save, and tell the listeners when it begins and ends; checkpoints go when the result is saved."""
    status, saved = None, False
    for listener in listeners:
        listener.on_start(dict(settings))
    try:
        losses = nullcontext() if client is None else cluster.explain_losses()
        with machine.one_blas_thread(), losses:
            solution = solve_graph(graph, settings, warm, listeners, plan=plan, keeper=keeper, save=save)
            status = solution.status
            saved = save is not None and status is not Status.OUT_OF_TIME
            return solution
    finally:
        keeper.close(done=saved, results=[] if out is None else [out])
        for listener in listeners:
            listener.on_end(status)


def plan_fit(
    graph: str | os.PathLike[str] | GraphStore,
    k: int,
    *,
    solver: str = "admm",
    init: str | os.PathLike[str] | Solution | np.ndarray = "kmeans",
    n_init: int = 1,
    basis_columns: int | None = None,
    memory_limit: int | str | None = None,
    workers: int | None = None,
    threads: int | None = None,
    block_rows: int | None = None,
    storage_options: storage.Options = None,
) -> Plan:
    """Say how `fit` would run on a graph store and what memory it would need; nothing is read but its manifest.

    Parameters
    ----------
    graph : str, path-like or GraphStore
        The graph store.
    memory_limit : int or str, optional
        Bytes a process may use, as ``"4GiB"``; by default a worker's limit, or half of this machine's memory.
    workers : int, optional
        Number of worker processes; by default those of the current client, or none.
    threads : int, optional
        Number of threads of a process; by default those of a worker, or the cores of this machine.
    k, solver, init, n_init, basis_columns, block_rows, storage_options
        As in `fit`.

    Returns
    -------
    Plan
        ``plan.way`` is the way chosen; ``plan.lines()`` show all.

    Raises
    ------
    DoesNotFit
        There is no way to keep within the limit.

    Examples
    --------
    >>> import scipy.sparse, snmf_dist, tempfile
    >>> path = tempfile.mkdtemp() + "/cliques.zarr"
    >>> _ = snmf_dist.import_graph(scipy.sparse.block_diag([np.ones((4, 4)), np.ones((3, 3))]), path)
    >>> snmf_dist.plan_fit(path, 2).way.name
    'in memory'
    """
    store = graph if isinstance(graph, GraphStore) else open_graph(graph, storage_options=storage_options)
    k = whole_number("k", k, 1, store.n, why=f", the rows of {store.path}")
    given = {"workers": workers, "threads": threads, "block_rows": block_rows, "n_init": n_init}
    given["basis_columns"] = basis_columns
    for name, value in given.items():
        if value is not None:
            whole_number(name, value, 1)
    choice("solver", solver, tuple(SOLVERS))
    name = init if isinstance(init, str) and init in INITS else name_start(init, n_init=n_init)
    open_start(store, init, {"init": name, "k": k}, storage_options)
    return _plan(
        store,
        k,
        solver=solver,
        init=name,
        n_init=n_init,
        basis_columns=basis_columns,
        memory_limit=memory_limit,
        workers=workers,
        threads=threads,
        block_rows=block_rows,
    )


def _plan(
    store: GraphStore,
    k: int,
    *,
    solver: str,
    init: str,
    n_init: int,
    basis_columns: int | None,
    memory_limit: int | str | None,
    block_rows: int | None,
    workers: int | None = None,
    threads: int | None = None,
) -> Plan:
    """Plan a run whose settings are checked; `init` is a name, and "array" or "solution" if a start is given."""
    if workers is None:
        workers = 0 if synchronous(cluster.current_client()) is None else cluster.n_workers()
    return plan(
        store.n,
        store.nnz,
        k,
        dtype=store.dtype,
        arrays=SOLVERS[solver].arrays,
        task_columns=SOLVERS[solver].task_columns,
        init=init if init in INITS else "random",
        n_init=n_init,
        basis_columns=basis_columns,
        memory=cluster.memory_limit(memory_limit),
        workers=workers,
        threads=threads or (cluster.worker_threads() if workers else machine.threads() + 1),
        halo=store.coupling()["halo"],
        block_rows=block_rows,
        stored_rows=int(np.diff(store.bounds).max()),
    )
