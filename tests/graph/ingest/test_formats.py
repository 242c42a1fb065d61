"""Graphs in the files and objects of other libraries, each written by that library."""

import gzip
import sys

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from pyarrow import csv, parquet
from scipy import sparse

import snmf_dist
from snmf_dist import errors
from snmf_dist.graph.ingest import graphml, metis
from tests.graph.ingest.test_importing import dense, imported
from tests.helpers import planted_graph

W, _ = planted_graph(40, 2, seed=3)
COO = sparse.triu(W).tocoo()
ENDS = list(zip(COO.row.tolist(), COO.col.tolist(), COO.data.tolist(), strict=True))
NAMES = [f"node {i} ü" for i in range(40)]
PATH = [[0, 2, 0], [2, 0, 3], [0, 3, 0]]


def read(source, tmp_path, **options):
    """W as it comes back, and the ids."""
    graph = imported(source, tmp_path, normalize=None, reorder=False, **options)
    return dense(graph), None if graph.ids is None else list(graph.ids)


@pytest.mark.parametrize(
    ("name", "text", "options"),
    [
        ("snap.txt", "# Directed\n# FromNodeId\tToNodeId\n0\t1\n# in between\n1\t0\n", {}),
        ("out.moreno", "% sym weighted\n% 2 2 2\n1 2 1\n", {"symmetrize": "max", "first_id": 1}),
        ("out.times", "% asym posweighted\n1 2 1 1199116800\n2 1 1 1199116801\n", {"first_id": 1}),
        ("blanks.txt", "  0    1   1.0\n1 \t 0  1.0  \n", {}),
        ("times.csv", "source,target,weight,time\n0,1,1,1199116800\n1,0,1,1199116801\n", {}),
        ("challenge.tsv", "1\t2\t1\n2\t1\t1\n", {"first_id": 1}),
        ("neo4j.csv", ":START_ID(User),:END_ID(User),weight:float,:TYPE\n0,1,1,KNOWS\n1,0,1,KNOWS\n", {}),
    ],
)
def test_edge_lists_as_their_collections_write_them(tmp_path, name, text, options):
    (tmp_path / name).write_text(text)
    assert read(tmp_path / name, tmp_path, **options)[0].tolist() == [[0, 1], [1, 0]]


def test_a_graph_store_may_be_called_out(tmp_path):
    made = snmf_dist.import_graph(W, tmp_path / "out.zarr")
    assert snmf_dist.import_graph(tmp_path / "out.zarr", tmp_path / "again.zarr").n == made.n


def test_times_are_not_taken_for_weights(tmp_path):
    (tmp_path / "e.txt").write_text("0 1 1254192988\n1 0 1254194656\n")
    with pytest.raises(errors.InputError, match=r"'column 3' looks like times.*columns="):
        read(tmp_path / "e.txt", tmp_path)
    columns = ("column 1", "column 2")
    assert read(tmp_path / "e.txt", tmp_path, columns=columns)[0].tolist() == [[0, 1], [1, 0]]


@pytest.mark.parametrize("header", [True, False])
def test_decimal_commas_are_not_taken_for_the_ends_of_cells(tmp_path, header):
    edge_table(NAMES).to_csv(tmp_path / "e.csv", sep=";", decimal=",", index=False, header=header)
    with pytest.raises(errors.InputError, match=r"weights have decimal commas.*write them with points"):
        read(tmp_path / "e.csv", tmp_path)


def write_metis(path, *, comment=""):
    """W as METIS has it, with edge weights."""
    A = W.tocsr()
    lines = [f"{comment}{A.shape[0]} {len(COO.data)} 001"]
    for i in range(A.shape[0]):
        row = A[i].tocoo()
        lines.append(" ".join(f"{j + 1} {w!r}" for j, w in zip(row.col, row.data.tolist(), strict=True)))
    path.write_text("\n".join(lines) + "\n")


