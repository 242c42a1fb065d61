"""The choice of K: statistics against dense n × n, planted numbers, and graphs without clusters."""

import json
import warnings

import numpy as np
import pyarrow.parquet as pq
import pytest
from distributed import Client
from scipy import sparse
from sklearn.metrics import adjusted_rand_score

import snmf_dist
from snmf_dist.fitting import loaded
from snmf_dist.study.choice import suggest
from snmf_dist.study.consensus import match
from snmf_dist.study.heldout import HiddenPairs, held_out_scores, hidden
from snmf_dist.study.screening import screen, separation
from snmf_dist.study.stability import Stability, stability
from tests.helpers import data_file, planted_graph


def random_labels(n=120, R=6, *, none=0.1, seed=0):
    random = np.random.default_rng(seed)
    labels = random.integers(0, 4, (n, 1)) + (random.random((n, R)) < 0.2)
    return np.where(random.random((n, R)) < none, -1, labels)


def own_clusters(column):
    """Labels in which every row labelled −1 has a cluster of its own."""
    return np.where(column < 0, column.max() + 1 + np.arange(len(column)), column)


@pytest.mark.parametrize("rows", [12, 120])
def test_stability_is_that_of_the_dense_consensus_matrix(rows):
    labels = np.stack([own_clusters(column) for column in random_labels(rows).T], axis=1)
    C = np.mean([column[:, None] == column for column in labels.T], axis=0)
    n, R = labels.shape
    aris = [adjusted_rand_score(labels[:, r], labels[:, s]) for r in range(R) for s in range(r)]
    off = C[~np.eye(n, dtype=bool)]
    pac = np.mean((off > 0.1) & (off < 0.9))
    found = stability(random_labels(rows))
    assert found.dispersion == pytest.approx(np.mean((2 * C - 1) ** 2), abs=1e-12)
    assert found.ari == pytest.approx(np.mean(aris), abs=1e-12)
    assert found.pac == pytest.approx(pac, abs=4 * np.sqrt(pac * (1 - pac) / 200_000))


def test_stability_takes_one_cluster_one_run_and_rows_in_none():
    for labels in (np.zeros((5, 3), int), np.full((5, 2), -1), np.array([[0], [2]]), np.zeros((1, 2), int)):
        assert stability(labels).ari == 1.0


def test_matching_survives_empty_clusters_and_rows_in_none():
    order = match(np.array([2, 2, 0, -1]), np.array([0, 0, 1, 1]), 4)
    assert order[:2].tolist() == [2, 0]
    assert sorted(order) == [0, 1, 2, 3]


def test_a_partition_without_an_eigengap_is_not_separated():
    assert separation(np.array([1.0, 1.0, 1.0]), 2, 2.0) == 0
    assert separation(np.array([1.0, 1.0]), 2, 2.0) == 0  # the next eigenvalue is not known


def test_the_planted_number_of_groups_is_found_and_kept(tmp_path):
    W, y = planted_graph(200, 4, inside=0.5)
    shuffle = np.random.default_rng(1).permutation(200)
    store = snmf_dist.import_graph(W[shuffle][:, shuffle], tmp_path / "graph.zarr")
    found = snmf_dist.choose_k(store, range(1, 9), seeds=2, out=tmp_path / "study")
    assert found.k == 4
    assert found.choice.runner_up is not None
    assert "K = 4" in found.reason
    assert snmf_dist.score(found.consensus[4].labels, y[shuffle]).accuracy == 1
    assert found.consensus[4].cluster_stability == pytest.approx(1)
    table = pq.read_table(tmp_path / "study" / "labels.parquet")
    assert table.column_names == [f"K{K}" for K in range(1, 9)]
    assert np.array_equal(table["K4"].to_numpy(), found.labels[4])
    choice = tmp_path / "study" / "choice.json"
    assert json.loads(choice.read_text())["k"] == 4
    assert snmf_dist.open_study(tmp_path / "study").reason == found.reason
    choice.write_text(choice.read_text().replace("K = 4", "K = 5", 1))
    with pytest.raises(snmf_dist.errors.StoreCorrupt, match=r"choice\.json: is not what choose_k wrote"):
        _ = snmf_dist.open_study(tmp_path / "study").reason
    labels = tmp_path / "study" / "labels.parquet"
    damaged = bytearray(labels.read_bytes())
    column = pq.read_metadata(labels).row_group(0).column(0)
    damaged[column.data_page_offset + column.total_compressed_size - 2] ^= 1
    labels.write_bytes(damaged)
    with pytest.raises(OSError, match=r"checksum|CRC"):
        pq.read_table(labels, page_checksum_verification=True)
    found.save_picture(tmp_path / "choice.png")
    assert (tmp_path / "choice.png").stat().st_size > 10_000


