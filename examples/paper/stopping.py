"""Why do the runs of the paper's ADMM end? Algorithm 2 as printed, with one thing changed at a time.

Run ``python examples/paper/stopping.py [out] [--json FILE]``; it goes on where it was if it was killed. The paper
says that ε = 1e-5 was met in all experiments; with at most 1000 iterations our runs of large k meet it seldom.
What the paper leaves open is tried here: what is measured against ε, where the run begins, how the graph is made,
ρ, and how many iterations it may take. A run notes the first iteration at which each criterion was met.
"""

import argparse
import json
import os
from collections.abc import Sequence
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from methods import shared_start
from runs import PACKAGES, Case, Points, draw_classes, processor, read_points
from scipy import linalg, sparse
from threadpoolctl import threadpool_limits

import snmf_dist

EPSILON, RHO, P, ITERATIONS = 1e-5, 0.1, 7, 1000
CRITERIA = {  # what is at most ε, of the relative changes of X, Y and L
    "sum": lambda X, Y, L: X + Y + L,
    "largest": lambda X, Y, L: max(X, Y, L),
    "L alone": lambda X, Y, L: L,
    "sum of squares": lambda X, Y, L: X * X + Y * Y + L * L,
}


class Variant(NamedTuple):
    """What is changed; the defaults are the paper's words as our tables take them."""

    start: str = "scaled"
    rho: float = RHO
    iterations: int = ITERATIONS
    self_counts: bool = False  # a point is the first of its own q neighbours, as Matlab's knnsearch returns it
    loops: bool = False  # W_ii = 1
    last_tie: bool = False  # of neighbours at the same distance the last ones are taken
    mutual: bool = False  # an edge needs both ends to list each other


VARIANTS = {
    "as printed": Variant(),
    "10,000 iterations": Variant(iterations=10_000),
    "L⁰ uniform on [0, 1]": Variant(start="unit"),
    "L⁰ a tenth as large": Variant(start="small"),
    "Y⁰ drawn apart from L⁰": Variant(start="apart"),
    "a point is its own first neighbour": Variant(self_counts=True),
    "self-loops, W_ii = 1": Variant(loops=True),
    "ties taken from the other end": Variant(last_tie=True),
    "edges need both ends": Variant(mutual=True),
    "ρ = 0.5": Variant(rho=0.5),
    "ρ = 1": Variant(rho=1.0),
}
PROBLEMS = (  # sets, and how many starts
    *((Case("COIL-20", 10, subset), 1) for subset in range(5)),
    (Case("COIL-20", 20), 3),
    *((Case("Reuters", 10, subset), 1) for subset in range(8)),
    (Case("Reuters", 20), 1),
)
LONG_K = 10  # the most classes for which 10,000 iterations are waited for


def similarity(points: Points, variant: Variant) -> sparse.csr_matrix:
    """The paper's A, from all distances; a scale of zero gives way to the nearest distance above zero."""
    X = points.X.astype(np.float64)
    squares = np.asarray(X.multiply(X).sum(axis=1)).ravel() if sparse.issparse(X) else (X * X).sum(axis=1)
    inner = (X @ X.T).toarray() if sparse.issparse(X) else X @ X.T
    d2 = np.maximum(squares[:, None] + squares[None] - 2 * inner, 0)
    d2[d2 < 1e-9 * squares.max()] = 0  # rounding
    n = len(d2)
    np.fill_diagonal(d2, 0 if variant.self_counts else np.inf)
    q = min(int(np.log2(n)) + 1, n - 1)
    columns = np.arange(n)[::-1] if variant.last_tie else np.arange(n)
    near = columns[np.argsort(d2[:, columns], axis=1, kind="stable")[:, : max(P, q)]]
    listed = np.take_along_axis(d2, near, axis=1)
    least = np.where(listed > 0, listed, np.inf).min(axis=1)
    sigma = np.sqrt(np.where(listed[:, P - 1] > 0, listed[:, P - 1], np.where(np.isfinite(least), least, 1)))
    rows, ends = np.repeat(np.arange(n), q), near[:, :q].ravel()
    apart = rows != ends
    rows, ends = rows[apart], ends[apart]
    weights = np.maximum(np.exp(-d2[rows, ends] / (sigma[rows] * sigma[ends])), 1e-300)
    half = sparse.csr_matrix((weights, (rows, ends)), shape=(n, n))
    W = half.minimum(half.T) if variant.mutual else half.maximum(half.T)
    W = (W + sparse.eye(n)).tocsr() if variant.loops else W.tocsr()
    degree = np.asarray(W.sum(axis=1)).ravel()
    scale = sparse.diags(np.divide(1, np.sqrt(degree), out=np.zeros(n), where=degree > 0))
    return (scale @ W @ scale).tocsr()


def begin(A: sparse.csr_matrix, k: int, seed: int, how: str) -> tuple[np.ndarray, np.ndarray]:
    """L⁰ and Y⁰."""
    L = shared_start(A, k, seed)
    if how == "unit":
        L = np.random.default_rng(seed).uniform(size=L.shape)
    if how == "small":
        L = 0.1 * L
    return L, shared_start(A, k, seed + 1000) if how == "apart" else L


