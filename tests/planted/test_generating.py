"""Generated data are what was asked for, whoever makes them, and are never held whole."""

import filecmp
import json
import os
import tracemalloc

import dask
import numpy as np
import pytest
import zarr
from click.testing import CliRunner
from pyarrow import parquet

import snmf_dist
from snmf_dist import errors
from snmf_dist.cli import main
from snmf_dist.planted import blockmodel, mixture
from snmf_dist.planted.generating import check_model
from snmf_dist.planted.shuffling import Shuffle


def points_of(made):
    return zarr.open_array(made.data, mode="r")[:], np.load(made.truth)


def edges_of(made):
    table = parquet.read_table(made.data)
    return np.asarray(table["source"]), np.asarray(table["target"]), np.load(made.truth)


def files_of(folder):
    return sorted(
        os.path.relpath(os.path.join(place, name), folder) for place, _, names in os.walk(folder) for name in names
    )


@pytest.mark.parametrize("n", [2, 3, 16, 17, 1000])
def test_a_shuffle_is_a_permutation_that_can_be_undone(n):
    shuffle, numbers = Shuffle(n, seed=5), np.arange(n)
    assert sorted(shuffle(numbers)) == numbers.tolist()
    assert shuffle.inverse(shuffle(numbers)).tolist() == numbers.tolist()


def test_a_shuffle_leaves_no_trace_of_the_order():
    places = Shuffle(100_000, seed=0)(np.arange(100_000))
    assert abs(np.corrcoef(places[:-1], places[1:])[0, 1]) < 0.02
    assert abs(np.corrcoef(places, np.arange(100_000))[0, 1]) < 0.02
    assert np.mean(places == Shuffle(100_000, seed=1)(np.arange(100_000))) < 0.001


@pytest.mark.parametrize("kind", ["points", "graph"])
def test_the_files_are_the_same_for_any_number_of_threads_and_workers(tmp_path, kind, request):
    settings = {"dimensions": 256} if kind == "points" else {"degree": 120}
    folders = []
    for number in (1, 3):
        with dask.config.set(num_workers=number):
            snmf_dist.generate(kind, tmp_path / f"threads-{number}", 20_000, 3, seed=4, **settings)
        folders.append(tmp_path / f"threads-{number}")
    request.getfixturevalue("client")
    snmf_dist.generate(kind, tmp_path / "workers", 20_000, 3, seed=4, **settings)
    names = files_of(tmp_path / "workers")
    assert len(names) > 4  # several blocks
    for folder in folders:
        assert files_of(folder) == names
        assert filecmp.cmpfiles(folder, tmp_path / "workers", names, shallow=False)[1:] == ([], [])
    other = snmf_dist.generate(kind, tmp_path / "other", 20_000, 3, seed=5, **settings)
    assert not np.array_equal(np.load(other.truth), np.load(tmp_path / "workers" / "truth.npy"))


def test_clusters_have_their_separation_and_unit_variance(tmp_path):
    made = snmf_dist.generate("points", tmp_path / "p", 60_000, 6, dimensions=20, separation=3, seed=1)
    X, y = points_of(made)
    assert X.dtype == np.float32
    means = np.stack([X[y == c].mean(axis=0) for c in range(6)])
    gaps = np.linalg.norm(means[:, None] - means, axis=2)[np.triu_indices(6, 1)]
    assert gaps.min() == pytest.approx(3, rel=0.05)
    for c in range(6):
        assert X[y == c].var(axis=0).mean() == pytest.approx(1, rel=0.05)


def test_a_curved_cluster_bends_out_of_its_directions():
    flat, bent = (
        check_model(
            "points", 40_000, 1, seed=0, sizes=None, settings={"intrinsic": 3, "curvature": c, "noise": 0.1}
        )
        for c in (0.0, 1.0)
    )
    for model, directions in ((flat, 3), (bent, 6)):
        values = np.linalg.eigvalsh(np.cov(model.block(0)[0].T))[::-1]
        assert values[directions - 1] > 10 * values[directions]
    X = bent.block(0)[0] - bent.shapes.centres[0]
    along, across = (X @ part[0] for part in bent.shapes[1:])
    assert np.corrcoef(along[:, 0] ** 2, across[:, 0])[0, 1] > 0.9


