"""The benchmarks still run, at toy size; what they measure is for those who run them."""

import json

import numpy as np
import pytest
from scipy import sparse

import snmf_dist
from snmf_dist.scaling import view
from tests.benchmarks import (
    balance,
    checkpoints,
    codec,
    ids,
    ingest,
    kernels,
    penalty,
    predict,
    report,
    scaling,
    speed,
    start,
    unequal,
)
from tests.helpers import planted_graph
from tests.oracle import normalized


def test_every_codec_has_its_line(monkeypatch, capsys, graph):
    monkeypatch.setattr(codec, "TIMES", 1)
    monkeypatch.setattr("sys.argv", ["codec", graph.path])
    codec.main()
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.startswith("| indices |") for line in lines) == len(codec.CODECS)


def test_what_ids_cost_has_its_line(monkeypatch, capsys, tmp_path):
    out = tmp_path / "ids.json"
    sizes = ["--edges", "3000", "--nodes", "300", "--turns", "1", "--kind", "parquet"]
    monkeypatch.setattr("sys.argv", ["ids", *sizes, "--json", str(out), "--folder", str(tmp_path)])
    with pytest.raises(SystemExit):  # whether the claims hold is not for a toy to say
        ids.main()
    assert [row["ids"] for row in json.loads(out.read_text())["tables"]["ids"]["rows"]] == [
        "whole numbers",
        "UUIDs",
    ]
    assert "300 nodes" in capsys.readouterr().out


def test_new_points_have_their_claims(monkeypatch, capsys, tmp_path):
    random = np.random.default_rng(0)
    y = np.arange(70_000) % 10
    X = (random.integers(0, 60, (70_000, 16)) + 190 * np.eye(10, 16)[y]).astype(np.uint8)
    np.savez(tmp_path / "mnist70k.npz", X=X.reshape(-1, 4, 4), y=y)
    monkeypatch.setenv("SNMF_DATA", str(tmp_path))
    out = tmp_path / "lines.json"
    with pytest.raises(SystemExit):  # whether the claims hold is not for a toy to say
        predict.main(["--fitted", "400", "--new", "80", "--block-rows", "30", "--json", str(out)])
    lines = json.loads(out.read_text())["tables"]["claims"]["rows"]
    printed = capsys.readouterr().out
    assert len(lines) == 3
    assert all(line["what"] in printed for line in lines)
    assert lines[0]["found"] == pytest.approx(0, abs=0.05)


def test_what_a_page_costs_has_its_line(capsys, tmp_path):
    pytest.importorskip("matplotlib", reason="reports need matplotlib; install snmf-dist[report]")
    out = tmp_path / "lines.json"
    with pytest.raises(SystemExit):  # whether the claims hold is not for a toy to say
        report.main(["--rows", "400", "800", "--json", str(out)])
    lines = json.loads(out.read_text())["tables"]["report"]["rows"]
    assert [line["rows"] for line in lines] == [400, 800]
    assert all(0 < line["size"] <= 500 and line["report"] > 0 for line in lines)
    assert capsys.readouterr().out.count("rows ") == 2


def test_every_kernel_has_its_line(monkeypatch, capsys):
    for name, value in {"ROWS": 4000, "ENTRIES": 5, "NEAR": 50, "TURNS": 1, "WIDTHS": (3,)}.items():
        monkeypatch.setattr(kernels, name, value)
    monkeypatch.setattr("sys.argv", ["kernels", "--quick"])
    kernels.main()
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(" | ")[0] for line in lines[3:]] == 2 * ["| product", "| update_X"]


def test_every_penalty_rule_has_its_line(monkeypatch, capsys):
    for name, value in {"K": 3, "SEEDS": 2, "CAP": 30}.items():
        monkeypatch.setattr(penalty, name, value)
    penalty.compare("toy", sparse.csr_matrix(normalized(planted_graph()[0].toarray())))
    lines = capsys.readouterr().out.splitlines()
    assert [line[:24].strip() for line in lines[3:]] == list(penalty.RULES)
    assert all(float(line.split()[-2]) > 0 for line in lines[3:])  # c, a share of the bound


