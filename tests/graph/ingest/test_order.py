"""Rows in an order that keeps neighbours together: what it may change (speed), and what not (anything else)."""

import tracemalloc
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from scipy import sparse

import snmf_dist
from snmf_dist import errors
from snmf_dist.graph.ingest import order as ordering
from tests.helpers import planted_graph


@pytest.fixture(autouse=True)
def small_graphs_are_worth_it(monkeypatch):
    monkeypatch.setattr(ordering, "SMALL", 2)
    monkeypatch.setattr(ordering, "LEAF", 16)
    monkeypatch.setattr(ordering, "CACHED_ROWS", 32)
    monkeypatch.setattr(ordering, "LINE", 4)


def mixed(W, seed=0):
    """W with its rows in random order, and that order."""
    order = np.random.default_rng(seed).permutation(W.shape[0])
    return sparse.csr_matrix(W)[order][:, order], order


def grid(side):
    """A square mesh, row by row."""
    path = sparse.diags_array([1.0, 1.0], offsets=[-1, 1], shape=(side, side))
    one = sparse.eye_array(side)
    return sparse.csr_matrix(sparse.kron(path, one) + sparse.kron(one, path))


def back(graph):
    """A in the order of the source."""
    A, order = graph.read_rows(0, graph.n).toarray(), graph.order
    found = np.empty_like(A)
    found[np.ix_(order, order)] = A
    return found


