import gzip
import os
import subprocess
import sys
import tracemalloc
import warnings

import anndata
import dask
import fsspec
import numpy as np
import pyarrow as pa
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from pyarrow import parquet
from scipy import io, sparse

import snmf_dist
from snmf_dist import errors
from snmf_dist.graph.ingest import filing, runs
from tests import oracle
from tests.helpers import planted_graph

W, _ = planted_graph(40, 2, seed=3)
A = oracle.normalized(W.toarray())


def dense(graph):
    return graph.read_rows(0, graph.n).toarray()


def imported(source, tmp_path, **options):
    return snmf_dist.import_graph(source, tmp_path / "g.zarr", dtype="float64", **options)


def write_zarr(adata, path, version=3):
    with (
        warnings.catch_warnings(action="ignore"),
        anndata.settings.override(zarr_write_format=version),
    ):
        adata.write_zarr(path)


def write_source(kind, folder):
    """W in the format `kind`; returns the source and what import_graph needs to know of it."""
    coo = sparse.coo_matrix(W)
    edges = np.column_stack((coo.row, coo.col, coo.data))
    upper = edges[coo.row <= coo.col]
    path = folder / f"w.{kind}"
    text = {"fmt": ("%d", "%d", "%.17g")}
    if kind == "npz":
        sparse.save_npz(path, W)
    elif kind == "mtx":
        io.mmwrite(path, W)
    elif kind == "csv":
        np.savetxt(path, edges, delimiter=",", header="source,target,weight", comments="", **text)
    elif kind == "tsv":
        np.savetxt(path, upper + np.array([1, 1, 0]), delimiter="\t", header="by hand", comments="# ", **text)
        return path, {"symmetrize": "max", "first_id": 1}
    elif kind == "txt.gz":
        with gzip.open(path, "wt") as file:
            np.savetxt(file, edges, delimiter=" ", **text)
    elif kind == "parquet":
        names = ("u", "w", "note", "v")
        columns = (coo.row, coo.data, coo.row, coo.col)
        parquet.write_table(pa.table(dict(zip(names, columns, strict=True))), path, row_group_size=10)
        return path, {"columns": ("u", "v", "w")}
    elif kind == "zarr":
        adata = anndata.AnnData(obsp={"connectivities": sparse.csr_matrix(W), "distances": sparse.csc_matrix(W)})
        write_zarr(adata, path)
        return path, {"key": "distances"}
    return path, {}


@pytest.mark.parametrize("kind", ["npz", "mtx", "csv", "tsv", "txt.gz", "parquet", "zarr"])
@pytest.mark.parametrize("block_rows", [None, 7])
def test_every_kind_of_file_gives_the_same_graph(tmp_path, kind, block_rows):
    source, options = write_source(kind, tmp_path)
    graph = imported(source, tmp_path, block_rows=block_rows, **options)
    assert_allclose(dense(graph), A, rtol=1e-13)
    assert graph.order.tolist() == list(range(40))
    graph.validate(deep=True)


@pytest.mark.parametrize(
    "matrix", [W, sparse.csr_array(W), sparse.coo_matrix(W), sparse.csc_array(W), W.toarray(), W.astype("f4")]
)
def test_every_kind_of_matrix_gives_the_same_graph(tmp_path, matrix):
    assert_allclose(dense(imported(matrix, tmp_path)), A, rtol=1e-6)


def test_an_npz_of_edges_is_read(tmp_path):
    np.savez(tmp_path / "e.npz", n=5, src=[0, 1], dst=[1, 2])
    with pytest.warns(errors.GraphWarning, match="2 of 5 rows have no edge"):
        graph = imported(tmp_path / "e.npz", tmp_path, symmetrize="max", normalize=None)
    assert dense(graph).sum() == 4


def test_normalised_values_are_symmetric_to_the_last_bit(tmp_path):
    graph = imported(W, tmp_path, block_rows=9)
    found = dense(graph)
    assert_array_equal(found, found.T)
    assert np.linalg.eigvalsh(found)[-1] == pytest.approx(1)


