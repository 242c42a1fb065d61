"""The pictures: clusters of the synthetic sets, convergence, AC and time against k, A in the order of clusters.

Run ``python examples/paper/figures.py [out] [--table2 FOLDER] [--table3 FOLDER]``; the folders are those that the
tables wrote, for the picture of AC and time. A minute or two.
"""

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure
from methods import objective, shared_start
from real import draw_by_k
from runs import Ledger
from scipy import sparse
from sets import SYNTHETIC, Problem, make_problem, read_points
from symnmf import symnmf

import snmf_dist

CURVES = {"ADMM, ρ=0.1": ("admm", 0.1), "ADMM, auto": ("admm", "auto"), "APG": ("apg", 1.0), "HALS": ("hals", 1.0)}


class Curve(NamedTuple):
    """Objective and KKT distance after so many products with A."""

    products: list[int]
    objective: list[float]
    kkt: list[float]


def draw_synthetic(path: Path, folder: str) -> None:
    """Draw the six synthetic sets in the colours of the clusters found by the default."""
    figure = Figure(figsize=(11, 7.2), layout="constrained")
    for name, axes in zip(SYNTHETIC, figure.subplots(2, 3).ravel(), strict=True):
        points = read_points(name)
        k = len(np.unique(points.y))
        solution = snmf_dist.fit(make_problem(points, k, folder).graph, k)
        correct = snmf_dist.score(solution.labels, points.y).accuracy
        axes.scatter(*points.X.T, s=7, c=solution.labels, cmap="tab10", vmin=0, vmax=9)
        axes.set(title=f"{name}: k = {k}, AC {100 * correct:.1f} %", xticks=[], yticks=[], aspect="equal")
    figure.savefig(path, dpi=120)


def draw_convergence(path: Path, problem: Problem, *, products: int = 600, seconds: float = 120) -> None:
    """Draw objective and KKT distance against products with A, of all solvers from one random start."""
    L = shared_start(problem.A, problem.k, 0)
    curves = {name: _fit_curve(problem, L, *settings, products=products) for name, settings in CURVES.items()}
    curves["SymNMF"] = _newton_curve(problem, L, products=products, seconds=seconds)
    best = min(min(curve.objective) for curve in curves.values())
    figure = Figure(figsize=(11.5, 4.4), layout="constrained")
    left, right = figure.subplots(1, 2)
    for name, curve in curves.items():
        left.semilogy(curve.products, np.maximum(np.array(curve.objective) / best - 1, 1e-6), label=name, lw=1.3)
        right.semilogy(curve.products, curve.kkt, label=name, lw=1.3)
    left.set(xlabel="products with A", ylabel="objective / best − 1", title="Objective", ylim=(1e-6, None))
    right.set(xlabel="products with A", ylabel="KKT distance", title="Distance to optimality")
    for axes in (left, right):
        axes.grid(alpha=0.3)
        axes.set_xlim(0, products)
    figure.legend(*left.get_legend_handles_labels(), loc="outside right upper", frameon=False)
    figure.savefig(path, dpi=120)


def _fit_curve(problem: Problem, L: np.ndarray, solver: str, rho: float | str, *, products: int) -> Curve:
    """The looks of a fit at itself, every fifth iteration; their own products are taken off."""
    solution = snmf_dist.fit(
        problem.graph,
        problem.k,
        solver=solver,
        init=L,
        rho=rho,
        stop="paper",
        max_iter=max(products // 2, 1),
        evaluate_every=5,
    )
    records = [record for record in solution.history if record.evaluated]
    return Curve(
        [record.products - i for i, record in enumerate(records, 1)],
        [record.objective for record in records],
        [record.kkt for record in records],
    )


def _newton_curve(problem: Problem, L: np.ndarray, *, products: int, seconds: float) -> Curve:
    curve = Curve([], [], [])

    def watch(H: np.ndarray, so_far: int) -> None:
        if so_far <= products:
            curve.products.append(so_far)
            curve.objective.append(objective(problem.A, H))
            curve.kkt.append(kkt(problem.A, H))

    symnmf(problem.A, L, watch=watch, max_iter=products, seconds=seconds)
    return curve


def kkt(A: sparse.csr_matrix, L: np.ndarray) -> float:
    """‖L − [L − ∇/s]₊‖ / ‖L‖ with ∇ = (LLᵀ − A)L and s the largest eigenvalue of LᵀL, as `Solution.kkt` is."""
    G = L.T @ L
    step = (L @ G - A @ L) / np.linalg.eigvalsh(G)[-1]
    return float(np.linalg.norm(L - np.maximum(L - step, 0)) / np.linalg.norm(L))


def draw_blocks(path: Path, problem: Problem, *, seed: int = 0) -> None:
    """Draw where A has entries: in a random order of its rows, and in the order of the clusters found."""
    solution = snmf_dist.fit(problem.graph, problem.k)
    n = len(solution.labels)
    orders = {
        "in random order": np.random.default_rng(seed).permutation(n),
        "in the order of the clusters": np.argsort(solution.labels, kind="stable"),
    }
    figure = Figure(figsize=(11, 5.6), layout="constrained")
    for (name, order), axes in zip(orders.items(), figure.subplots(1, 2), strict=True):
        axes.spy(problem.A[order][:, order], markersize=0.5, color="C0", rasterized=True)
        axes.set_title(f"A {name}", pad=8)
        axes.tick_params(top=False, labeltop=False, bottom=True, labelbottom=True)
        axes.set(xlabel="row of A", ylabel="row of A")
    for edge in np.cumsum(solution.sizes)[:-1]:
        axes.axhline(edge - 0.5, color="0.6", lw=0.4)
        axes.axvline(edge - 0.5, color="0.6", lw=0.4)
    figure.savefig(path, dpi=150)


def main(arguments: Sequence[str] | None = None) -> None:
    """Draw them all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", nargs="?", type=Path, default=Path("paper-figures"))
    parser.add_argument("--table2", type=Path, default=Path("paper-table2"))
    parser.add_argument("--table3", type=Path, default=Path("paper-table3"))
    given = parser.parse_args(arguments)
    given.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        draw_synthetic(given.out / "synthetic.png", folder)
        points = read_points("COIL-20")
        problem = make_problem(points, len(np.unique(points.y)), folder)
        draw_blocks(given.out / "coil20-blocks.png", problem)
        draw_convergence(given.out / "coil20-convergence.png", problem)
    places = {"COIL-20": given.table2, "Reuters": given.table3}
    ledgers = {name: Ledger(place) for name, place in places.items() if (place / "rows.jsonl").exists()}
    if ledgers:
        draw_by_k(ledgers, given.out / "by-k.png")
    else:
        print(f"no rows in {given.table2} or {given.table3}: run table2.py and table3.py for the picture by k")


if __name__ == "__main__":
    main()
