"""From A and the settings of a fit to finished runs: make the start, choose the solver, iterate."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from snmf_dist.engine.machine import release_memory
from snmf_dist.engine.rows import Graph, Rows
from snmf_dist.listeners import Listener
from snmf_dist.solve.basis import Basis, leading_basis
from snmf_dist.solve.kernels import entry_sums
from snmf_dist.solve.loop import Problem, run
from snmf_dist.solve.parts import PartFacts, begin_with_parts, in_parts, read_parts
from snmf_dist.solve.products import largest_eigenvalue
from snmf_dist.solve.progress import Keeper, Outcome, Progress
from snmf_dist.solve.solvers import SOLVERS
from snmf_dist.solve.start import Start, connected_only, kmeans_start, random_start, spectral_start

INITS = ("kmeans", "spectral", "random")
STOPS = {"auto": 1e-5, "kkt": 1e-4, "paper": 1e-5}  # with the tolerance of each


@dataclass(frozen=True)
class GraphFacts:
    """What a fit needs to know of the graph.

    Attributes
    ----------
    A : Graph
        The graph itself, wherever its rows are.
    dtype : dtype
        Of the memberships.
    weights : callable
        Rows start to stop of (r, degree), with W = rAr.
    top : float or None
        The largest eigenvalue of A, if it is known.
    isolated : bool
        Whether there are rows without entries.
    parts : PartFacts or None
        The parts that the graph falls into, if there are several and they are known.
    """

    A: Graph
    dtype: np.dtype
    weights: Callable[[int, int], np.ndarray]
    top: float | None
    isolated: bool = False
    parts: PartFacts | None = None


class Earlier(NamedTuple):
    """A run to resume: its state, iterations and products, and its penalty, if that is to stay."""

    state: tuple[Rows, ...]
    rho: float | None
    iterations: int
    products: int


class Resumed(NamedTuple):
    """An interrupted run to continue: its progress, and the facts and rows that its start had found."""

    progress: Progress
    facts: dict[str, Any]
    rows: dict[str, Rows]


@dataclass(frozen=True)
class Found:
    """What solving gave.

    Attributes
    ----------
    outcomes : list of Outcome
        The runs.
    labels : rows of int, (n, 1), or None
        Plain spectral clustering, if they began there.
    basis : Basis or None
        The leading eigenvectors, if the start was made from them, without the vectors.
    before : int
        Products with A before the first iteration.
    """

    outcomes: list[Outcome]
    labels: Rows | None
    basis: Basis | None
    before: int

    @property
    def best(self) -> Outcome:
        """The run of the highest modularity, where it is watched, else the one that captures most."""
        return max(self.outcomes, key=lambda one: one.score)

    @property
    def products(self) -> int:
        """Products with A of all runs; what came before them counts once."""
        return self.before + sum(one.products - self.before for one in self.outcomes)


def solve(
    graph: GraphFacts,
    settings: Mapping[str, Any],
    *,
    L: Rows | None = None,
    earlier: Earlier | None = None,
    listeners: Sequence[Listener] = (),
    resume: Resumed | None = None,
    keeper: Keeper | None = None,
) -> Found:
    """Begin at the start that the settings name, at `L`, or where an earlier run was, and iterate.

    Parameters
    ----------
    settings : mapping
        Those of `fit`, checked.
    """
    if resume is not None:
        return _resume(graph, settings, resume, listeners, keeper)
    A, K, init = graph.A, settings["k"], settings["init"]
    seeds = [settings["seed"] + r for r in range(settings["n_init"])]
    _, (sum_A, norm_A) = A.settle((), A.sum_entries(entry_sums))
    basis, weights = None, None
    parts = None if graph.parts is None else read_parts(A, graph.parts)
    if init == "kmeans":
        weights = A.hold(A.rows(graph.weights, 2, dtype=np.float64))
        basis = _basis(graph, K, parts, weights, seed=seeds[0])
        start = kmeans_start(A, basis, K, weights, seeds=seeds)
    elif init == "spectral":
        of_all = A.rows(graph.weights, 2, dtype=np.float64)
        basis = _basis(graph, K, parts, of_all, seed=seeds[0])
        start = spectral_start(A, basis, K, seeds=seeds)
    elif init == "random":
        start = random_start(A, K, seeds=seeds, sum_A=float(sum_A), dtype=graph.dtype)
    elif earlier is not None:
        start = Start(SOLVERS[settings["solver"]].State(*earlier.state).L)
    else:
        assert L is not None, "a start is given where none is to be made"
        start = Start(L)

    values = [] if basis is None else basis.values.tolist()
    solver, products = _solver(graph, settings, values)
    products += start.products + (0 if basis is None else basis.products)
    done, labels, L = 0, start.labels, start.L
    numbers = None if basis is None else replace(basis, U=None)
    del basis, start  # each as large as a part of the state
    if parts is not None and earlier is None:
        L = A.map(in_parts, L, parts)
        labels = None if labels is None else A.map(_labels_in_parts, labels, parts)
    del parts
    if graph.isolated and earlier is None:
        of_all = A.rows(graph.weights, 2, dtype=np.float64) if weights is None else weights
        L = A.map(connected_only, L, of_all)
    if earlier is not None:
        solver = solver if earlier.rho is None else replace(solver, rho=(earlier.rho,))
        done, products = earlier.iterations, products + earlier.products
    first = [solver.init(A, L) if earlier is None else solver.State(*earlier.state)]
    del L, earlier
    release_memory()
    if keeper is not None:
        facts = {"done": done, "products": products, "basis": None if numbers is None else numbers.facts()}
        kept = {} if labels is None else {"start-labels": A.hold(labels)}
        keeper.note(facts, kept)
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
        keeper=keeper,
    )
    return Found(outcomes, labels, numbers, products)


def _basis(graph: GraphFacts, K: int, parts: Rows | None, weights: Rows, *, seed: int) -> Basis:
    """The leading eigenvectors; where the graph falls into parts, beginning with those that the parts have."""
    A, begin = graph.A, None
    if parts is not None and graph.parts is not None:
        count = graph.parts.count

        def begin(V: Rows) -> Rows:
            return A.map(begin_with_parts, V, parts, weights, count=count, K=K)

    return leading_basis(A, K, seed=seed, dtype=graph.dtype, begin=begin)


def _labels_in_parts(labels: np.ndarray, parts: np.ndarray) -> np.ndarray:
    return np.where(parts >= 0, labels, -1).astype(labels.dtype)


def _resume(
    graph: GraphFacts,
    settings: Mapping[str, Any],
    resume: Resumed,
    listeners: Sequence[Listener],
    keeper: Keeper | None,
) -> Found:
    """Continue an interrupted run, with all that its start had found."""
    A, facts, progress = graph.A, resume.facts, resume.progress
    _, (_, norm_A) = A.settle((), A.sum_entries(entry_sums))
    watched = settings["stop"] == "auto" and settings["init"] == "kmeans"
    weights = A.hold(A.rows(graph.weights, 2, dtype=np.float64)) if watched else None
    labels = resume.rows.get("labels")
    if keeper is not None:
        keeper.note(facts, {} if labels is None else {"start-labels": labels})
    outcomes = run(
        progress.solver,
        Problem(A, float(norm_A), settings["k"], weights),
        progress.state,
        stop=settings["stop"],
        tol=settings["tol"],
        max_iter=settings["max_iter"],
        evaluate_every=settings["evaluate_every"],
        done=facts["done"],
        products=facts["products"],
        listeners=listeners,
        resume=progress,
        keeper=keeper,
    )
    basis = None if facts["basis"] is None else Basis.from_facts(facts["basis"])
    return Found(outcomes, labels, basis, facts["products"])


def _solver(graph: GraphFacts, settings: Mapping[str, Any], values: list[float]) -> tuple[Any, int]:
    """The algorithm, and the products it took to learn the scale of A."""
    solver, rho, products = SOLVERS[settings["solver"]], settings["rho"], 0
    adapt = rho == "auto"
    if adapt:
        top = values[0] if values else graph.top
        if top is None:
            top, products = largest_eigenvalue(graph.A, dtype=graph.dtype)
        rho = solver.penalty * top
    return solver.from_settings(settings, rho, adapt=adapt), products
