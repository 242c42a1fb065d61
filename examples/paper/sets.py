"""The paper's data sets, their random subsets of classes, and the graphs of those."""

import os
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

import snmf_dist

FILES = {"COIL-20": "coil20_128x128.npz", "Reuters": "reuters21578_top20.npz"}
SYNTHETIC = tuple(f"synthetic {i}" for i in range(1, 7))


class Points(NamedTuple):
    """Points (n, d), dense or CSR, the class of each, and how they are compared."""

    X: Any
    y: np.ndarray
    metric: str = "euclidean"


class Problem(NamedTuple):
    """What a method is given: the graph as a store and as a matrix in the points' own order, the points, and k."""

    graph: snmf_dist.GraphStore
    A: sparse.csr_matrix
    X: Any
    k: int


def data_file(name: str) -> Path:
    """Find a data file in ``$SNMF_DATA``, or in ``../shared/data`` beside the repository."""
    beside = Path(__file__).resolve().parents[3] / "shared" / "data"
    path = Path(os.environ.get("SNMF_DATA", beside)) / name
    if not path.exists():
        raise SystemExit(f"{path}: no such file; set SNMF_DATA to the folder that has {name}")
    return path


def read_points(name: str) -> Points:
    """Read a data set by its name: one of `SYNTHETIC` or of `FILES`."""
    if name in SYNTHETIC:
        with np.load(data_file("zelnik_perona.npz")) as file:
            return Points(file[f"X{name[-1]}"], file[f"y{name[-1]}"])
    path = data_file(FILES[name])
    with np.load(path) as file:
        y = file["y"]
        if "indptr" not in file.files:
            return Points(file["X"].astype(np.float32), y)
    return Points(sparse.load_npz(path).tocsr(), y, "cosine")


def draw_classes(points: Points, k: int, subset: int) -> Points:
    """The rows of `k` classes drawn at random; the draw depends on `k` and the number of the subset alone."""
    classes = np.unique(points.y)
    if k == len(classes):
        return points
    chosen = np.random.default_rng([k, subset]).choice(classes, k, replace=False)
    rows = np.flatnonzero(np.isin(points.y, chosen))
    return points._replace(X=points.X[rows], y=points.y[rows])


def make_problem(points: Points, k: int, folder: str | os.PathLike[str]) -> Problem:
    """Build the paper's graph of points (q = ⌊log₂ n⌋ + 1, 7th neighbour) in a folder, and read it."""
    graph = snmf_dist.build_graph(points.X, tempfile.mkdtemp(dir=folder) + "/graph.zarr", metric=points.metric)
    A = graph.read_rows(0, graph.n).astype(np.float64)
    back = np.argsort(graph.order)
    return Problem(graph, A[back][:, back].tocsr(), points.X, k)
