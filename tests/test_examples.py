"""The README's code and the examples run as they stand, at a small size."""

import json
import re
import runpy
import warnings
from pathlib import Path

import numpy as np
import pytest

import snmf_dist

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.fixture
def folder(tmp_path):
    """Where an example writes: a folder that it makes itself."""
    return tmp_path / "new" / "folder"


def test_01_cluster_a_graph(folder, capsys):
    main = runpy.run_path(str(ROOT / "examples" / "01_cluster_a_graph.py"))["main"]
    with warnings.catch_warnings(action="ignore"):
        solution = main(folder, n=400)
    assert solution.k == 6
    assert "against the planted groups" in capsys.readouterr().out


def test_02_cluster_points(folder, capsys):
    main = runpy.run_path(str(ROOT / "examples" / "02_cluster_points.py"))["main"]
    with warnings.catch_warnings(action="ignore"):
        main(folder, n=400)
    assert "k-means:" in capsys.readouterr().out


def test_03_many_runs(folder, capsys):
    main = runpy.run_path(str(ROOT / "examples" / "03_many_runs.py"))["main"]
    study = main(folder, n=200)
    assert study.counts["done"] == 20
    assert "the highest modularity" in capsys.readouterr().out


def test_04_choose_k(folder, capsys):
    main = runpy.run_path(str(ROOT / "examples" / "04_choose_k.py"))["main"]
    assert main(folder, n=300).k == 6
    assert "K = 6: its clusters are set apart" in capsys.readouterr().out


@pytest.fixture
def without_data(monkeypatch, tmp_path):
    """No data sets: the examples draw stand-ins, and say so."""
    monkeypatch.setenv("SNMF_DATA", str(tmp_path / "no data"))


def example(name):
    return runpy.run_path(str(ROOT / "examples" / f"{name}.py"))


def test_05_text(folder, capsys, without_data):
    module = example("05_text")
    with warnings.catch_warnings(action="ignore"):
        solution = module["main"](folder, n=300, k=6)
    printed = capsys.readouterr().out
    assert "300 made-up documents stand in" in printed
    # the words of each topic are found again in the words of one cluster
    words = [set(found) for found in module["cluster_words"](module["load_documents"](300), solution)]
    for topic in module["TOPICS"].values():
        assert max(len(found & set(topic.split())) for found in words) >= 4
    with open(folder / "topics.csv", encoding="utf-8") as file:
        assert file.read().splitlines()[1].startswith('"document 0",')
    assert (folder / "text.png").stat().st_size > 5000


def test_06_single_cell(folder, capsys, without_data):
    anndata = pytest.importorskip("anndata")
    with warnings.catch_warnings(action="ignore"):
        solution = example("06_single_cell")["main"](folder, n=240)
        cells = anndata.read_zarr(folder / "cells.zarr")
    printed = capsys.readouterr().out
    assert "240 made-up cells stand in" in printed
    assert "mean strength" in printed
    assert list(cells.obs_names) == list(solution.ids)
    assert cells.obs["snmf"].cat.codes.tolist() == solution.labels.tolist()
    assert (folder / "cells.png").stat().st_size > 5000


def test_07_new_points(folder, capsys, without_data):
    with warnings.catch_warnings(action="ignore"):
        labels = example("07_new_points")["main"](folder, fitted=600, new=100)
    printed = capsys.readouterr().out
    assert len(labels) == 110
    usual, noise = map(int, re.search(r"like none: (\d+) and (\d+)", printed).groups())
    assert noise / 10 > usual / 100
    assert (folder / "new_points.png").stat().st_size > 5000


def test_08_large_graph(folder, capsys, monkeypatch):
    module = example("08_large_graph")
    monkeypatch.setitem(module["main"].__globals__, "PART", 700)
    solution = module["main"](folder, n=2400, memory_limit="1GiB")
    assert len(list((folder / "edges").iterdir())) == 4
    assert snmf_dist.score(solution.labels, module["write_parts"](folder / "edges", 2400)).accuracy > 0.95
    assert "2400 nodes" in capsys.readouterr().out
    assert (folder / "large_graph.png").stat().st_size > 5000


@pytest.mark.parametrize("name", ["05_text", "06_single_cell"])
def test_a_notebook_runs_from_top_to_bottom(name, tmp_path, monkeypatch, without_data):
    if name == "06_single_cell":
        pytest.importorskip("anndata")
    path = ROOT / "examples" / f"{name}.ipynb"
    notebook = json.loads(path.read_text(encoding="utf-8"))
    assert notebook["nbformat"] == 4
    monkeypatch.chdir(path.parent)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    names = {"SMALL": 240}
    with warnings.catch_warnings(action="ignore"):
        for cell in notebook["cells"]:
            if cell["cell_type"] == "code":
                exec(compile("".join(cell["source"]), path.name, "exec"), names)
    assert len(names["solution"].labels) == 240


@pytest.mark.filterwarnings("ignore::snmf_dist.errors.NotConverged")
@pytest.mark.filterwarnings("ignore::snmf_dist.errors.ResultWarning")
def test_the_python_code_of_the_readme_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "edges.csv").write_text(
        "source,target\n"
        + "".join(f"{i},{j}\n" for g in range(20) for i in range(8 * g, 8 * g + 8) for j in range(i, 8 * g + 8))
    )
    np.save(tmp_path / "embeddings.npy", np.random.default_rng(0).standard_normal((300, 8)))
    blocks = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    assert blocks
    for block in blocks:
        exec(compile(block, "README.md", "exec"), {})
    assert snmf_dist.open_solution("result.zarr").k == 20


def test_ci_runs_the_readmes_test_command():
    command = next(line.strip() for line in README.splitlines() if line.endswith("pytest"))
    ci = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert any(line.startswith(command) for line in ci.splitlines())  # there with coverage