def test_another_graph_store_is_reblocked_with_its_degrees_and_order(tmp_path):
    first = imported(W, tmp_path, block_rows=9)
    again = snmf_dist.import_graph(first, tmp_path / "again.zarr", dtype="float64", block_rows=16)
    by_path = snmf_dist.import_graph(first.path, tmp_path / "path.zarr", dtype="float64", block_rows=16)
    assert again.bounds.tolist() == [0, 16, 32, 40]
    assert_array_equal(dense(again), dense(first))
    assert_array_equal(again.degree, first.degree)
    assert by_path.fingerprint == again.fingerprint
    with pytest.raises(errors.InputError, match="normalised already"):
        snmf_dist.import_graph(first, tmp_path / "w.zarr", normalize=None)


def test_one_anndata_matrix_needs_no_key(tmp_path):
    write_zarr(anndata.AnnData(obsp={"only": sparse.csr_matrix(W)}), tmp_path / "a.zarr", version=2)
    assert_allclose(dense(imported(tmp_path / "a.zarr", tmp_path)), A, rtol=1e-13)


@pytest.mark.parametrize(("how", "expected"), [("max", [[0, 3], [3, 0]]), ("mean", [[0, 2], [2, 0]])])
def test_an_asymmetric_graph_is_made_symmetric_on_request(tmp_path, how, expected):
    one_way = sparse.csr_matrix([[0, 3.0], [1.0, 0]])
    graph = imported(one_way, tmp_path, symmetrize=how, normalize=None, block_rows=1)
    assert dense(graph).tolist() == expected


def test_self_loops_are_kept_or_dropped(tmp_path):
    loops = W + 2 * sparse.eye_array(40)
    kept = imported(loops, tmp_path, block_rows=9, self_loops="keep")
    assert kept.block["self_loops"] == 40
    assert_allclose(dense(kept), oracle.normalized(loops.toarray()), rtol=1e-13)
    dropped = imported(loops, tmp_path, block_rows=9, self_loops="drop", overwrite=True)
    assert dropped.block["self_loops"] == 0
    assert_allclose(dense(dropped), A, rtol=1e-13)
    auto = imported(loops, tmp_path, block_rows=9, overwrite=True)
    assert auto.block["self_loops"] == 0
    assert auto.info()["made: dropped_self_loops"] == 40
    weights = imported(loops, tmp_path, normalize=None, overwrite=True)
    assert weights.block["self_loops"] == 40


def test_repeated_edges_add_up(tmp_path):
    (tmp_path / "e.csv").write_text("0,1,1\n1,0,3\n0,1,2\n")
    assert dense(imported(tmp_path / "e.csv", tmp_path, normalize=None)).tolist() == [[0, 3], [3, 0]]


def test_rows_without_edges_are_allowed_counted_and_reported(tmp_path):
    (tmp_path / "e.csv").write_text("0,2\n2,0\n")
    with pytest.warns(errors.GraphWarning, match="3 of 5 rows have no edge"):
        graph = imported(tmp_path / "e.csv", tmp_path, n=5)
    assert graph.block["zero_degree"] == 3
    assert np.isfinite(dense(graph)).all()


def test_tiny_and_huge_weights_normalise_without_overflow(tmp_path):
    extreme = sparse.block_diag([[[0, 1e-130], [1e-130, 0]], [[0, 1e130], [1e130, 0]]])
    pairs = np.kron(np.eye(2), [[0, 1], [1, 0]])
    assert_allclose(dense(imported(extreme, tmp_path, tau=0)), pairs, rtol=1e-15)


