"""New points and new nodes get the membership that the model gives them."""

import pickle

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from numpy.testing import assert_array_equal
from scipy import sparse
from scipy.optimize import nnls

import snmf_dist
from snmf_dist import errors
from snmf_dist.cli import main
from snmf_dist.result.foldin import fold_in
from tests.helpers import data_file, planted_graph

CENTRES = np.array([[0, 0, 0], [8, 0, 0], [0, 8, 0]])


def blobs(n, seed=0):
    random = np.random.default_rng(seed)
    y = random.integers(0, 3, n)
    return CENTRES[y] + random.standard_normal((n, 3)), y


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("predict")
    X, _ = blobs(600)
    np.save(folder / "x.npy", X)
    graph = snmf_dist.build_graph(folder / "x.npy", folder / "g.zarr", exact=False, neighbors=12)
    return snmf_dist.fit(graph, 3, out=folder / "r.zarr"), X, folder


def test_the_fold_in_solves_its_least_squares_problem():
    random = np.random.default_rng(1)
    L = np.maximum(random.standard_normal((40, 6)), 0)
    L[:, 4] = 0
    a = np.maximum(random.standard_normal((30, 40)), 0)
    found = fold_in(a @ L, L.T @ L)
    expected = [nnls(L, row)[0] for row in a]
    np.testing.assert_allclose(found, expected, atol=1e-7)


def test_new_points_go_to_the_cluster_around_them(fitted):
    solution, _, _ = fitted
    new, y = blobs(500, seed=1)
    found = solution.place(new)
    assert snmf_dist.score(found.labels, y).accuracy == 1
    assert found.novel.mean() < 0.05
    assert ((found.strength > 0.3) & (found.strength <= 1)).all()
    assert_array_equal(solution.predict(new), found.labels)
    assert_array_equal(solution.transform(new), found.membership)


def test_any_blocking_gives_the_same_bits(fitted):
    solution, _, folder = fitted
    new, _ = blobs(100, seed=2)
    whole = solution.transform(new)
    for rows in (1, 7, 64):
        assert_array_equal(solution.transform(new, block_rows=rows), whole)
    assert_array_equal(np.concatenate([solution.transform(new[:3]), solution.transform(new[3:])]), whole)
    assert_array_equal(snmf_dist.open_solution(folder / "r.zarr").transform(new), whole)


def test_a_cluster_gives_the_same_bits(fitted, request):
    new, _ = blobs(60, seed=3)
    alone = fitted[0].transform(new)
    request.getfixturevalue("client")
    again = snmf_dist.open_solution(fitted[2] / "r.zarr")
    assert_array_equal(again.transform(new, block_rows=25), alone)


def test_fitted_points_get_their_stored_rows(fitted):
    solution, X, _ = fitted
    found = solution.place(X[:50])
    assert_array_equal(found.membership, solution.membership[:50].compute())
    assert_array_equal(found.labels, solution.labels[:50])


def test_points_far_from_all_others_are_novel(fitted):
    far = np.array([[30.0, 30.0, 0.0], [4.0, 4.0, 20.0]])
    assert fitted[0].place(far).novel.all()


def test_other_points_than_those_of_the_graph_are_refused(fitted):
    solution, X, _ = fitted
    with pytest.raises(errors.InputError, match="not the points that"):
        solution.predict(X[:2], points=X + 1e-9)
    with pytest.raises(errors.InputError, match="have 2 columns; expected 3"):
        solution.predict(X[:2, :2])
    with pytest.raises(errors.InputError, match="row 1 of the points holds NaN"):
        solution.predict(np.array([[0.0, 0, 0], [np.nan, 0, 0]]))


def test_another_graph_and_blocks_of_no_rows_are_refused(fitted, tmp_path):
    solution, X, folder = fitted
    (tmp_path / "moved.zarr").symlink_to(folder / "g.zarr")
    assert_array_equal(solution.predict(X[:2], graph=tmp_path / "moved.zarr"), solution.labels[:2])
    other = snmf_dist.build_graph(X[::-1].copy(), tmp_path / "other.zarr", neighbors=12)
    with pytest.raises(errors.StoreCorrupt, match="is not the graph that this result was found on"):
        solution.predict(X[:2], graph=other)
    with pytest.raises(errors.InputError, match="block_rows is 0"):
        solution.predict(X[:2], block_rows=0)


