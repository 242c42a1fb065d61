"""Labelled sets whose classes are of unequal size, some to choose rules with and others to confirm them with.

The two parts share no subset and no seed. A name says what a set is: ``Reuters/8/101`` is eight classes of Reuters
drawn with seed 101, ``digits/thin/3`` the digits of scikit-learn thinned to geometric class sizes with seed 3,
``digits/half/3`` a random half of them.
"""

import os
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from sklearn.datasets import load_digits

import snmf_dist
from tests.benchmarks.sets import Labelled
from tests.benchmarks.sets import load as load_whole
from tests.helpers import data_folder

RATIO = 20  # of the largest class to the smallest after thinning
SAMPLE = 8000  # rows of MNIST before thinning


class Group(NamedTuple):
    """Sets that are averaged in one line of a table."""

    name: str
    sets: tuple[str, ...]


CHOOSE = (
    Group("Reuters subsets", tuple(f"Reuters/{k}/{seed}" for seed in (1, 2) for k in (6, 8, 10, 12, 14))),
    Group("Reuters", ("Reuters",)),
    Group("MNIST samples, thinned", tuple(f"MNIST/thin/{seed}" for seed in (5, 6, 7))),
    Group("digits, thinned", tuple(f"digits/thin/{seed}" for seed in range(4))),
    Group(
        "MNIST samples",
        tuple(f"MNIST/{what}" for what in ("all/5", "all/6", "all/7", "all/8", "half/1", "half/2")),
    ),
    Group("digits", ("digits/all/0", *(f"digits/half/{seed}" for seed in (1, 2, 3, 4)))),
    Group("COIL-20", ("COIL-20",)),
    Group("COIL-20 subsets", tuple(f"COIL/{what}" for what in ("6/1", "10/1", "10/2", "14/1", "14/2"))),
    Group("shapes", ("synthetic 1", "synthetic 3", "synthetic 5", "spirals/2/0", "rings/3/0")),
    Group("SBM", ("SBM 5000",)),
    Group("whiskers", ("whiskers/8/0", "whiskers/8/1")),
)
CONFIRM = (
    Group("Reuters subsets", tuple(f"Reuters/{k}/{seed}" for seed in (301, 302, 303) for k in (6, 8, 10, 12, 14))),
    Group("MNIST samples, thinned", tuple(f"MNIST/thin/{seed}" for seed in (41, 42, 43, 44))),
    Group("digits, thinned", tuple(f"digits/thin/{seed}" for seed in range(41, 47))),
    Group("COIL-20, thinned", tuple(f"COIL/thin/{seed}" for seed in (41, 42, 43))),
    Group("MNIST samples", tuple(f"MNIST/all/{seed}" for seed in (41, 42, 43, 44))),
    Group("digits", tuple(f"digits/half/{seed}" for seed in range(41, 47))),
    Group("COIL-20 subsets", tuple(f"COIL/{k}/{seed}" for k in (10, 14) for seed in (41, 42, 43))),
    Group(
        "shapes",
        ("synthetic 2", "synthetic 4", "synthetic 6", "spirals/2/7", "rings/3/7", "rings/4/8"),
    ),
    Group("spirals, two arms joined by an edge", ("spirals/3/8",)),
    Group("SBM", ("SBM 20000",)),
    Group("Coauthor CS", ("Coauthor CS",)),
    Group("whiskers", ("whiskers/12/41", "whiskers/12/42")),
)


def load(name: str, folder: str, **imported: Any) -> Labelled:
    """Build the graph of a set in `folder`, or open it if it is there; `imported` are settings of its import."""
    if imported:
        folder = os.path.join(folder, "-".join(f"{key}-{value}" for key, value in imported.items()))
        os.makedirs(folder, exist_ok=True)
    if "/" not in name:
        return load_whole(name, folder, **imported)
    kind, what, seed = name.split("/")
    source, y, settings = MAKERS[kind](what, int(seed))
    path, k = os.path.join(folder, name.replace("/", "-") + ".zarr"), len(np.unique(y))
    if os.path.exists(path):
        return Labelled(snmf_dist.open_graph(path), y, k)
    make = snmf_dist.import_graph if kind == "whiskers" else snmf_dist.build_graph
    return Labelled(make(source, path, **settings, **imported), y, k)


