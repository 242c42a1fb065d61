"""Points to graph: the exact path is the paper's formula, the partitioned one close to it; both survive."""

import json
import os
import signal
import subprocess
import sys
import warnings

import dask.array as da
import numpy as np
import pyarrow as pa
import pytest
import zarr
from distributed import Client, LocalCluster
from numpy.testing import assert_allclose, assert_array_equal
from pyarrow import parquet
from scipy import sparse
from scipy.sparse.csgraph import connected_components

import snmf_dist
from snmf_dist import errors, storage
from snmf_dist.graph.build import building, prepare
from tests import oracle
from tests.helpers import data_file

RANDOM = np.random.default_rng(0)
X = RANDOM.standard_normal((400, 3))


def dense(graph):
    """A in the order of the input."""
    A = graph.read_rows(0, graph.n).toarray()
    back = np.argsort(graph.order)
    return A[back][:, back]


@pytest.fixture
def small_parts(monkeypatch):
    """Several blocks of points, small cells and samples, so that a small set goes through every stage."""
    monkeypatch.setattr(prepare, "INPUT_BYTES", 4 * 3 * 150)
    monkeypatch.setattr(prepare, "SAMPLE_ROWS", 300)


def in_cells(points, out, cells=4, **options):
    """Build by the partitioned path with a given number of cells."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(building, "choose_cells", lambda *given: {"cells": cells, "threads": 2, "at_once": 2})
        return snmf_dist.build_graph(points, out, exact=False, **options)


whole_builds = {}


def undisturbed(folder, block_rows):
    """The fingerprint of X built in cells with small parts; built once."""
    if block_rows not in whole_builds:
        whole_builds[block_rows] = in_cells(X, folder / "whole.zarr", block_rows=block_rows).fingerprint
    return whole_builds[block_rows]


@pytest.mark.parametrize("block_rows", [None, 90])
def test_the_exact_graph_is_the_papers_formula(tmp_path, small_parts, block_rows):
    graph = snmf_dist.build_graph(X, tmp_path / "g.zarr", block_rows=block_rows)
    assert_allclose(dense(graph), oracle.similarity_graph(X)[1], atol=1e-7)
    assert graph.block["made"]["neighbors"] == 9
    graph.validate(deep=True)


def test_cosine_is_euclidean_between_rows_of_unit_length(tmp_path):
    graph = snmf_dist.build_graph(X, tmp_path / "g.zarr", metric="cosine", neighbors=6)
    units = X / np.linalg.norm(X, axis=1, keepdims=True)
    assert_allclose(dense(graph), oracle.similarity_graph(units, q=6)[1], atol=1e-7)


def test_sparse_points_give_the_graph_of_the_dense_ones(tmp_path, small_parts, monkeypatch):
    monkeypatch.setattr(prepare, "INPUT_BYTES", 4 * 200 * 100)
    points = sparse.random(300, 40, density=0.2, random_state=1, format="csr") + sparse.eye_array(300, 40)
    one = snmf_dist.build_graph(sparse.csr_matrix(points), tmp_path / "s.zarr", metric="cosine")
    two = snmf_dist.build_graph(points.toarray(), tmp_path / "d.zarr", metric="cosine")
    assert_allclose(dense(one), dense(two), atol=1e-6)
    three = in_cells(sparse.csr_matrix(points), tmp_path / "c.zarr", metric="cosine", replication=4)
    assert three.recall > 0.97


@pytest.mark.filterwarnings("ignore::snmf_dist.errors.GraphWarning")
def test_the_graph_of_duplicates_and_an_isolated_point_is_the_formula_too(tmp_path):
    points = np.concatenate((X, np.repeat(X[:3], 8, axis=0), [[30, 0, 0]]))
    graph = snmf_dist.build_graph(points, tmp_path / "g.zarr")
    assert_allclose(dense(graph), oracle.similarity_graph(points)[1], atol=1e-7)


OFFSETS = {
    "far from the origin": X * 1e-3 + 1e6,
    "float32 far from the origin": (X + 1e4).astype("f4"),
    "places in a city": (X * 0.01 + [52.5, 13.4, 0]).astype("f4"),
    "times of a day": (1_700_000_000 + 20_000 * X[:, :1]).astype(np.int64),
    "big-endian": (X + 1e3).astype(">f8"),
    "huge": X * 1e155,
    "huge float32": (X * 1e30).astype("f4"),
    "tiny": (X * 1e-25).astype("f4"),
    "bytes": (30 * X).astype("i1"),
    "float16": X.astype("f2"),
}


@pytest.mark.parametrize("case", OFFSETS)
def test_neither_place_nor_scale_nor_type_of_the_points_costs_digits(tmp_path, case):
    points = OFFSETS[case]
    graph = snmf_dist.build_graph(points, tmp_path / "g.zarr", neighbors=8)
    plain = points.astype(float) / np.abs(points.astype(float)).max()
    W, A = oracle.similarity_graph(plain - plain.mean(axis=0), q=8)
    if case in ("bytes", "times of a day"):  # equal distances: which of them are listed is open
        assert abs(graph.nnz / np.count_nonzero(W) - 1) < 0.1
    else:
        assert_allclose(dense(graph), A, atol=1e-3)


@pytest.mark.parametrize("case", ["huge", "huge float32", "tiny"])
def test_the_scale_of_the_points_means_nothing_to_cosine(tmp_path, case):
    graph = snmf_dist.build_graph(OFFSETS[case], tmp_path / "g.zarr", metric="cosine", neighbors=8)
    units = X / np.linalg.norm(X, axis=1, keepdims=True)
    assert_allclose(dense(graph), oracle.similarity_graph(units, q=8)[1], atol=1e-3)


def test_cells_do_not_lose_digits_far_from_the_origin(tmp_path, small_parts):
    graph = in_cells(X + 1e4, tmp_path / "g.zarr", replication=4)
    assert_allclose(dense(graph), oracle.similarity_graph(X)[1], atol=1e-4)


def test_a_heap_of_duplicates_in_a_cloud_stays_in_it(tmp_path):
    points = np.concatenate((X[:, :2], np.zeros((20, 2))))
    graph = snmf_dist.build_graph(points, tmp_path / "g.zarr")
    assert np.count_nonzero(dense(graph)[400:, :400])
    assert connected_components(graph.read_rows(0, graph.n))[0] == graph.components == 1
    assert graph.block["made"]["zero_scale_rows"] == 20


@pytest.mark.filterwarnings("ignore::snmf_dist.errors.GraphWarning")
def test_duplicates_and_far_points_are_counted_and_never_nan(tmp_path):
    points = np.concatenate((X, np.repeat(X[:3], 12, axis=0), [[1e6, 0, 0]]))
    graph = snmf_dist.build_graph(points, tmp_path / "g.zarr")
    A = dense(graph)
    assert np.isfinite(A).all()
    assert (A[0, 400:412] > 0).sum() >= 8  # some of the twelve copies of row 0
    assert graph.block["zero_degree"] == 1  # the far point: its weights underflow
    assert connected_components(graph.read_rows(0, graph.n))[0] == graph.components
    assert A[-1].sum() == 0
    graph.validate(deep=True)


@pytest.mark.parametrize("n", [2, 3, 8])
def test_very_few_points_make_a_graph(tmp_path, n):
    graph = snmf_dist.build_graph(X[:n], tmp_path / "g.zarr")
    assert graph.n == n
    assert np.isfinite(dense(graph)).all()


def test_cells_with_enough_copies_find_every_neighbour(tmp_path, small_parts):
    graph = in_cells(X, tmp_path / "g.zarr", replication=4, block_rows=90)
    assert graph.block["made"]["cells"] == 4
    assert graph.reordered
    assert_allclose(dense(graph), oracle.similarity_graph(X)[1], atol=1e-6)


def test_the_order_keeps_neighbours_together_and_results_come_back_in_the_inputs(tmp_path, small_parts):
    random = np.random.default_rng(3)
    y = random.integers(0, 4, 600)
    points = 12 * np.eye(4)[y][:, :3] + random.standard_normal((600, 3))
    graph = in_cells(points, tmp_path / "g.zarr", block_rows=150)
    mixed = snmf_dist.build_graph(points, tmp_path / "m.zarr", block_rows=150)
    assert graph.coupling()["diagonal"] > 2 * mixed.coupling()["diagonal"]
    assert "% of entries" in graph.info()["in diagonal blocks"]
    solution = snmf_dist.fit(graph, 4, rho=0.3, max_iter=3000)
    assert snmf_dist.score(solution.labels, y).accuracy == 1.0


def test_pynndescent_on_20k_points_has_a_high_recall_and_a_clean_graph(tmp_path):
    random = np.random.default_rng(0)
    points = np.tanh(random.standard_normal((20_000, 8)) @ random.standard_normal((8, 16))).astype("f4")
    graph = in_cells(points, tmp_path / "g.zarr", cells=2, replication=1.6)
    assert graph.recall >= 0.97
    graph.validate(deep=True)  # finite, sorted, symmetric
    again = in_cells(points, tmp_path / "again.zarr", cells=2, replication=1.6)
    assert again.fingerprint == graph.fingerprint  # the same settings, the same graph


def write_points(kind, folder):
    path = folder / f"x.{kind}"
    if kind == "npy":
        np.save(path, X)
    elif kind == "zarr":
        zarr.create_array(path, data=X, chunks=(70, 2))
    elif kind == "parquet":
        parquet.write_table(pa.table({"a": X[:, 0], "b": X[:, 1], "id": np.arange(400), "c": X[:, 2]}), path)
    elif kind == "npz":
        sparse.save_npz(path, sparse.csr_matrix(X))
    elif kind == "dask":
        return da.from_array(X, chunks=(130, 2))
    elif kind == "array":
        return X
    return path


@pytest.mark.parametrize("kind", ["npy", "zarr", "parquet", "npz", "dask", "array"])
def test_every_kind_of_points_gives_the_same_graph_on_threads_and_processes(tmp_path, kind, place):
    columns = ("a", "b", "c") if kind == "parquet" else None
    graph = snmf_dist.build_graph(write_points(kind, tmp_path), tmp_path / "g.zarr", columns=columns)
    assert_allclose(dense(graph), oracle.similarity_graph(X)[1], atol=1e-7)
    assert not (tmp_path / "g.zarr.build").exists()


def test_wide_points_are_projected_on_principal_components(tmp_path):
    random = np.random.default_rng(0)
    flat = random.standard_normal((300, 2))
    wide = flat @ random.standard_normal((2, 50)) + 5
    graph = snmf_dist.build_graph(wide, tmp_path / "g.zarr", pca=2)
    named = snmf_dist.build_graph(wide, tmp_path / "w.zarr")
    assert graph.block["made"]["pca"] == 2
    assert_allclose(dense(graph), dense(named), atol=1e-4)


def islands(seed=0):
    """A large cloud and five far specks of 12 points; the last two are nearer to each other than to it."""
    random = np.random.default_rng(seed)
    centres = np.array([[60, 0], [-60, 0], [0, 60], [0, -60], [0, -75]])
    specks = [random.standard_normal((12, 2)) + centre for centre in centres]
    return np.concatenate((random.standard_normal((3000, 2)), *specks))


def test_components_are_counted_and_joined_on_request(tmp_path):
    apart = snmf_dist.build_graph(islands(), tmp_path / "a.zarr", neighbors=8)
    assert apart.components == 6
    assert apart.block["made"]["component_sizes"] == [3000, 12, 12, 12, 12, 12]
    joined = snmf_dist.build_graph(islands(), tmp_path / "j.zarr", neighbors=8, connect=True)
    assert joined.components == 1
    assert joined.block["made"]["joined"] == 5
    joined.validate(deep=True)
    for graph, parts in ((apart, 6), (joined, 1)):
        assert connected_components(graph.read_rows(0, graph.n))[0] == parts


def test_many_components_warn(tmp_path):
    pairs = np.repeat(np.arange(50.0)[:, None] * 100, 3, axis=0) + RANDOM.random((150, 1))
    with pytest.warns(errors.GraphWarning, match=r"falls into 50 components.*connect=True"):
        snmf_dist.build_graph(pairs, tmp_path / "g.zarr", neighbors=2)


def test_low_recall_warns_and_says_what_to_raise(tmp_path, small_parts):
    points = RANDOM.standard_normal((600, 12))
    with pytest.warns(errors.GraphWarning, match="of the true neighbours; raise memory_limit"):
        in_cells(points, tmp_path / "g.zarr", cells=8, replication=1)


# A build that is killed goes on where it was.

STAGES = ["sample", "assign", "search", "gather", "weigh", "write"]


class Killed(Exception):
    pass


@pytest.mark.parametrize("stage", STAGES)
def test_a_build_cut_off_in_any_stage_resumes_without_redoing_finished_blocks(tmp_path, small_parts, stage):
    out = tmp_path / "g.zarr"
    expected = undisturbed(tmp_path, 90)

    def cut(name, done, total):
        if name == stage and done == 1:
            raise Killed

    with pytest.raises(Killed):
        in_cells(X, out, block_rows=90, progress=cut)
    assert not out.exists()
    finished = set(os.listdir(tmp_path / "g.zarr.build" / stage))
    assert finished
    marks = {i: os.stat(tmp_path / "g.zarr.build" / stage / i).st_mtime_ns for i in finished}

    seen = {}

    def watch(name, done, total):
        seen.setdefault(name, done)  # what was there when the stage was taken up
        if name == stage and done == total:
            folder = tmp_path / "g.zarr.build" / stage
            assert {i: os.stat(folder / i).st_mtime_ns for i in marks} == marks

    graph = in_cells(X, out, block_rows=90, progress=watch)
    assert seen[stage] == len([i for i in finished if "partial" not in i])
    assert graph.fingerprint == expected
    assert not (tmp_path / "g.zarr.build").exists()


def test_changed_points_or_settings_are_not_mixed_into_an_unfinished_build(tmp_path, small_parts):
    np.save(tmp_path / "x.npy", X)

    def cut(name, done, total):
        if name == "gather":
            raise Killed

    with pytest.raises(Killed):
        snmf_dist.build_graph(tmp_path / "x.npy", tmp_path / "g.zarr", progress=cut)
    for other, words in (({"neighbors": 5}, "neighbors was 9, is 5"), ({"memory_limit": "2GB"}, "is 2GB")):
        with pytest.raises(errors.InputError, match=rf"{words}.*resume=False"):
            snmf_dist.build_graph(tmp_path / "x.npy", tmp_path / "g.zarr", **other)
    changed = X.copy()
    changed[217, 1] += 1
    np.save(tmp_path / "x.npy", changed)
    with pytest.raises(errors.InputError, match=r"points changed since .*resume=False"):
        snmf_dist.build_graph(tmp_path / "x.npy", tmp_path / "g.zarr")
    graph = snmf_dist.build_graph(tmp_path / "x.npy", tmp_path / "g.zarr", resume=False)
    assert_allclose(dense(graph), oracle.similarity_graph(changed)[1], atol=1e-7)


def test_a_full_disk_in_a_stage_leaves_nothing_half_believed(tmp_path, small_parts, monkeypatch):
    save = np.save

    def full(path, *rest, **options):
        if "/weigh/1." in str(path):
            raise OSError(28, "No space left on device")
        save(path, *rest, **options)

    monkeypatch.setattr(np, "save", full)
    with pytest.raises(errors.NoRoom, match=r"no room is left .* make the same call again: it continues"):
        in_cells(X, tmp_path / "g.zarr", block_rows=90)
    monkeypatch.undo()
    assert not (tmp_path / "g.zarr").exists()
    assert not [name for name in os.listdir(tmp_path / "g.zarr.build/weigh") if "partial" in name]
    monkeypatch.setattr(prepare, "INPUT_BYTES", 4 * 3 * 150)
    monkeypatch.setattr(prepare, "SAMPLE_ROWS", 300)
    graph = in_cells(X, tmp_path / "g.zarr", block_rows=90)
    graph.validate(deep=True)


LONG = {"sample", "assign", "gather", "weigh"}  # a killed worker takes seconds to come back


@pytest.mark.parametrize(
    "stage", [pytest.param(one, marks=pytest.mark.slow if one in LONG else ()) for one in ("check", *STAGES)]
)
def test_a_worker_killed_in_any_stage_changes_nothing(tmp_path, small_parts, stage, victims):
    killed = []

    def kill(name, done, total):
        if name == stage and done == 1 and not killed:
            killed.append(next(iter(client.run(os.getpid).values())))
            os.kill(killed[0], signal.SIGKILL)

    expected = undisturbed(tmp_path, 60)
    with Client(victims) as client:
        client.wait_for_workers(2, timeout=120)
        graph = in_cells(X, tmp_path / "g.zarr", block_rows=60, progress=kill)
    assert killed
    assert graph.fingerprint == expected


@pytest.fixture(scope="module")
def victims():
    """A cluster of its own, whose nannies replace killed workers."""
    with LocalCluster(
        n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address="127.0.0.1:0"
    ) as cluster:
        yield cluster


BAD = {
    "NaN": ({"points": np.where(np.arange(400)[:, None] == 317, np.nan, X)}, "row 317 .* NaN or infinity"),
    "infinite": ({"points": np.where(np.arange(400)[:, None] == 3, np.inf, X)}, "row 3 of the points"),
    "zero row": ({"points": X * (np.arange(400) != 42)[:, None], "metric": "cosine"}, "row 42 .* is zero"),
    "one point": ({"points": X[:1]}, "1 points of 3 numbers; expected at least 2"),
    "no numbers": ({"points": X[:, :0]}, "400 points of 0 numbers"),
    "text": ({"points": np.array([["a"], ["b"]])}, "expected real numbers"),
    "a vector": ({"points": X[:, 0]}, r"has shape \(400,\); expected \(n, d\)"),
    "a list": ({"points": [[1, 2], [3, 4]]}, "points is a list; expected"),
    "neighbors": ({"points": X, "neighbors": 400}, "neighbors is 400; expected less than"),
    "no neighbors": ({"points": X, "neighbors": 0}, "neighbors is 0; expected at least 1"),
    "metric": ({"points": X, "metric": "manhattan"}, "metric is 'manhattan'; expected"),
    "pca": ({"points": X, "pca": 3}, "pca is 3; expected less than"),
    "replication": ({"points": X, "replication": 0.5}, "replication is 0.5; expected at least 1"),
    "no replication": ({"points": X, "replication": "two"}, "replication is 'two'; expected a number"),
    "large seed": ({"points": X, "seed": 2**40}, "seed is 1099511627776; expected 0 to"),
    "exact": ({"points": X, "exact": "no"}, "exact is 'no'; expected one of True, False"),
    "masked": ({"points": np.ma.masked_less(X, 0)}, "masked array"),
    "unknown chunks": ({"points": da.from_array(X)[da.from_array(X[:, 0]) > 0]}, "unknown shape"),
    "memory": ({"points": X, "memory_limit": "lots"}, "memory_limit is 'lots'; expected bytes"),
    "little memory": ({"points": X, "memory_limit": "100MB"}, "memory_limit is 100 MB; expected at least"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_points_and_settings_are_refused_in_words(tmp_path, case):
    options, words = BAD[case]
    with pytest.raises(errors.InputError, match=words):
        snmf_dist.build_graph(out=tmp_path / "g.zarr", **options)
    assert os.listdir(tmp_path) == []


def test_bad_paths_are_refused_in_words(tmp_path):
    with pytest.raises(errors.StoreNotFound, match="no such file"):
        snmf_dist.build_graph(tmp_path / "none.npy", tmp_path / "g.zarr")
    zarr.create_array(tmp_path / "x.zarr", data=X)
    with pytest.raises(errors.StoreExists, match="lies inside the Zarr store"):
        snmf_dist.build_graph(tmp_path / "x.zarr", tmp_path / "x.zarr" / "g.zarr")
    with pytest.raises(errors.StoreNotFound, match="make it first"):
        snmf_dist.build_graph(X, tmp_path / "no" / "g.zarr")
    with pytest.raises(errors.InputError, match="not a Zarr array"):
        snmf_dist.build_graph(tmp_path, tmp_path / "g.zarr")


# The paper's data.


def test_coil20_and_zelnik_perona_are_the_papers_graphs(tmp_path):
    with np.load(data_file("zelnik_perona.npz")) as file:
        sets = [file[f"X{i}"] for i in range(1, 7)]
    with np.load(data_file("coil20_32x32.npz")) as file:
        sets.append(file["X"].astype(float))
    for i, points in enumerate(sets):
        graph = snmf_dist.build_graph(points, tmp_path / f"{i}.zarr")
        assert_allclose(dense(graph), oracle.similarity_graph(points)[1], rtol=2e-5, atol=1e-7)


@pytest.mark.slow
def test_reuters_is_built_from_csr(tmp_path):
    graph = snmf_dist.build_graph(data_file("reuters21578_top20.npz"), tmp_path / "r.zarr", metric="cosine")
    # the same graph, made by others: 161,462 entries, connected
    assert graph.nnz == 161_462
    assert graph.components == 1
    assert graph.block["made"]["neighbors"] == 13


def test_a_killed_process_leaves_a_build_that_resumes(tmp_path):
    """kill -9 of the whole process, not an exception."""
    np.save(tmp_path / "x.npy", RANDOM.standard_normal((2000, 8)))
    code = """
