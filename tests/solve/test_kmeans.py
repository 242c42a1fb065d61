import numpy as np
import pytest
from numpy.testing import assert_array_equal

from snmf_dist.solve import kmeans
from snmf_dist.solve.kmeans import candidate_centres, lloyd, nearest_centres, plus_plus


def blobs(K, n=400, seed=0):
    random = np.random.default_rng(seed)
    y = np.arange(n) % K
    X = np.eye(K)[y] + 0.02 * random.standard_normal((n, K))
    return (X / np.linalg.norm(X, axis=1, keepdims=True)).astype(np.float32), y


def test_every_start_finds_clear_groups():
    X, y = blobs(7)
    centres = candidate_centres(X, 7, runs=16, seed=0)
    assert centres.shape == (16, 7, 7)
    for labels in nearest_centres(X, centres).T:
        assert len(np.unique(labels * 7 + y)) == 7


def test_kmeans_plus_plus_takes_a_row_of_each_clear_group():
    X, _ = blobs(20)
    chosen = plus_plus(X, np.ones(len(X), np.float32), 20, np.random.default_rng(3))
    assert_array_equal(np.sort(chosen.argmax(axis=1)), np.arange(20))


def test_fewer_distinct_rows_than_centres_are_no_trouble():
    X = np.repeat(np.eye(3, dtype=np.float32), 10, axis=0)
    centres = candidate_centres(X, 5, runs=4, seed=0)
    assert np.isfinite(centres).all()
    assert all(len(np.unique(labels)) == 3 for labels in nearest_centres(X, centres).T)


def test_a_weighted_row_counts_as_often_as_its_weight():
    X = np.array([[0.0], [1.0], [10.0]], dtype=np.float32)
    centres = lloyd(X, np.array([3, 1, 1], np.float32), np.array([[0.0], [9.0]], np.float32))
    assert_array_equal(centres, [[0.25], [10.0]])


def test_an_empty_centre_stays_where_it_is():
    X = np.array([[0.0], [1.0]], dtype=np.float32)
    assert_array_equal(lloyd(X, np.ones(2, np.float32), np.array([[0.5], [99.0]], np.float32)), [[0.5], [99.0]])


@pytest.mark.parametrize(("share", "starts"), [(1, 12), (1 / 2, 6), (1 / 100, 3)])
def test_expensive_starts_are_fewer(monkeypatch, share, starts):
    X, K = np.random.default_rng(0).random((60, 5)), 10
    monkeypatch.setattr(kmeans, "BUDGET", share * 16 * X.size * K)
    assert len(candidate_centres(X, K, runs=12, seed=0)) == starts
