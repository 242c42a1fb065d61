"""What a fit costs, as a formula whose numbers were measured, and how well it predicts a size it has not seen.

::

    time = read + start + iterations · (sweep + halo + engine) + evaluations · evaluation + save

    sweep  = b · entries · K / w + c · rows · K² / w + d · entries / w + e · rows · K / w
    halo   = f · halo · K
    engine = a + g · tasks + h · K³

w is the number of workers, halo the rows that a block needs of others, tasks the most that an iteration makes. The
other phases, traffic and files have terms of the same kind, where V = K + 10 are the columns that eigenvectors are
found with; memory is a constant and a share of what was planned (`FORMULAS`). Coefficients are at least 0 and are
fitted to the medians of equal runs by least squares of the relative error; their intervals are those of 200 draws
of the points with replacement. The largest size is left out of the fit, and is what the model is tried on.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import nnls

MeasuredRun = Mapping[str, Any]

FORMULAS: dict[str, tuple[str, ...]] = {
    "read": ("1", "entries/w", "rows/w"),
    "start": ("1", "products", "products*entries*V/w", "products*rows*V/w", "rows*V^2/w", "products*halo*V"),
    "sweep": ("entries*K/w", "rows*K^2/w", "entries/w", "rows*K/w"),
    "halo": ("halo*K",),
    "engine": ("1", "tasks", "K^3"),
    "evaluation": ("1", "entries*K/w", "rows*K/w", "halo*K"),
    "save": ("1", "rows*K/w", "rows*K"),
    "memory": ("1", "planned"),
    "traffic": ("w*halo*K",),
    "graph_files": ("1", "entries", "rows"),
    "result_files": ("1", "rows*K", "rows"),
}
PARTS_OF_A_SWEEP = {"entries*K/w": "product", "entries/w": "product", "rows*K^2/w": "solve", "rows*K/w": "sums"}
OF_TIME = ("read", "start", "sweep", "halo", "engine", "evaluation", "save")
AN_ITERATION = ("sweep", "halo", "engine")
NEED_CORES = ("read", "start", "sweep", "halo", "evaluation", "save")  # not known from more workers than cores
DRAWS = 200
LEAST_SIZES = 3  # with which the largest can be held out
APART = 1e-3  # a term is told apart from others if so large a share of it is not their sum


@dataclass(frozen=True)
class FitSize:
    """What the cost of a fit depends on.

    Attributes
    ----------
    rows, entries, k, workers
        As in `plan_cost`.
    halo : float
        Rows that a block needs of others.
    products : float
        Products with A before the first iteration.
    planned : float
        Bytes of the largest process as planned.
    """

    rows: float
    entries: float
    k: int
    workers: int
    halo: float
    products: float
    planned: float

    def terms(self) -> dict[str, float]:
        """The value of every term of `FORMULAS`."""
        n, m, K, w = float(self.rows), float(self.entries), float(self.k), float(max(self.workers, 1))
        V = K + 10  # columns that the eigenvectors are found with
        return {
            "1": 1.0,
            "entries/w": m / w,
            "entries": m,
            "rows/w": n / w,
            "rows": n,
            "rows*K": n * K,
            "rows*K/w": n * K / w,
            "rows*K^2/w": n * K * K / w,
            "entries*K/w": m * K / w,
            "halo*K": self.halo * K,
            "w*halo*K": w * self.halo * K,
            "tasks": 10 * w + 10,
            "products": self.products,
            "planned": self.planned,
            "products*entries*V/w": self.products * m * V / w,
            "products*rows*V/w": self.products * n * V / w,
            "rows*V^2/w": n * V * V / w,
            "products*halo*V": self.products * self.halo * V,
            "K^3": K**3,
        }


def job_of(run: MeasuredRun) -> FitSize:
    """The job that a run of a study was."""
    names = ("n", "nnz", "k", "workers", "halo_rows", "start_products", "planned_bytes")
    return FitSize(*(run[name] for name in names))


def cost_of(run: MeasuredRun, name: str) -> float:
    """What a run spent, by the names of `FORMULAS`: of iterations and evaluations, what one of them took."""
    phases = {row["phase"]: row for row in run["phases"]}
    simple = {"memory": "peak_bytes", "graph_files": "graph_bytes", "result_files": "result_bytes"}
    if name in simple:
        return float(run[simple[name]])
    iterations = max(run["iterations"], 1)
    if name == "traffic":
        return float(phases["halo"]["bytes_sent"]) / iterations
    seconds = float(phases[name]["seconds"])
    if name == "engine":
        seconds += float(phases["KxK"]["seconds"])
    if name in AN_ITERATION:
        return seconds / iterations
    return seconds / max(run["evaluations"], 1) if name == "evaluation" else seconds


def an_iteration(group: Sequence[MeasuredRun]) -> float:
    """Seconds of an iteration, the median of equal runs."""
    return median(sum(cost_of(run, name) for name in AN_ITERATION) for run in group)


def place_of(workers: int) -> str:
    """Runs in one process and on workers have coefficients of their own."""
    return "workers" if workers else "process"


def fit_model(runs: Iterable[MeasuredRun]) -> dict[str, Any]:
    """The cost model that the runs of a study give, as ``model.json`` has it.

    Parameters
    ----------
    runs : iterable of mapping
        As `ScalingStudy.measured` has them.
    """
    found: dict[str, Any] = {"kind": "cost model of snmf_dist", "version": 1, "places": {}}
    listed = list(runs)
    for place in ("process", "workers"):
        points = medians([run for run in listed if place_of(run["workers"]) == place])
        if points:
            found["places"][place] = _fit_place(points)
    return found


def medians(runs: Sequence[MeasuredRun]) -> list[list[MeasuredRun]]:
    """Equal runs together, smallest first."""
    groups: dict[Any, list[MeasuredRun]] = {}
    for run in runs:
        groups.setdefault((run["n"], run["degree"], run["k"], run["workers"]), []).append(run)
    return [groups[key] for key in sorted(groups)]


def _fit_place(points: list[list[MeasuredRun]]) -> dict[str, Any]:
    sizes = sorted({group[0]["n"] for group in points})
    largest = sizes[-1] if len(sizes) >= LEAST_SIZES else None
    seen = [group for group in points if group[0]["n"] != largest]
    jobs = [job_of(group[0]) for group in seen]
    runs = [run for group in seen for run in group]
    typical = {name: median(run[name] for run in runs) for name in ("iterations", "evaluations", "start_products")}
    shares = [run["halo_rows"] * w / (run["n"] * (w - 1)) for run in runs if (w := run["workers"]) > 1]
    found: dict[str, Any] = {
        "sizes": len(sizes),
        "points": len(points),
        "repeats": min(len(group) for group in points),
        "cores": max(run["cores"] for run in runs),
        "range": {
            name: [min(getattr(job, name) for job in jobs), max(getattr(job, name) for job in jobs)]
            for name in ("rows", "entries", "k", "workers")
        },
        "typical": {**typical, "halo_share": median(shares) if shares else 1.0},
        "terms": {name: _fit_formula(name, seen) for name in FORMULAS},
    }
    held = [group for group in points if group[0]["n"] == largest]
    found["held_out"] = [_try_on(found, group) for group in held]
    found["exponents"] = _exponents(points)
    return found


def median(values: Iterable[float]) -> float:
    """The middle of some numbers."""
    return float(np.median(list(values)))


def _fit_formula(name: str, points: list[list[MeasuredRun]]) -> list[dict[str, Any]]:
    """The coefficients of a formula, each with its interval; those that cannot be told from others are 0."""
    if name in NEED_CORES:
        points = [group for group in points if group[0]["workers"] <= group[0]["cores"]] or points
    terms = FORMULAS[name]
    X = np.array([[job_of(group[0]).terms()[term] for term in terms] for group in points])
    y = np.array([median(cost_of(run, name) for run in group) for group in points])
    X, y = X / np.maximum(y, 1e-9)[:, None], (y > 0).astype(float)
    apart = _told_apart(X)
    random = np.random.default_rng(0)
    draws = [_solve(X[pick], y[pick], apart) for pick in random.integers(0, len(X), (DRAWS, len(X)))]
    low, high = np.quantile(draws, [0.025, 0.975], axis=0)
    values = _solve(X, y, apart)
    return [
        {"term": term, "value": value, "low": low[j], "high": high[j], "told_apart": bool(apart[j])}
        for j, (term, value) in enumerate(zip(terms, values.tolist(), strict=True))
    ]


def _told_apart(X: np.ndarray) -> np.ndarray:
    """Which columns are more than a sum of those before them."""
    kept: list[int] = []
    for j in range(X.shape[1]):
        size = np.linalg.norm(X[:, j])
        others = X[:, kept]
        rest = X[:, j] - others @ np.linalg.lstsq(others, X[:, j], rcond=None)[0] if kept else X[:, j]
        if size > 0 and np.linalg.norm(rest) > APART * size:
            kept.append(j)
    return np.isin(np.arange(X.shape[1]), kept)


def _solve(X: np.ndarray, y: np.ndarray, apart: np.ndarray) -> np.ndarray:
    scale = np.linalg.norm(X, axis=0)
    use = apart & (scale > 0)
    found = np.zeros(X.shape[1])
    if use.any():
        found[use] = nnls(X[:, use] / scale[use], y)[0] / scale[use]
    return found


def foretell(place: Mapping[str, Any], job: FitSize) -> dict[str, float]:
    """What a model of one place says of a job, by the names of `FORMULAS`."""
    terms = job.terms()
    return {
        name: sum(one["value"] * terms[one["term"]] for one in place["terms"][name]) for name in place["terms"]
    }


def split_sweep(place: Mapping[str, Any], run: MeasuredRun) -> dict[str, float]:
    """Seconds of the parts of a run's sweeps, which are one pass: as the terms of the model share them out."""
    terms = job_of(run).terms()
    parts = dict.fromkeys(PARTS_OF_A_SWEEP.values(), 0.0)
    for one in place["terms"]["sweep"]:
        parts[PARTS_OF_A_SWEEP[one["term"]]] += one["value"] * terms[one["term"]]
    seconds, total = cost_of(run, "sweep") * run["iterations"], sum(parts.values())
    return {name: seconds * value / total if total else 0.0 for name, value in parts.items()}


