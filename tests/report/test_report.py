"""The page of a result: what it says, that it needs nothing, and that it costs little."""

import re
import shlex
import sys
import warnings
from html import escape, unescape
from html.parser import HTMLParser

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner
from numpy.testing import assert_allclose, assert_array_equal
from pyarrow import parquet
from scipy import sparse

import snmf_dist
from snmf_dist import errors
from snmf_dist.cli import main
from snmf_dist.report import aggregates, features, graph_figures
from snmf_dist.report.html import LIMIT
from snmf_dist.result import tables
from tests.helpers import planted_graph

pytest.importorskip("matplotlib", reason="reports need matplotlib; install snmf-dist[report]")
ORDER = [
    "Clusters",
    "The graph, by cluster",
    "Weight between clusters",
    "How sure the memberships are",
    "Eigenvalues",
]
ORDER += ["Convergence", "Map", "The graph", "Memory and time", "To make it again"]


@pytest.fixture
def solution(graph, tmp_path):
    return snmf_dist.fit(graph, 3, out=tmp_path / "r.zarr")


def run(*arguments):
    done = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert done.exit_code == 0, done.output
    return done.output


class Page(HTMLParser):
    """The headings and tables of a page, what it refers to, and tags that are not closed."""

    def __init__(self, text):
        super().__init__()
        self.headings, self.cells, self.outside, self.open = [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        named = dict(attrs)
        self.outside += [
            value
            for name, value in attrs
            if name in ("src", "href", "xlink:href") and not value.startswith(("data:", "#"))
        ]
        assert tag != "script"
        assert not any(name.startswith("on") for name in named)
        if tag == "svg":
            assert named["aria-label"]
        if tag == "img":
            assert named["alt"]
        if tag not in ("meta", "link", "img", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        self.open.pop()

    def handle_data(self, data):
        if self.open and self.open[-1] == "h2":
            self.headings.append(data)
        if self.open and "td" in self.open:
            self.cells.append(data)


def read(path):
    text = path.read_text(encoding="utf-8")
    page = Page(text)
    assert not page.open
    assert not page.outside
    assert not re.search(r"url\(\s*[\"']?(?!#)", text)
    assert len(text.encode()) <= LIMIT
    return text, page


def test_the_page_is_whole_and_in_order_and_needs_nothing(solution, tmp_path):
    solution.report(tmp_path / "page.html")
    text, page = read(tmp_path / "page.html")
    assert [heading for heading in page.headings if heading in ORDER] == ORDER
    assert "3 clusters of 90 rows; the run converged" in text
    assert solution.status.name in text
    for size in solution.sizes:
        assert str(size) in page.cells
    assert f"snmf-dist fit {solution.provenance['graph']} -k 3" in text
    assert solution.provenance["fingerprint"] in text


def test_a_saved_result_gives_the_same_page(solution, tmp_path):
    solution.report(tmp_path / "one.html")
    run("report", tmp_path / "r.zarr", "--out", tmp_path / "two.html")
    assert (tmp_path / "one.html").read_text() == (tmp_path / "two.html").read_text()


def test_warnings_say_what_to_do(tmp_path):
    cliques = sparse.block_diag([np.ones((5, 5)) - np.eye(5)] * 6)
    with pytest.warns(errors.ResultWarning):
        solution = snmf_dist.fit(snmf_dist.import_graph(cliques, tmp_path / "g.zarr"), 3)
    solution.report(tmp_path / "page.html")
    text, page = read(tmp_path / "page.html")
    assert "What to know, and what to do" in page.headings
    assert "k=6 gives each its own" in text


def test_names_that_look_like_html_are_escaped(solution, tmp_path):
    ids = [f"<b>&{i}" for i in range(90)]
    values = sparse.random(90, 4, density=0.5, rng=0, format="csr")
    solution.report(tmp_path / "page.html", ids=ids, features=values, feature_names=["<i>", "&", '"', "plain"])
    text, _ = read(tmp_path / "page.html")
    assert "&lt;b&gt;&amp;" in text
    assert "<b>&" not in text
    assert "&lt;i&gt;" in text


def test_edges_are_what_a_dense_matrix_says(graph):
    W, y = planted_graph()
    labels = np.where(np.arange(90) == 7, -1, y)
    found = aggregates.read_edges(labels, 3, graph)
    dense, own = W.toarray(), np.where(labels < 0, 3, labels)
    expected = [[dense[np.ix_(own == a, own == b)].sum() for b in range(4)] for a in range(4)]
    assert_allclose(found.weight, expected, rtol=1e-6)
    assert_allclose(found.shares, np.array(expected)[:3, :3] / np.sum(expected, axis=1)[:3, None], rtol=1e-6)
    total = dense.sum()
    modularity = sum(expected[k][k] / total - (sum(expected[k]) / total) ** 2 for k in range(3))
    assert found.modularity == pytest.approx(modularity)
    assert_allclose(found.density.sum(), W.nnz)  # a pixel a row here
    assert_array_equal(found.edges, np.cumsum(np.bincount(own))[:3])


def test_members_do_not_depend_on_blocks(solution, monkeypatch):
    whole = aggregates.read_members(solution)
    monkeypatch.setattr(tables, "BLOCK_MEMBERSHIPS", 33)
    parts = aggregates.read_members(solution)
    assert_array_equal(whole.strength, parts.strength)
    L = solution.membership.compute()
    for k in range(3):
        assert_array_equal(whole.central[k], parts.central[k])
        mine = np.flatnonzero(solution.labels == k)
        assert set(whole.central[k]) == set(mine[np.argsort(-L[mine, k])[:5]])
    assert_allclose(whole.mean_strength, parts.mean_strength)


def test_features_that_stand_out_are_those_of_the_cluster():
    labels = np.repeat([0, 1, -1], 30)
    X = np.random.default_rng(0).random((90, 5))
    X[:30, 2] += 1
    X[30:60, 4] += 1
    for form in (X, sparse.csr_matrix(X)):
        found = features.read_profile(form, labels, 2, names=list("abcde"))
        assert (found.top[0][0], found.top[1][0]) == ("c", "e")
    images = features.read_profile(X.reshape(90, 1, 5), labels, 2).images
    assert images.shape == (2, 1, 5)
    assert images.max() == 1
    with pytest.raises(errors.InputError, match="there are 2 feature names; expected 5"):
        features.read_profile(X, labels, 2, names=["a", "b"])
    with pytest.raises(errors.InputError, match="features has 90 rows; expected 89"):
        features.read_profile(X, labels[1:], 2)
    X[7, 3] = np.nan
    with pytest.raises(errors.InputError, match="column 'd' holds NaN or infinity"):
        features.read_profile(X, labels, 2, names=list("abcde"))


def test_features_of_a_table_go_by_the_names_of_its_columns(solution, tmp_path):
    numbers = {name: np.random.default_rng(0).random(90) for name in ("height", "width")}
    vectors = pa.FixedSizeListArray.from_arrays(np.random.default_rng(1).random(180), 2)
    parquet.write_table(pa.table({**numbers, "vector": vectors}), tmp_path / "f.parquet")
    names = {"height", "width", "vector 0", "vector 1"}
    profile = features.read_profile(str(tmp_path / "f.parquet"), solution.labels, 3)
    assert set().union(*profile.top) <= names
    run("report", tmp_path / "r.zarr", "--out", tmp_path / "page.html", "--features", tmp_path / "f.parquet")
    assert any(cell in " ".join(read(tmp_path / "page.html")[1].cells) for cell in names)


def test_edges_that_join_small_components_are_counted(tmp_path):
    random = np.random.default_rng(0)
    X = random.standard_normal((400, 2)) + np.repeat([[0, 0], [60, 0], [0, 60]], [240, 157, 3], axis=0)
    graph = snmf_dist.build_graph(X, tmp_path / "g.zarr", connect=True, neighbors=2)
    assert graph.block["made"]["joined"] > 0
    with warnings.catch_warnings(action="ignore"):
        solution = snmf_dist.fit(graph, 2)
    solution.report(tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert f"<dt>Edges that join components</dt><dd>{graph.block['made']['joined']}</dd>" in text


def test_numbers_of_clusters_do_not_cover_each_other():
    assert graph_figures._apart([3, 2, 1, 0], np.array([0, 0.3, 0.31, 0.5]), 0.03) == [3, 2, 0]
    mine = np.column_stack([np.linspace(0, 1, 11), np.zeros(11)])
    room, nothing = np.array([0.15, 0.1]), np.empty((0, 2))
    assert_allclose(graph_figures._free_place(mine, nothing, room), [0.5, 0])
    assert_allclose(abs(graph_figures._free_place(mine, mine[5:6], room)[0] - 0.5), 0.2)
    assert graph_figures._free_place(mine[:1], mine[:1], room) is None


def test_the_map_takes_points_eigenvectors_or_memberships(solution, graph, tmp_path):
    assert solution.sample.places.shape == (90, 2)
    solution.report(tmp_path / "a.html", points=np.random.default_rng(0).random((90, 2)))
    assert "in the plane of the coordinates given" in read(tmp_path / "a.html")[0]
    solution.report(tmp_path / "b.html", points=np.random.default_rng(0).random((90, 5)))
    assert "two principal components of the points" in read(tmp_path / "b.html")[0]
    other = snmf_dist.fit(graph, 3, init="random", rho=0.3)
    assert other.sample is None
    other.report(tmp_path / "c.html")
    text, page = read(tmp_path / "c.html")
    assert "two principal components of the memberships" in text
    assert "Eigenvalues" not in page.headings
    with pytest.raises(errors.InputError, match="points has 3 rows; expected 90"):
        other.report(tmp_path / "d.html", points=np.zeros((3, 2)))
    with pytest.raises(errors.InputError, match="points holds NaN or infinity"):
        other.report(tmp_path / "d.html", points=np.full((90, 2), np.nan))


def test_the_sample_is_saved_and_separates_the_clusters(solution, tmp_path):
    again = snmf_dist.open_solution(tmp_path / "r.zarr").sample
    assert_array_equal(again.rows, np.arange(90))
    assert_array_equal(again.places, solution.sample.places)
    means = [again.places[solution.labels == k].mean(axis=0) for k in range(3)]
    spread = max(again.places[solution.labels == k].std(axis=0).max() for k in range(3))
    assert min(np.linalg.norm(means[a] - means[b]) for a, b in ((0, 1), (0, 2), (1, 2))) > 2 * spread


def test_another_result_stands_beside(solution, graph, tmp_path):
    snmf_dist.fit(graph, 2, out=tmp_path / "o.zarr")
    run("report", tmp_path / "r.zarr", "--out", tmp_path / "p.html", "--compare", tmp_path / "o.zarr")
    text, page = read(tmp_path / "p.html")
    assert "Beside another result" in page.headings
    found = solution.compare(snmf_dist.open_solution(tmp_path / "o.zarr"))
    assert f"{found.ari:.4f}" in text
    solution.report(tmp_path / "q.html", compare=tmp_path / "o.zarr", graph=graph.path)
    assert read(tmp_path / "q.html")[0] == text


def test_a_graph_that_is_gone_costs_its_figures_only(solution, graph, tmp_path):
    moved = tmp_path / "moved.zarr"
    (tmp_path / "graph.zarr").rename(moved)
    solution.report(tmp_path / "a.html")
    text, page = read(tmp_path / "a.html")
    assert "the figures of the graph are left out" in text.lower()
    assert "Weight between clusters" not in page.headings
    solution.report(tmp_path / "b.html", graph=snmf_dist.open_graph(moved))
    assert "Weight between clusters" in read(tmp_path / "b.html")[1].headings
    other = snmf_dist.import_graph(planted_graph(seed=3)[0], tmp_path / "other.zarr")
    with pytest.raises(errors.StoreCorrupt, match="is not the graph that this result was found on"):
        solution.report(tmp_path / "c.html", graph=other)


def test_what_cannot_be_written_is_refused(solution, tmp_path):
    with pytest.raises(errors.InputError, match=r"expected one of \.html"):
        solution.report(tmp_path / "page.pdf")
    solution.report(tmp_path / "page.html")
    with pytest.raises(errors.StoreExists, match="already exists"):
        solution.report(tmp_path / "page.html")
    with pytest.raises(errors.InputError, match="there are 2 ids; expected 90"):
        solution.report(tmp_path / "other.html", ids=["a", "b"])
    assert not (tmp_path / "other.html").exists()


def test_without_matplotlib_the_extra_is_named(solution, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(errors.InputError, match=r"install snmf-dist\[report\]"):
        solution.report(tmp_path / "page.html")


def test_hundreds_of_clusters_keep_within_the_limit(tmp_path):
    W = sparse.block_diag([np.ones((4, 4)) - np.eye(4)] * 320).tocsr()
    links = sparse.csr_matrix((np.full(319, 0.1), (np.arange(0, 1276, 4), np.arange(4, 1280, 4))), W.shape)
    graph = snmf_dist.import_graph(W + links + links.T, tmp_path / "g.zarr")
    L = sparse.block_diag([np.ones((4, 1))] * 320).toarray()
    with pytest.warns(errors.ResultWarning):
        solution = snmf_dist.fit(graph, 320, init=L, max_iter=3)
    names = [f"a rather long name of row {i} of many" for i in range(1280)]
    solution.report(tmp_path / "page.html", ids=names)
    text, _ = read(tmp_path / "page.html")
    assert "The 200 largest of 320 clusters are listed" in text


def test_one_cluster_has_a_page(graph, tmp_path):
    snmf_dist.fit(graph, 1).report(tmp_path / "page.html")
    assert "1 cluster of 90 rows" in read(tmp_path / "page.html")[0]


def test_the_page_of_a_choice_of_k_begins_with_the_reason(graph, tmp_path):
    place = tmp_path / "study"
    run("choose-k", graph.path, "-k", "2:4", "--seeds", 2, "--out", place)
    reason = snmf_dist.open_study(place).reason
    assert reason.startswith("K = ")
    assert reason in run("study", place)
    run("report", place, "--out", tmp_path / "s.html")
    text = (tmp_path / "s.html").read_text()
    assert Page(text).headings[0] == "Choice of K"
    assert f'<p class="verdict">{escape(reason)}</p>' in text
    assert '<img src="data:image/png;base64,' in text
    (place / "choice.png").write_bytes((place / "choice.png").read_bytes()[:900])
    run("report", place, "--out", tmp_path / "torn.html")
    assert "The picture cannot be read" in (tmp_path / "torn.html").read_text()
    (place / "choice.json").write_text('{"k": ')
    with pytest.raises(errors.StoreCorrupt, match=r"choice\.json.*again"):
        snmf_dist.open_study(place).report(tmp_path / "no.html")


def test_a_study_has_a_page(graph, tmp_path):
    study = snmf_dist.fit_many(graph.path, ks=[2, 3], seeds=2, out=tmp_path / "study")
    run("report", tmp_path / "study", "--out", tmp_path / "s.html")
    text, page = read(tmp_path / "s.html")
    assert "4 runs: 4 done" in text
    assert all(row["run_id"] in page.cells for row in study.rows)
    done = CliRunner().invoke(main, ["report", str(tmp_path / "study"), "--out", "x.html", "--ids", "y"])
    assert done.exit_code == 2
    assert "is a study" in done.output


def test_cards_in_notebooks_read_no_disk_and_never_fail(solution, graph, tmp_path):
    study = snmf_dist.fit_many(graph.path, ks=[2], out=tmp_path / "study")
    shown = {"Solution": solution, "Graph": graph, "Plan": snmf_dist.plan_fit(graph, 3), "Study": study}
    for path in sorted(tmp_path.rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()
    for title, value in shown.items():
        text = value._repr_html_()
        assert f"<b>{title}</b>" in text
        assert text.count("<tr>") >= 4
        assert len(text) < 5000
        Page(text)
    object.__setattr__(solution, "labels", None)
    assert "<b>Solution</b>" in solution._repr_html_()


def test_the_page_has_the_command_that_makes_the_graph_again(tmp_path):
    W, _ = planted_graph()
    coo = sparse.triu(W).tocoo()
    lines = [f"{i + 1}\t{j + 1}\t{w}" for i, j, w in zip(coo.row, coo.col, coo.data, strict=True)]
    (tmp_path / "my edges.tsv").write_text("\n".join(lines))
    given = ["--symmetrize", "max", "--first-id", 1, "--no-reorder", "--columns", "column 1,column 2,column 3"]
    run("import", tmp_path / "my edges.tsv", tmp_path / "g.zarr", *given, "--normalize", "none", "--nodes", 95)
    first = snmf_dist.open_graph(tmp_path / "g.zarr").fingerprint
    run("fit", tmp_path / "g.zarr", "-k", 3, "--out", tmp_path / "r.zarr")
    run("report", tmp_path / "r.zarr", "--out", tmp_path / "r.html")
    line = commands(tmp_path / "r.html")[0]
    assert line[:2] == ["snmf-dist", "import"]
    run(*line[1:], "--overwrite")
    assert snmf_dist.open_graph(tmp_path / "g.zarr").fingerprint == first


def test_the_page_has_the_command_that_builds_the_graph_of_points_again(tmp_path):
    X = np.random.default_rng(0).standard_normal((120, 4))
    names = {f"c{i}": X[:, i] for i in range(4)}
    parquet.write_table(pa.table(names), tmp_path / "x.parquet")
    graph = snmf_dist.build_graph(
        tmp_path / "x.parquet",
        tmp_path / "g.zarr",
        columns=["c2", "c0"],
        metric="cosine",
        exact=False,
        neighbors=9,
    )
    snmf_dist.fit(graph, 2).report(tmp_path / "r.html")
    run(*commands(tmp_path / "r.html")[0][1:], "--overwrite")
    assert snmf_dist.open_graph(tmp_path / "g.zarr").fingerprint == graph.fingerprint


def commands(path):
    """The lines of the terminal that a page shows, in words."""
    shown = re.search(r"<pre[^>]*><code>(.*?)</code>", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    return [shlex.split(line) for line in unescape(shown.group(1)).splitlines()]
