"""Sets whose classes are plain to see: arms of spirals, nested rings, groups in a sparse graph with whiskers."""

import numpy as np
import pytest

import snmf_dist
from tests.benchmarks import unequal

pytestmark = [
    pytest.mark.filterwarnings("ignore::snmf_dist.errors.ResultWarning"),
    pytest.mark.filterwarnings("ignore::snmf_dist.errors.GraphWarning"),
    pytest.mark.filterwarnings("ignore::snmf_dist.errors.NotConverged"),
]


@pytest.mark.parametrize("name", ["spirals/2/7", "spirals/2/11", "rings/3/7", "rings/4/8"])
def test_arms_and_rings_are_found_without_an_error(tmp_path, name):
    graph, y, k = unequal.load(name, str(tmp_path))
    assert graph.components == k  # an arm that one edge joins to another is a harder matter
    solution = snmf_dist.fit(graph, k)
    assert snmf_dist.score(solution.labels, y).accuracy == 1.0
    assert solution.captured <= solution.bound
    assert solution.provenance["basis_converged"]


def test_no_cluster_takes_half_of_a_sparse_graph_with_whiskers(tmp_path):
    graph, y, k = unequal.load("whiskers/8/41", str(tmp_path))
    plain = snmf_dist.import_graph(unequal.MAKERS["whiskers"]("8", 41)[0], tmp_path / "plain.zarr", tau=0)
    solution, before = (snmf_dist.fit(one, k) for one in (graph, plain))
    labelled = solution.labels >= 0
    assert np.bincount(y).max() < len(y) / 2
    assert np.bincount(solution.labels[labelled]).max() < len(y) / 2
    assert solution.n_products <= before.n_products
    scores = [snmf_dist.score(one.labels[labelled], y[labelled]).accuracy for one in (solution, before)]
    assert scores[0] > scores[1]
    assert solution.captured <= solution.bound