def test_metis_is_read_by_lines(tmp_path, monkeypatch):
    monkeypatch.setattr(metis, "LINES", 7)
    write_metis(tmp_path / "w.graph", comment="% a comment\n")
    assert_allclose(read(tmp_path / "w.graph", tmp_path)[0], W.toarray())


def test_the_example_of_the_manual_of_metis(tmp_path):
    # figure 2 of the manual of METIS 5: a graph of 7 nodes and 11 edges, with sizes, weights of nodes and of edges
    lines = [
        "7 11 111 1", "1 4 5 1 3 2 2 1", "1 2 1 1 3 2 4 1", "1 1 5 3 4 2 2 2 1 2", "1 3 2 1 3 2 6 2 7 5",
        "1 6 1 1 3 3 6 2", "1 6 5 2 4 2 7 6", "1 2 6 6 4 5",
    ]  # fmt: skip
    (tmp_path / "e.graph").write_text("\n".join(lines) + "\n\n")
    found, _ = read(tmp_path / "e.graph", tmp_path)
    assert found[0].tolist() == [0, 1, 2, 0, 1, 0, 0]
    assert found[5].tolist() == [0, 0, 0, 2, 2, 0, 6]
    assert np.count_nonzero(found) == 22


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("3 1\n2\n1\n", "has 2 nodes and 2 neighbours; its first line says 3"),
        ("2 1\n2\n3\n", "node 2 has neighbour 3; expected 1 to 2"),
        ("2 1 001\n2\n1 1\n", "the line of node 1 has a number too few"),
        ("2 1\n2\n1\n1\n", "more lines than its first line says nodes"),
        ("a b\n", "its first line is b'a b'; expected nodes and edges"),
        ("2 1\nx\n1\n", "cannot be read as a METIS graph"),
        ("99999999999 1\n2\n1\n", "more than this machine has"),
    ],
)
def test_a_bad_metis_graph_is_refused_in_words(tmp_path, text, words):
    (tmp_path / "e.graph").write_text(text)
    with pytest.raises(errors.SnmfError, match=words):
        read(tmp_path / "e.graph", tmp_path)


def edge_table(names=None):
    rows, columns = (COO.row, COO.col) if names is None else ([names[i] for i in e] for e in (COO.row, COO.col))
    return pd.DataFrame({"source": rows, "target": columns, "weight": COO.data})


@pytest.mark.parametrize("kind", ["csv", "parquet", "feather", "pattern"])
def test_folders_and_patterns_are_one_list(tmp_path, kind):
    folder = tmp_path / "edges.parquet"  # Spark gives folders such names
    (folder / "year=2026").mkdir(parents=True)
    (folder / "_SUCCESS").touch()
    table = edge_table()
    for i, part in enumerate(np.array_split(np.arange(len(table)), 3)):
        place = folder / ("year=2026" if i and kind != "pattern" else "") / f"part-{i}"
        if kind == "csv":
            table.iloc[part].to_csv(f"{place}.csv", index=False)
        elif kind == "feather":
            table.iloc[part].reset_index(drop=True).to_feather(f"{place}.feather")
        else:
            table.iloc[part].to_parquet(f"{place}.parquet")
    source = folder / "part-*.parquet" if kind == "pattern" else folder
    assert_allclose(read(source, tmp_path, symmetrize="max")[0], W.toarray())


def test_parts_of_text_ids_and_of_urls(tmp_path):
    import fsspec

    table = edge_table(NAMES)
    with fsspec.open("memory://parts/a.csv.gz", "wb", compression="infer") as file:
        table[:50].to_csv(file, index=False)
    with fsspec.open("memory://parts/b.csv.gz", "wb", compression="infer") as file:
        table[50:].to_csv(file, index=False)
    for source in ("memory://parts", "memory://parts/*.csv.gz"):
        assert read(source, tmp_path, symmetrize="max", overwrite=True)[1] == sorted(NAMES)