def whole_time(costs: Mapping[str, float], iterations: float, evaluations: float) -> float:
    """Seconds of a run."""
    step = sum(costs[name] for name in AN_ITERATION)
    return costs["read"] + costs["start"] + iterations * step + evaluations * costs["evaluation"] + costs["save"]


def _try_on(place: Mapping[str, Any], group: list[MeasuredRun]) -> dict[str, Any]:
    """The model against equal runs that it was not fitted to."""
    first = group[0]
    costs = foretell(place, job_of(first))
    found: dict[str, Any] = {name: first[name] for name in ("n", "nnz", "degree", "k", "workers")}
    found["more_than_cores"] = first["workers"] > first["cores"]
    measures = {
        "seconds": ("wall", whole_time(costs, first["iterations"], first["evaluations"])),
        "memory": ("peak_bytes", costs["memory"]),
    }
    for name, (column, foretold) in measures.items():
        values = [run[column] for run in group]
        middle = median(values)
        found[name] = {"median": middle, "low": min(values), "high": max(values), "foretold": foretold}
        found[name]["error"] = foretold / middle - 1
    return found


def _exponents(points: list[list[MeasuredRun]]) -> list[dict[str, Any]]:
    """How time and memory grow with the rows, as powers: the slope in a log-log plot, with its 95 % interval."""
    lines: dict[Any, list[list[MeasuredRun]]] = {}
    for group in points:
        lines.setdefault((group[0]["degree"], group[0]["k"], group[0]["workers"]), []).append(group)
    found = []
    for (degree, k, workers), groups in sorted(lines.items()):
        if len(groups) < LEAST_SIZES:
            continue
        runs = [run for group in groups for run in group]
        x = np.log([run["n"] for run in runs])
        values = {
            "an iteration": [sum(cost_of(run, name) for name in AN_ITERATION) for run in runs],
            "a run": [run["wall"] for run in runs],
            "memory": [run["peak_bytes"] for run in runs],
        }
        for what, numbers in values.items():
            slope, low, high = _slope(x, np.log(np.maximum(numbers, 1e-9)))
            head = {"of": what, "degree": degree, "k": k, "workers": workers}
            found.append({**head, "exponent": slope, "low": low, "high": high})
    return found


def _slope(x: np.ndarray, y: np.ndarray) -> tuple[float, float, float]:
    from scipy.stats import linregress, t

    line = linregress(x, y)
    margin = float(t.ppf(0.975, max(len(x) - 2, 1)) * line.stderr)
    return float(line.slope), float(line.slope) - margin, float(line.slope) + margin
