"""The line of leaves that rows are stored along."""

import numpy as np

from snmf_dist.graph.build.partition import make_partition, place


def share_cut(X, partition, parts):
    """Share of the points with their nearest neighbour in another part, if rows are stored leaf by leaf."""
    from sklearn.neighbors import NearestNeighbors

    part = np.empty(len(X), dtype=int)
    part[np.argsort(place(partition, X).leaf, kind="stable")] = np.arange(len(X)) * parts // len(X)
    nearest = NearestNeighbors(n_neighbors=2).fit(X).kneighbors(X, return_distance=False)[:, 1]
    return float(np.mean(part != part[nearest]))


def test_clusters_stay_in_one_piece():
    random = np.random.default_rng(0)
    y = random.integers(0, 12, 6000)
    centres = 5 * random.standard_normal((12, 8))
    X = (centres[y] + random.standard_normal((6000, 8))).astype(np.float32)
    partition = make_partition(X, 1, n=10**6, replication=1.0, seed=0)
    leaf_of = np.linalg.norm(partition.leaves[:, None] - centres, axis=2).argmin(axis=1)
    assert len(partition.leaves) >= 48
    assert np.sum(np.diff(leaf_of) != 0) == 11
    assert share_cut(X, partition, 2) < 0.04


def test_without_clusters_cuts_are_straight():
    X = np.random.default_rng(0).uniform(size=(6000, 2)).astype(np.float32)
    partition = make_partition(X, 1, n=10**6, replication=1.0, seed=0)
    assert share_cut(X, partition, 2) < 0.04  # a straight cut through 6000 points passes some 80 of them


def test_few_leaves_have_an_order_too():
    for n in (1, 8, 20):
        X = np.random.default_rng(0).uniform(size=(n, 2)).astype(np.float32)
        assert len(make_partition(X, 1, n=n, replication=1.0, seed=0).leaves) == max(1, min(16, n // 8))