def test_parts_that_do_not_fit_together_are_refused(tmp_path):
    folder = tmp_path / "parts"
    folder.mkdir()
    edge_table().to_csv(folder / "a.csv", index=False)
    edge_table().to_parquet(folder / "b.parquet")
    with pytest.raises(errors.InputError, match="parts of the kinds Parquet and text"):
        read(folder, tmp_path)
    (folder / "b.parquet").rename(folder / "b.xlsx")
    with pytest.raises(errors.InputError, match=r"b\.xlsx is no edge list beside those that are"):
        read(folder, tmp_path)
    with pytest.raises(errors.StoreNotFound, match="no file has such a name"):
        read(folder / "*.tsv", tmp_path)


@pytest.mark.parametrize("stream", [True, False])
def test_arrow_files_are_edge_lists(tmp_path, stream):
    table = pa.Table.from_pandas(edge_table(NAMES))
    new = pa.ipc.new_stream if stream else pa.ipc.new_file
    with pa.OSFile(str(tmp_path / "e.arrow"), "wb") as file, new(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=30)
    assert read(tmp_path / "e.arrow", tmp_path, symmetrize="max")[1] == sorted(NAMES)
    (tmp_path / "e.arrow").write_bytes((tmp_path / "e.arrow").read_bytes()[:300])
    with pytest.raises(errors.InputError, match="cannot be read as an edge list"):
        read(tmp_path / "e.arrow", tmp_path, overwrite=True)


def test_tables_of_other_libraries(tmp_path):
    frame = edge_table(NAMES)
    rows = np.argsort(NAMES)
    expected = W.toarray()[rows][:, rows]
    tables = [frame, frame.astype({"source": "category"}), pa.Table.from_pandas(frame)]
    if polars := sys.modules.get("polars") or pytest.importorskip("polars"):
        tables.append(polars.from_pandas(frame))
    for table in tables:
        found, ids = read(table, tmp_path, symmetrize="max", overwrite=True)
        assert ids == sorted(NAMES)
        assert_allclose(found, expected)
    assert_allclose(read(edge_table(), tmp_path, symmetrize="max", overwrite=True)[0], W.toarray())
    with pytest.raises(errors.InputError, match="say with columns="):
        read(frame.assign(note=1).rename(columns={"source": "a"}), tmp_path, overwrite=True)
    with pytest.raises(errors.InputError, match="a pandas DataFrame: column 'source' has empty cells"):
        read(frame.assign(source=None), tmp_path, overwrite=True, ids="text")


@pytest.mark.parametrize("kind", ["weighted", "no data", "igraph", "igraph ncol", "polars csv", "polars parquet"])
def test_edge_lists_of_other_libraries(tmp_path, kind):
    networkx, igraph = pytest.importorskip("networkx"), pytest.importorskip("igraph")
    path, expected = tmp_path / "e.txt", W.toarray()
    plain = networkx.Graph()
    plain.add_nodes_from(range(40))
    plain.add_weighted_edges_from(ENDS)
    if kind == "weighted":
        networkx.write_weighted_edgelist(plain, path)
    elif kind == "no data":
        networkx.write_edgelist(plain, path, data=False)
        expected = (expected > 0).astype(float)
    elif kind.startswith("igraph"):
        graph = igraph.Graph(n=40, edges=[end[:2] for end in ENDS])
        graph.es["weight"] = COO.data
        if "ncol" in kind:
            graph.vs["name"] = [str(i) for i in range(40)]
            graph.write_ncol(str(path))
        else:
            graph.write_edgelist(str(path))
            expected = (expected > 0).astype(float)
    else:
        polars, path = pytest.importorskip("polars"), tmp_path / f"e.{kind.split()[1]}"
        getattr(polars.from_pandas(edge_table()), f"write_{kind.split()[1]}")(path)
    found, ids = read(path, tmp_path, symmetrize="max")
    assert ids is None
    assert_allclose(found, expected, rtol=1e-5)  # igraph writes six digits


