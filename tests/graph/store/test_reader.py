import json
import pickle
import shutil

import anndata
import numpy as np
import pytest
import zarr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from scipy import sparse

import snmf_dist
from snmf_dist import errors, storage
from snmf_dist.graph.store.writer import GraphWriter
from tests.helpers import planted_graph

TINY = settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])


def dense(graph):
    return graph.read_rows(0, graph.n).toarray()


@st.composite
def symmetric_graphs(draw):
    """A symmetric graph of 1 to 12 rows, with empty rows and loops among them, and a block size."""
    n = draw(st.integers(1, 12))
    edges = draw(
        st.dictionaries(
            st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)),
            st.floats(2**-20, 2**20),
            min_size=1,
        )
    )
    W = np.zeros((n, n))
    for (i, j), w in edges.items():
        W[i, j] = W[j, i] = w
    return W, draw(st.integers(1, n + 2)), draw(st.sampled_from(["float32", "float64"]))


@TINY
@given(symmetric_graphs())
@pytest.mark.filterwarnings("ignore::snmf_dist.errors.GraphWarning")
def test_a_graph_comes_back_as_it_was_written_whatever_its_blocks(tmp_path, case):
    W, block_rows, dtype = case
    graph = snmf_dist.import_graph(
        sparse.csr_matrix(W),
        tmp_path / "g.zarr",
        normalize=None,
        block_rows=block_rows,
        dtype=dtype,
        overwrite=True,
    )
    assert_array_equal(dense(graph), W.astype(dtype))
    assert graph.nnz == np.count_nonzero(W)
    assert graph.n_blocks == -(-len(W) // block_rows)
    np.testing.assert_allclose(graph.degree, W.sum(axis=1), rtol=1e-12)
    assert graph.block["zero_degree"] == np.count_nonzero(W.sum(axis=1) == 0)
    assert graph.block["self_loops"] == np.count_nonzero(W.diagonal())
    graph.validate(deep=True)


def test_any_rows_can_be_read(graph):
    A = dense(graph)
    for start, stop in [(0, 90), (3, 4), (24, 26), (25, 50), (10, 80), (75, 90)]:
        assert_array_equal(graph.read_rows(start, stop).toarray(), A[start:stop])


def test_a_block_is_a_scipy_csr_matrix_with_sorted_indices(graph):
    A = graph.read_block(1)
    assert type(A) is sparse.csr_matrix
    assert A.shape == (25, 90)
    assert A.has_sorted_indices


def test_anndata_reads_each_block(graph):
    group = zarr.open_group(graph.path, mode="r")
    for i in range(graph.n_blocks):
        block = anndata.io.read_elem(group[f"blocks/{i}"])
        assert_array_equal(block.toarray(), graph.read_block(i).toarray())


def test_a_graph_travels_as_its_path_and_notices_that_it_was_replaced(graph, tmp_path):
    parcel = pickle.dumps(graph)
    assert len(parcel) < 1000
    assert_array_equal(dense(pickle.loads(parcel)), dense(graph))
    snmf_dist.import_graph(planted_graph(seed=5)[0], graph.path, overwrite=True)
    with pytest.raises(errors.StoreCorrupt, match="replaced while it was in use"):
        pickle.loads(parcel)


def test_fingerprints_tell_graphs_apart_and_only_them(graph, tmp_path):
    W, _ = planted_graph()
    again = snmf_dist.import_graph(W, tmp_path / "again.zarr", dtype="float64", block_rows=25)
    other = snmf_dist.import_graph(W * 1.5, tmp_path / "x.zarr", dtype="float64", normalize=None)
    assert again.fingerprint == graph.fingerprint
    assert other.fingerprint != graph.fingerprint


def test_a_url_works_as_a_path_does():
    url = "memory://tests/graph.zarr"
    W, _ = planted_graph()
    snmf_dist.import_graph(W, url, overwrite=True)
    assert snmf_dist.open_graph(url).n == 90
    assert snmf_dist.fit(url, 3, rho=0.3).status.converged
    with pytest.raises(errors.StoreExists):
        snmf_dist.import_graph(W, url)
    with pytest.raises(errors.StoreNotFound, match="check the URL"):
        snmf_dist.open_graph("memory://tests/none.zarr")
    with pytest.raises(errors.StoreNotFound, match="check the URL"):
        snmf_dist.open_graph("nosuch://tests/none.zarr")


def test_info_says_what_is_in_the_store(graph):
    info = graph.info()
    assert (info["rows"], info["entries"], info["blocks"]) == (90, graph.nnz, 4)
    assert info["normalize"] == "ncut"
    assert info["made: source"] == "a csr_matrix in memory"


# What is wrong with a store is said when it is opened or read.


def test_no_store_at_the_path(tmp_path):
    with pytest.raises(errors.StoreNotFound, match=r"none\.zarr: no such file or directory"):
        snmf_dist.open_graph(tmp_path / "none.zarr")


def test_something_else_at_the_path(tmp_path):
    zarr.create_array(tmp_path / "array.zarr", data=np.zeros((3, 3)))
    with pytest.raises(errors.NotOurStore, match="found a Zarr array"):
        snmf_dist.open_graph(tmp_path / "array.zarr")
    zarr.open_group(tmp_path / "group.zarr", mode="w")
    with pytest.raises(errors.NotOurStore, match="not a graph store"):
        snmf_dist.open_graph(tmp_path / "group.zarr")
    with pytest.raises(errors.NotOurStore, match="not a Zarr group"):
        snmf_dist.open_graph(tmp_path)


def test_a_result_is_not_a_graph(graph, tmp_path):
    snmf_dist.fit(graph, 3, rho=0.3, out=tmp_path / "result.zarr")
    with pytest.raises(errors.NotOurStore, match="found a result store, expected a graph store"):
        snmf_dist.open_graph(tmp_path / "result.zarr")


def test_a_store_that_was_not_finished(tmp_path):
    writer = GraphWriter(str(tmp_path / "half.zarr"), np.array([0, 2, 4]), np.dtype("float32"))
    writer.write_block(0, sparse.csr_matrix(np.ones((2, 4))))
    with pytest.raises(errors.StoreIncomplete, match="not finished; write it again"):
        snmf_dist.open_graph(tmp_path / "half.zarr")


def test_a_newer_format(graph):
    with open(f"{graph.path}/zarr.json", encoding="utf-8") as file:
        root = json.load(file)
    root["attributes"]["snmf_dist"]["version"] = 2
    with open(f"{graph.path}/zarr.json", "w", encoding="utf-8") as file:
        json.dump(root, file)
    with pytest.raises(errors.StoreVersionError, match=r"version 2, .* reads version 1; upgrade"):
        snmf_dist.open_graph(graph.path)


def damage(graph, how):
    chunk = f"{graph.path}/blocks/2/data/c/0"
    if how == "chunk lost":
        shutil.os.remove(chunk)
    elif how == "chunk truncated":
        with open(chunk, "r+b") as file:
            file.truncate(20)
    elif how == "array lost":
        shutil.rmtree(f"{graph.path}/blocks/2/indices")
    elif how == "value changed":
        data = zarr.open_group(graph.path, mode="r+")["blocks/2/data"]
        data[5] = data[5] * 2
    elif how == "order changed":
        zarr.open_group(graph.path, mode="r+")["order"][0] = 1


@pytest.mark.parametrize("how", ["chunk lost", "chunk truncated", "array lost", "value changed"])
def test_a_corrupted_block_is_never_believed(graph, how):
    damage(graph, how)
    reopened = snmf_dist.open_graph(graph.path)
    with pytest.raises(errors.StoreCorrupt, match=r"blocks?.2"):
        reopened.read_block(2)
    with pytest.raises(errors.StoreCorrupt, match=r"blocks?.2"):
        reopened.validate(deep=True)
    with pytest.raises(errors.StoreCorrupt, match=r"blocks?.2"):
        snmf_dist.fit(reopened, 3)


def test_a_changed_vector_is_never_believed(graph):
    damage(graph, "order changed")
    with pytest.raises(errors.StoreCorrupt, match="order is not what was written"):
        snmf_dist.open_graph(graph.path).validate()


def test_quick_validation_sees_missing_arrays(graph):
    graph.validate()
    damage(graph, "array lost")
    with pytest.raises(errors.StoreCorrupt, match="blocks/2/indices is missing"):
        snmf_dist.open_graph(graph.path).validate()


@pytest.mark.parametrize(
    ("entries", "problem"),
    [
        ([[0, 2.0], [1.0, 0]], "not symmetric"),
        ([[0, np.nan], [np.nan, 0]], "not a finite number above zero"),
        ([[0, -1.0], [-1.0, 0]], "not a finite number above zero"),
    ],
)
def test_deep_validation_sees_entries_that_must_not_be(tmp_path, entries, problem):
    writer = GraphWriter(str(tmp_path / "bad.zarr"), np.array([0, 1, 2]), np.dtype(float))
    A = sparse.csr_matrix(np.array(entries))
    records = [writer.write_block(i, A[i : i + 1]) for i in range(2)]
    writer.finish(records, degree=np.ones(2), normalize="none", made={})
    graph = snmf_dist.open_graph(tmp_path / "bad.zarr")
    graph.validate()
    with pytest.raises(errors.StoreCorrupt, match=problem):
        graph.validate(deep=True)


@pytest.mark.parametrize("how", ["no json", "a list", "a key lost", "a value changed", "blocks lost"])
def test_edited_attributes_are_never_believed(graph, how):
    path = f"{graph.path}/zarr.json"
    with open(path, encoding="utf-8") as file:
        text = file.read()
    root = json.loads(text)
    block = root["attributes"]["snmf_dist"]
    if how == "a key lost":
        del block["made"]
    elif how == "a value changed":
        block["normalize"] = "none"
    elif how == "blocks lost":
        block["blocks"] = []
    new = {"no json": text[:50], "a list": "[]"}.get(how, json.dumps(root))
    with open(path, "w", encoding="utf-8") as file:
        file.write(new)
    with pytest.raises(errors.StoreCorrupt, match=r"cannot be read|not what was written"):
        snmf_dist.open_graph(graph.path)


def test_a_torn_array_header_is_found_by_validation(graph):
    with open(f"{graph.path}/blocks/1/data/zarr.json", "w", encoding="utf-8") as file:
        file.write("{")
    with pytest.raises(errors.StoreCorrupt, match=r"zarr\.json of blocks/1/data cannot be read"):
        snmf_dist.open_graph(graph.path).validate()


@pytest.mark.parametrize(("start", "stop"), [(0, 0), (-1, 3), (80, 91), (5, 2)])
def test_rows_outside_the_graph_are_refused(graph, start, stop):
    with pytest.raises(IndexError, match=f"rows {start}:{stop} are not rows of"):
        graph.read_rows(start, stop)
    with pytest.raises(IndexError, match="there is no block"):
        graph.read_block(-1)


def test_stores_of_another_codec_stay_readable(tmp_path, monkeypatch):
    W, _ = planted_graph()
    new = snmf_dist.import_graph(W, tmp_path / "new.zarr", block_rows=25)
    monkeypatch.setattr(storage, "CODEC", "auto")  # what zarr takes by itself, as earlier versions did
    old = snmf_dist.import_graph(W, tmp_path / "old.zarr", block_rows=25)
    old.validate(deep=True)
    assert old.fingerprint == new.fingerprint


def test_long_vectors_are_cut_into_equal_chunks(tmp_path, monkeypatch):
    monkeypatch.setattr(storage, "CHUNK", 10)
    group = zarr.open_group(tmp_path / "g.zarr", mode="w")
    for size, chunk in ((0, 1), (10, 10), (11, 6), (25, 9)):
        storage.write_vector(group, "v", np.arange(size))
        assert group["v"].chunks == (chunk,)
        assert_array_equal(group["v"][:], np.arange(size))