def thin(y: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Rows to keep so that the sizes of the classes fall geometrically to 1/20, the classes in a random order."""
    names = random.permutation(np.unique(y))
    largest = np.bincount(y).max()
    kept = []
    for i, name in enumerate(names):
        rows = np.flatnonzero(y == name)
        size = round(largest * RATIO ** (-i / (len(names) - 1)))
        kept.append(random.choice(rows, min(len(rows), max(size, 4)), replace=False))
    return np.sort(np.concatenate(kept))


def _reuters(what: str, seed: int) -> tuple:
    path = data_folder() / "reuters21578_top20.npz"
    X, y = sparse.load_npz(path), np.load(path)["y"]
    classes = np.random.default_rng(seed * 100 + int(what)).choice(20, int(what), replace=False)
    rows = np.flatnonzero(np.isin(y, classes))
    return X[rows], np.unique(y[rows], return_inverse=True)[1], {"metric": "cosine"}


def _points(X: np.ndarray, y: np.ndarray, what: str, seed: int) -> tuple:
    random = np.random.default_rng(seed)
    if what == "thin":
        rows = thin(y, random)
    elif what == "half":
        rows = np.sort(random.choice(len(y), len(y) // 2, replace=False))
    elif what == "all":
        rows = np.arange(len(y))
    else:  # so many of the classes
        rows = np.flatnonzero(np.isin(y, random.choice(np.unique(y), int(what), replace=False)))
    return X[rows].astype(np.float32), np.unique(y[rows], return_inverse=True)[1], {}


def _digits(what: str, seed: int) -> tuple:
    return _points(*load_digits(return_X_y=True), what, seed)


def _mnist(what: str, seed: int) -> tuple:
    with np.load(data_folder() / "mnist70k.npz") as file:
        X, y = file["X"], file["y"]
    rows = np.random.default_rng(seed).choice(len(y), SAMPLE, replace=False)
    return _points(X[rows], y[rows], what, seed)


def _coil(what: str, seed: int) -> tuple:
    with np.load(data_folder() / "coil20_32x32.npz") as file:
        return _points(file["X"], file["y"], what, seed)


def _spirals(what: str, seed: int) -> tuple:
    """Arms of a spiral, of unequal numbers of points, that a graph of few neighbours keeps apart."""
    random, arms = np.random.default_rng(seed), int(what)
    parts = []
    for i in range(arms):
        t = np.sqrt(random.uniform(0.02, 1, 400 - 60 * i)) * 3 * np.pi
        parts.append(np.stack([t * np.cos(t + 2 * np.pi * i / arms), t * np.sin(t + 2 * np.pi * i / arms)], 1))
    X = np.concatenate(parts) + 0.05 * random.standard_normal((sum(map(len, parts)), 2))
    return X, np.repeat(np.arange(arms), [len(p) for p in parts]), {}


def _rings(what: str, seed: int) -> tuple:
    """Nested rings, the outer ones larger."""
    random, rings = np.random.default_rng(seed), int(what)
    sizes = [150 * (i + 1) for i in range(rings)]
    angle = random.uniform(0, 2 * np.pi, sum(sizes))
    radius = np.repeat(np.arange(1, rings + 1), sizes) + 0.04 * random.standard_normal(sum(sizes))
    X = np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1)
    return X, np.repeat(np.arange(rings), sizes), {}


def _whiskers(what: str, seed: int) -> tuple:
    """A sparse graph with planted groups, degrees of a power law, and paths of a few nodes that hang from it."""
    random, k = np.random.default_rng(seed), int(what)
    n, hanging = 6000, 1200
    y = random.choice(k, n, p=random.dirichlet(np.full(k, 4.0)))
    theta = random.pareto(2.2, n) + 0.4
    ends = []
    for inside, edges in ((True, 4 * n), (False, n)):
        a = random.choice(n, edges, p=theta / theta.sum())
        b = np.empty_like(a)
        for c in range(k):
            mine, others = np.flatnonzero(y[a] == c), np.flatnonzero(y == c)
            pool = others if inside else np.arange(n)
            b[mine] = random.choice(pool, len(mine), p=theta[pool] / theta[pool].sum())
        ends.append(np.stack([a, b]))
    roots = random.integers(0, n, hanging)  # each whisker is a path of three nodes
    new = n + 3 * np.arange(hanging)
    ends += [np.stack([roots, new]), np.stack([new, new + 1]), np.stack([new + 1, new + 2])]
    source, target = np.concatenate(ends, axis=1)
    total = n + 3 * hanging
    W = sparse.coo_matrix((np.ones(len(source)), (source, target)), shape=(total, total)).tocsr()
    W = ((W + W.T) > 0).astype(float)
    return W, np.concatenate([y, np.repeat(y[roots], 3)]), {"self_loops": "drop"}


MAKERS = {
    "Reuters": _reuters,
    "digits": _digits,
    "MNIST": _mnist,
    "COIL": _coil,
    "spirals": _spirals,
    "rings": _rings,
    "whiskers": _whiskers,
}
