"""SNMF: the scikit-learn face of `build_graph` and `fit`."""

import io
import os
import tempfile
import warnings
import zipfile
from typing import Any, Self

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from snmf_dist.api import fit
from snmf_dist.errors import GraphWarning, NotConverged
from snmf_dist.graph.build import build_graph
from snmf_dist.graph.ingest import import_graph
from snmf_dist.graph.store import open_graph
from snmf_dist.result import placing


class SNMF(ClusterMixin, BaseEstimator):
    """Cluster points, or a similarity matrix, in memory: A ≈ LLᵀ with L ≥ 0.

    For data that does not fit use `build_graph` and `fit`; this class goes through the same two, with files
    in a temporary folder.

    Parameters
    ----------
    n_clusters : int, default 8
        Number of clusters, K.
    affinity : {"nearest_neighbors", "precomputed"}, default "nearest_neighbors"
        Build the neighbour graph of the points, or take X as the (n, n) similarities.
    n_neighbors : int, optional
        Number of nearest neighbours of a point, q; by default ⌊log₂ n⌋ + 1.
    metric : {"euclidean", "cosine"}, default "euclidean"
        Metric of the neighbour graph.
    solver, init, rho, stop, tol, max_iter, n_init
        As in `fit`; `init` by name.
    random_state : int, RandomState instance or None, default None
        Seed of the start and of the neighbour search.

    Attributes
    ----------
    labels_ : ndarray of int, shape (n,)
        Cluster of each row; −1 for rows that no cluster touches.
    membership_ : ndarray, shape (n, n_clusters)
        The factor L: how much each row belongs to each cluster.
    n_iter_ : int
        Iterations done.
    status_ : Status
        How the run ended.

    Examples
    --------
    >>> from sklearn.datasets import make_blobs
    >>> X, _ = make_blobs(60, centers=2, random_state=0, cluster_std=0.5)
    >>> SNMF(2, random_state=0).fit_predict(X).shape
    (60,)
    """

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        affinity: str = "nearest_neighbors",
        n_neighbors: int | None = None,
        metric: str = "euclidean",
        solver: str = "admm",
        init: str = "kmeans",
        rho: float | str = "auto",
        stop: str = "auto",
        tol: float | None = None,
        max_iter: int = 1000,
        n_init: int = 1,
        random_state: Any = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.affinity = affinity
        self.n_neighbors = n_neighbors
        self.metric = metric
        self.solver = solver
        self.init = init
        self.rho = rho
        self.stop = stop
        self.tol = tol
        self.max_iter = max_iter
        self.n_init = n_init
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        """Say that sparse input is welcome, and that a precomputed X is pairwise."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.pairwise = self.affinity == "precomputed"
        return tags

    def fit(self, X: Any, y: Any = None) -> Self:
        """Cluster X: points (n, d), or similarities (n, n) if ``affinity="precomputed"``."""
        if self.affinity not in ("nearest_neighbors", "precomputed"):
            raise ValueError(f"affinity is {self.affinity!r}; expected 'nearest_neighbors' or 'precomputed'")
        X = validate_data(self, X, accept_sparse="csr", dtype=[np.float64, np.float32], ensure_min_samples=2)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
            warnings.simplefilter("ignore", GraphWarning)  # said again by what it does to the result
            warnings.simplefilter("ignore", NotConverged)  # scikit-learn has its own, below
            path = os.path.join(folder, "graph.zarr")
            if self.affinity == "precomputed":
                graph = import_graph(sparse.csr_matrix(X), path, dtype="float64")
            else:
                graph = build_graph(X, path, neighbors=self.n_neighbors, metric=self.metric, seed=seed)
            names = ("solver", "init", "rho", "stop", "tol", "max_iter", "n_init")
            settings = {name: getattr(self, name) for name in names}
            solution = fit(graph, self.n_clusters, seed=seed, **settings)
            self.membership_ = np.asarray(solution.membership)
            self._graph = _packed(path)
        self._points = X if self.affinity == "nearest_neighbors" else None
        self.labels_ = solution.labels
        self.n_iter_ = solution.n_iter
        self.status_ = solution.status
        if not solution.status.converged:
            warnings.warn(f"SNMF: {solution.status.value}", ConvergenceWarning, stacklevel=2)
        return self

    def predict(self, X: Any) -> np.ndarray:
        """Labels of new points, (m,); see `Solution.place`. The fitted points are kept for this.

        X are points, (m, d), or, if ``affinity="precomputed"``, similarities to the fitted rows, (m, n).
        """
        check_is_fitted(self)
        X = validate_data(self, X, accept_sparse="csr", dtype=[np.float64, np.float32], reset=False)
        new = sparse.csr_matrix(X) if self._points is None else X
        with tempfile.TemporaryDirectory() as folder:
            with zipfile.ZipFile(io.BytesIO(self._graph)) as packed:
                packed.extractall(folder)
            graph = open_graph(folder)
            known = {"fingerprint": graph.fingerprint}
            found = placing.place(self.membership_, known, new, points=self._points, graph=graph)
            return placing.gather(found).labels


def _packed(path: str) -> bytes:
    """A graph store without its blocks, which new points do not need."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as packed:
        for folder, _, names in os.walk(path):
            inside = os.path.relpath(folder, path)
            if inside.split(os.sep)[0] != "blocks":
                for name in names:
                    packed.write(os.path.join(folder, name), os.path.join(inside, name))
    return file.getvalue()