def test_on_two_processes_the_answer_is_the_same(tmp_path, two_processes):
    graph = snmf_dist.import_graph(planted_graph(200, 4, inside=0.5)[0], tmp_path / "g.zarr", block_rows=50)
    given = {"ks": [3, 4], "seeds": 2, "shortlist": 1, "held_out": 0.1}
    alone = snmf_dist.choose_k(graph, **given)
    with Client(two_processes):
        found = snmf_dist.choose_k(graph, **given)
    assert found.study.solution(found.study.rows[0]["run_id"]).provenance["way"] == "on workers"
    assert found.k == alone.k == 4
    assert found.reason == alone.reason
    for one, other in zip(found.rows, alone.rows, strict=True):
        assert one == pytest.approx(other, rel=1e-3)
    for K in (3, 4):
        assert np.array_equal(found.labels[K], alone.labels[K])


@pytest.mark.parametrize(("number", "k"), [(1, 3), (2, 3), (3, 3), (4, 5), (5, 4), (6, 3)])
def test_the_papers_synthetic_sets_have_their_number(number, k, tmp_path):
    with np.load(data_file("zelnik_perona.npz")) as file:
        graph = snmf_dist.build_graph(file[f"X{number}"], tmp_path / "graph.zarr")
    assert snmf_dist.choose_k(graph, shortlist=0).k == k


def test_a_block_model_has_its_number(tmp_path):
    with np.load(data_file("graphchallenge_sbm_5000.npz")) as file:
        n, ends, blocks = int(file["n"]), (file["src"], file["dst"]), len(np.unique(file["y"]))
    edges = sparse.coo_matrix((np.ones(len(ends[0])), ends), shape=(n, n))
    graph = snmf_dist.import_graph(edges, tmp_path / "g.zarr", symmetrize="max", self_loops="drop")
    assert snmf_dist.choose_k(graph, range(2, 31), shortlist=0).k == blocks == 19


def test_a_random_graph_and_a_single_blob_have_none(tmp_path):
    random = np.random.default_rng(0)
    ends = random.integers(0, 600, (2, 3000))
    edges = sparse.coo_matrix((np.ones(3000), ends), shape=(600, 600))
    graph = snmf_dist.import_graph(edges, tmp_path / "er.zarr", symmetrize="max", self_loops="drop")
    blob = snmf_dist.build_graph(random.standard_normal((600, 2)), tmp_path / "blob.zarr")
    for one in (graph, blob):
        found = snmf_dist.choose_k(one, range(2, 21), shortlist=0)
        assert found.k is None
        assert found.reason.startswith("No K stands out")


def test_the_held_out_score_is_that_of_the_dense_computation_and_finds_planted_groups(tmp_path):
    W, _ = planted_graph(240, 4, inside=0.3, between=0.05)
    store = snmf_dist.import_graph(W, tmp_path / "graph.zarr", reorder=False)
    ks, share = [2, 3, 4, 5, 7, 9], 0.2
    plan, given = snmf_dist.plan_fit(store, 9), {"k": 9, "block_rows": None, "specks": "drop"}
    found, _ = held_out_scores(store, ks, given, plan=plan, share=share, seed=3)
    assert ks[int(np.argmax(found))] == 4

    A, r = store.read_rows(0, store.n).toarray(), store.read_weights(0, store.n)[:, 0]
    i, j = np.indices(A.shape)
    gone = hidden(i.ravel(), j.ravel(), share=share, seed=3).reshape(A.shape)
    assert (gone == gone.T).all()
    assert not np.diag(gone).any()
    assert gone.mean() == pytest.approx(share, abs=0.01)
    left = HiddenPairs(store.read_rows, share, 3)
    assert (left(0, 240).toarray() == np.where(gone, 0, A)).all()
    with loaded(store, given, plan=plan, change=lambda read: HiddenPairs(read, share, 3)) as facts:
        labels = screen(facts, ks, seed=3).labels
    for column, K, score in zip(labels.T, ks, found, strict=True):
        H = (column[:, None] == np.arange(K)) * r[:, None]
        s = np.diag(H.T @ np.where(gone, 0, A) @ H) / (1 - share) / (H**2).sum(axis=0) ** 2
        M = (H * s) @ H.T
        squares = share * ((M**2).sum() - (np.diag(M) ** 2).sum())  # ΣM² is its mean over the draws of pairs
        exact = (2 * (A * M)[gone].sum() - squares) / (A[gone] ** 2).sum()
        assert score == pytest.approx(exact, abs=1e-4)


