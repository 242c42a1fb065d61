"""Ids of the user's own: numbered within a memory limit, stored, and given back exactly."""

import csv
import uuid
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from pyarrow import parquet

import snmf_dist
from snmf_dist import errors
from snmf_dist.cli import main
from snmf_dist.graph.ingest import edgefiles, numbering
from snmf_dist.ids import make_ids
from snmf_dist.result.scores import read_labels
from tests.helpers import planted_graph

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)


def weights_by_id(graph):
    """W as {(id, id): weight}."""
    rows, columns = graph.read_rows(0, graph.n).nonzero()
    data = graph.read_rows(0, graph.n).data
    names = list(graph.ids)
    back = graph.order
    return {(names[back[i]], names[back[j]]): w for i, j, w in zip(rows, columns, data, strict=True)}


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=12))
def test_text_ids_come_back_exactly(tmp_path_factory, edges):
    folder = tmp_path_factory.mktemp("ids")
    edges = [(a, b) for a, b in edges if a != b] or [("", "x")]
    parquet.write_table(
        pa.table({"source": [a for a, _ in edges], "target": [b for _, b in edges]}), folder / "e.parquet"
    )
    graph = snmf_dist.import_graph(folder / "e.parquet", folder / "g.zarr", symmetrize="max", normalize=None)
    assert list(graph.ids) == sorted({name for edge in edges for name in edge})
    assert set(weights_by_id(graph)) == {pair for a, b in edges for pair in ((a, b), (b, a))}
    graph.validate(deep=True)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(TEXTS.filter(bool), TEXTS.filter(bool)), min_size=1, max_size=8))
def test_what_pandas_writes_as_csv_comes_back_exactly(tmp_path_factory, edges):
    path = tmp_path_factory.mktemp("csv") / "e.csv"
    edges = [(a, b) for a, b in edges if a != b and not set("\r\n") & set(a + b)] or [("a", "x")]
    pd.DataFrame(edges, columns=["source", "target"]).to_csv(path, index=False, quoting=csv.QUOTE_ALL)
    graph = snmf_dist.import_graph(path, f"{path}.zarr", symmetrize="max", normalize=None, ids="text")
    assert list(graph.ids) == sorted({name for edge in edges for name in edge})


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("alice, bob\nbob, carol\n", ["alice", "bob", "carol"]),
        ('"Smith, J.",Ann\nAnn,"O""Neil"\n', ["Ann", 'O"Neil', "Smith, J."]),
        ("source,target\n x,y\ny,z\n", [" x", "y", "z"]),
        ("\ufeff# a comment\nsource\ttarget\na\tb c\n", ["a", "b c"]),
        ("a   b 2.5\nb c 1\n", ["a", "b", "c"]),
    ],
)
def test_text_ids_of_files_in_the_wild(tmp_path, text, names):
    (tmp_path / "e.txt").write_text(text, encoding="utf-8")
    assert list(snmf_dist.import_graph(tmp_path / "e.txt", tmp_path / "g.zarr", symmetrize="max").ids) == names


def test_the_memory_limit_changes_the_parts_and_nothing_else(tmp_path, monkeypatch):
    monkeypatch.setattr(edgefiles, "BATCH_BYTES", 1 << 12)
    random = np.random.default_rng(0)
    names = np.array([str(uuid.UUID(bytes=random.bytes(16))) for _ in range(500)])
    ends = names[random.integers(0, 500, (4000, 2))]
    pd.DataFrame(ends, columns=["source", "target"]).to_csv(tmp_path / "e.csv", index=False)
    found, parts = [], []
    for i, limit in enumerate(["1GiB", "100kB"]):
        monkeypatch.setattr(numbering.Renumbering, "finish", recorded(numbering.Renumbering.finish, parts))
        graph = snmf_dist.import_graph(
            tmp_path / "e.csv", tmp_path / f"{i}.zarr", symmetrize="max", memory_limit=limit
        )
        assert list(graph.ids) == sorted(set(ends.ravel().tolist()))
        found.append(graph.fingerprint)
    assert found[0] == found[1]
    assert parts[0] == 1
    assert parts[-1] > 5