def test_attributes_behind_the_edges_are_refused_in_words(tmp_path):
    networkx, graph = networkx_graph()
    for one in (graph, networkx.path_graph(4)):
        networkx.write_edgelist(one, tmp_path / "e.edgelist", delimiter="\t")
        with pytest.raises(errors.InputError, match=r"networkx\.write_weighted_edgelist"):
            read(tmp_path / "e.edgelist", tmp_path)


def networkx_graph(kind="Graph"):
    networkx = pytest.importorskip("networkx")
    graph = getattr(networkx, kind)()
    graph.add_nodes_from(NAMES)
    graph.add_weighted_edges_from((NAMES[i], NAMES[j], w) for i, j, w in ENDS)
    return networkx, graph


@pytest.mark.parametrize("kind", ["Graph", "MultiGraph", "DiGraph"])
def test_networkx_graphs(tmp_path, kind):
    networkx, graph = networkx_graph(kind)
    found, ids = read(graph, tmp_path, **({"symmetrize": "max"} if kind == "DiGraph" else {}))
    assert ids == NAMES
    assert_allclose(found, W.toarray())
    plain = networkx.path_graph(3)
    plain.add_edge(1, 1)
    found, ids = read(plain, tmp_path, self_loops="keep", overwrite=True)
    assert ids is None
    assert found.tolist() == [[0, 1, 0], [1, 1, 1], [0, 1, 0]]


def test_igraph_graphs(tmp_path):
    igraph = pytest.importorskip("igraph")
    graph = igraph.Graph(n=40, edges=list(zip(COO.row.tolist(), COO.col.tolist(), strict=True)))
    graph.es["weight"] = COO.data
    assert read(graph, tmp_path)[1] is None
    graph.vs["name"] = NAMES
    found, ids = read(graph, tmp_path, overwrite=True)
    assert ids == NAMES
    assert_allclose(found, W.toarray())


def test_rustworkx_graphs_keep_their_nodes_where_one_was_removed(tmp_path):
    rustworkx = pytest.importorskip("rustworkx")
    graph = rustworkx.PyGraph()
    gone, *nodes = graph.add_nodes_from(["gone", *NAMES])
    ends = zip(COO.row, COO.col, COO.data.tolist(), strict=True)
    graph.add_edges_from([(nodes[i], nodes[j], {"weight": w} if i % 2 else w) for i, j, w in ends])
    graph.remove_node(gone)
    found, ids = read(graph, tmp_path)
    assert ids == NAMES
    assert_allclose(found, W.toarray())
    directed = rustworkx.PyDiGraph()
    directed.extend_from_weighted_edge_list([(0, 1, 2.0), (1, 2, 3.0)])
    assert read(directed, tmp_path, symmetrize="max", overwrite=True)[0].tolist() == PATH


def test_weights_and_names_of_objects_that_are_none_are_refused(tmp_path):
    networkx, graph = networkx_graph()
    graph.add_edge("a", "b", weight="much")
    with pytest.raises(errors.InputError, match="networkx Graph: an edge has the weight 'much'; expected numbers"):
        read(graph, tmp_path)
    with pytest.raises(errors.InputError, match="relabel the nodes"):
        read(networkx.grid_2d_graph(2, 2), tmp_path)


@pytest.mark.parametrize("suffix", ["graphml", "graphml.gz"])
def test_graphml_of_networkx(tmp_path, suffix):
    networkx, graph = networkx_graph()
    networkx.write_graphml(graph, tmp_path / f"g.{suffix}")
    found, ids = read(tmp_path / f"g.{suffix}", tmp_path)
    assert ids == NAMES
    assert_allclose(found, W.toarray())


def test_graphml_of_igraph_gives_names_or_plain_rows(tmp_path):
    igraph = pytest.importorskip("igraph")
    graph = igraph.Graph([(0, 1), (1, 2)])
    graph.es["weight"] = [2, 3]
    graph.write_graphml(str(tmp_path / "g.graphml"))
    assert read(tmp_path / "g.graphml", tmp_path)[0].tolist() == PATH
    assert snmf_dist.open_graph(tmp_path / "g.zarr").ids is None
    graph.vs["name"] = ["a", "b & c", "d"]
    graph.write_graphml(str(tmp_path / "g.graphml"))
    assert read(tmp_path / "g.graphml", tmp_path, overwrite=True)[1] == ["a", "b & c", "d"]


