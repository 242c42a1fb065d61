"""From A and the settings of a fit to finished runs: make the start, choose the solver, iterate."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from snmf_dist.cluster import give_back
from snmf_dist.listeners import Listener
from snmf_dist.rows import Rows, hold, map_rows, rows_like, settle, sum_rows
from snmf_dist.solve.admm import ADMM, FIRST_RHO
from snmf_dist.solve.apg import APG
from snmf_dist.solve.basis import largest_eigenvalue, leading_basis
from snmf_dist.solve.hals import HALS
from snmf_dist.solve.kernels import entry_sums
from snmf_dist.solve.loop import Outcome, Problem, run
from snmf_dist.solve.start import Start, connected_only, kmeans_start, random_start, spectral_start

PENALTIES = {"admm": FIRST_RHO, "apg": 1.0, "hals": 1.0}  # rho="auto", times the largest eigenvalue of A
INITS = ("kmeans", "spectral", "random")
STOPS = {"auto": 1e-5, "kkt": 1e-4, "paper": 1e-5}  # with the tolerance of each


@dataclass(frozen=True)
class Graph:
    """What a fit needs to know of the graph.

    Attributes
    ----------
    A : rows, (n, n)
        In memory or in blocks.
    dtype : dtype
        Of the memberships.
    weights : callable
        Rows start to stop of (r, degree), with W = rAr.
    top : float or None
        The largest eigenvalue of A, if it is known.
    isolated : bool
        Whether there are rows without entries.
    """

    A: Rows
    dtype: np.dtype
    weights: Callable[[int, int], np.ndarray]
    top: float | None
    isolated: bool = False


class Earlier(NamedTuple):
    """An earlier run to go on from: its state, iterations and products, and its penalty, if that is to stay."""

    state: tuple[Rows, ...]
    rho: float | None
    iterations: int
    products: int


@dataclass(frozen=True)
class Found:
    """What solving gave.

    Attributes
    ----------
    outcomes : list of Outcome
        The runs.
    labels : rows of int, (n, 1), or None
        Plain spectral clustering, if they began there.
    eigenvalues : list of float
        The leading ones, if the start was made from their vectors.
    next_eigenvalue : float or None
        The one after.
    before : int
        Products with A before the first iteration.
    """

    outcomes: list[Outcome]
    labels: Rows | None
    eigenvalues: list[float]
    next_eigenvalue: float | None
    before: int

    @property
    def best(self) -> Outcome:
        """The run of the highest modularity, where it is watched, else the one that captures most."""
        return max(self.outcomes, key=lambda one: one.worth)

    @property
    def products(self) -> int:
        """Products with A of all runs; what came before them counts once."""
        return self.before + sum(one.products - self.before for one in self.outcomes)


def solve(
    graph: Graph,
    settings: Mapping[str, Any],
    *,
    L: Rows | None = None,
    earlier: Earlier | None = None,
    listeners: Sequence[Listener] = (),
) -> Found:
    """Begin at the start that the settings name, at `L`, or where an earlier run was, and iterate.

    Parameters
    ----------
    settings : mapping
        Those of `fit`, checked.
    """
    A, K, init = graph.A, settings["k"], settings["init"]
    seeds = [settings["seed"] + r for r in range(settings["n_init"])]
    _, (sum_A, norm_A) = settle((), sum_rows(entry_sums, A))
    basis, weights = None, None
    if init == "kmeans":
        basis = leading_basis(A, K, seed=seeds[0], dtype=graph.dtype)
        weights = hold(rows_like(A, graph.weights, 2, dtype=np.float64))
        start = kmeans_start(A, basis, K, weights, seeds=seeds)
    elif init == "spectral":
        basis = leading_basis(A, K, seed=seeds[0], dtype=graph.dtype)
        start = spectral_start(A, basis, K, seeds=seeds)
    elif init == "random":
        start = random_start(A, K, seeds=seeds, sum_A=float(sum_A), dtype=graph.dtype)
    else:
        start = Start(L)

    values = [] if basis is None else basis.values.tolist()
    after = None if basis is None else basis.next_value
    solver, products = _solver(graph, settings, values)
    products += start.products + (0 if basis is None else basis.products)
    done, labels, L = 0, start.labels, start.L
    del basis, start  # each as large as a part of the state
    if graph.isolated and earlier is None:
        of_all = rows_like(A, graph.weights, 2, dtype=np.float64) if weights is None else weights
        L = map_rows(connected_only, L, of_all)
    if earlier is not None:
        solver = solver if earlier.rho is None else replace(solver, rho=(earlier.rho,))
        done, products = earlier.iterations, products + earlier.products
    first = [solver.init(L) if earlier is None else solver.State(*earlier.state)]
    del L, earlier
    give_back()
    outcomes = run(
        solver,
        Problem(A, float(norm_A), K, weights if settings["stop"] == "auto" else None),
        first.pop(),  # so that the run alone holds it
        stop=settings["stop"],
        tol=settings["tol"],
        max_iter=settings["max_iter"],
        evaluate_every=settings["evaluate_every"],
        done=done,
        products=products,
        listeners=listeners,
    )
    return Found(outcomes, labels, values, after, products)


def _solver(graph: Graph, settings: Mapping[str, Any], values: list[float]) -> tuple[ADMM | APG | HALS, int]:
    """The algorithm, and the products it took to learn the scale of A."""
    rho, products, adapt = settings["rho"], 0, False
    if rho == "auto":
        top = values[0] if values else graph.top
        if top is None:
            top, products = largest_eigenvalue(graph.A, dtype=graph.dtype)
        rho, adapt = PENALTIES[settings["solver"]] * top, True
    rhos = (rho,) * settings["n_init"]
    if settings["solver"] == "admm":
        return ADMM(rhos, adapt=adapt, first_rho=rho), products
    if settings["solver"] == "hals":
        return HALS(rhos), products
    return APG(rhos, tol=settings["tol"] if settings["stop"] == "paper" else STOPS["paper"]), products
