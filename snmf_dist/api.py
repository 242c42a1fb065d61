"""The verbs: check, wire the stages, return."""

import os
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

import numpy as np
from scipy import sparse

from snmf_dist import cluster, storage
from snmf_dist.errors import InputError, NotConverged, ResultNotSaved, ResultWarning
from snmf_dist.graph.build import build_graph
from snmf_dist.graph.importing import row_bounds
from snmf_dist.graph.points import is_points
from snmf_dist.graph.store import GraphStore, open_graph
from snmf_dist.listeners import Listener, LogLines
from snmf_dist.result.files import KIND as RESULT
from snmf_dist.result.solution import Solution, open_solution
from snmf_dist.rows import (
    Rows,
    Slices,
    gather_rows,
    hold,
    load_rows,
    map_rows,
    rows_like,
    settle,
    sum_rows,
    take_rows,
)
from snmf_dist.settings import choice, positive_number, whole_number
from snmf_dist.solve.admm import ADMM
from snmf_dist.solve.basis import Basis, leading_basis
from snmf_dist.solve.kernels import entry_sums, row_labels
from snmf_dist.solve.loop import Outcome, run
from snmf_dist.solve.start import kmeans_start, random_start, spectral_start

SOLVERS = {"admm": ADMM}
INITS = ("random", "spectral", "kmeans")


def fit(
    zarr_path: str | os.PathLike[str] | GraphStore,
    k: int,
    *,
    solver: str = "admm",
    rho: float = 0.1,
    tol: float = 1e-5,
    max_iter: int = 1000,
    seed: int = 0,
    init: str = "random",
    out: str | os.PathLike[str] | None = None,
    block_rows: int | None = None,
    evaluate_every: int = 10,
    graph_settings: Mapping[str, Any] | None = None,
    listeners: Sequence[Listener] | None = None,
    overwrite: bool = False,
    storage_options: storage.Options = None,
) -> Solution:
    """Cluster a similarity graph: A ≈ LLᵀ with L ≥ 0, (n, k).

    Runs on the current `distributed.Client` if there is one, else on Dask's threads in this process.

    Parameters
    ----------
    zarr_path : str, path-like or GraphStore
        A graph store, as `build_graph` and `import_graph` write it, by path or URL; or points (a Zarr array,
        ``.npy`` or ``.npz``), whose graph is then built beside them as ``<points>.graph.zarr``, or reused
        if it is there and was made from the same data with the same settings.
    k : int
        Number of clusters, 1 to n.
    solver : {"admm"}, default "admm"
        The algorithm: the paper's SNMF_ADMM.
    rho : float, default 0.1
        Penalty of ADMM; the paper's value, for a normalised A.
    tol : float, default 1e-5
        Stop when ‖ΔX‖/‖X‖ + ‖ΔY‖/‖Y‖ + ‖ΔL‖/‖L‖ is at most this; the paper's value.
    max_iter : int, default 1000
        Stop after so many iterations.
    seed : int, default 0
        Of the random start.
    init : {"random", "spectral", "kmeans"}, default "random"
        "random" is uniform on [0, 2·sqrt(mean(A)/k)). The other two begin at the leading eigenvectors of A
        (some 30 to 60 products): "spectral" rotates and clips them, "kmeans" takes the clusters of spectral
        clustering; both need far fewer iterations than a random start and depend little on the seed.
    out : str or path-like, optional
        Also save the solution here.
    block_rows : int, optional
        Rows a block of the state, if not the blocks of the store.
    evaluate_every : int, default 10
        How often to take objective and KKT distance; each costs half an iteration.
    graph_settings : mapping, optional
        Settings of `build_graph`, if `zarr_path` holds points.
    listeners : sequence of Listener, optional
        Told of each iteration. By default lines go to the logger ``snmf_dist.listeners``.
    overwrite : bool, default False
        Replace the result at `out`.
    storage_options : mapping, optional
        Passed to fsspec for URLs.

    Returns
    -------
    Solution
        The best there is; a run that did not converge warns with `NotConverged`.

    Examples
    --------
    >>> import scipy.sparse, snmf_dist, tempfile
    >>> path = tempfile.mkdtemp() + "/cliques.zarr"
    >>> cliques = scipy.sparse.block_diag([np.ones((4, 4)), np.ones((3, 3))])
    >>> _ = snmf_dist.import_graph(cliques, path)
    >>> solution = snmf_dist.fit(path, 2)
    >>> solution.status.name, sorted(solution.sizes.tolist())
    ('CONVERGED', [3, 4])
    """
    begin = time.perf_counter()
    k = whole_number("k", k, 1)
    result_path = None if out is None else storage.normal_path(out)
    if result_path is not None:
        storage.check_free(result_path, RESULT, overwrite=overwrite, options=storage_options)
    graph = _graph(zarr_path, graph_settings, storage_options)
    settings = _check_settings(
        graph,
        k=k,
        solver=solver,
        rho=rho,
        tol=tol,
        max_iter=max_iter,
        seed=seed,
        init=init,
        block_rows=block_rows,
        evaluate_every=evaluate_every,
    )
    client = cluster.current_client()
    if client is not None:
        cluster.check_workers(client, graph.path, graph.options)
    place = "threads" if client is None else "cluster"
    listeners = [LogLines()] if listeners is None else listeners
    listeners = [listeners] if isinstance(listeners, Listener) else list(listeners)

    status = None
    for listener in listeners:
        listener.on_start(dict(settings))
    try:
        with cluster.one_blas_thread(), cluster.explain_losses():
            outcome, basis = _solve(graph, settings, listeners, place=place)
            solution = _solution(graph, outcome, basis, settings, begin=begin, place=place)
            status = solution.status
            if result_path is not None:
                solution = _save(solution, result_path, place, overwrite=overwrite, options=storage_options)
    finally:
        for listener in listeners:
            listener.on_end(status)
    _warn(solution, graph.block["made"])
    return solution