def test_points_that_were_in_memory_must_be_given(tmp_path):
    X, _ = blobs(200)
    solution = snmf_dist.fit(snmf_dist.build_graph(X, tmp_path / "g.zarr", metric="cosine", pca=2), 3)
    with pytest.raises(errors.InputError, match="points in memory, which are not kept; give them as points="):
        solution.predict(X)
    assert_array_equal(solution.predict(X, points=X), solution.labels)


def test_sparse_points(tmp_path):
    X = sparse.csr_matrix(np.maximum(blobs(200)[0], 0) + np.eye(200, 3))
    solution = snmf_dist.fit(snmf_dist.build_graph(X, tmp_path / "g.zarr"), 3)
    assert_array_equal(solution.predict(X[:20], points=X), solution.labels[:20])


def test_new_nodes_of_a_graph_by_their_edges(graph):
    solution = snmf_dist.fit(graph, 3)
    W, _ = planted_graph()
    found = solution.place(sparse.vstack([W[[0, 45, 89]], sparse.csr_matrix((1, 90))]))
    assert_array_equal(found.labels[:3], solution.labels[[0, 45, 89]])
    assert_array_equal(found.novel, [False, False, False, True])
    assert found.labels[3] == -1


@pytest.mark.parametrize("kind", ["csv", "parquet", "pandas"])
@pytest.mark.parametrize("text", [True, False])
def test_new_nodes_speak_in_ids(tmp_path, kind, text):
    W, _ = planted_graph()
    known = [f"näme {i}" if text else 7 * i - 9 for i in range(90)]
    solution = snmf_dist.fit(snmf_dist.import_graph(W, tmp_path / "g.zarr", ids=known), 3, out=tmp_path / "r.zarr")
    copied = {"eva ✓": 0, "": 45, "fay": 89} if kind != "csv" else {"eva ✓": 0, "gus": 45, "fay": 89}
    edges = [(name, known[j], W[i, j]) for name, i in copied.items() for j in W[[i]].indices]
    table = pd.DataFrame(edges, columns=["source", "target", "weight"]).sample(frac=1, random_state=0)
    if kind != "pandas":
        getattr(table, f"to_{kind}")(tmp_path / f"new.{kind}", index=False)
    new = solution.new_nodes(table if kind == "pandas" else tmp_path / f"new.{kind}")
    assert new.names.tolist() == list(dict.fromkeys(table["source"]))
    rows = [copied[name] for name in new.names]
    assert_array_equal(new.edges.toarray(), W[rows].toarray())
    assert_array_equal(solution.predict(new.edges), solution.labels[rows])
    if kind == "csv":
        done = CliRunner().invoke(
            main,
            ["predict", str(tmp_path / "r.zarr"), str(tmp_path / "new.csv"), "--out", str(tmp_path / "p.csv")],
        )
        assert done.exit_code == 0, done.output
        written = pd.read_csv(tmp_path / "p.csv")
        assert dict(zip(written["id"], written["label"], strict=True)) == {
            name: solution.labels[i] for name, i in copied.items()
        }


def test_edges_of_new_nodes_that_end_elsewhere_are_refused(graph, tmp_path):
    solution = snmf_dist.fit(graph, 3)
    (tmp_path / "new.csv").write_text("source,target\n1000,0\n1001,90\n1001,-1\n")
    with pytest.raises(errors.InputError, match=r"90 is not among the ids of the graph.*and 2 end elsewhere"):
        solution.new_nodes(tmp_path / "new.csv")
    (tmp_path / "new.csv").write_text("source,target\neva,1\neva,90\n")
    assert solution.new_nodes(tmp_path / "new.csv", first_id=1).edges.indices.tolist() == [0, 89]
    (tmp_path / "new.csv").write_text("source,target\neva,ann\n")
    with pytest.raises(errors.InputError, match=r"the ids of the graph are whole numbers, but.*'ann'"):
        solution.new_nodes(tmp_path / "new.csv")
    with pytest.raises(errors.InputError, match="the edges are a list; expected the path"):
        solution.new_nodes([(1, 2)])
    with pytest.raises(errors.InputError, match="is no edge list by its name"):
        solution.new_nodes(tmp_path / "new.npy")


