"""The data sets of the benchmarks as graph stores, with their labels."""

import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

import snmf_dist
from tests.helpers import data_folder

SYNTHETIC = tuple(f"synthetic {i}" for i in range(1, 7))
GRAPHS = {
    "SBM 5000": "graphchallenge_sbm_5000",
    "SBM 20000": "graphchallenge_sbm_20000",
    "Coauthor CS": "coauthor_cs",
}
LABELLED = (*SYNTHETIC, "COIL-20", "Reuters", "MNIST", *GRAPHS)
FRESH = range(1000, 1030)  # seeds that no constant of the package was chosen with


class Labelled(NamedTuple):
    """A graph store, the known label of each row, and how many labels there are."""

    graph: snmf_dist.GraphStore
    y: np.ndarray
    k: int


def load(name: str, folder: str, **imported: Any) -> Labelled:
    """Build the graph of a set in `folder`, or open it if it is there; `imported` are settings of its import."""
    path = os.path.join(folder, f"{name.replace(' ', '-')}.zarr")
    source, y, settings = _read(name)
    k = len(np.unique(y))
    if os.path.exists(path):
        return Labelled(snmf_dist.open_graph(path), y, k)
    if name in GRAPHS:
        return Labelled(
            snmf_dist.import_graph(source, path, symmetrize="max", self_loops="drop", **imported), y, k
        )
    return Labelled(snmf_dist.build_graph(source, path, **settings), y, k)


def _read(name: str) -> tuple:
    """Points or edges, labels, and settings of the graph."""
    if name == "blobs":
        random = np.random.default_rng(0)
        centres, y = 0.6 * random.standard_normal((20, 32)), random.integers(0, 20, 10_000)
        return centres[y] + random.standard_normal((10_000, 32)), y, {}
    folder: Path = data_folder()
    if name in SYNTHETIC:
        with np.load(folder / "zelnik_perona.npz") as file:
            return file[f"X{name[-1]}"], file[f"y{name[-1]}"], {}
    if name == "Reuters":
        path = folder / "reuters21578_top20.npz"
        return sparse.load_npz(path), np.load(path)["y"], {"metric": "cosine"}
    if name in GRAPHS:
        with np.load(folder / f"{GRAPHS[name]}.npz") as file:
            ends, n = (file["src"], file["dst"]), int(file["n"])
            return sparse.coo_matrix((np.ones(len(ends[0])), ends), shape=(n, n)), file["y"], {}
    with np.load(folder / {"COIL-20": "coil20_32x32.npz", "MNIST": "mnist70k.npz"}[name]) as file:
        return file["X"].astype(np.float32), file["y"], {}
