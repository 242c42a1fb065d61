"""Results in the formats of other programs, read back with the readers of others."""

import csv
import dataclasses
import tracemalloc
from xml.etree import ElementTree

import dask.array
import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from pyarrow import parquet

import snmf_dist
from snmf_dist import errors
from snmf_dist.cli import main
from snmf_dist.ids import make_ids
from snmf_dist.result import networks, tables
from tests.helpers import planted_graph


@pytest.fixture
def solution(graph, tmp_path):
    return snmf_dist.fit(graph, 3, out=tmp_path / "r.zarr")


def run(*arguments):
    done = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert done.exit_code == 0, done.output
    return done.output


def test_csv_has_a_line_for_each_row_whatever_the_blocks(solution, tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "BLOCK_MEMBERSHIPS", 100)
    run("export", tmp_path / "r.zarr", "--to", tmp_path / "labels.csv")
    with open(tmp_path / "labels.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["id"]) for row in rows] == list(range(90))
    assert_array_equal([int(row["label"]) for row in rows], solution.labels)
    L = solution.membership.compute()
    assert_allclose([[float(row[f"membership_{k}"]) for k in range(3)] for row in rows], L)
    assert_allclose([float(row["strength"]) for row in rows], L.max(axis=1) / L.sum(axis=1))
    assert {int(row["second"]) for row in rows} <= {-1, 0, 1, 2}


def test_parquet_is_read_by_pandas(solution, tmp_path):
    pandas = pytest.importorskip("pandas")
    solution.export(tmp_path / "labels.parquet")
    table = pandas.read_parquet(tmp_path / "labels.parquet")
    assert_array_equal(table["label"], solution.labels)
    assert list(table.columns) == ["id", "label", "strength", "second", *(f"membership_{k}" for k in range(3))]


def test_networks_are_read_by_networkx_and_igraph(solution, tmp_path):
    networkx = pytest.importorskip("networkx")
    W, _ = planted_graph()
    for name, read in (("g.gexf", networkx.read_gexf), ("g.graphml", networkx.read_graphml)):
        solution.export(tmp_path / name)
        found = read(tmp_path / name)
        assert found.number_of_nodes() == 90
        assert found.number_of_edges() == W.nnz // 2
        labels = [data["cluster_label"] for _, data in found.nodes(data=True)]
        assert_array_equal(labels, solution.labels)
    igraph = pytest.importorskip("igraph")
    assert igraph.Graph.Read_GraphML(str(tmp_path / "g.graphml")).vs["cluster_label"] == solution.labels.tolist()


@pytest.mark.filterwarnings("ignore")  # of the writer of AnnData
@pytest.mark.parametrize("zarr_format", [2, 3])
def test_an_anndata_store_gets_the_result_and_keeps_the_rest(solution, tmp_path, zarr_format):
    anndata = pytest.importorskip("anndata")
    pytest.importorskip("pandas")
    import pandas
    import zarr

    path = tmp_path / "cells.zarr"
    X = np.arange(180.0).reshape(90, 2)
    obs = pandas.DataFrame({"batch": ["a", "b"] * 45}, index=[f"cell {i}" for i in range(90)])
    with anndata.settings.override(zarr_write_format=zarr_format):
        anndata.AnnData(X, obs=obs).write_zarr(path)
    before = {f: f.read_bytes() for f in sorted((path / "X").rglob("*")) if f.is_file()}
    for _ in range(2):  # again, over what the first wrote
        solution.export(path)
    assert {f: f.read_bytes() for f in before} == before
    found = anndata.read_zarr(path)
    assert_array_equal(found.X, X)
    assert list(found.obs["batch"][:2]) == ["a", "b"]
    assert found.obs["snmf"].cat.categories.tolist() == ["0", "1", "2"]
    assert_array_equal(found.obs["snmf"].cat.codes, solution.labels)
    assert_array_equal(found.obsm["X_snmf"], solution.membership.compute())
    assert found.uns["snmf"]["status"] == solution.status.name
    assert zarr.open_group(path).metadata.zarr_format == zarr_format


def test_a_new_anndata_store_holds_the_result_alone(solution, tmp_path):
    anndata = pytest.importorskip("anndata")
    solution.export(tmp_path / "new.zarr")
    found = anndata.read_zarr(tmp_path / "new.zarr")
    assert found.shape == (90, 0)
    assert list(found.obs_names[:2]) == ["0", "1"]
    assert_array_equal(found.obs["snmf"].cat.codes, solution.labels)


@pytest.mark.filterwarnings("ignore")  # of the writer of AnnData
def test_cells_in_another_order_are_refused(tmp_path):
    anndata, pandas = pytest.importorskip("anndata"), pytest.importorskip("pandas")
    names = [f"cell {i:02d}" for i in range(90)]
    adata = anndata.AnnData(obs=pandas.DataFrame(index=names), obsp={"near": planted_graph()[0]})
    solution = snmf_dist.fit(snmf_dist.import_graph(adata, tmp_path / "g.zarr"), 3)
    assert list(solution.ids) == names
    adata.write_zarr(tmp_path / "same.zarr")
    adata[::-1].copy().write_zarr(tmp_path / "turned.zarr")
    solution.export(tmp_path / "same.zarr")
    assert_array_equal(anndata.read_zarr(tmp_path / "same.zarr").obs["snmf"].cat.codes, solution.labels)
    with pytest.raises(errors.InputError, match=r"observation 0 is 'cell 89', but row 0 of .* 'cell 00'"):
        solution.export(tmp_path / "turned.zarr")
    adata.obs_names = [f"other {i}" for i in range(90)]
    adata.write_zarr(tmp_path / "other.zarr")
    solution.export(tmp_path / "other.zarr")


@pytest.fixture(scope="module")
def six(tmp_path_factory):
    """A solution of six nodes."""
    folder = tmp_path_factory.mktemp("six")
    W = np.kron(np.eye(2), np.ones((3, 3))) - np.eye(6)
    return snmf_dist.fit(snmf_dist.import_graph(W, folder / "g.zarr"), 2), folder


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=6), min_size=6, max_size=6, unique=True)
)
@example(["", " ", "a,b", 'say "hi"', "o'neil \"&<>", "ü\n\r\t✓"])
@example(["\x00", "a", "b", "c", "d", "e"])
def test_ids_come_back_exactly_from_every_file(six, names):
    solution, folder = six
    solution = dataclasses.replace(solution, ids=make_ids(names))
    solution.export(folder / "l.csv", overwrite=True)
    with open(folder / "l.csv", encoding="utf-8", newline="") as file:
        assert [row["id"] for row in csv.DictReader(file)] == names
    solution.export(folder / "l.parquet", overwrite=True)
    assert parquet.read_table(folder / "l.parquet")["id"].to_pylist() == names
    for kind, key in (("graphml", "name"), ("gexf", "label")):
        if networks.NOT_XML.search("".join(names)):
            with pytest.raises(errors.InputError, match="has a character that XML cannot hold"):
                solution.export(folder / f"g.{kind}", overwrite=True)
            continue
        solution.export(folder / f"g.{kind}", overwrite=True)
        nodes = ElementTree.parse(folder / f"g.{kind}").getroot().iter()
        if kind == "gexf":
            found = [node.get(key) for node in nodes if node.tag.endswith("}node")]
        else:
            found = [node.text or "" for node in nodes if node.tag.endswith("}data") and node.get("key") == "id"]
        assert found == names