def test_new_points_keep_their_ids_on_the_command_line(tmp_path):
    X, _ = blobs(120)
    table = pd.DataFrame(X, columns=["x", "y", "z"]).assign(name=[f"p{i}" for i in range(120)])
    table.to_parquet(tmp_path / "x.parquet")
    solution = snmf_dist.fit(tmp_path / "x.parquet", 3, graph_settings={"ids": "name"}, out=tmp_path / "r.zarr")
    table.assign(name=[f"new {i}" for i in range(120)])[:5].to_parquet(tmp_path / "new.parquet")
    given = [str(tmp_path / name) for name in ("r.zarr", "new.parquet", "p.parquet")]
    done = CliRunner().invoke(main, ["predict", *given[:2], "--ids", "name", "--out", given[2]])
    assert done.exit_code == 0, done.output
    written = pd.read_parquet(given[2])
    assert list(written["id"]) == [f"new {i}" for i in range(5)]
    assert_array_equal(written["label"], solution.labels[:5])


def test_a_graph_without_scales_says_so(graph):
    solution = snmf_dist.fit(graph, 3)
    with pytest.raises(errors.InputError, match=r"keeps no scales of its points.*solution\.new_nodes"):
        solution.predict(np.zeros((3, 4)))


def test_the_estimator_labels_new_points_and_survives_pickle(tmp_path):
    X, _ = blobs(300)
    new, y = blobs(100, seed=5)
    estimator = pickle.loads(pickle.dumps(snmf_dist.SNMF(3, random_state=0).fit(X)))
    assert snmf_dist.score(estimator.predict(new), y).accuracy == 1
    assert_array_equal(estimator.predict(X), estimator.labels_)
    W, _ = planted_graph()
    given = snmf_dist.SNMF(3, affinity="precomputed", random_state=0).fit(W)
    assert_array_equal(given.predict(W[[0, 45, 89]]), given.labels_[[0, 45, 89]])
    with pytest.raises(ValueError, match="features"):
        estimator.predict(new[:, :2])


def test_a_larger_graph_keeps_the_names_of_its_clusters(tmp_path):
    X, _ = blobs(400)
    ids = np.array([f"row {i}" for i in range(400)])
    some = np.random.default_rng(1).permutation(400)[:250]
    old = snmf_dist.fit(
        snmf_dist.build_graph(X[some], tmp_path / "a.zarr", ids=list(ids[some])), 3, out=tmp_path / "r"
    )
    mixed = np.random.default_rng(2).permutation(400)
    bigger = snmf_dist.build_graph(X[mixed], tmp_path / "b.zarr", ids=list(ids[mixed]))
    new = snmf_dist.fit(bigger, 3, init=tmp_path / "r")
    names = dict(zip(old.ids, old.labels.tolist(), strict=True))
    kept = [names[row] == label for row, label in zip(new.ids, new.labels.tolist(), strict=True) if row in names]
    assert len(kept) == 250
    assert np.mean(kept) > 0.99
    assert (new.labels >= 0).all()
    strangers = snmf_dist.build_graph(X, tmp_path / "c.zarr", ids=[f"other {i}" for i in range(400)])
    with pytest.raises(errors.InputError, match="none of the 400 ids"):
        snmf_dist.fit(strangers, 3, init=old)


@pytest.mark.study
@pytest.mark.timeout(3000)
def test_mnist_test_digits_are_labelled_as_well_as_the_fitted_ones(tmp_path):
    import time

    with np.load(data_file("mnist70k.npz")) as file:
        X, y = file["X"].reshape(70_000, -1).astype(np.float32), file["y"]
    np.save(tmp_path / "train.npy", X[:60_000])
    graph = snmf_dist.build_graph(tmp_path / "train.npy", tmp_path / "g.zarr")
    solution = snmf_dist.fit(graph, 10)
    begin = time.perf_counter()
    found = solution.place(X[60_000:])
    seconds = time.perf_counter() - begin
    fitted = snmf_dist.score(solution.labels, y[:60_000]).accuracy
    new = snmf_dist.score(found.labels, y[60_000:]).accuracy
    print(f"fitted {fitted:.4f}, new {new:.4f}, novel {found.novel.mean():.4f}, {seconds:.1f} s")
    assert new >= fitted - 0.01
