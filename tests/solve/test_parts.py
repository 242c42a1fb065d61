import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

import snmf_dist
from snmf_dist import errors
from snmf_dist.solve.parts import speck_limit
from tests.helpers import planted_graph


def ring(n, seed=0):
    """A cycle: connected, and slow for any eigensolver."""
    return sparse.coo_matrix((np.ones(n), (np.arange(n), (np.arange(n) + 1) % n)), shape=(n, n))


def symmetric(W):
    return sparse.csr_matrix(W + W.T)


def specks(groups=4, pairs=300, loops=19):
    """Planted groups in one component, pairs of nodes, and nodes with a loop alone."""
    W, y = planted_graph(1000, groups, seed=3)
    pair = sparse.csr_matrix([[0.0, 1.0], [1.0, 0.0]])
    W = sparse.block_diag([W, *[pair] * pairs, sparse.eye_array(loops)], format="csr")
    return W, y


@pytest.mark.filterwarnings("ignore:.*rows have no edge")
@pytest.mark.parametrize("loops", ["auto", "keep"])
def test_specks_and_looped_nodes_take_no_cluster(tmp_path, place, loops):
    W, y = specks()
    graph = snmf_dist.import_graph(W, tmp_path / "g.zarr", self_loops=loops, block_rows=400)
    assert graph.components == 1 + 300 + 19
    with pytest.warns(errors.ResultWarning, match="parts of the graph of fewer than 20 rows"):
        solution = snmf_dist.fit(graph, 4)
    assert_array_equal(solution.labels[1000:], -1)
    assert (solution.labels[:1000] >= 0).all()
    assert snmf_dist.score(solution.labels[:1000], y).accuracy == 1.0
    assert solution.provenance["specks"] == (300 if loops == "auto" else 319)


@pytest.mark.filterwarnings("ignore::snmf_dist.errors.ResultWarning")
def test_specks_take_clusters_if_asked(tmp_path):
    W, _ = specks(groups=1, pairs=3, loops=0)
    graph = snmf_dist.import_graph(W, tmp_path / "g.zarr", tau=0)
    solution = snmf_dist.fit(graph, 4, specks="own")
    assert_array_equal(np.sort(solution.sizes), [2, 2, 2, 1000])


@pytest.mark.filterwarnings("ignore:.*rows have no edge", "ignore::snmf_dist.errors.ResultWarning")
@pytest.mark.parametrize("loops", [[0, 0, 0.9], [0, 0.5, 0.9], [0.9, 0, 0.5]])
def test_of_rows_that_nothing_joins_those_with_a_loop_are_clustered(tmp_path, loops):
    graph = snmf_dist.import_graph(np.diag(loops), tmp_path / "g.zarr", normalize=None, self_loops="keep")
    solution = snmf_dist.fit(graph, 2, max_iter=50)
    assert_array_equal(solution.labels >= 0, np.array(loops) > 0)


def islands():
    """Two large clouds, a speck of 8 points beside each, and one that is nearest to the second speck."""
    random = np.random.default_rng(0)
    centres = np.array([[0, 0], [200, 0], [-60, 0], [260, 0], [275, 0]])
    sizes = [1200, 1200, 8, 8, 8]
    return np.repeat(centres, sizes, axis=0) + random.standard_normal((sum(sizes), 2)), np.repeat(
        [0, 1, 0, 1, 1], sizes
    )


def test_specks_get_the_label_of_the_nearest_large_part_if_asked(tmp_path):
    X, y = islands()
    graph = snmf_dist.build_graph(X, tmp_path / "g.zarr", neighbors=8)
    graph.validate(deep=True)
    anchor = graph.anchor[np.argsort(graph.order)]
    assert (anchor[:2400] == -1).all()
    assert (graph.component[anchor[2400:]] < 2).all()
    with pytest.warns(errors.ResultWarning, match="24 rows of small parts of the graph have the label of the row"):
        solution = snmf_dist.fit(graph, 2, specks="join", out=tmp_path / "r.zarr")
    assert solution.n_unassigned == 0
    assert snmf_dist.score(solution.labels, y).accuracy == 1.0
    assert not solution.membership[2400:].compute().any()
    snmf_dist.open_solution(tmp_path / "r.zarr").validate()


@pytest.mark.filterwarnings("ignore:.*rows have no edge")
def test_an_import_cannot_join_specks(tmp_path):
    graph = snmf_dist.import_graph(specks()[0], tmp_path / "g.zarr")
    with pytest.raises(errors.InputError, match="an imported graph knows no distances"):
        snmf_dist.fit(graph, 4, specks="join")


@pytest.mark.parametrize("init", ["kmeans", "spectral"])
def test_components_are_the_clusters_though_no_eigensolver_tells_them_apart(tmp_path, place, init):
    W = symmetric(sparse.block_diag([ring(300), ring(500), ring(400)]))
    graph = snmf_dist.import_graph(W, tmp_path / "g.zarr", block_rows=250)
    solution = snmf_dist.fit(graph, 3, init=init)
    y = np.repeat(np.arange(3), [300, 500, 400])
    assert snmf_dist.score(solution.labels, y).accuracy == 1.0
    assert_allclose(solution.provenance["eigenvalues"], 1, atol=1e-5)


def test_more_parts_than_clusters_are_said(tmp_path):
    W = symmetric(sparse.block_diag([ring(100), ring(90), ring(80)]))
    graph = snmf_dist.import_graph(W, tmp_path / "g.zarr")
    with pytest.warns(errors.ResultWarning, match="falls into 3 parts of 6 rows or more, but k is 2.*k=3"):
        solution = snmf_dist.fit(graph, 2)
    assert solution.labels[0] != solution.labels[150]


def test_a_store_without_components_is_read_as_before(tmp_path, monkeypatch):
    W, y = planted_graph(200, 3, seed=1)
    graph = snmf_dist.import_graph(sparse.block_diag([W, W], format="csr"), tmp_path / "g.zarr")
    for name in ("component",):
        del graph.block["checksums"][name]
    for name in ("components", "component_sizes", "dropped_self_loops"):
        del graph.block["made"][name]
    del graph.block["tau"]
    monkeypatch.setattr("snmf_dist.api.find_graph", lambda *_: graph)
    assert graph.components is None
    assert graph.component is None
    solution = snmf_dist.fit(graph, 6)
    assert solution.status.converged
    assert snmf_dist.score(solution.labels, np.concatenate([y, y + 3])).accuracy == 1.0


def test_a_clustering_no_better_than_one_cluster_says_so(tmp_path):
    random = np.random.default_rng(0)
    W = sparse.csr_matrix(np.triu(random.random((120, 120)) < 0.9, 1).astype(float))
    graph = snmf_dist.import_graph(symmetric(W), tmp_path / "g.zarr")
    with pytest.warns(errors.ResultWarning, match="hardly better than one single cluster .modularity"):
        snmf_dist.fit(graph, 3)


def test_the_limit_of_a_speck_falls_with_k():
    assert [speck_limit(100_000, k) for k in (2, 10, 100, 5000)] == [1000, 500, 50, 2]