BAD_GRAPHML = {
    "entities": (
        '<!DOCTYPE g [<!ENTITY a "aaaa">]><graphml/>',
        "declares a document type, which may hide entities",
    ),
    "a file": ('<!DOCTYPE g SYSTEM "file:///etc/hostname"><graphml/>', "declares a document type"),
    "cut off": ("<graphml><graph>", "cannot be read as GraphML"),
    "no node": ('<graphml><graph><edge source="a" target="b"/></graph></graphml>', "an edge has the end 'a'"),
    "hyperedge": ("<graphml><graph><hyperedge/></graph></graphml>", "has hyperedges"),
    "weight": (
        '<graphml><key id="w" for="edge" attr.name="weight"/><graph><node id="a"/><node id="b"/>'
        '<edge source="a" target="b"><data key="w">x</data></edge></graph></graphml>',
        "edge 1 has the weight 'x'",
    ),
}


@pytest.mark.parametrize("case", BAD_GRAPHML)
def test_bad_graphml_is_refused_in_words(tmp_path, case):
    text, words = BAD_GRAPHML[case]
    (tmp_path / "g.graphml").write_text(text)
    with pytest.raises(errors.InputError, match=words):
        read(tmp_path / "g.graphml", tmp_path)


def test_graphml_beyond_the_memory_limit_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(graphml, "READ_BYTES", 1 << 12)
    nodes = "".join(f'<node id="{i}"/>' for i in range(2000))
    with gzip.open(tmp_path / "g.graphml.gz", "wt") as file:
        file.write(f"<graphml><graph>{nodes}</graph></graphml>")
    with pytest.raises(errors.DoesNotFit, match="raise memory_limit"):
        read(tmp_path / "g.graphml.gz", tmp_path, memory_limit="100kB")


def annotated(names=NAMES):
    anndata = pytest.importorskip("anndata")
    obs = pd.DataFrame(index=list(names))
    return anndata.AnnData(obs=obs, obsp={"near": sparse.csr_matrix(W), "far": sparse.csc_matrix(W)})


@pytest.mark.filterwarnings("ignore")  # of the writers of AnnData
@pytest.mark.parametrize("kind", ["h5ad", "h5ad, packed", "zarr", "object"])
def test_anndata_gives_its_graph_and_the_names_of_its_cells(tmp_path, kind):
    if kind.startswith("h5ad"):
        pytest.importorskip("h5py")
    adata, source = annotated(), tmp_path / f"cells.{kind[:4]}"
    if kind == "zarr":
        adata.write_zarr(source)
    elif kind == "object":
        source = adata
    else:
        adata.write_h5ad(source, compression="gzip" if "packed" in kind else None)
    for key in ("near", "far"):
        found, ids = read(source, tmp_path, key=key, overwrite=True)
        assert ids == NAMES
        assert_allclose(found, W.toarray())
    assert read(source, tmp_path, key="far", ids="rows", overwrite=True)[1] is None
    with pytest.raises(errors.InputError, match=r"obsp has \['far', 'near'\]: pass key="):
        read(source, tmp_path, overwrite=True)


@pytest.mark.filterwarnings("ignore::UserWarning:anndata")
def test_names_of_cells_that_repeat_are_left_out_with_a_warning(tmp_path):
    adata = annotated(["cell"] * 40)
    with pytest.warns(errors.GraphWarning, match="'cell' is the id of rows 0 and 1.*rows go by their numbers"):
        assert read(adata, tmp_path, key="far")[1] is None