@pytest.mark.parametrize(("separation", "least", "most"), [(2, 0.3, 0.8), (4, 0.85, 0.97), (8, 0.98, 1)])
def test_clusters_overlap_the_less_the_further_they_are_apart(separation, least, most):
    model = check_model("points", 10_000, 8, seed=0, sizes=None, settings={"separation": separation})
    X, y = model.block(0)
    nearest = np.linalg.norm(X[:, None] - model.shapes.centres, axis=2).argmin(axis=1)
    assert least <= np.mean(nearest == y) <= most


@pytest.mark.parametrize("sizes", [None, [4, 2, 1, 1]])
def test_a_block_model_has_its_degree_its_mixing_and_its_sizes(tmp_path, sizes):
    made = snmf_dist.generate("graph", tmp_path / "g", 40_000, 4, degree=25, mixing=0.3, sizes=sizes, seed=2)
    rows, columns, y = edges_of(made)
    assert (rows < columns).all()
    assert 2 * len(rows) / 40_000 == pytest.approx(25, rel=0.01)
    assert np.mean(y[rows] != y[columns]) == pytest.approx(0.3, abs=0.01)
    shares = np.array(sizes or [1, 1, 1, 1]) / sum(sizes or [1, 1, 1, 1])
    assert np.bincount(y) / 40_000 == pytest.approx(shares, abs=0.001)
    degree = np.bincount(np.concatenate((rows, columns)), minlength=40_000)
    assert [degree[y == c].mean() for c in range(4)] == pytest.approx([25] * 4, rel=0.03)


@pytest.mark.parametrize("exponent", [2.5, 3.0])
def test_degrees_follow_their_power_law(tmp_path, exponent):
    made = snmf_dist.generate("graph", tmp_path / "g", 200_000, 2, degree=40, exponent=exponent)
    rows, columns, _ = edges_of(made)
    degree = np.bincount(np.concatenate((rows, columns)), minlength=200_000)
    top = np.sort(degree)[::-1][:2000].astype(float)  # Hill's estimator of the tail
    assert 1 + 1 / np.mean(np.log(top[:-1] / top[-1])) == pytest.approx(exponent, abs=0.15)


def test_equal_degrees_vary_by_chance_alone(tmp_path):
    made = snmf_dist.generate("graph", tmp_path / "g", 50_000, 2, degree=40, exponent=np.inf)
    rows, columns, _ = edges_of(made)
    degree = np.bincount(np.concatenate((rows, columns)), minlength=50_000)
    assert degree.var() == pytest.approx(degree.mean(), rel=0.05)  # Poisson


def test_nodes_are_in_random_order_or_cluster_by_cluster(tmp_path):
    mixed = np.load(snmf_dist.generate("graph", tmp_path / "a", 10_000, 4).truth)
    sorted_ = np.load(snmf_dist.generate("graph", tmp_path / "b", 10_000, 4, shuffle=False).truth)
    assert np.mean(mixed[1:] == mixed[:-1]) == pytest.approx(0.25, abs=0.03)
    assert sorted_.tolist() == np.repeat(np.arange(4), 2500).tolist()


def test_fit_finds_the_planted_clusters(tmp_path):
    made = snmf_dist.generate("graph", tmp_path / "g", 3000, 5, degree=30)
    graph = snmf_dist.import_graph(made.data, tmp_path / "g.zarr", n=3000, symmetrize="max")
    assert graph.block["made"]["source"] == "edges"
    solution = snmf_dist.fit(graph, 5)
    assert snmf_dist.score(solution.labels, np.load(made.truth)).accuracy > 0.98