def test_a_share_of_hidden_pairs_is_below_one(graph):
    with pytest.raises(snmf_dist.SnmfError, match="held_out is 1; expected a share"):
        snmf_dist.choose_k(graph, [2], held_out=1)


def test_the_three_best_come_from_three_rules():
    def row(k, separation, balanced, modularity, eigengap):
        return {"k": k, "separation": separation, "balanced_modularity": balanced} | {
            "modularity": modularity,
            "eigengap": eigengap,
        }

    rows = [
        row(2, 0.1, 0.90, 0.60, 0.030),
        row(5, 0.1, 0.80, 0.98, 0.010),
        row(9, 0.1, 0.70, 1.00, 0.001),
        row(11, 0.1, 0.65, 0.995, 0.020),
        row(20, 0.1, 0.60, 0.80, 0.500),
    ]
    found = suggest(rows, {})
    assert found.k is None
    assert found.best == (2, 11, 5, 9, 20)
    assert "K = 11 has the largest eigengap where modularity is within 1% of the highest" in found.reason
    assert "K = 5 has the fewest clusters with a modularity within 3% of the highest" in found.reason
    rows.append(row(7, 0.8, 0.5, 0.5, 0.01))
    found = suggest(rows, {})
    assert (found.k, found.best[:3]) == (7, (7, 11, 5))
    assert "Runner-up: K = 11, which is set apart less (separation 0.10), and has the largest" in found.reason
    found = suggest(rows, {7: Stability(1.0, 0.5, 0.1)})
    assert found.k is None
    assert "fits from several starts disagree (adjusted Rand index 0.50; 0.75 is needed)" in found.reason


def test_more_components_than_clusters_and_rows_without_edges_do_no_harm(tmp_path):
    W = sparse.block_diag([np.ones((8, 8))] * 6 + [np.zeros((2, 2))])
    with warnings.catch_warnings(action="ignore"):  # of rows without edges
        graph = snmf_dist.import_graph(W, tmp_path / "graph.zarr")
    found = snmf_dist.choose_k(graph, [1, 2, 3, 7], shortlist=0)
    assert found.k is None
    assert (found.labels[3][-2:] == -1).all()
    found = snmf_dist.choose_k(graph, [2, 6, 8], shortlist=3, seeds=2, specks="own")
    assert found.k == 6
    assert sorted(found.consensus) == [2, 6, 8]
    assert (found.labels[8][-2:] == -1).all()


def test_the_study_of_another_graph_is_refused_and_fits_of_other_seeds_are_left_out(graph, tmp_path):
    rows = [
        snmf_dist.choose_k(graph, [5], seeds=2, seed=seed, out=tmp_path / name).rows
        for name, seed in (("alone", 5), ("s", 0), ("s", 5))
    ]
    assert snmf_dist.open_study(tmp_path / "s").counts["done"] == 4
    assert rows[2] == rows[0] != rows[1]
    other = snmf_dist.import_graph(planted_graph(seed=5)[0], tmp_path / "other.zarr")
    with pytest.raises(snmf_dist.SnmfError, match=r"is a study of the graph graph .* which is not .*other\.zarr"):
        snmf_dist.choose_k(other, [2, 3], out=tmp_path / "s", shortlist=0)


def test_wrong_numbers_are_refused_by_name(graph):
    with pytest.raises(snmf_dist.SnmfError, match="ks is empty"):
        snmf_dist.choose_k(graph, [])
    for ks in (3, None, "2:4"):
        with pytest.raises(snmf_dist.SnmfError, match="expected numbers of clusters"):
            snmf_dist.choose_k(graph, ks)
    with pytest.raises(snmf_dist.SnmfError, match="specks is 'all'"):
        snmf_dist.choose_k(graph, [2, 3], specks="all", shortlist=0)
    with pytest.raises(snmf_dist.SnmfError, match="ks is 91; expected 1 to 90"):
        snmf_dist.choose_k(graph, [2, 91])