def _save(solution: Solution, path: str, place: str, *, overwrite: bool, options: storage.Options) -> Solution:
    """Save, and keep the solution if that fails; what is on a cluster is read from disk from then on."""
    try:
        solution.save(path, overwrite=overwrite, storage_options=options)
    except OSError as error:
        raise ResultNotSaved(
            f"{path}: the result could not be written ({error}); the run is done, and this error's .solution "
            "can be saved elsewhere",
            solution,
        ) from error
    if place == "threads":
        return solution
    return replace(solution, membership=open_solution(path, storage_options=options).membership)


def _graph(
    source: str | os.PathLike[str] | GraphStore,
    settings: Mapping[str, Any] | None,
    options: storage.Options,
) -> GraphStore:
    """Open a graph store, or build the graph of points beside them."""
    if isinstance(source, GraphStore):
        return source
    if not isinstance(source, str | os.PathLike):
        raise InputError(
            f"fit was given a {type(source).__name__}; expected the path of a graph store or of points: write it "
            "with import_graph or build_graph first"
        )
    path = storage.normal_path(source)
    if not is_points(path, options):
        if settings is not None:
            raise InputError(f"{path}: holds a graph, not points; leave graph_settings out")
        return open_graph(path, storage_options=options)
    out = f"{path.removesuffix('/')}.graph.zarr"
    return build_graph(path, out, reuse=True, storage_options=options, **(settings or {}))


def _check_settings(graph: GraphStore, **given: Any) -> dict[str, Any]:
    given["k"] = whole_number("k", given["k"], 1, graph.n, why=f", the rows of {graph.path}")
    for name in ("max_iter", "evaluate_every"):
        given[name] = whole_number(name, given[name], 1)
    given["seed"] = whole_number("seed", given["seed"], 0, 2**64 - 1)
    if given["block_rows"] is not None:
        given["block_rows"] = whole_number("block_rows", given["block_rows"], 1)
    for name in ("rho", "tol"):
        given[name] = positive_number(name, given[name])
    choice("solver", given["solver"], tuple(SOLVERS))
    choice("init", given["init"], INITS)
    finest = 10 * float(np.finfo(graph.dtype).eps)
    if given["tol"] < finest:
        warnings.warn(
            f"tol is {given['tol']:g}, finer than the rounding of a {graph.dtype} graph lets a run settle (about "
            f"{finest:.0e}); loosen tol"
            + (", or import the graph with dtype='float64'" if graph.dtype == np.float32 else ""),
            ResultWarning,
            stacklevel=3,
        )
    return given