def both(W, folder, **options):
    """W imported as it came, and in the order that "auto" takes."""
    options = {"dtype": "float64", "block_rows": -(-W.shape[0] // 8), "self_loops": "keep", **options}
    return tuple(
        snmf_dist.import_graph(W, folder / f"{name}.zarr", reorder=reorder, overwrite=True, **options)
        for name, reorder in (("came", False), ("auto", "auto"))
    )


GROUPS = planted_graph(640, 8, seed=1, inside=0.3, between=0.005)[0]


@pytest.mark.parametrize(("W", "how"), [(GROUPS, "by leaves"), (grid(40), "by ")])
def test_a_graph_in_random_order_gets_a_better_one(tmp_path, W, how):
    came, auto = both(mixed(W)[0], tmp_path)
    assert not came.reordered
    assert auto.reordered
    assert auto.coupling()["diagonal"] > 3 * came.coupling()["diagonal"]
    assert auto.coupling()["halo"] < came.coupling()["halo"] / 2
    assert auto.info()["made: order"].startswith(how)
    assert "made: order" not in came.info()
    auto.validate(deep=True)


def test_what_info_shows_is_what_the_store_has(tmp_path):
    came, auto = both(mixed(GROUPS)[0], tmp_path)
    for graph in (came, auto):
        assert f"{graph.coupling()['diagonal']:.0%}" in auto.info()["made: order"]
        assert f"{graph.coupling()['halo']:.2f}" in auto.info()["made: order"]


@pytest.mark.parametrize("W", [grid(40), GROUPS])
def test_a_good_order_is_left_alone(tmp_path, W):
    came, auto = both(W, tmp_path)
    assert auto.fingerprint == came.fingerprint
    assert auto.info()["made: order"].startswith("as it came: ")


def test_a_graph_that_no_order_helps_is_left_alone(tmp_path):
    W = planted_graph(600, 1, seed=2, inside=0.05)[0]
    came, auto = both(W, tmp_path)
    assert auto.fingerprint == came.fingerprint
    assert "no order found was clearly better" in auto.info()["made: order"]


def test_small_graphs_are_left_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(ordering, "SMALL", 641)
    came, auto = both(mixed(GROUPS)[0], tmp_path)
    assert auto.fingerprint == came.fingerprint
    assert auto.info()["made: order"] == "as it came: small enough for any order"


def test_labels_and_memberships_come_back_in_the_order_of_the_source(tmp_path):
    W, order = mixed(GROUPS)
    came, auto = both(W, tmp_path)
    expected = np.sort(np.arange(640) % 8)[order]
    for graph in (came, auto):
        found = snmf_dist.fit(graph, 8)
        assert snmf_dist.score(found.labels, expected).accuracy == 1


def test_orders_of_a_store_in_another_order_are_composed(tmp_path):
    W, _ = mixed(GROUPS)
    came, auto = both(W, tmp_path)
    again = snmf_dist.import_graph(auto, tmp_path / "again.zarr", dtype="float64", block_rows=64)
    assert_array_equal(back(again), back(came))
    assert_array_equal(again.degree, came.degree[again.order])


def test_a_store_whose_order_is_bad_gets_a_better_one_and_keeps_its_numbers(tmp_path, monkeypatch):
    W, _ = mixed(GROUPS)
    bad = np.random.default_rng(6).permutation(640)
    with monkeypatch.context() as patch:
        patch.setattr(ordering, "CLEARLY", np.inf)
        patch.setattr(ordering.Cost, "against", lambda *_: 0.0)
        patch.setattr(ordering, "by_leaves", lambda _: bad)
        patch.setattr(ordering, "cuthill_mckee", lambda _: bad)
        came, first = both(W, tmp_path)
    assert_array_equal(first.order, bad)
    second = snmf_dist.import_graph(first, tmp_path / "second.zarr", dtype="float64", block_rows=80)
    assert second.coupling()["halo"] < first.coupling()["halo"] / 2
    assert_array_equal(back(second), back(came))
    assert_array_equal(second.degree, came.degree[second.order])


@pytest.mark.parametrize("held", [True, False])
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_any_graph_is_the_same_graph_after_it(tmp_path_factory, held, data):
    """Isolated rows, loops, repeated edges, parts that do not hang together, one block or many."""
    n = data.draw(st.integers(2, 60))
    ends = st.integers(0, n - 1)
    edges = data.draw(st.lists(st.tuples(ends, ends, st.floats(0.1, 9)), min_size=1, max_size=150))
    rows, columns, weights = (np.array(part) for part in zip(*edges, strict=True))
    W = sparse.coo_matrix((weights, (rows, columns)), shape=(n, n))
    options = {
        "symmetrize": data.draw(st.sampled_from(["max", "mean"])),
        "normalize": data.draw(st.sampled_from(["ncut", None])),
        "block_rows": data.draw(st.integers(-(-n // 6), n)),
    }
    with (
        pytest.MonkeyPatch.context() as patch,
        warnings.catch_warnings(action="ignore", category=errors.GraphWarning),
    ):
        patch.setattr(ordering, "CLEARLY", 1.0)  # take whatever is not worse
        patch.setattr(ordering, "IN_MEMORY", 10**6 if held else 0)
        came, auto = both(W, tmp_path_factory.mktemp("g"), **options)
    assert_array_equal(np.sort(auto.order), np.arange(n))
    assert_array_equal(back(auto), back(came))
    assert_array_equal(auto.degree, came.degree[auto.order])
    auto.validate(deep=True)


@settings(max_examples=25, deadline=None)
@given(n=st.integers(40, 200), k=st.integers(1, 6), between=st.floats(0, 0.2), seed=st.integers(0, 99))
def test_the_order_taken_is_never_worse_by_what_is_measured(n, k, between, seed):
    W = mixed(planted_graph(n, k, seed=seed, inside=0.3, between=between)[0], seed)[0]
    graph = ordering.GraphPattern(np.array([0, n]), lambda _: (W.indptr, W.indices))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ordering, "SMALL", 2)
        found = ordering.choose_order(graph, lambda *_: None).order
    if found is not None:
        before, after = (ordering.measure(graph, ordering.rank_of(o)) for o in (np.arange(n), found))
        assert after.halo <= before.halo
        assert after.fetches <= before.fetches
        assert after.halo + after.fetches < before.halo + before.fetches


def test_what_is_measured_is_what_one_counts_by_hand():
    W, _ = mixed(grid(12))
    graph = ordering.GraphPattern(
        np.arange(0, 145, 16), lambda i: (lambda B: (B.indptr, B.indices))(W[16 * i : 16 * i + 16])
    )
    rank = np.random.default_rng(3).permutation(144)
    moved = W[np.argsort(rank)][:, np.argsort(rank)].toarray() > 0
    blocks = [moved[i : i + 16] for i in range(0, 144, 16)]
    picked = np.unique(np.linspace(0, 8, 8).astype(int))
    halos = [np.delete(blocks[i].any(axis=0), np.s_[16 * i : 16 * i + 16]).sum() for i in picked]
    lines = [moved[i : i + 32].any(axis=0).reshape(-1, 4).any(axis=1).sum() for i in range(0, 144, 32)]
    found = ordering.measure(graph, rank)
    assert found.diagonal == pytest.approx(
        sum(block[:, 16 * i : 16 * i + 16].sum() for i, block in enumerate(blocks)) / W.nnz
    )
    assert found.halo == pytest.approx(np.mean(halos) / 16)
    assert found.fetches == pytest.approx(sum(lines) / W.nnz)
    assert found.largest == max(block.sum() for block in blocks)


@pytest.mark.parametrize(("W", "shallow"), [(grid(40), False), (planted_graph(400, 4)[0], True)])
def test_a_mesh_is_deep_and_a_random_graph_is_shallow(W, shallow):
    W = sparse.csr_matrix(W)
    assert (
        ordering.is_shallow(
            ordering.GraphPattern(np.array([0, len(W.indptr) - 1]), lambda _: (W.indptr, W.indices))
        )
        == shallow
    )


@pytest.mark.parametrize("rows", [1, 7, 90])
def test_the_entries_that_a_product_takes_do_not_depend_on_blocks(rows):
    W, X = planted_graph()[0], np.random.default_rng(0).standard_normal((90, 3))
    pattern = ordering.GraphPattern(
        np.append(np.arange(0, 90, rows), 90),
        lambda i: (lambda B: (B.indptr, B.indices))(W[rows * i : rows * (i + 1)]),
    )
    for first in range(3):
        kept = np.arange(W.nnz) % 3 == first
        P = sparse.csr_matrix((3.0 * kept, W.indices, W.indptr), shape=W.shape)
        found = ordering._smoothed(pattern, X, np.ones((90, 1)), 3, first)
        np.testing.assert_allclose(found, P @ X, rtol=1e-6)


def test_an_order_that_does_not_fit_is_not_looked_for():
    W, _ = mixed(GROUPS)
    graph = ordering.GraphPattern(np.array([0, W.shape[0]]), lambda _: (W.indptr, W.indices))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ordering, "SMALL", 2)
        found = ordering.choose_order(graph, lambda *_: None, 100 * W.shape[0])
    assert found.order is None
    assert "memory_limit leaves" in found.reason


def test_the_same_graph_gets_the_same_order_again(tmp_path):
    W, _ = mixed(GROUPS)
    first = both(W, tmp_path)[1].fingerprint
    assert both(W, tmp_path)[1].fingerprint == first


def test_a_graph_too_large_to_hold_is_ordered_block_by_block(tmp_path, monkeypatch):
    W, _ = mixed(GROUPS)
    _, held = both(W, tmp_path)
    monkeypatch.setattr(ordering, "IN_MEMORY", 0)
    _, streamed = both(W, tmp_path)
    assert_array_equal(streamed.order, held.order)
    assert "Cuthill–McKee was not tried" in streamed.info()["made: order"]


def test_ordering_holds_a_few_numbers_a_row_and_a_block(monkeypatch):
    monkeypatch.setattr(ordering, "IN_MEMORY", 0)
    n, rows, entries = 20_000, 200, 300

    def pattern(i):
        near = np.random.default_rng(i).integers(0, 1000, (rows, entries)) + rows * i // 1000 * 1000
        return np.arange(0, rows * entries + 1, entries), np.sort(near, axis=1).ravel() * 7919 % n

    graph = ordering.GraphPattern(np.arange(0, n + 1, rows), pattern)
    tracemalloc.start()
    try:
        ordering.choose_order(graph, lambda *_: None)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 250 * n + 100 * rows * entries  # all entries, 4 bytes each: 24 MB


@pytest.mark.parametrize("reorder", ["always", None, "rcm"])
def test_another_word_is_refused(tmp_path, reorder):
    with pytest.raises(errors.InputError, match=r"reorder is .*; expected one of 'auto', False"):
        snmf_dist.import_graph(GROUPS, tmp_path / "g.zarr", reorder=reorder)


def test_progress_is_told_of_the_order(tmp_path):
    reported = []
    both(mixed(GROUPS)[0], tmp_path, progress=lambda *report: reported.append(report))
    assert ("order", 0, 1) in reported
    assert ("order", 1, 1) in reported  # rows are few steps apart, so Cuthill–McKee is not tried
