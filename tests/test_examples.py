"""The README's code and the examples run as they stand, at a small size."""

import re
import runpy
import warnings
from pathlib import Path

import numpy as np
import pytest

import snmf_dist

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_01_cluster_a_graph(tmp_path, capsys):
    main = runpy.run_path(str(ROOT / "examples" / "01_cluster_a_graph.py"))["main"]
    with warnings.catch_warnings(action="ignore"):
        solution = main(tmp_path, n=400)
    assert solution.k == 6
    assert "against the planted groups" in capsys.readouterr().out


def test_02_cluster_points(tmp_path, capsys):
    main = runpy.run_path(str(ROOT / "examples" / "02_cluster_points.py"))["main"]
    with warnings.catch_warnings(action="ignore"):
        main(tmp_path, n=400)
    assert "k-means:" in capsys.readouterr().out


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
    assert command in ci.splitlines()
