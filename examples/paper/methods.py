"""Every method of the paper, and what a practitioner would pick today, behind one signature.

``run(name, problem, seed)`` gives labels, seconds, products with A and the objective. The SNMF methods that begin
at random share their start: it depends on the graph, k and the seed alone. Seconds are those of the method; the
graph is made before. Methods whose package is not installed raise `Absent`, which says so.
"""

import time
import warnings
from collections.abc import Callable, Iterable
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NamedTuple

import dask
import numpy as np
from scipy import linalg, sparse
from sets import Problem
from symnmf import symnmf
from threadpoolctl import threadpool_limits

import snmf_dist

DENSE = 3000  # rows up to which eigenvectors are taken from LAPACK: all of them are right, repeated or not
PAPER = {"stop": "paper", "tol": 1e-5, "max_iter": 1000, "evaluate_every": 100}  # 1000 is the default of `fit`
UNFINISHED = "out of time"  # the note of a run whose labels are no result, and whose seconds are at least so many
TRIES = 12  # resolutions that Leiden is run with to find the one that gives k clusters


class Absent(Exception):
    """A method that cannot be run here; the text says why."""


class Found(NamedTuple):
    """What a method found.

    Attributes
    ----------
    labels : ndarray of int, (n,)
        In the order of the points.
    seconds, cpu : float
        Of the method, its start included, the graph not: by the clock, and of the processor. With one thread the
        second is the one to compare on a machine that does other things too.
    products : int or None
        Products with A, where it is made of them.
    objective : float or None
        ‖A − LLᵀ‖², if it gives an L.
    note : str
        What a reader of the figures should know.
    """

    labels: np.ndarray
    seconds: float
    cpu: float
    products: int | None = None
    objective: float | None = None
    note: str = ""


def run(name: str, problem: Problem, seed: int, *, seconds: float = np.inf, threads: int = 1) -> Found:
    """Run a method by its name, one of `METHODS`.

    Parameters
    ----------
    problem : Problem
        Graph, points and k.
    seed : int
        Of the start, or of whatever else is random in the method.
    seconds : float, optional
        Of the processor, after which SymNMF gives up with what it has.
    threads : int, default 1
        For BLAS and for Dask, so that all methods have the same.
    """
    with (
        threadpool_limits(threads),
        dask.config.set(num_workers=threads),
        warnings.catch_warnings(action="ignore"),  # of runs that do not converge: the note says it
    ):
        return METHODS[name](problem, seed, seconds)


def warm_up(names: Iterable[str]) -> None:
    """Compile and import what these methods need, so that none is timed doing so."""
    import tempfile

    W = sparse.block_diag([np.ones((6, 6))] * 3, format="csr")
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(action="ignore"):
        graph = snmf_dist.import_graph(W, f"{folder}/warm.zarr", dtype="float32")
        for name in names:
            try:
                run(name, Problem(graph, W, np.abs(np.random.default_rng(0).normal(size=(18, 4))), 3), 0)
            except Absent:
                continue


def shared_start(A: sparse.csr_matrix, k: int, seed: int) -> np.ndarray:
    """Uniform on [0, 2·sqrt(mean(A)/k)), (n, k)."""
    n = A.shape[0]
    return np.random.default_rng(seed).uniform(0, 2 * np.sqrt(A.sum() / n / n / k), (n, k))


def objective(A: sparse.csr_matrix, L: np.ndarray) -> float:
    """‖A − LLᵀ‖² = ‖A‖² − 2 tr(LᵀAL) + ‖LᵀL‖²."""
    L = np.asarray(L, dtype=float)
    return float((A.data**2).sum() - 2 * (L * (A @ L)).sum() + ((L.T @ L) ** 2).sum())


def _now() -> tuple[float, float]:
    return time.perf_counter(), time.process_time()


def _since(begin: tuple[float, float]) -> tuple[float, float]:
    """Seconds by the clock, and of the processor."""
    return time.perf_counter() - begin[0], time.process_time() - begin[1]


