import logging
import os
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import dask
import numpy as np
import pandas as pd
import pytest
import zarr
from numpy.testing import assert_array_equal
from scipy import sparse
from threadpoolctl import threadpool_info

import snmf_dist
from snmf_dist import Status, errors
from snmf_dist.engine.plan import plan
from tests.helpers import planted_graph

BAD = {
    "k = 0": ({"k": 0}, "k is 0; expected at least 1"),
    "k < 0": ({"k": -3}, "k is -3; expected at least 1"),
    "k > n": ({"k": 91}, "k is 91; expected 1 to 90, the rows of"),
    "k = 2.5": ({"k": 2.5}, "k is 2.5; expected a whole number"),
    "rho = 0": ({"rho": 0}, "rho is 0.0; expected a finite number above 0"),
    "rho < 0": ({"rho": -0.1}, "rho is -0.1; expected a finite number above 0"),
    "rho NaN": ({"rho": float("nan")}, "rho is nan"),
    "rho text": ({"rho": "big"}, "rho is 'big'; expected a number or \"auto\""),
    "tol = 0": ({"tol": 0.0}, "tol is 0.0; expected"),
    "max_iter = 0": ({"max_iter": 0}, "max_iter is 0; expected at least 1"),
    "seed < 0": ({"seed": -1}, "seed is -1; expected 0 to"),
    "block_rows = 0": ({"block_rows": 0}, "block_rows is 0; expected at least 1"),
    "n_init = 0": ({"n_init": 0}, "n_init is 0; expected at least 1"),
    "solver": ({"solver": "magic"}, "solver is 'magic'; expected one of 'admm', 'apg', 'hals'"),
    "stop": ({"stop": "never"}, "stop is 'never'; expected one of 'auto', 'kkt', 'paper'"),
    "init": ({"init": "magic"}, "init is 'magic'; expected one of kmeans, spectral, random, or"),
    "init shape": ({"init": np.ones((90, 2))}, r"init has shape \(90, 2\); expected \(90, 3\)"),
    "init negative": ({"init": -np.ones((90, 3))}, "init holds entries that are negative"),
    "init NaN": ({"init": np.full((90, 3), np.nan)}, "negative or not finite"),
    "init zero": ({"init": np.zeros((90, 3))}, "init is all zeros"),
    "init number": ({"init": 3}, "init is a int; expected one of kmeans"),
    "init and n_init": ({"init": np.ones((90, 3)), "n_init": 2}, "but init gives one start"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_setting_is_refused_before_work_starts(graph, tmp_path, case):
    settings, words = BAD[case]
    with pytest.raises(errors.InputError, match=words):
        snmf_dist.fit(graph, **{"k": 3, "out": tmp_path / "r.zarr", **settings})
    assert not (tmp_path / "r.zarr").exists()


def test_no_graph_at_the_path(tmp_path):
    with pytest.raises(errors.StoreNotFound, match="check the path"):
        snmf_dist.fit(tmp_path / "none.zarr", 3)


def test_an_existing_result_is_refused_before_work_starts_and_replaced_on_request(graph, tmp_path):
    out = tmp_path / "r.zarr"
    first = snmf_dist.fit(graph, 3, rho=0.3, out=out)
    with pytest.raises(errors.StoreExists, match="overwrite=True"):
        snmf_dist.fit(graph, 2, rho=0.3, out=out)
    assert snmf_dist.open_solution(out).k == first.k
    snmf_dist.fit(graph, 2, rho=0.3, out=out, overwrite=True)
    assert snmf_dist.open_solution(out).k == 2


def test_all_errors_share_a_root_and_have_a_standard_parent():
    for name, parent in [("StoreNotFound", FileNotFoundError), ("InputError", ValueError)]:
        assert issubclass(getattr(errors, name), snmf_dist.SnmfError)
        assert issubclass(getattr(errors, name), parent)


def test_results_come_back_in_the_inputs_own_order(tmp_path):
    """A store whose rows are shuffled gives the membership of each input row all the same."""
    from snmf_dist.graph.store.writer import GraphWriter

    W, y = planted_graph(60, 3, seed=4)
    order = np.random.default_rng(0).permutation(60)
    writer = GraphWriter(str(tmp_path / "g.zarr"), np.array([0, 25, 60]), np.dtype(float))
    shuffled = W[order][:, order]
    records = [writer.write_block(0, shuffled[:25]), writer.write_block(1, shuffled[25:])]
    degree = np.asarray(W.sum(axis=1)).ravel()[order]
    writer.finish(records, degree=degree, normalize="none", made={}, order=order)

    solution = snmf_dist.fit(tmp_path / "g.zarr", 3, out=tmp_path / "r.zarr", save_state=True)
    assert snmf_dist.score(solution.labels, y).accuracy == 1.0
    L = np.asarray(solution.state.L)
    assert_array_equal(np.asarray(solution.membership)[order], L)
    assert_array_equal(np.asarray(snmf_dist.open_solution(tmp_path / "r.zarr").membership)[order], L)


def test_a_run_cut_short_warns_and_still_has_a_result(graph):
    with pytest.warns(errors.NotConverged, match="MAX_ITER after 5 iterations: .*raise max_iter"):
        solution = snmf_dist.fit(graph, 3, init="random", max_iter=5)
    assert solution.status is Status.MAX_ITER
    assert solution.n_iter == 5


def test_rows_that_no_cluster_touches_get_no_label(tmp_path):
    W = sparse.block_diag([planted_graph(30, 1)[0], sparse.csr_matrix((3, 3))])
    with pytest.warns(errors.GraphWarning, match="3 of 33 rows"):
        snmf_dist.import_graph(W, tmp_path / "g.zarr")
    with pytest.warns(errors.ResultWarning, match="3 of 33 rows have no edges"):
        solution = snmf_dist.fit(tmp_path / "g.zarr", 1)
    assert solution.labels[30:].tolist() == [-1, -1, -1]
    assert solution.n_unassigned == 3
    assert solution.sizes.tolist() == [30]


def test_the_smallest_graph_works(tmp_path):
    snmf_dist.import_graph(np.ones((1, 1)), tmp_path / "one.zarr", self_loops="keep")
    solution = snmf_dist.fit(tmp_path / "one.zarr", 1)
    assert solution.labels.tolist() == [0]
    assert np.asarray(solution.membership).item() == pytest.approx(1, abs=1e-4)


def test_progress_goes_to_the_log_by_default(graph, caplog):
    with caplog.at_level(logging.INFO, logger="snmf_dist"):
        snmf_dist.fit(graph, 3, init="random")
    assert "SETTLED: the clusters have settled" in caplog.messages[-1]
    assert len(caplog.messages) > 2


def test_a_full_disk_leaves_the_old_result_whole(graph, tmp_path, monkeypatch):
    """The disk fills up while the new result is written: the old one is still there, and nothing else."""
    out = tmp_path / "r.zarr"
    snmf_dist.fit(graph, 3, rho=0.3, out=out)
    before = sorted(os.listdir(tmp_path))

    def no_space(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("snmf_dist.result.files.BlockWriter.__call__", no_space)
    with pytest.raises(errors.ResultNotSaved, match="no room is left") as caught:
        snmf_dist.fit(graph, 2, rho=0.3, out=out, overwrite=True)
    assert caught.value.solution.k == 2  # the run is not lost
    monkeypatch.undo()
    assert sorted(os.listdir(tmp_path)) == before
    snmf_dist.open_solution(out).validate()


def test_one_seed_one_answer(graph):
    with warnings.catch_warnings(action="ignore"):
        one, two, other = (snmf_dist.fit(graph, 3, init="random", max_iter=8, seed=seed) for seed in (5, 5, 6))
    assert_array_equal(np.asarray(one.membership), np.asarray(two.membership))
    assert (np.asarray(one.membership) != np.asarray(other.membership)).any()


def blobs(n=200, seed=0):
    """Two clouds far apart, and which is which."""
    random = np.random.default_rng(seed)
    y = random.integers(0, 2, n)
    return random.standard_normal((n, 3)) + 9 * y[:, None], y


@pytest.mark.parametrize("kind", ["zarr", "npy"])
def test_points_are_clustered_through_a_graph_built_beside_them(tmp_path, kind):
    X, y = blobs()
    path = tmp_path / f"x.{kind}"
    if kind == "zarr":
        zarr.create_array(path, data=X)
    else:
        np.save(path, X)
    solution = snmf_dist.fit(path, 2)
    assert snmf_dist.score(solution.labels, y).accuracy == 1.0
    graph = snmf_dist.open_graph(f"{path}.graph.zarr")
    assert solution.provenance["fingerprint"] == graph.fingerprint


def test_the_graph_of_points_is_reused_only_for_the_same_data_and_settings(tmp_path):
    X, _ = blobs()
    np.save(tmp_path / "x.npy", X)
    kept = tmp_path / "x.npy.graph.zarr"

    def written():
        with warnings.catch_warnings(action="ignore"):
            snmf_dist.fit(tmp_path / "x.npy", 2, max_iter=2, graph_settings=settings)
        return os.stat(kept / "zarr.json").st_mtime_ns

    settings = {}
    first = written()
    assert written() == first
    settings = {"neighbors": 5}
    second = written()
    assert second != first
    X[7] += 1
    np.save(tmp_path / "x.npy", X)
    assert written() != second
    with pytest.raises(errors.InputError, match="holds a graph, not points; leave graph_settings out"):
        snmf_dist.fit(kept, 2, graph_settings=settings)


def test_a_saved_similarity_matrix_is_not_taken_for_points(tmp_path):
    path = str(tmp_path / "similarity.npz")
    sparse.save_npz(path, planted_graph()[0])
    with pytest.raises(errors.InputError, match=r"similarities, or points\?.*import_graph\(.*build_graph\("):
        snmf_dist.fit(path, 3)
    assert os.listdir(tmp_path) == ["similarity.npz"]


@pytest.mark.parametrize("names", [("Source", "target", "weight"), ("src", "dst"), (":START_ID", ":END_ID")])
@pytest.mark.parametrize("kind", [int, str, "category"])
def test_a_table_of_edges_is_not_taken_for_points(tmp_path, names, kind):
    rows, columns = planted_graph()[0].nonzero()
    table = pd.DataFrame({names[0]: rows, names[1]: columns}).astype(kind if kind is int else str).astype(kind)
    if len(names) == 3:
        table[names[2]] = 1.0
    for name, write in (("e.parquet", table.to_parquet), ("e.arrow", table.to_feather)):
        write(tmp_path / name)
        with pytest.raises(errors.InputError, match=rf"'{names[1]}'\] look like the ends of edges.*import_graph"):
            snmf_dist.fit(tmp_path / name, 3)
        assert sorted(os.listdir(tmp_path)) == [name]
        os.remove(tmp_path / name)


def test_points_whose_columns_have_such_names_are_points(tmp_path):
    X, _ = blobs()
    pd.DataFrame(X[:, :2], columns=["u", "v"]).to_parquet(tmp_path / "x.parquet")  # no whole numbers
    assert snmf_dist.build_graph(tmp_path / "x.parquet", tmp_path / "x.zarr").n == len(X)
    pixels = pd.DataFrame(np.round(100 * X[:, :2]).astype(int), columns=["source", "target"])
    pixels.to_parquet(tmp_path / "p.parquet")
    given = {"columns": ["source", "target"]}
    assert len(snmf_dist.fit(tmp_path / "p.parquet", 2, graph_settings=given).labels) == len(X)
    pixels.assign(name="a").to_parquet(tmp_path / "t.parquet")
    given["columns"] = ["source", "name"]
    with pytest.raises(errors.InputError, match=r"columns \['name'\] hold no numbers"):
        snmf_dist.fit(tmp_path / "t.parquet", 2, graph_settings=given)


def test_a_graph_in_another_format_is_sent_to_import(tmp_path):
    (tmp_path / "e.csv").write_text("source,target\n0,1\n1,0\n")
    with pytest.raises(errors.NotOurStore, match=r"e\.csv: not a Zarr group.*import_graph \(snmf-dist import\)"):
        snmf_dist.fit(tmp_path / "e.csv", 1)


def test_sparse_points_are_clustered(tmp_path):
    X, y = blobs()
    sparse.save_npz(tmp_path / "x.npz", sparse.csr_matrix(X))
    assert snmf_dist.score(snmf_dist.fit(tmp_path / "x.npz", 2).labels, y).accuracy == 1.0
    square = sparse.random_array((60, 60), density=0.2, rng=np.random.default_rng(0), format="csr")
    sparse.save_npz(tmp_path / "square.npz", square)
    with warnings.catch_warnings(action="ignore"):
        assert len(snmf_dist.fit(tmp_path / "square.npz", 2).labels) == 60


def test_an_unknown_setting_of_the_graph_is_named_with_its_near_miss(tmp_path):
    np.save(tmp_path / "x.npy", blobs()[0])
    with pytest.raises(
        errors.InputError, match=r"no setting 'metrc'; did you mean 'metric'\? Expected some of .*pca"
    ):
        snmf_dist.fit(tmp_path / "x.npy", 2, graph_settings={"metrc": "cosine"})
    with pytest.raises(errors.InputError, match="no setting 'storage_options'; expected some of"):
        snmf_dist.fit(tmp_path / "x.npy", 2, graph_settings={"storage_options": {}})
    with pytest.raises(errors.InputError, match="graph_settings is a list; expected a mapping"):
        snmf_dist.fit(tmp_path / "x.npy", 2, graph_settings=["metric"])


def test_a_plan_takes_the_starts_that_a_fit_takes(graph, tmp_path):
    solution = snmf_dist.fit(graph, 3, out=tmp_path / "r.zarr")
    for init in (np.ones((90, 3)), solution, tmp_path / "r.zarr", str(tmp_path / "r.zarr")):
        assert snmf_dist.plan_fit(graph, 3, init=init).way.name == "in memory"
    for init, words in ((np.ones((90, 2)), "init has shape"), ("magic", "init is 'magic'"), (3, "init is a int")):
        with pytest.raises(errors.InputError, match=words):
            snmf_dist.plan_fit(graph, 3, init=init)


@pytest.mark.parametrize("way", ["in memory", "A streamed", "on disk"])
def test_the_state_is_returned_as_it_was_saved_however_the_run_was_held(graph, tmp_path, monkeypatch, way):
    def only(*given, **options):
        planned = plan(*given, **options)
        return replace(planned, way=next(found for found in planned.ways if found.name == way))

    monkeypatch.setattr("snmf_dist.api.plan", only)
    assert snmf_dist.fit(graph, 3).state is not None
    assert snmf_dist.fit(graph, 3, out=tmp_path / "lean.zarr").state is None
    saved = snmf_dist.fit(graph, 3, out=tmp_path / "full.zarr", save_state=True)
    assert saved.provenance["way"] == way
    assert_array_equal(saved.state.L, snmf_dist.open_solution(tmp_path / "full.zarr").state.L)


def test_a_temporary_directory_is_made_when_it_is_needed_and_only_then(graph, tmp_path, monkeypatch):
    scratch = tmp_path / "not" / "there"
    with dask.config.set({"temporary-directory": str(scratch)}):
        snmf_dist.fit(graph, 3)
        assert not scratch.exists()

        def on_disk(*given, **options):
            planned = plan(*given, **options)
            return replace(planned, way=next(found for found in planned.ways if found.name == "on disk"))

        monkeypatch.setattr("snmf_dist.api.plan", on_disk)
        snmf_dist.fit(graph, 3)
        assert scratch.is_dir()
    (tmp_path / "file").touch()
    with (
        dask.config.set({"temporary-directory": str(tmp_path / "file" / "in")}),
        pytest.raises(errors.NoRoom, match=r"cannot be made.*Dask's temporary-directory"),
    ):
        snmf_dist.fit(graph, 3)


def test_a_built_graph_knows_its_recall_and_every_graph_its_components(graph, tmp_path):
    built = snmf_dist.build_graph(blobs()[0], tmp_path / "built.zarr")
    assert (built.recall, built.components) == (1.0, 2)
    assert (graph.recall, graph.components) == (None, 1)


def test_fewer_clusters_than_components_warn(tmp_path):
    X, _ = blobs()
    graph = snmf_dist.build_graph(X, tmp_path / "g.zarr")
    with pytest.warns(errors.ResultWarning, match=r"falls into 2 parts of 10 rows.*k is 1.*connect=True"):
        snmf_dist.fit(graph, 1)


def test_a_matrix_is_not_a_path(tmp_path):
    with pytest.raises(errors.InputError, match=r"given a csr_matrix; .*import_graph"):
        snmf_dist.fit(planted_graph()[0], 3)


def test_outputs_replace_only_their_own_kind(graph, tmp_path):
    snmf_dist.fit(graph, 3, rho=0.3, out=tmp_path / "r.zarr")
    with pytest.raises(errors.StoreExists, match="holds a graph store, so a result store is not written over"):
        snmf_dist.fit(graph, 3, out=graph.path, overwrite=True)
    with pytest.raises(errors.StoreExists, match="holds a result store, so a graph store is not written over"):
        snmf_dist.import_graph(planted_graph()[0], tmp_path / "r.zarr", overwrite=True)


def test_a_tol_finer_than_float32_is_pointed_out(tmp_path):
    graph = snmf_dist.import_graph(planted_graph()[0], tmp_path / "g.zarr")
    with (
        pytest.warns(errors.ResultWarning, match="finer than the rounding of a float32 graph"),
        pytest.warns(errors.NotConverged),
    ):
        snmf_dist.fit(graph, 3, init="random", tol=1e-8, max_iter=3)


class Watch(snmf_dist.Listener):
    def __init__(self, fail_at=None):
        self.fail_at, self.heard = fail_at, []

    def on_start(self, settings):
        settings["max_iter"] = 1  # a copy: the run does not listen to this

    def on_iteration(self, record, state):
        if record.iteration == self.fail_at:
            raise RuntimeError("a mistake of the listener")

    def on_end(self, status):
        self.heard.append(status)


def test_listeners_hear_the_end_of_a_run_even_if_an_error_ends_it(graph):
    watch = Watch()
    assert snmf_dist.fit(graph, 3, init="random", listeners=watch).n_iter > 1
    assert watch.heard == [Status.SETTLED]
    watch = Watch(fail_at=3)
    with pytest.raises(RuntimeError, match="a mistake of the listener"):
        snmf_dist.fit(graph, 3, init="random", listeners=[watch])
    assert watch.heard == [None]


def test_two_fits_at_once_agree_and_leave_blas_as_it_was(graph):
    before = [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]
    with ThreadPoolExecutor(2) as pool:
        jobs = [pool.submit(snmf_dist.fit, graph, 3, rho=0.3) for _ in range(2)]
        one, two = (job.result() for job in jobs)
    assert_array_equal(one.membership.compute(), two.membership.compute())
    after = [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]
    assert after == before