def test_an_edge_list_streams_through_bounded_memory(tmp_path):
    n, edges = 20_000, 2_000_000
    random = np.random.default_rng(0)
    table = pa.table({"source": random.integers(0, n, edges), "target": random.integers(0, n, edges)})
    parquet.write_table(table, tmp_path / "e.parquet", row_group_size=100_000)
    del table
    tracemalloc.start()
    try:
        graph = imported(tmp_path / "e.parquet", tmp_path, symmetrize="max", block_rows=500)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert graph.n_blocks == 40
    # 2M edges are 48 MB as arrays, and are filed twice; a few runs and two blocks are far less
    assert peak < 40e6


def test_progress_is_told_of_each_stage(tmp_path):
    reported = []
    imported(W, tmp_path, block_rows=10, progress=lambda *report: reported.append(report))
    assert reported[-1] == ("write", 4, 4)
    assert {stage for stage, _, _ in reported} == {"read edges", "merge", "write"}


BAD = {
    "not square": (sparse.csr_matrix((3, 4)), {}, "A is 3 × 4; expected a square"),
    "no numbers": (np.array([["a", "b"], ["c", "d"]]), {}, "expected real numbers"),
    "NaN": (np.array([[0, np.nan], [np.nan, 0]]), {}, r"A\[0, 1\] = nan; expected finite"),
    "infinite": (np.array([[0, np.inf], [np.inf, 0]]), {}, r"A\[0, 1\] = inf"),
    "negative": (np.array([[0, -1.0], [-1.0, 0]]), {}, r"A\[0, 1\] = -1.0; .*not distances"),
    "asymmetric": (np.array([[0, 2.0], [1.0, 0]]), {}, r"A\[0, 1\] = 2 but A\[1, 0\] = 1 .*symmetrize"),
    "one direction": (np.array([[0, 2.0], [0, 0]]), {}, r"A\[1, 0\] = 0"),
    "empty": (sparse.csr_matrix((0, 0)), {}, "the graph is empty"),
    "no edges": (sparse.csr_matrix((4, 4)), {}, "the graph is empty"),
    "all zero": (sparse.csr_matrix(([0.0, 0.0], ([0, 1], [1, 0]))), {}, "every weight is zero"),
    "a list": ([[0, 1], [1, 0]], {}, "source is a list; expected"),
    "normalize": (W, {"normalize": "max"}, "normalize is 'max'; expected one of 'ncut', None"),
    "block_rows": (W, {"block_rows": 0}, "block_rows is 0; expected at least 1"),
    "too large": (sparse.csr_matrix(np.full((2, 2), 1e39)), {"normalize": None, "dtype": "float32"},
                  "1e\\+39, beyond what float32 holds; .*dtype='float64'"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_a_bad_matrix_is_refused_in_words_and_leaves_nothing(tmp_path, case):
    source, options, words = BAD[case]
    with pytest.raises(errors.InputError, match=words):
        snmf_dist.import_graph(source, tmp_path / "g.zarr", **{"dtype": "float64", **options})
    assert os.listdir(tmp_path) == []


BAD_LINES = {
    "text ids": ("a,b\nc,d\n", {}, "may be a header or an edge"),
    "text as rows": ("source,target\na,b\n", {"ids": "rows"}, r"cannot be read as an edge list.*ids='text'"),
    "fractional ids": ("0.5,1\n", {}, "cannot be read as an edge list"),
    "ragged": ("0,1,1\n0,1\n", {}, "cannot be read as an edge list"),
    "empty cell": ("0,1,1\n0,1,\n", {}, "empty cells"),
    "nothing": ("# only a comment\n", {}, "holds no edges"),
    "no delimiter": ("0\n1\n", {}, "line 1 is '0'; expected source and target"),
    "many columns": ("0,1,2,3\n", {}, "say with columns="),
    "wrong names": ("x,y\n0,1\n", {"columns": ("u", "v")}, r"has columns \['x', 'y'\], not"),
    "ids below first": ("0,1\n", {"first_id": 1}, "node id 0; ids start at first_id=1"),
    "ids beyond n": ("0,7\n", {"n": 5}, "node id 7, but n=5"),
    "sparse ids": ("0,99999999\n", {"ids": "rows"}, "number the nodes from 0"),
    "NaN": ("0,1,nan\n1,0,nan\n", {}, r"A\[0, 1\] = nan"),
    "negative": ("0,1,-2\n1,0,-2\n", {}, r"A\[0, 1\] = -2"),
}


@pytest.mark.parametrize("case", BAD_LINES)
def test_a_bad_edge_list_is_refused_in_words(tmp_path, case):
    text, options, words = BAD_LINES[case]
    (tmp_path / "e.csv").write_text(text)
    with pytest.raises(errors.InputError, match=words):
        imported(tmp_path / "e.csv", tmp_path, **options)
    assert os.listdir(tmp_path) == ["e.csv"]


def test_bad_paths_are_refused_in_words(tmp_path):
    with pytest.raises(errors.StoreNotFound, match=r"none\.csv: no such file"):
        imported(tmp_path / "none.csv", tmp_path)
    (tmp_path / "w.xlsx").write_text("?")
    with pytest.raises(errors.InputError, match="unknown kind of file; expected"):
        imported(tmp_path / "w.xlsx", tmp_path)
    with pytest.raises(errors.StoreNotFound, match="no such directory; make it first"):
        snmf_dist.import_graph(W, tmp_path / "no" / "g.zarr")
    with pytest.raises(errors.NotOurStore, match="not a Zarr group"):
        imported(tmp_path, tmp_path)
    (tmp_path / "w.mtx").write_text("no matrix\n")
    with pytest.raises(errors.InputError, match="Matrix Market"):
        imported(tmp_path / "w.mtx", tmp_path)
    np.savez(tmp_path / "w.npz", x=1)
    with pytest.raises(errors.InputError, match=r"holds \['x'\]"):
        imported(tmp_path / "w.npz", tmp_path)


def test_anndata_without_the_key_names_the_keys(tmp_path):
    source, _ = write_source("zarr", tmp_path)
    for key in (None, "absent"):
        with pytest.raises(errors.InputError, match=r"\['connectivities', 'distances'\]: pass key="):
            imported(source, tmp_path, key=key)


def test_an_existing_store_is_kept_unless_overwrite_is_asked_for(tmp_path):
    first = imported(W, tmp_path)
    with pytest.raises(errors.StoreExists, match="overwrite=True"):
        imported(W * 2, tmp_path)
    bad = W.copy()
    bad.data[0] = np.nan
    with pytest.raises(errors.InputError):
        imported(bad, tmp_path, overwrite=True)
    assert snmf_dist.open_graph(first.path).fingerprint == first.fingerprint
    second = imported(W, tmp_path, normalize=None, overwrite=True)
    assert second.fingerprint != first.fingerprint
    assert os.listdir(tmp_path) == ["g.zarr"]


def test_overwrite_never_touches_what_is_not_ours(tmp_path):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter1.txt").write_text("years of work")
    for target in (tmp_path / "thesis", tmp_path / "thesis" / "chapter1.txt"):
        with pytest.raises(errors.StoreExists, match="not a store of snmf_dist"):
            snmf_dist.import_graph(W, target, overwrite=True)
    assert (tmp_path / "thesis" / "chapter1.txt").read_text() == "years of work"


def test_nothing_at_a_url_is_deleted_that_is_not_ours():
    files = fsspec.filesystem("memory")
    with files.open("/thesis/chapter1.txt", "w") as file:
        file.write("years of work")
    for overwrite in (False, True):
        with pytest.raises(errors.StoreExists, match="not a store of snmf_dist"):
            snmf_dist.import_graph(W, "memory://thesis", overwrite=overwrite)
    assert files.exists("/thesis/chapter1.txt")


def test_a_store_at_a_url_survives_bad_input_and_can_be_reblocked_in_place():
    url = "memory://kept/g.zarr"
    first = snmf_dist.import_graph(W, url, overwrite=True)
    with pytest.raises(errors.InputError, match="not symmetric"):
        snmf_dist.import_graph(sparse.triu(W), url, overwrite=True)
    assert snmf_dist.open_graph(url).fingerprint == first.fingerprint
    before = dense(first)
    again = snmf_dist.import_graph(url, url, block_rows=9, overwrite=True)
    assert again.n_blocks == 5
    assert_array_equal(dense(again), before)


def test_a_disk_that_fills_up_is_noticed_and_leaves_nothing(tmp_path):
    """A real limit of the operating system: no file of the child may grow beyond 100 kB."""
    sparse.save_npz(tmp_path / "w.npz", planted_graph(400, 2)[0])
    code = (
        "import resource, sys, snmf_dist; resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000));"
        "snmf_dist.import_graph(sys.argv[1], sys.argv[2])"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "w.npz"), str(tmp_path / "g.zarr")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode != 0
    assert "File too large" in done.stderr
    assert os.listdir(tmp_path) == ["w.npz"]


def test_of_two_imports_to_one_place_one_is_told_that_it_came_second(tmp_path):
    out = tmp_path / "g.zarr"

    def meanwhile(stage, done, total):
        with pytest.raises(
            errors.OutputBusy, match=rf"another run is writing here \(process {os.getpid()} on .*, for 0:"
        ):
            snmf_dist.import_graph(W, out)

    snmf_dist.import_graph(W * 2, out, normalize=None, progress=meanwhile)
    assert snmf_dist.open_graph(out).normalize == "none"


TEXTS = {
    "byte order mark": "\ufeff0,1,2\n1,2,3\n",
    "byte order mark and header": "\ufeffsource,target,weight\n0,1,2\n1,2,3\n",
    "strange line ends in a comment": "# a\u2028# b\x0c\n0,1,2\n1,2,3\n",
    "CRLF": "0,1,2\r\n1,2,3\r\n",
    "columns in another order": "weight,target,source\n2,1,0\n3,2,1\n",
    "a column too many": "source,target,weight,note\n0,1,2,x\n1,2,3,y\n",
    "quotes": '"source","target","weight"\n"0","1","2"\n"1","2","3"\n',
    "blank lines": "\n0,1,2\n\n1,2,3\n\n",
    "scientific": "0,1,2e0\n1,2,0.3e1\n",
}


@pytest.mark.parametrize("case", TEXTS)
def test_edge_lists_as_people_write_them(tmp_path, case):
    (tmp_path / "e.csv").write_bytes(TEXTS[case].encode())
    graph = imported(tmp_path / "e.csv", tmp_path, symmetrize="max", normalize=None)
    assert dense(graph).tolist() == [[0, 2, 0], [2, 0, 3], [0, 3, 0]]


@pytest.mark.parametrize(
    ("text", "options", "words"),
    [
        ("u,v\n0,1\n", {"columns": ("u", "v", "nope")}, r"not \['u', 'v', 'nope'\]"),
        ("u,v\n0,1\n", {"columns": ("u", "u")}, "name source, target"),
        ("a,a\n0,1\n", {}, "expected each name once"),
        ("weight,src,dst\n2,0,1\n", {}, "say with columns="),
        ("%%MatrixMarket matrix coordinate real\n3 3 1\n1 2 1\n", {}, "name it .mtx"),
    ],
)
def test_columns_are_never_guessed(tmp_path, text, options, words):
    (tmp_path / "e.txt").write_text(text)
    with pytest.raises(errors.InputError, match=words):
        imported(tmp_path / "e.txt", tmp_path, **options)


def test_repeated_entries_of_small_types_add_up_without_wrapping(tmp_path):
    twice = sparse.coo_array((np.array([200] * 4, dtype=np.uint8), ([0, 0, 1, 1], [1, 1, 0, 0])))
    assert dense(imported(twice, tmp_path, normalize=None)).tolist() == [[0, 400], [400, 0]]


@pytest.mark.parametrize(
    ("matrix", "options", "words"),
    [
        (np.full((3, 3), 1e308), {}, "add up to more than float64 holds"),
        (np.full((2, 2), 1e-50), {"normalize": None, "dtype": "float32"}, "beyond what float32 holds"),
        (np.ma.masked_array(np.ones((2, 2)), mask=np.eye(2)), {}, "masked array"),
        (W, {"block_rows": 2.5}, "block_rows is 2.5; expected a whole number"),
        (W, {"n": "3"}, "n is '3'; expected a whole number"),
    ],
)
def test_what_cannot_be_stored_as_it_is_is_refused(tmp_path, matrix, options, words):
    with pytest.raises(errors.InputError, match=words):
        snmf_dist.import_graph(matrix, tmp_path / "g.zarr", **{"dtype": "float64", **options})


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"src": [0.5, 1.7], "dst": [1, 0]}, "whole numbers"),
        ({"src": [0, 1], "dst": [1]}, "as many src and dst as weights"),
        ({"src": [0, 9], "dst": [1, 1], "n": 5}, r"row or column 9, outside 0:5"),
    ],
)
def test_bad_arrays_of_edges_are_refused(tmp_path, arrays, words):
    np.savez(tmp_path / "e.npz", **arrays)
    with pytest.raises(errors.InputError, match=words):
        imported(tmp_path / "e.npz", tmp_path)
    (tmp_path / "e.npz").write_bytes(b"no zip")
    with pytest.raises(errors.InputError, match="cannot be read"):
        imported(tmp_path / "e.npz", tmp_path)