def algorithm_2(
    A: sparse.csr_matrix, L: np.ndarray, Y: np.ndarray, *, rho: float, iterations: int
) -> tuple[dict[str, int], dict[str, np.ndarray], float]:
    """Iterate until the criterion as printed is met; returns when each was met, the labels there, the last sum."""
    X, Lam, Gam = L, np.zeros_like(L), np.zeros_like(L)
    met: dict[str, int] = {}
    labels: dict[str, np.ndarray] = {}
    total, ridge = np.inf, rho * np.eye(L.shape[1])
    for iteration in range(1, iterations + 1):
        before = X, Y, L
        X = linalg.cho_solve(linalg.cho_factor(Y.T @ Y + ridge), (A @ Y + rho * L + Lam).T).T
        Y = linalg.cho_solve(linalg.cho_factor(X.T @ X + ridge), (A @ X + rho * L + Gam).T).T
        L = 0.5 * np.maximum(X + Y - (Lam + Gam) / rho, 0)
        Lam, Gam = Lam + rho * (L - X), Gam + rho * (L - Y)
        pairs = zip((X, Y, L), before, strict=True)
        changes = [float(np.linalg.norm(new - old) / np.linalg.norm(old)) for new, old in pairs]
        for name, criterion in CRITERIA.items():
            if name not in met and criterion(*changes) <= EPSILON:
                met[name], labels[name] = iteration, L.argmax(axis=1)
        total = sum(changes)
        if "sum" in met or not np.isfinite(total):
            break
    labels["end"] = L.argmax(axis=1)
    return met, labels, total


def run_missing(out: Path) -> list[dict[str, Any]]:
    """Make the rows that are not in ``out/stopping.jsonl`` yet; returns all."""
    out.mkdir(parents=True, exist_ok=True)
    path = out / "stopping.jsonl"
    text = path.read_text() if path.exists() else ""
    rows = [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    there = {(row["variant"], row["set"], row["k"], row["subset"], row["start"]) for row in rows}
    for name, variant in VARIANTS.items():
        for case, starts in PROBLEMS:
            missing = [start for start in range(starts) if (name, *case, start) not in there]
            if not missing or (variant.iterations > ITERATIONS and case.k > LONG_K):
                continue
            points = draw_classes(read_points(case.set), case.k, case.subset)
            A = similarity(points, variant)
            for start in missing:
                L, Y = begin(A, case.k, start, variant.start)
                met, labels, total = algorithm_2(A, L, Y, rho=variant.rho, iterations=variant.iterations)
                row = {"variant": name, **case._asdict(), "start": start, "met": met, "last": total}
                row["AC"] = {at: 100 * snmf_dist.score(one, points.y).accuracy for at, one in labels.items()}
                rows.append(row)
                with path.open("a") as file:
                    file.write(json.dumps(row) + "\n")
    return rows


def table(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A line for each variant, set and k: how many runs met each criterion, and their median iterations."""
    lines = []
    for name in VARIANTS:
        for set, k in dict.fromkeys((case.set, case.k) for case, _ in PROBLEMS):
            mine = [row for row in rows if (row["variant"], row["set"], row["k"]) == (name, set, k)]
            if not mine:
                continue
            line = {"variant": name, "set": f"{set}, k = {k}"}
            for criterion in CRITERIA:
                met = [row["met"][criterion] for row in mine if criterion in row["met"]]
                line[criterion] = f"{len(met)} of {len(mine)}" + (f", {np.median(met):.0f}" if met else "")
            line["AC"] = float(np.mean([row["AC"]["end"] for row in mine]))
            line["AC early"] = float(np.mean([row["AC"].get("sum of squares", row["AC"]["end"]) for row in mine]))
            lines.append(line)
    return lines


def main(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Make the rows that are missing; print the table, and write it as JSON if asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", nargs="?", type=Path, default=Path("paper-stopping"))
    parser.add_argument("--json", type=Path, help="write the table here, as docs/render.py reads it")
    given = parser.parse_args(arguments)
    with threadpool_limits(1):
        lines = table(run_missing(given.out))
    titles = {"variant": "changed", "set": "set", **{name: f"{name} ≤ ε" for name in CRITERIA}}
    columns: list[dict[str, str]] = [{"key": key, "title": title} for key, title in titles.items()]
    columns += [{"key": "AC early", "title": "AC at the fourth", "format": ".1f"}]
    columns += [{"key": "AC", "title": "AC at the end", "format": ".1f"}]
    found = {
        "benchmark": "paper-stopping",
        "command": "python examples/paper/stopping.py",
        "date": date.today().isoformat(),
        "machine": {"processor": processor(), "cores": os.cpu_count()},
        "versions": {name: version(name) for name in PACKAGES},
        "notes": [],
        "tables": {"endings": {"columns": columns, "rows": lines}},
    }
    for line in lines:
        print(" | ".join(str(line[column["key"]]) for column in columns))
    if given.json is not None:
        if given.json.exists():  # remarks are written by hand
            found["notes"] = json.loads(given.json.read_text())["notes"]
        given.json.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    return found


if __name__ == "__main__":
    main()