def _solve(
    graph: GraphStore, settings: dict[str, Any], listeners: Sequence[Listener], *, place: str
) -> tuple[Outcome, Basis | None]:
    """Read A once, start, iterate."""
    bounds = graph.bounds
    if settings["block_rows"] is not None:
        bounds = row_bounds(graph.n, graph.nnz, settings["block_rows"])
    if len(bounds) == 2 and place == "threads":
        A = graph.read_rows(0, graph.n)  # one block: in memory, without a scheduler
    else:
        meta = sparse.csr_matrix((0, 0), dtype=graph.dtype)
        A = hold(load_rows(graph.reader(), bounds, graph.n, meta=meta))
    _, (sum_A, norm_A) = settle((), sum_rows(entry_sums, A))
    L, basis = _start(A, graph, settings, sum_A=float(sum_A), bounds=bounds)
    outcome = run(
        SOLVERS[settings["solver"]](rho=settings["rho"]),
        A,
        L,
        norm_A=float(norm_A),
        tol=settings["tol"],
        max_iter=settings["max_iter"],
        evaluate_every=settings["evaluate_every"],
        products=0 if basis is None else basis.products,
        listeners=listeners,
    )
    return outcome, basis


def _start(
    A: Rows, graph: GraphStore, settings: dict[str, Any], *, sum_A: float, bounds: np.ndarray
) -> tuple[Rows, Basis | None]:
    """Where L begins, and the eigenvectors it was made from, if any."""
    K, seed = settings["k"], settings["seed"]
    if settings["init"] == "random":
        return random_start(A, K, seed=seed, sum_A=sum_A, dtype=graph.dtype), None
    basis = leading_basis(A, K, seed=seed, dtype=graph.dtype)
    if settings["init"] == "spectral":
        return spectral_start(basis, K), basis
    root = np.sqrt(graph.degree).astype(graph.dtype)[:, None]
    return kmeans_start(basis, K, rows_like(A, Slices(root), 1, dtype=graph.dtype)), basis


def _solution(
    graph: GraphStore,
    outcome: Outcome,
    basis: Basis | None,
    settings: dict[str, Any],
    *,
    begin: float,
    place: str,
) -> Solution:
    """Bring labels and membership into the input's own order."""
    L = outcome.state.L
    labels = gather_rows(map_rows(row_labels, L)).ravel()
    if graph.reordered:
        back = np.argsort(graph.order)
        labels, L = labels[back], take_rows(L, back)
    packages = ("snmf-dist", "numpy", "scipy", "dask", "distributed", "zarr")
    return Solution(
        labels=labels,
        membership=L,
        status=outcome.status,
        history=outcome.history,
        settings=settings,
        provenance={
            "graph": graph.path,
            "fingerprint": graph.fingerprint,
            "place": place,
            "seconds": round(time.perf_counter() - begin, 3),
            "finished": datetime.now(UTC).isoformat(timespec="seconds"),
            "versions": {name: version(name) for name in packages},
            "eigenvalues": [] if basis is None else basis.values.tolist(),
        },
        state=outcome.state,
    )


def _warn(solution: Solution, made: Mapping[str, Any]) -> None:
    if not solution.status.converged:
        text = f"{solution.status.name} after {solution.n_iter} iterations: {solution.status.value}"
        warnings.warn(text, NotConverged, stacklevel=3)
    components = made.get("components", 0)
    if components > solution.k:
        text = (
            f"the graph falls into {components} components but k is {solution.k}: some share a cluster or "
            "get none; raise k, or build the graph with connect=True"
        )
        warnings.warn(text, ResultWarning, stacklevel=3)
    empty = int(np.count_nonzero(solution.sizes == 0))
    if empty:
        text = f"{empty} of {solution.k} clusters are empty; try a smaller k or another seed"
        warnings.warn(text, ResultWarning, stacklevel=3)
    if solution.n_unassigned:
        text = (
            f"{solution.n_unassigned} of {len(solution.labels)} rows belong to no cluster (label "
            "-1): they have no edges, or their part of the graph got no cluster; raise k"
        )
        warnings.warn(text, ResultWarning, stacklevel=3)