def test_an_anndata_store_with_a_lost_chunk_is_refused(tmp_path):
    source, _ = write_source("zarr", tmp_path)
    (source / "obsp/distances/data/c/0").unlink()
    with pytest.raises(errors.InputError, match="lost chunks"):
        imported(source, tmp_path, key="distances", symmetrize="max")


def test_components_are_counted_whatever_the_blocks(tmp_path):
    random = np.random.default_rng(5)
    edges = sparse.coo_matrix((np.ones(60), random.integers(0, 90, (2, 60))), shape=(90, 90))
    some = sparse.csr_matrix(((edges + edges.T) > 0).astype(float))
    some.setdiag(0)
    some.eliminate_zeros()
    count, of = sparse.csgraph.connected_components(some, directed=False)
    for rows in (7, 90):
        with pytest.warns(errors.GraphWarning, match="no edge"):
            graph = imported(some, tmp_path, block_rows=rows, overwrite=True)
        found = np.empty(90, dtype=int)
        found[graph.order] = graph.component
        assert graph.components == count
        assert graph.info()["made: component_sizes"][0] == np.bincount(of).max()
        assert len(np.unique(found * 100 + of)) == count
        assert_allclose(np.sort(np.bincount(found))[::-1], np.bincount(found))


def test_a_connected_graph_stores_no_components(tmp_path):
    graph = imported(W, tmp_path)
    assert graph.components == 1
    assert graph.component is None


