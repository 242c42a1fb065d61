import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse

import snmf_dist
from snmf_dist.engine.loading import in_memory
from snmf_dist.errors import ResultWarning
from snmf_dist.solve.basis import leading_basis
from tests.helpers import data_file, planted_graph

FLOAT = np.dtype(float)
KEYWORDS = leading_basis.__kwdefaults__


def normal(W):
    root = np.sqrt(np.asarray(W.sum(axis=1)).ravel())
    scale = np.divide(1, root, out=np.zeros_like(root), where=root > 0)
    return sparse.csr_matrix(sparse.diags_array(scale) @ W @ sparse.diags_array(scale))


def cliques(sizes):
    return sparse.csr_matrix(sparse.block_diag([np.ones((m, m)) for m in sizes]))


GRAPHS = {
    "planted": (normal(planted_graph(150, 4, seed=1)[0]), 4),
    "not normalised": (planted_graph(150, 4, seed=1)[0] * 7.0, 4),
    "repeated eigenvalues": (normal(cliques([9] * 6)), 6),
    "more components than k": (normal(cliques([9] * 6)), 3),
    "rank below k": (normal(cliques([5, 5])), 6),
    "zero rows": (normal(sparse.csr_matrix(sparse.block_diag([cliques([8, 8]), sparse.csr_matrix((4, 4))]))), 2),
    "negative eigenvalues": (normal(sparse.csr_matrix(np.kron([[0, 1], [1, 0]], np.ones((6, 6))))), 2),
    "k = 1": (normal(planted_graph(60, 2)[0]), 1),
    "k = n": (normal(planted_graph(12, 2, inside=0.9)[0]), 12),
}


@pytest.mark.parametrize("case", GRAPHS)
def test_ritz_values_are_the_leading_eigenvalues(case):
    A, K = GRAPHS[case]
    basis = leading_basis(in_memory(A), K, seed=0, dtype=FLOAT)
    U, kept = basis.U.array, len(basis.values)
    expected = np.linalg.eigvalsh(A.toarray())[::-1][:kept]
    assert_allclose(basis.values, expected, atol=1e-4 * expected[0])
    assert_allclose(U.T @ U, np.eye(kept), atol=1e-8)
    assert kept == K or kept >= np.linalg.matrix_rank(A.toarray())
    assert (basis.upper >= expected).all()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("case", GRAPHS)
def test_no_run_captures_more_than_the_bound(tmp_path, case, dtype):
    A, K = GRAPHS[case]
    with warnings.catch_warnings(action="ignore"):
        graph = snmf_dist.import_graph(A, tmp_path / "g.zarr", normalize=None, dtype=dtype)
        solution = snmf_dist.fit(graph, K, init="spectral", stop="kkt", tol=1e-6, max_iter=200)
    assert solution.captured <= solution.bound


def test_a_basis_that_did_not_settle_is_announced(tmp_path, monkeypatch):
    monkeypatch.setattr("snmf_dist.solve.basis.leading_basis.__kwdefaults__", {**KEYWORDS, "rounds": 1})
    graph = snmf_dist.import_graph(planted_graph(400, 4, seed=1)[0], tmp_path / "g.zarr")
    with pytest.warns(ResultWarning, match="eigenvectors were still moving after 9 products"):
        solution = snmf_dist.fit(graph, 4)
    assert not solution.provenance["basis_converged"]
    assert solution.captured <= solution.bound


@pytest.mark.parametrize("init", ["spectral", "kmeans"])
def test_disjoint_cliques_are_found_exactly(tmp_path, place, init):
    sizes = [12, 9, 15, 7, 20]
    mixed = np.random.default_rng(0).permutation(sum(sizes))
    y = np.repeat(np.arange(5), sizes)[mixed]
    graph = snmf_dist.import_graph(cliques(sizes)[mixed][:, mixed], tmp_path / "g.zarr", block_rows=20)
    solution = snmf_dist.fit(graph, 5, init=init, rho=0.3, tol=1e-4)
    assert snmf_dist.score(solution.labels, y).accuracy == 1.0
    assert_allclose(solution.provenance["eigenvalues"], np.ones(5), atol=1e-5)
    assert solution.captured == pytest.approx(solution.bound, rel=1e-4)
    assert solution.n_products > 2 * solution.n_iter


@pytest.mark.parametrize("init", ["spectral", "kmeans"])
@pytest.mark.filterwarnings("ignore::snmf_dist.errors.ResultWarning")
@pytest.mark.filterwarnings("ignore::snmf_dist.errors.GraphWarning")
@pytest.mark.parametrize("case", GRAPHS)
def test_odd_graphs_have_a_start(tmp_path, init, case):
    A, K = GRAPHS[case]
    graph = snmf_dist.import_graph(A, tmp_path / "g.zarr", normalize=None, dtype="float64")
    solution = snmf_dist.fit(graph, K, init=init, max_iter=5)
    L = np.asarray(solution.membership)
    assert L.shape == (A.shape[0], K)
    assert np.isfinite(L).all()
    assert (L >= 0).all()


@pytest.mark.filterwarnings("ignore::snmf_dist.errors.NotConverged")
@pytest.mark.parametrize("number", range(1, 7))
def test_the_papers_synthetic_sets_are_perfect_from_spectral_clusters(tmp_path, number):
    with np.load(data_file("zelnik_perona.npz")) as file:
        X, y, k = file[f"X{number}"], file[f"y{number}"], int(file["group_num"][number - 1])
    graph = snmf_dist.build_graph(X, tmp_path / "g.zarr")
    for seed in range(3):
        solution = snmf_dist.fit(graph, k, init="kmeans", rho=0.3, seed=seed, max_iter=200)
        assert snmf_dist.score(solution.labels, y).accuracy == 1.0
