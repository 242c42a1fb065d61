import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import snmf_dist
from snmf_dist import errors
from snmf_dist.graph.build.neighbors import nearest_neighbors
from snmf_dist.graph.build.similarity import gaussian_weights, local_scales
from tests.helpers import PAPER, data_file

RANDOM = np.random.default_rng(0)


@pytest.mark.parametrize(("n", "d", "q"), [(50, 3, 6), (200, 1, 9), (30, 40, 29), (2, 2, 1)])
def test_neighbours_are_those_of_a_full_sort(monkeypatch, n, d, q):
    monkeypatch.setattr("snmf_dist.graph.build.neighbors.TILE_ENTRIES", 7 * n)  # several blocks
    X = RANDOM.standard_normal((n, d)) + 100
    found = nearest_neighbors(X, q)
    distances = np.linalg.norm(X[:, None] - X[None], axis=2)
    np.fill_diagonal(distances, np.inf)
    assert_array_equal(found.indices, np.argsort(distances, axis=1)[:, :q])
    assert_allclose(found.distances, np.sort(distances, axis=1)[:, :q], rtol=1e-12)


def test_too_many_neighbours_are_refused():
    with pytest.raises(errors.InputError, match="q is 5; expected 1 to 4"):
        nearest_neighbors(np.zeros((5, 2)), 5)


def test_duplicates_weigh_one_and_are_never_nan():
    weights = gaussian_weights(np.array([0.0, 2.0, 2.0]), np.array([0.0, 0.0, 0.0]), np.array([0.0, 1.0, 0.0]))
    assert_allclose(weights, [1.0, np.exp(-4), 0.0])  # the other end's scale stands in for one that is 0


def test_a_scale_of_zero_gives_way_to_the_nearest_distance_above_it():
    distances = np.array([[0, 0, 3.0, 4.0], [0, 0, 0, 0], [1.0, 2.0, np.inf, np.inf]])
    assert local_scales(distances, p=2).tolist() == [3, 0, 2]
    assert local_scales(distances, p=3).tolist() == [3, 0, 2]


def test_coil20_is_clustered_as_well_as_in_the_paper(tmp_path):
    with np.load(data_file("coil20_32x32.npz")) as file:
        X, y = file["X"], file["y"]
    graph = snmf_dist.build_graph(X, tmp_path / "coil20.zarr")
    fits = [snmf_dist.fit(graph, 20, **PAPER, max_iter=4000, seed=seed) for seed in range(5)]
    assert [solution.status.name for solution in fits] == ["CONVERGED"] * 5
    # the paper: 0.7175, the mean of five random starts
    assert np.mean([snmf_dist.score(solution.labels, y).accuracy for solution in fits]) >= 0.69