def recorded(finish, parts):
    def wrapper(self):
        ids = finish(self)
        parts.append(self.parts)
        return ids

    return wrapper


def test_sparse_numbers_are_numbered_in_their_order(tmp_path):
    (tmp_path / "e.csv").write_text("9000000000,-5\n-5,77\n")
    graph = snmf_dist.import_graph(tmp_path / "e.csv", tmp_path / "g.zarr", symmetrize="max")
    assert list(graph.ids) == [-5, 77, 9_000_000_000]
    assert graph.ids[-1] == 9_000_000_000
    assert_array_equal(graph.ids.find([77, 1]), [1, -1])
    assert graph.info()["ids"] == "whole numbers"


def test_rows_of_a_matrix_are_named_by_a_sequence(tmp_path):
    W, _ = planted_graph()
    names = [f"row {i}" for i in range(90)]
    assert list(snmf_dist.import_graph(W, tmp_path / "g.zarr", ids=names).ids) == names
    (tmp_path / "e.csv").write_text("0,1\n1,2\n")
    own = np.array([7, 5, 3])
    graph = snmf_dist.import_graph(tmp_path / "e.csv", tmp_path / "h.zarr", symmetrize="max", ids=own)
    assert list(graph.ids) == [7, 5, 3]
    with pytest.raises(errors.InputError, match="there are 2 for 90 rows"):
        snmf_dist.import_graph(W, tmp_path / "i.zarr", ids=["a", "b"])
    with pytest.raises(errors.InputError, match="ids is 'names'; expected one of"):
        snmf_dist.import_graph(W, tmp_path / "i.zarr", ids="names")


def test_digits_with_a_zero_in_front_are_text(tmp_path):
    (tmp_path / "e.csv").write_text("007,1\n1,042\n")
    graph = snmf_dist.import_graph(tmp_path / "e.csv", tmp_path / "g.zarr", symmetrize="max")
    assert list(graph.ids) == ["007", "042", "1"]


def test_plain_row_numbers_have_no_ids(tmp_path):
    (tmp_path / "e.csv").write_text("0,1\n1,2\n")
    assert snmf_dist.import_graph(tmp_path / "e.csv", tmp_path / "g.zarr", symmetrize="max").ids is None


@pytest.mark.parametrize(
    ("lines", "options", "words"),
    [
        ("source,target\na,\n", {}, "'target' has empty cells"),
        ("source,target\na,b\n", {"n": 5}, "leave n and first_id out"),
        ("source,target\na,b\nb,c\n", {"memory_limit": 400}, "raise memory_limit"),
    ],
)
def test_ids_that_cannot_be_numbered_are_refused(tmp_path, monkeypatch, lines, options, words):
    monkeypatch.setattr(numbering, "MOST_PARTS", 1)
    (tmp_path / "e.csv").write_text(lines)
    with pytest.raises(errors.SnmfError, match=words):
        snmf_dist.import_graph(tmp_path / "e.csv", tmp_path / "g.zarr", symmetrize="max", **options)


@pytest.mark.parametrize(
    ("ids", "words"),
    [
        (["a", "b", "a"], "'a' is the id of rows 0 and 2"),
        (["a", None, "b"], "the id of row 1 is empty"),
        ([1.5, 2.5, 3.5], "expected text, or whole numbers"),
        (["a", 1, "b"], "cannot be used as ids"),
        (["\ud800", "a", "b"], "cannot be used as ids"),
        ([2**63, 1, 2], "expected text, or whole numbers"),
    ],
)
def test_bad_ids_are_named(ids, words):
    with pytest.raises(errors.InputError, match=words):
        make_ids(ids)


@pytest.fixture
def named(tmp_path):
    """A graph with text ids, and the group of each id."""
    W, y = planted_graph()
    names = [f"node {i:02d} ✓" for i in np.random.default_rng(1).permutation(90)]
    coo = W.tocoo()
    table = {"source": [names[i] for i in coo.row], "target": [names[j] for j in coo.col], "weight": coo.data}
    pd.DataFrame(table).to_csv(tmp_path / "e.csv", index=False)
    graph = snmf_dist.import_graph(tmp_path / "e.csv", tmp_path / "g.zarr")
    return graph, dict(zip(names, y.tolist(), strict=True))