@pytest.mark.parametrize(("kind", "n", "row_bytes"), [("points", 1_500_000, 32 * 4), ("graph", 600_000, 15 * 8)])
def test_memory_does_not_grow_with_the_data(tmp_path, kind, n, row_bytes):
    def peak(rows, name):
        tracemalloc.start()
        with dask.config.set(num_workers=1):
            snmf_dist.generate(kind, tmp_path / name, rows, 4, **({"dimensions": 32} if kind == "points" else {}))
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    small = n // 6
    # One block more or less may be alive at the peak: it depends on when the writer lets go of the one before.
    assert peak(n, "large") - peak(small, "small") < (n - small) * row_bytes / 4


@pytest.mark.parametrize(
    ("kind", "settings", "words"),
    [
        ("points", {"degree": 3}, "no setting 'degree'"),
        ("points", {"intrinsic": 20}, "intrinsic is 20; expected 1 to 16"),
        ("points", {"noise": 2}, "noise is 2"),
        ("graph", {"exponent": 2}, "exponent is 2"),
        ("graph", {"mixing": 0.8}, "mixing is 0.8; expected at most 0.667"),
        ("graph", {"sizes": [1, 2]}, "sizes has 2 numbers"),
        ("graph", {"sizes": [1, 1, 1e-9]}, "cluster 2 gets none"),
        ("line", {}, "kind is 'line'"),
    ],
)
def test_wrong_settings_are_refused(tmp_path, kind, settings, words):
    with pytest.raises(errors.InputError, match=words):
        snmf_dist.generate(kind, tmp_path / "x", 100, 3, **settings)
    assert not any(not name.startswith(".") for name in os.listdir(tmp_path))


def test_only_what_generate_made_is_replaced(tmp_path):
    (tmp_path / "mine").mkdir()
    with pytest.raises(errors.StoreExists, match="was not made by generate"):
        snmf_dist.generate("graph", tmp_path / "mine", 100, 2, overwrite=True)
    snmf_dist.generate("graph", tmp_path / "ours", 100, 2)
    with pytest.raises(errors.StoreExists, match="already exists"):
        snmf_dist.generate("graph", tmp_path / "ours", 100, 2)
    made = snmf_dist.generate("points", tmp_path / "ours", 100, 2, overwrite=True)
    assert sorted(os.listdir(tmp_path / "ours")) == ["made.json", "points.zarr", "truth.npy"]
    with open(tmp_path / "ours" / "made.json", encoding="utf-8") as file:
        assert json.load(file)["separation"] == made.settings["separation"]
    with pytest.raises(errors.InputError, match="is a URL"):
        snmf_dist.generate("graph", "memory://x", 100, 2)


def test_the_command_makes_what_the_function_makes(tmp_path):
    words = [
        "generate",
        "graph",
        str(tmp_path / "c"),
        "--rows",
        "1k",
        "-k",
        "3",
        "--mixing",
        "0.1",
        "--sizes",
        "2,1,1",
    ]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 0, done.output
    made = snmf_dist.generate("graph", tmp_path / "f", 1000, 3, mixing=0.1, sizes=[2, 1, 1])
    names = files_of(tmp_path / "f")
    assert filecmp.cmpfiles(tmp_path / "c", tmp_path / "f", names, shallow=False)[1:] == ([], [])
    assert made.truth.endswith("truth.npy")
    assert "expected one as 250000" in CliRunner().invoke(main, [*words[:4], "1.5", "-k", "3"]).output


def test_blocks_do_not_depend_on_what_is_made_beside_them():
    large, small = (
        check_model("points", n, 3, seed=0, sizes=None, settings={}) for n in (mixture.BLOCK_COORDINATES, 1_000)
    )
    assert np.array_equal(large.shapes.centres, small.shapes.centres)
    graph = check_model("graph", 10**8, 20, seed=0, sizes=None, settings={})
    low, high = graph.block(graph.blocks - 1)  # the last of a billion and a half of edges, by itself
    assert len(low) <= blockmodel.BLOCK_EDGES
    assert high.max() < 10**8