@pytest.mark.filterwarnings("ignore")  # of the readers of AnnData
def test_ids_are_in_every_output(tmp_path):
    anndata, networkx = pytest.importorskip("anndata"), pytest.importorskip("networkx")
    igraph = pytest.importorskip("igraph")
    names = [f"näme {i} ✓ & <b>" for i in np.random.default_rng(0).permutation(90)]
    graph = snmf_dist.import_graph(planted_graph()[0], tmp_path / "g.zarr", ids=names)
    solution = snmf_dist.fit(graph, 3, out=tmp_path / "r.zarr")
    for suffix in ("csv", "parquet", "gexf", "graphml", "zarr"):
        run("export", tmp_path / "r.zarr", "--to", tmp_path / f"x.{suffix}")
    assert csv_column(tmp_path / "x.csv", "id") == names
    assert parquet.read_table(tmp_path / "x.parquet")["id"].to_pylist() == names
    gexf, graphml = networkx.read_gexf(tmp_path / "x.gexf"), networkx.read_graphml(tmp_path / "x.graphml")
    assert [data["label"] for _, data in gexf.nodes(data=True)] == names
    assert [data["name"] for _, data in graphml.nodes(data=True)] == names
    assert igraph.Graph.Read_GraphML(str(tmp_path / "x.graphml")).vs["name"] == names
    found = anndata.read_zarr(tmp_path / "x.zarr")
    assert list(found.obs_names) == names
    assert_array_equal(found.obs["snmf"].cat.codes, solution.labels)
    again = snmf_dist.import_graph(tmp_path / "x.graphml", tmp_path / "again.zarr")
    assert list(again.ids) == names