def test_hdf5_that_leads_elsewhere_or_lies_is_refused(tmp_path):
    h5py = pytest.importorskip("h5py")
    annotated().write_h5ad(tmp_path / "good.h5ad")
    path = tmp_path / "bad.h5ad"

    def refused(words):
        with pytest.raises(errors.SnmfError, match=words):
            read(path, tmp_path, key="near")

    path.write_bytes((tmp_path / "good.h5ad").read_bytes())
    with h5py.File(path, "r+") as file:
        del file["obsp/near"]
        file["obsp/near"] = h5py.ExternalLink(str(tmp_path / "good.h5ad"), "obsp/near")
    refused("is a link to another file")
    path.write_bytes((tmp_path / "good.h5ad").read_bytes())
    with h5py.File(path, "r+") as file:
        size = file["obsp/near/data"].shape
        del file["obsp/near/data"]
        layout = h5py.VirtualLayout(size, "f8")
        layout[:] = h5py.VirtualSource(str(tmp_path / "good.h5ad"), "obsp/near/data", size)
        file["obsp/near"].create_virtual_dataset("data", layout)
    refused("lies in another file")
    path.write_bytes((tmp_path / "good.h5ad").read_bytes())
    with h5py.File(path, "r+") as file:
        for name, dtype in (("data", "f8"), ("indices", "i4")):
            del file[f"obsp/near/{name}"]
            file[f"obsp/near/{name}"] = h5py.Empty(dtype)
    refused("is missing or does not hold numbers")
    with h5py.File(path, "r+") as file:
        for name, dtype in (("data", "f8"), ("indices", "i4")):
            del file[f"obsp/near/{name}"]
            file["obsp/near"].create_dataset(name, shape=10**9, chunks=1000, dtype=dtype)
    refused("has parts that were never written")
    path.write_bytes(b"no HDF5")
    refused("cannot be read as HDF5")


def test_a_missing_reader_names_its_extra(tmp_path, monkeypatch):
    (tmp_path / "c.h5ad").write_bytes(b"")
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(errors.InputError, match=r"needs h5py; install snmf-dist\[hdf5\]"):
        read(tmp_path / "c.h5ad", tmp_path)


@pytest.mark.parametrize("suffix", ["gz", "bz2", "zst"])
def test_packed_text_of_pyarrow(tmp_path, suffix):
    path = tmp_path / f"e.csv.{suffix}"
    with pa.output_stream(
        str(path), compression="zstd" if suffix == "zst" else suffix.replace("gz", "gzip")
    ) as file:
        csv.write_csv(pa.Table.from_pandas(edge_table(NAMES), preserve_index=False), file)
    found, ids = read(path, tmp_path, symmetrize="max")
    assert ids == sorted(NAMES)
    assert np.count_nonzero(found) == W.nnz
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(errors.InputError, match="cannot be read as an edge list"):
        read(path, tmp_path, symmetrize="max", overwrite=True)


def test_a_missing_package_for_urls_names_its_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "s3fs", None)
    with pytest.raises(errors.StoreNotFound, match=r"s3fs.*install snmf-dist\[s3\]"):
        read("s3://bucket/edges.csv", tmp_path)
    for name in ("x.zarr", "x.parquet"):
        with pytest.raises(errors.SnmfError, match=r"s3fs.*install snmf-dist\[s3\]"):
            snmf_dist.build_graph(f"s3://bucket/{name}", tmp_path / "p.zarr")


def test_csv_of_pyarrow_and_parquet_with_categories(tmp_path):
    table = pa.Table.from_pandas(edge_table(NAMES), preserve_index=False)
    csv.write_csv(table, tmp_path / "e.csv")
    parquet.write_table(table.set_column(0, "source", table["source"].dictionary_encode()), tmp_path / "e.parquet")
    for name in ("e.csv", "e.parquet"):
        found, ids = read(tmp_path / name, tmp_path, symmetrize="max", overwrite=True)
        assert ids == sorted(NAMES)
        assert_array_equal(np.count_nonzero(found), W.nnz)