def test_a_result_carries_the_ids(named, tmp_path):
    graph, group = named
    solution = snmf_dist.fit(graph, 3, out=tmp_path / "r.zarr")
    again = snmf_dist.open_solution(tmp_path / "r.zarr")
    again.validate()
    assert list(solution.ids) == list(again.ids) == sorted(group)
    assert snmf_dist.score(again.labels, np.array([group[name] for name in again.ids])).accuracy > 0.95


def test_known_labels_are_matched_by_id(named, tmp_path):
    graph, group = named
    pd.DataFrame({"id": list(group), "label": list(group.values())}).to_csv(tmp_path / "y.csv", index=False)
    labels = read_labels(str(tmp_path / "y.csv"), n=90, ids=graph.ids)
    assert labels.tolist() == [group[name] for name in graph.ids]
    (tmp_path / "y.csv").write_text("id,label\nnobody,1\n")
    with pytest.raises(errors.InputError, match="has no label for 'node 00 ✓'"):
        read_labels(str(tmp_path / "y.csv"), n=90, ids=graph.ids)


def test_labels_of_row_numbers_may_be_in_any_order(tmp_path):
    (tmp_path / "y.csv").write_text("label,id\nc,2\na,0\nb,1\n")
    assert read_labels(str(tmp_path / "y.csv"), n=3).tolist() == ["a", "b", "c"]
    pd.read_csv(tmp_path / "y.csv").to_parquet(tmp_path / "y.parquet")
    assert read_labels(str(tmp_path / "y.parquet"), n=3).tolist() == ["a", "b", "c"]


def test_commands_speak_in_ids(named, tmp_path):
    graph, group = named
    pd.DataFrame({"id": list(group), "label": list(group.values())}).to_csv(
        tmp_path / "y.tsv", sep="\t", index=False
    )
    run = CliRunner().invoke
    done = run(main, ["import", str(tmp_path / "e.csv"), str(tmp_path / "c.zarr"), "--memory-limit", "1GiB"])
    assert "text" in next(line for line in done.output.splitlines() if line.startswith("ids"))
    assert list(snmf_dist.open_graph(tmp_path / "c.zarr").ids) == list(graph.ids)
    done = run(
        main,
        [
            "fit",
            str(tmp_path / "c.zarr"),
            "-k",
            "3",
            "--out",
            str(tmp_path / "r.zarr"),
            "--labels",
            str(tmp_path / "y.tsv"),
        ],
    )
    assert next(line for line in done.output.splitlines() if line.startswith("accuracy")).split()[1] > "0.95"


def test_a_graph_store_that_is_cut_again_keeps_its_ids(named, tmp_path):
    graph, _ = named
    again = snmf_dist.import_graph(graph, tmp_path / "again.zarr", block_rows=20)
    assert list(again.ids) == list(graph.ids)


def test_damaged_ids_are_noticed(named):
    graph, _ = named
    Path(graph.path, "ids", "bytes", "c", "0").unlink()
    with pytest.raises(errors.StoreCorrupt, match="ids/bytes"):
        graph.validate()


@pytest.mark.parametrize("as_column", [True, False])
def test_points_have_ids_too(tmp_path, as_column):
    X = np.random.default_rng(0).standard_normal((60, 2))
    names = [f"p{i}" for i in range(60)]
    pd.DataFrame({"x": X[:, 0], "name": names, "y": X[:, 1]}).to_parquet(tmp_path / "p.parquet")
    ids = "name" if as_column else names
    source = tmp_path / "p.parquet" if as_column else X
    graph = snmf_dist.build_graph(source, tmp_path / "g.zarr", ids=ids)
    assert list(graph.ids) == names
    if as_column:
        solution = snmf_dist.fit(tmp_path / "p.parquet", 2, graph_settings={"ids": "name"})
        assert list(solution.ids) == names
    with pytest.raises(errors.InputError, match="there are 2 for 60 points"):
        snmf_dist.build_graph(X, tmp_path / "h.zarr", ids=["a", "b"])