def test_tau_is_added_to_the_degrees_and_the_weights_come_back(tmp_path):
    graph = imported(W, tmp_path, tau=3.0, block_rows=9)
    root = np.sqrt(W.sum(axis=1) + 3)
    assert_allclose(dense(graph), W.toarray() / np.outer(root, root), rtol=1e-13)
    r = graph.read_weights(0, 40)[:, 0][np.argsort(graph.order)]
    assert_allclose(dense(graph) * np.outer(r, r), W.toarray(), rtol=1e-12)
    assert graph.info()["tau"] == graph.tau == 3.0
    again = snmf_dist.import_graph(graph, tmp_path / "again.zarr", dtype="float64")
    assert again.tau == 3.0
    with pytest.raises(errors.InputError, match="normalised already"):
        snmf_dist.import_graph(graph, tmp_path / "third.zarr", tau=1.0)


def test_tau_is_for_uneven_degrees_unless_asked_for(tmp_path):
    assert imported(W, tmp_path).tau == 0
    whiskers = sparse.coo_matrix((np.ones(8), (np.arange(8), np.arange(40, 48))), shape=(48, 48))
    padded = sparse.block_diag([10 * W, sparse.csr_matrix((8, 8))])
    uneven = imported(sparse.csr_matrix(padded + whiskers + whiskers.T), tmp_path, overwrite=True)
    assert uneven.tau == pytest.approx(uneven.degree.mean() / 4)
    with pytest.raises(errors.InputError, match="tau"):
        imported(W, tmp_path, tau=-1, overwrite=True)