def csv_column(path, name):
    with open(path, encoding="utf-8", newline="") as file:
        return [row[name] for row in csv.DictReader(file)]


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """A solution of many rows whose membership is made when it is read."""
    folder = tmp_path_factory.mktemp("large")
    small = snmf_dist.fit(snmf_dist.import_graph(planted_graph()[0], folder / "g.zarr"), 3)
    n, K = 200_000, 8
    L = dask.array.random.default_rng(0).random((n, K), chunks=(12_500, K))
    return dataclasses.replace(small, labels=np.zeros(n, dtype=np.int32), membership=L)


@pytest.mark.filterwarnings("ignore")  # of the writer of AnnData
@pytest.mark.parametrize("name", ["labels.csv", "labels.parquet", "cells.zarr"])
def test_a_result_is_written_a_block_at_a_time(large, tmp_path, monkeypatch, name):
    monkeypatch.setattr(tables, "BLOCK_MEMBERSHIPS", 100_000)
    tracemalloc.start()
    before = pa.total_allocated_bytes()
    try:
        large.export(tmp_path / name)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # the memberships are 13 MB and the names of rows 12 MB as objects of Python; a block is 0.8 MB
    assert peak < 8e6
    assert pa.total_allocated_bytes() - before < 4e6
    if name == "labels.parquet":
        assert parquet.ParquetFile(tmp_path / name).metadata.num_rows == 200_000


def test_what_cannot_be_written_is_refused(solution, tmp_path):
    with pytest.raises(errors.InputError, match=r"names no format; expected one of \.csv"):
        solution.export(tmp_path / "labels.xls")
    solution.export(tmp_path / "labels.csv")
    with pytest.raises(errors.StoreExists, match="already exists"):
        solution.export(tmp_path / "labels.csv")
    solution.export(tmp_path / "labels.csv", overwrite=True)
    with pytest.raises(errors.NotOurStore, match="is not an AnnData store"):
        solution.export(tmp_path / "r.zarr")
    assert not [p for p in tmp_path.iterdir() if p.name.startswith(".partial")]


def test_predict_writes_a_line_for_each_new_point(tmp_path):
    X = np.random.default_rng(0).standard_normal((200, 2)) + np.repeat([[0], [9]], 100, axis=0)
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "new.npy", X[:5] + 0.01)
    snmf_dist.fit(snmf_dist.build_graph(tmp_path / "x.npy", tmp_path / "g.zarr"), 2, out=tmp_path / "r.zarr")
    out = run("predict", tmp_path / "r.zarr", tmp_path / "new.npy", "--out", tmp_path / "p.csv", "--block-rows", 2)
    assert "new points              5" in out
    with open(tmp_path / "p.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    labels = snmf_dist.open_solution(tmp_path / "r.zarr").labels
    assert [int(row["label"]) for row in rows] == labels[:5].tolist()
    assert [row["novel"] for row in rows] == ["false"] * 5


def test_two_results_are_compared(solution, graph, tmp_path):
    other = snmf_dist.fit(graph, 3, seed=4, out=tmp_path / "o.zarr")
    found = solution.compare(other)
    assert found.ari == pytest.approx(1)
    assert len(found.moved) == 0
    assert_array_equal(np.array([found.matched[label] for label in solution.labels]), other.labels)
    assert found.table.sum() == 90
    assert "rows that moved         0 of 90" in run("compare", tmp_path / "r.zarr", tmp_path / "o.zarr")
    with pytest.raises(errors.InputError, match="expected two clusterings of the same rows"):
        solution.compare(snmf_dist.fit(snmf_dist.import_graph(planted_graph(60)[0], tmp_path / "s.zarr"), 3))


def test_rows_of_two_results_are_matched_by_their_ids(tmp_path):
    W, _ = planted_graph()
    names = np.array([f"row {i}" for i in range(90)])
    mixed = np.random.default_rng(0).permutation(90)[:80]
    one = snmf_dist.fit(snmf_dist.import_graph(W, tmp_path / "g.zarr", ids=names), 3, out=tmp_path / "one.zarr")
    W = W[mixed][:, mixed]
    two = snmf_dist.fit(snmf_dist.import_graph(W, tmp_path / "h.zarr", ids=names[mixed]), 3)
    labels = two.labels.copy()
    labels[5] = (labels[5] + 1) % 3
    two = dataclasses.replace(two, labels=labels)
    found = one.compare(two)
    assert found.table.sum() == 80
    assert found.moved.tolist() == [mixed[5]]
    assert two.compare(tmp_path / "one.zarr").moved.tolist() == [5]
    for strangers, words in (([f"no {i}" for i in range(90)], "no id in common"), (range(90), "cannot look up")):
        with pytest.raises(errors.InputError, match=words):
            one.compare(dataclasses.replace(one, ids=make_ids(strangers)))