def _fit(**settings: Any) -> Callable[[Problem, int, float], Found]:
    """`snmf_dist.fit` with these settings; those without an init begin at the shared start."""

    def method(problem: Problem, seed: int, seconds: float) -> Found:
        given = {"init": shared_start(problem.A, problem.k, seed), "seed": seed, **settings}
        begin = _now()
        solution = snmf_dist.fit(problem.graph, problem.k, **given)
        spent = _since(begin)
        note = "" if solution.status.converged else solution.status.name
        value = objective(problem.A, solution.membership.compute())
        return Found(solution.labels, *spent, solution.n_products, value, note)

    return method


def _symnmf(problem: Problem, seed: int, seconds: float) -> Found:
    start = shared_start(problem.A, problem.k, seed)
    begin = _now()
    found = symnmf(problem.A, start, seconds=seconds)
    spent = _since(begin)
    note = "" if found.ended == "converged" else found.ended
    return Found(found.H.argmax(axis=1), *spent, found.products, objective(problem.A, found.H), note)


def _spectral(**kmeans: Any) -> Callable[[Problem, int, float], Found]:
    """Normalised spectral clustering (Ng, Jordan, Weiss): k-means of the eigenvectors' rows, of unit length."""

    def method(problem: Problem, seed: int, seconds: float) -> Found:
        from sklearn.cluster import KMeans

        begin = _now()
        U = _eigenvectors(problem.A, problem.k, seed)
        U = U / np.maximum(np.linalg.norm(U, axis=1, keepdims=True), 1e-300)
        labels = KMeans(problem.k, random_state=seed, **kmeans).fit_predict(U)
        return Found(labels, *_since(begin))

    return method


def _eigenvectors(A: sparse.csr_matrix, k: int, seed: int) -> np.ndarray:
    """The k leading ones; by a block method for many rows, since Lanczos misses eigenvalues that repeat."""
    n = A.shape[0]
    if n <= DENSE:
        return linalg.eigh(A.toarray(), subset_by_index=(n - k, n - 1))[1]
    block = np.random.default_rng(seed).standard_normal((n, k + 10))
    values, U = sparse.linalg.lobpcg(A, block, tol=1e-4, maxiter=300)
    return U[:, np.argsort(-values)[:k]]


def _als(problem: Problem, seed: int, seconds: float) -> Found:
    """NMF of the points by alternating least squares, negative entries set to 0, with MATLAB's limits."""
    X, k = problem.X, problem.k
    n, d = X.shape
    begin = _now()
    W, residual = np.random.default_rng(seed).uniform(size=(n, k)), np.inf
    norm_X = float(sparse.linalg.norm(X) ** 2 if sparse.issparse(X) else np.vdot(X, X))
    for _ in range(100):
        H = np.maximum(linalg.lstsq(W.T @ W, (X.T @ W).T)[0], 0)
        XH, G = X @ H.T, H @ H.T
        new = np.maximum(linalg.lstsq(G, XH.T)[0].T, 0)
        before, residual = residual, norm_X - 2 * float((new * XH).sum()) + float(((new.T @ new) * G).sum())
        residual = np.sqrt(max(residual, 0) / n / d)
        moved = np.abs(new - W).max() / (np.sqrt(np.finfo(float).eps) + np.abs(W).max())
        W = new
        if moved <= 1e-4 or before - residual <= 1e-4 * max(1.0, before if np.isfinite(before) else 1.0):
            break
    labels = (W * np.linalg.norm(H, axis=1)).argmax(axis=1)  # with parts of unit length, as MATLAB returns them
    return Found(labels, *_since(begin))


def _sklearn_nmf(of: str, init: str) -> Callable[[Problem, int, float], Found]:
    """scikit-learn's NMF of the points or of A; the largest entry of a row is its label."""

    def method(problem: Problem, seed: int, seconds: float) -> Found:
        from sklearn.decomposition import NMF

        begin = _now()
        model = NMF(problem.k, init=init, random_state=seed)
        W = model.fit_transform(getattr(problem, of))
        labels = (W * np.linalg.norm(model.components_, axis=1)).argmax(axis=1)
        return Found(labels, *_since(begin))

    return method