@pytest.mark.parametrize("weighted", [False, True])
def test_the_store_is_the_same_on_threads_and_on_two_workers(tmp_path, weighted, request):
    n, random = 3000, np.random.default_rng(0)
    (tmp_path / "edges").mkdir()
    for part in range(3):
        columns = {"source": random.integers(0, n, 20_000), "target": random.integers(0, n, 20_000)}
        if weighted:
            columns["weight"] = random.random(20_000)
        parquet.write_table(pa.table(columns), tmp_path / "edges" / f"part-{part}.parquet", row_group_size=7000)
    options = {"symmetrize": "max", "n": n, "block_rows": 700}
    with dask.config.set(num_workers=1), pytest.MonkeyPatch.context() as patch:
        patch.setattr(filing, "MOST_EDGES", 100)
        patch.setattr(filing, "LEAST_EDGES", 100)
        one = snmf_dist.import_graph(tmp_path / "edges", tmp_path / "one.zarr", **options)
    request.getfixturevalue("client")
    two = snmf_dist.import_graph(tmp_path / "edges", tmp_path / "two.zarr", **options)
    assert two.block["blocks"] == one.block["blocks"]
    assert two.block["checksums"] == one.block["checksums"]
    two.validate(deep=True)


def test_workers_are_told_what_is_wrong_with_the_edges(tmp_path, client):
    (tmp_path / "edges").mkdir()
    for part in range(2):
        (tmp_path / "edges" / f"{part}.csv").write_text("source,target,weight\n0,1,1\n1,2,-5\n")
    with pytest.raises(errors.InputError, match=r"A\[1, 2\] = -5"):
        imported(tmp_path / "edges", tmp_path, symmetrize="max", block_rows=1)