def test_an_import_is_measured(monkeypatch, capsys, tmp_path):
    out = tmp_path / "lines.json"
    monkeypatch.setattr("sys.argv", ["ingest", "--edges", "20000", "--turns", "1", "--json", str(out)])
    ingest.main()
    (written,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| written")]
    rows = json.loads(out.read_text())["tables"]["ingest"]["rows"]
    assert f"{rows[1]['new']['median']:.1f}" in written
    assert all(row["new"]["median"] > 0 for row in rows)


def test_the_cost_of_checkpoints_is_told_for_each_place(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr("snmf_dist.keeping.LEAST_SECONDS", 0.01)
    monkeypatch.setattr("snmf_dist.keeping.COST", 0.9)
    monkeypatch.setattr(checkpoints, "ITERATIONS", 12)
    out = tmp_path / "lines.json"
    sizes = ["--rows", "600", "--k", "3", "--turns", "1", "--folder", str(tmp_path), "--json", str(out)]
    for parts in (["memory"], ["memory", "workers", "reading"]):
        monkeypatch.setattr("sys.argv", ["checkpoints", *sizes, "--parts", *parts])
        with pytest.raises(SystemExit):  # whether the claim holds is not for a toy to say
            checkpoints.main()
    tables = json.loads(out.read_text())["tables"]
    lines, (reading,) = tables["claims"]["rows"], tables["reading"]["rows"]
    assert [line["place"] for line in lines] == ["in memory", "two worker processes"]
    assert all(line["iterations"] >= 12 and line["without"] > 0 for line in lines)
    assert [len(line["turns"]) for line in lines] == [2, 1]
    assert reading["without"] > 0
    assert capsys.readouterr().out.count("cost ") == 3


def test_every_claim_of_speed_has_its_line(monkeypatch, capsys, tmp_path):
    sizes = [100, 400, 800, 1600]
    for n in sizes:
        snmf_dist.import_graph(planted_graph(n, 4)[0], tmp_path / f"knn-{n}.zarr")
    for name, value in {"K": 4, "TURNS": 1, "MILLION": 800, "_lines": []}.items():
        monkeypatch.setattr(speed, name, value)
    out = tmp_path / "lines.json"
    parts = ["iteration", "growth", "reordered"]
    monkeypatch.setattr("sys.argv", ["speed", *parts, "--folder", str(tmp_path), "--json", str(out)])
    with pytest.raises(SystemExit):  # whether the claims hold is not for a toy to say
        speed.main()
    written = json.loads(out.read_text())
    assert {"date", "machine", "versions", "command"} <= set(written)
    lines = written["tables"]["claims"]["rows"]
    assert len(lines) == 6
    assert all(line["spread"]["low"] <= line["spread"]["high"] for line in lines if line["spread"])
    assert all(line["found"] > 0 for line in lines if "exponent" not in line["what"])
    table = capsys.readouterr().out
    assert all(line["what"] in table for line in lines)


def test_a_scaling_study_becomes_tables(monkeypatch, capsys, tmp_path):
    sizes = {"rows": [400, 800, 1600], "ks": [3], "workers": [0], "degrees": [12], "repeats": 1}
    monkeypatch.setattr(view, "draw_page", lambda study: (b"", b""))
    snmf_dist.scaling_study(tmp_path / "s", **sizes)
    out = tmp_path / "scaling.json"
    monkeypatch.setattr("sys.argv", ["scaling", str(tmp_path / "s"), "--json", str(out)])
    scaling.main()
    tables = json.loads(out.read_text())["tables"]
    assert [row["n"] for row in tables["held-out"]["rows"]] == [1600]
    assert len(tables["growth"]["rows"]) == 3
    assert "| one process |" in capsys.readouterr().out


def test_a_start_of_many_clusters_has_its_lines(monkeypatch, tmp_path):
    out = tmp_path / "lines.json"
    monkeypatch.setattr(start, "WORK", {"toy": lambda folder: start.many(folder, 3000, 6, 1e9)})
    monkeypatch.setattr("sys.argv", ["start", "--folder", str(tmp_path), "--json", str(out)])
    with pytest.raises(SystemExit) as ended:
        start.main()
    part, whole = json.loads(out.read_text())["tables"]["claims"]["rows"]
    assert ended.value.code == 0
    assert 0 < part["found"] < whole["found"]
    assert part["more"] == "NMI 1.000"


def test_figures_of_unequal_classes_are_kept(monkeypatch, tmp_path):
    groups = (unequal.Group("shapes", ("rings/3/7", "rings/2/7")),)
    monkeypatch.setattr(unequal, "CONFIRM", groups)
    monkeypatch.setattr(unequal, "CHOOSE", ())
    wanted = balance.lines(spared=("paper's ADMM", "hals, random", "spectral"))
    assert [line.method for line in wanted] == ["default", "start by modularity alone"]
    first = [balance.Figures(tmp_path).mean(line) for line in wanted]
    monkeypatch.setattr(balance, "_fit", None)  # nothing is fitted again
    assert [balance.Figures(tmp_path).mean(line) for line in wanted] == first
    assert first[0]["accuracy"] == 1
    assert first[0]["largest"] == pytest.approx(300 / 450)
    monkeypatch.setattr(balance, "KINDS", {"all": ("shapes",)})
    (line,) = balance.differences(balance.Figures(tmp_path).rows)
    assert line == {
        "kind": "all",
        "method": "start by modularity alone",
        "count": 2,
        "apart": {"found": 0.0, "error": 0.0},
        "chance": 1.0,
    }