def _kmeans(problem: Problem, seed: int, seconds: float) -> Found:
    from sklearn.cluster import KMeans

    begin = _now()
    labels = KMeans(problem.k, n_init=10, random_state=seed).fit_predict(problem.X)
    return Found(labels, *_since(begin))


def _leiden(problem: Problem, seed: int, seconds: float) -> Found:
    """Leiden on modularity; the resolution is bisected until it gives k clusters, or as near as it comes."""
    try:
        import igraph
    except ImportError:
        raise Absent("needs igraph, which is not installed") from None
    import random

    upper = sparse.triu(problem.A, 1).tocoo()
    begin = _now()
    edges = np.column_stack([upper.row, upper.col]).tolist()
    graph = igraph.Graph(n=problem.A.shape[0], edges=edges, edge_attrs={"weight": upper.data})
    igraph.set_random_number_generator(random.Random(seed))
    low, high, at, best = 1e-4, 1e2, 1.0, None
    for _ in range(TRIES):
        found = graph.community_leiden("modularity", weights="weight", resolution=at, n_iterations=-1)
        if best is None or abs(len(found) - problem.k) < abs(len(best) - problem.k):
            best = found
        if len(found) == problem.k:
            break
        low, high = (at, high) if len(found) < problem.k else (low, at)
        at = float(np.sqrt(low * high))
    note = "" if len(best) == problem.k else f"{len(best)} clusters"
    return Found(np.array(best.membership), *_since(begin), note=note)


def _dask_ml(problem: Problem, seed: int, seconds: float) -> Found:
    """Nyström spectral clustering of the points with a Gaussian kernel as wide as their median distance."""
    try:
        version("dask-ml")
    except PackageNotFoundError:
        raise Absent("needs dask-ml, which is not installed") from None
    if sparse.issparse(problem.X):
        raise Absent("takes dense points only")
    import dask.array
    from dask_ml.cluster import SpectralClustering

    X = np.asarray(problem.X, dtype=np.float64)
    pairs = np.random.default_rng(seed).integers(0, len(X), (2, 1000))
    width = float(np.median(((X[pairs[0]] - X[pairs[1]]) ** 2).sum(axis=1)))
    begin = _now()
    model = SpectralClustering(
        problem.k, gamma=1 / width, n_components=min(100, len(X) - 1), random_state=seed
    ).fit(dask.array.from_array(X, chunks=(max(len(X) // 2, 1), -1)))
    return Found(np.asarray(model.labels_), *_since(begin))


METHODS: dict[str, Callable[[Problem, int, float], Found]] = {
    "ADMM": _fit(solver="admm", rho=0.1, **PAPER),
    "APG": _fit(solver="apg", rho=1.0, **PAPER),
    "SymNMF": _symnmf,
    "Spec": _spectral(init="random", n_init=1),
    "NMF": _als,
    "default": _fit(init="kmeans"),
    "ADMM, our stop": _fit(solver="admm", rho=0.1, stop="auto"),
    "HALS": _fit(solver="hals"),
    "karateclub settings": _fit(solver="admm", rho=100.0, **{**PAPER, "max_iter": 200}),
    "Spec, 10 k-means++": _spectral(init="k-means++", n_init=10),
    "k-means": _kmeans,
    "NMF, scikit-learn": _sklearn_nmf("X", "random"),
    "NMF of A, nndsvda": _sklearn_nmf("A", "nndsvda"),
    "Leiden": _leiden,
    "dask-ml": _dask_ml,
}
# those that minimise ‖A − LLᵀ‖²
SNMF = ("ADMM", "APG", "SymNMF", "default", "ADMM, our stop", "HALS", "karateclub settings")