def test_an_import_writes_few_bytes_more_than_its_store(tmp_path):
    def written():
        with open("/proc/self/io", encoding="utf-8") as file:
            return next(int(line.split()[1]) for line in file if line.startswith("wchar"))

    n, edges = 40_000, 400_000
    random = np.random.default_rng(0)
    table = pa.table({"source": random.integers(0, n, edges), "target": random.integers(0, n, edges)})
    parquet.write_table(table, tmp_path / "e.parquet")
    before = written()
    imported(tmp_path / "e.parquet", tmp_path, symmetrize="max", n=n, block_rows=5000)
    assert written() - before < 80 * edges  # 16 an edge in runs, 8 in W, 24 in the store of float64, and the rows


@pytest.mark.parametrize("weights", [np.ones(5), np.arange(5.0), np.arange(5) / 4, np.arange(5) / 3])
def test_runs_give_back_what_was_written_to_them(tmp_path, weights):
    files = runs.RunFiles(str(tmp_path), np.array([0, 10, 20, 25]))
    rows, columns = np.array([24, 3, 12, 3, 11]), np.array([1, 2, 3, 2, 24])
    files.write("a", rows, columns, weights)
    files.write("b", rows[:0], columns[:0], weights[:0])
    for i, mine in enumerate(([1, 3], [2, 4], [0])):
        found = files.read(["a", "b"], i)
        for values, expected in zip(found, (rows[mine] - 10 * i, columns[mine], weights[mine]), strict=True):
            assert_array_equal(values, expected)
    os.truncate(tmp_path / "a", os.path.getsize(tmp_path / "a") // 2)
    with pytest.raises(errors.WorkLost, match="holds less than was written"):
        files.read(["a"], 2)
