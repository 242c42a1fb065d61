"""The cost model: it finds the numbers that runs were made with, predicts others, and says how far it goes."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

import snmf_dist
from snmf_dist.cli import main
from snmf_dist.errors import InputError, StoreNotFound
from snmf_dist.scaling.model import FORMULAS, fit_model, job_of

B, C, D, E, F, A0, G = 2e-9, 5e-10, 4e-9, 3e-9, 1e-8, 0.02, 1e-4  # of sweep, halo and engine, as in `model`
PLANNED = {"entries/w": 8.0, "rows*K/w": 24.0, "rows/w": 64.0}  # bytes


def made_up_run(n, degree, k, workers, *, cores=4, noise=1.0):
    """A run that cost what the formulas say."""
    w = max(workers, 1)
    run = {"n": n, "nnz": n * degree, "degree": degree, "k": k, "workers": workers, "cores": cores}
    run |= {"halo_rows": 0.8 * n * (w - 1) / w, "start_products": 18, "iterations": 20, "evaluations": 3}
    run["planned_bytes"] = 0.0
    terms = job_of(run).terms()
    halo = F * terms["halo*K"]
    sweep = B * terms["entries*K/w"] + C * terms["rows*K^2/w"] + D * terms["entries/w"] + E * terms["rows*K/w"]
    seconds = {
        "read": 1e-9 * terms["entries/w"],
        "start": 0.1 + 3e-9 * terms["products*entries*V/w"],
        "sweep": 20 * sweep,
        "halo": 20 * halo,
        "KxK": 0.0,
        "engine": 20 * (A0 + G * terms["tasks"]),
        "evaluation": 3 * 2e-9 * terms["entries*K/w"],
        "save": 0.05 + 1e-8 * terms["rows*K"],
    }
    phases = [
        {"phase": name, "seconds": noise * value, "bytes_sent": 20 * 8 * w * terms["halo*K"] * (name == "halo")}
        for name, value in seconds.items()
    ]
    run["planned_bytes"] = 3e8 + sum(value * terms[name] for name, value in PLANNED.items())
    peak = 2e8 + 0.9 * run["planned_bytes"]
    files = {"graph_bytes": 5.0 * terms["entries"], "result_bytes": 4.0 * terms["rows*K"]}
    return {**run, **files, "phases": phases, "wall": noise * sum(seconds.values()), "peak_bytes": peak}


def made_up_study(**more):
    sizes = [10**5 * 2**i for i in range(5)]
    return [
        made_up_run(n, degree, k, workers, **more)
        for n in sizes
        for degree in (10, 30)
        for k in (10, 40)
        for workers in (0, 1, 2, 4)
    ]


@pytest.fixture(scope="module")
def model():
    return fit_model(made_up_study())


@pytest.fixture
def model_file(model, tmp_path):
    path = tmp_path / "model.json"
    path.write_text(json.dumps({**model, "machine": {"processor": "a toy", "cores": 4}}))
    return path


def test_the_coefficients_are_found_with_intervals_around_them(model):
    terms = {one["term"]: one for one in model["places"]["workers"]["terms"]["sweep"]}
    true = {"entries*K/w": B, "rows*K^2/w": C, "entries/w": D, "rows*K/w": E}
    for name, value in true.items():
        assert terms[name]["value"] == pytest.approx(value, rel=1e-4)
        assert terms[name]["low"] <= terms[name]["value"] * (1 + 1e-6)
        assert terms[name]["high"] >= terms[name]["value"] * (1 - 1e-6)
        assert terms[name]["told_apart"]
    (halo,) = model["places"]["workers"]["terms"]["halo"]
    assert halo["value"] == pytest.approx(F, rel=1e-6)


def test_the_largest_size_is_left_out_and_foretold(model):
    for place in model["places"].values():
        assert place["range"]["rows"] == [10**5, 8 * 10**5]
        assert {one["n"] for one in place["held_out"]} == {16 * 10**5}
        assert all(abs(one["seconds"]["error"]) < 1e-3 for one in place["held_out"])
        assert all(abs(one["memory"]["error"]) < 1e-3 for one in place["held_out"])


def test_growth_is_a_power_of_the_rows():
    model = fit_model(made_up_study())
    found = [one for one in model["places"]["process"]["exponents"] if one["of"] == "an iteration"]
    assert all(0.5 < one["low"] <= one["exponent"] <= one["high"] < 1.2 for one in found)


def test_terms_that_the_study_does_not_tell_apart_are_named():
    one_k = [run for run in made_up_study() if run["k"] == 10 and run["degree"] == 30]
    terms = fit_model(one_k)["places"]["process"]["terms"]["sweep"]
    assert [one["told_apart"] for one in terms] == [True, False, False, False]


def test_more_workers_than_cores_do_not_teach_the_time_of_a_sweep():
    runs = made_up_study(cores=2)
    for run in runs:
        if run["workers"] > 2:
            next(one for one in run["phases"] if one["phase"] == "sweep")["seconds"] *= 3
    terms = {one["term"]: one for one in fit_model(runs)["places"]["workers"]["terms"]["sweep"]}
    assert terms["entries*K/w"]["value"] == pytest.approx(B, rel=1e-3)


def test_noise_widens_the_intervals_and_does_not_move_the_error_beyond_it():
    random = np.random.default_rng(0)
    runs = [run for _ in range(3) for run in made_up_study(noise=float(random.uniform(0.95, 1.05)))]
    model = fit_model(runs)
    assert all(abs(one["seconds"]["error"]) < 0.1 for one in model["places"]["workers"]["held_out"])
    assert model["places"]["workers"]["repeats"] == 3


def test_a_job_far_beyond_the_study_is_foretold_and_called_extrapolated(model_file):
    cost = snmf_dist.plan_cost(10**9, 3 * 10**10, 20, workers=64, model=model_file)
    sweep = B * 3e10 * 20 / 64 + C * 1e9 * 400 / 64 + D * 3e10 / 64 + E * 1e9 * 20 / 64
    assert cost.iterations == 20
    assert cost.phases["sweep"] == pytest.approx(20 * sweep, rel=1e-3)
    assert cost.extrapolated["rows"] == pytest.approx(1e9 / 8e5)
    assert cost.extrapolated["workers"] == 16
    assert "k" not in cost.extrapolated
    assert cost.network == pytest.approx(20 * 8 * 64 * 20 * 0.8e9 * 63 / 64, rel=1e-3)
    assert cost.files["result"] == pytest.approx(4e9 * 20, rel=1e-3)
    text = "\n".join(cost.lines())
    assert "× 1.25e+03 in rows" in text
    assert "rough guess" in text
    planned = snmf_dist.plan_cost(10**9, 3 * 10**10, 20, workers=64, model=model_file, planned=1e10)
    assert planned.memory == pytest.approx(2e8 + 9e9)
    assert "a toy" in text
    within = snmf_dist.plan_cost(4 * 10**5, 4 * 10**6, 20, workers=2, model=model_file, iterations=40)
    assert within.extrapolated == {}
    assert within.iterations == 40
    assert "extrapolated no" in "\n".join(within.lines())


def test_every_formula_has_terms_that_exist():
    known = job_of(made_up_run(1000, 10, 3, 2)).terms()
    assert all(term in known for terms in FORMULAS.values() for term in terms)


def test_plan_answers_for_graphs_that_do_not_exist_and_for_those_that_do(model_file, graph):
    def run(*arguments):
        return CliRunner().invoke(main, ["plan", *map(str, arguments)])

    sizes = ("--rows", "1e9", "--entries", "3e10", "-k", 20)
    far = run(*sizes, "--workers", 64, "--model", model_file)
    assert far.exit_code == 0, far.output
    assert "on workers" in far.output
    assert "beyond what was measured" in far.output
    assert "GB" in far.output
    here = run(graph.path, "-k", 3, "--model", model_file)
    assert here.exit_code == 0, here.output
    assert "<- chosen" in here.output
    assert "time  " in here.output
    tight = run(*sizes, "--memory", "1GB", "--workers", 2)
    assert tight.exit_code == 2
    for wrong in ((graph.path, *sizes), ("-k", 3), ("--rows", "1e9", "-k", 3)):
        refused = run(*wrong)
        assert refused.exit_code == 2
        assert "--entries" in refused.output


def test_a_model_that_is_none_is_refused(tmp_path):
    def plan(path):
        return snmf_dist.plan_cost(1000, 10_000, 3, model=path)

    with pytest.raises(StoreNotFound, match="no such file"):
        plan(tmp_path / "none.json")
    (tmp_path / "torn.json").write_text('{"kind":')
    with pytest.raises(InputError, match="as JSON"):
        plan(tmp_path / "torn.json")
    (tmp_path / "other.json").write_text('{"kind": "other"}')
    with pytest.raises(InputError, match="not a cost model"):
        plan(tmp_path / "other.json")
    with pytest.raises(InputError, match="rows"):
        snmf_dist.plan_cost(0, 10, 3)