import os, signal, sys
import snmf_dist

def kill(stage, done, total):
    if stage == "weigh":
        os.kill(os.getpid(), signal.SIGKILL)

snmf_dist.build_graph(sys.argv[1], sys.argv[2], progress=kill)
"""
    files = (str(tmp_path / "x.npy"), str(tmp_path / "g.zarr"))
    done = subprocess.run([sys.executable, "-c", code, *files], check=False)
    assert done.returncode == -signal.SIGKILL
    assert not (tmp_path / "g.zarr").exists()
    assert os.listdir(tmp_path / "g.zarr.build" / "gather")
    with warnings.catch_warnings(action="ignore"):
        snmf_dist.build_graph(tmp_path / "x.npy", tmp_path / "g.zarr").validate()
    assert json.loads((tmp_path / "g.zarr" / "zarr.json").read_text())["attributes"]["snmf_dist"]["complete"]


def test_order_is_a_permutation_of_the_input(tmp_path, small_parts):
    graph = in_cells(X, tmp_path / "g.zarr")
    assert_array_equal(np.sort(graph.order), np.arange(400))


def test_bad_files_are_refused_in_words(tmp_path):
    np.save(tmp_path / "object.npy", np.array([{}, {}]), allow_pickle=True)
    for name in ("torn.npy", "torn.npz", "torn.parquet"):
        (tmp_path / name).write_bytes(b"nonsense")
    (tmp_path / "folder.npy").mkdir()
    for name in ("object.npy", "torn.npy", "torn.npz", "torn.parquet", "folder.npy"):
        with pytest.raises(errors.InputError, match="cannot be read as points"):
            snmf_dist.build_graph(tmp_path / name, tmp_path / "g.zarr")
    parquet.write_table(pa.table({"a": [1, None, 3], "b": [1, 2, 3]}), tmp_path / "null.parquet")
    with pytest.raises(errors.InputError, match=r"columns \['a'\] have empty cells"):
        snmf_dist.build_graph(tmp_path / "null.parquet", tmp_path / "g.zarr")


def test_repeated_entries_of_sparse_points_are_added_up(tmp_path):
    points = sparse.csr_matrix(np.abs(X))
    halves = sparse.csr_matrix(
        (np.repeat(points.data / 2, 2), np.repeat(points.indices, 2), points.indptr * 2), shape=points.shape
    )
    graph = snmf_dist.build_graph(halves, tmp_path / "h.zarr")
    assert_allclose(dense(graph), oracle.similarity_graph(np.abs(X))[1], atol=1e-6)


def test_dask_blocks_that_give_fewer_rows_than_promised_are_refused(tmp_path):
    short = da.from_array(X, chunks=(100, 3)).map_blocks(lambda block: block[:-1], dtype=float)
    with pytest.raises(errors.InputError, match="gave 396 rows but promised 400"):
        snmf_dist.build_graph(short, tmp_path / "g.zarr")


def test_a_second_build_to_the_same_place_is_refused_while_the_first_runs(tmp_path):
    def meanwhile(stage, done, total):
        with pytest.raises(errors.OutputBusy, match="another run is writing here"):
            snmf_dist.build_graph(X, tmp_path / "g.zarr")

    snmf_dist.build_graph(X, tmp_path / "g.zarr", progress=meanwhile).validate(deep=True)


def test_points_that_change_during_the_build_are_noticed(tmp_path):
    np.save(tmp_path / "x.npy", X)

    def change(stage, done, total):
        if stage == "weigh":
            np.save(tmp_path / "x.npy", X + 1)

    with pytest.raises(errors.InputError, match="changed during the build"):
        snmf_dist.build_graph(tmp_path / "x.npy", tmp_path / "g.zarr", progress=change)
    assert not (tmp_path / "g.zarr").exists()


@pytest.mark.parametrize("moment", ["finish_group", "write_vector", "replacing"])
def test_a_build_killed_in_its_last_steps_resumes(tmp_path, monkeypatch, moment):
    """Cut off after the named step: the attributes, a vector, or the move into place."""
    real = getattr(storage, moment)

    def killed(*given, **options):
        result = real(*given, **options)
        if moment == "replacing":
            with result as place:
                os.makedirs(place)
        raise Killed

    monkeypatch.setattr(storage, moment, killed)
    with pytest.raises(Killed):
        snmf_dist.build_graph(X, tmp_path / "g.zarr", overwrite=moment == "replacing")
    monkeypatch.undo()
    if (tmp_path / "g.zarr").exists():
        os.rmdir(tmp_path / "g.zarr")
    if moment == "replacing":
        os.rename(tmp_path / "g.zarr.build/graph.zarr", tmp_path / "lost.zarr")
    graph = snmf_dist.build_graph(X, tmp_path / "g.zarr")
    graph.validate(deep=True)
    assert_allclose(dense(graph), oracle.similarity_graph(X)[1], atol=1e-7)
    assert not (tmp_path / "g.zarr.build").exists()


def test_a_torn_file_of_a_build_is_named(tmp_path):
    def cut(stage, done, total):
        if stage == "weigh":
            raise Killed

    with pytest.raises(Killed):
        snmf_dist.build_graph(X, tmp_path / "g.zarr", progress=cut)
    (tmp_path / "g.zarr.build/gather/0/scale.npy").write_bytes(b"")
    with pytest.raises(errors.StoreCorrupt, match=r"gather/0/scale: cannot be read .*resume=False"):
        snmf_dist.build_graph(X, tmp_path / "g.zarr")
