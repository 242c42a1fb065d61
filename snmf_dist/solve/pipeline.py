"""From A and the settings of a fit to finished runs: make the start, choose the solver, iterate."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from snmf_dist.engine.machine import release_memory
from snmf_dist.engine.rows import Graph, Rows
from snmf_dist.listeners import Listener, tell_phase
from snmf_dist.result.records import Sample
from snmf_dist.solve.basis import Basis, leading_basis
from snmf_dist.solve.kernels import entry_sums
from snmf_dist.solve.loop import run
from snmf_dist.solve.parts import PartFacts, begin_with_parts, in_parts, read_parts
from snmf_dist.solve.problem import Problem
from snmf_dist.solve.products import largest_eigenvalue
from snmf_dist.solve.progress import Keeper, Outcome, Progress
from snmf_dist.solve.sample import sample_plane
from snmf_dist.solve.solvers import SOLVERS
from snmf_dist.solve.start import connected_only, kmeans_start, random_start, spectral_start

SPECTRAL = ("kmeans", "spectral")  # starts that are made from eigenvectors
INITS = (*SPECTRAL, "random")
SHARED_SEED = 0  # of the columns that a basis begins with which serves runs of any seed
STOPS = {"auto": 1e-5, "kkt": 1e-4, "paper": 1e-5}  # with the tolerance of each


@dataclass(frozen=True)
class GraphFacts:
    """What a fit needs to know of the graph.

    Attributes
    ----------
    A : Graph
        The graph itself, wherever its rows are.
    dtype : dtype
        Type of the memberships.
    weights : callable
        Rows start to stop of (r, degree), with W = rAr.
    top : float or None
        The largest eigenvalue of A, if it is known.
    isolated : bool
        Whether there are rows without entries.
    parts : PartFacts or None
        The parts that the graph falls into, if there are several and they are known.
    limit : float or None
        A number that no eigenvalue exceeds in size, if one is known.
    """

    A: Graph
    dtype: np.dtype
    weights: Callable[[int, int], np.ndarray]
    top: float | None
    isolated: bool = False
    parts: PartFacts | None = None
    limit: float | None = None


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
    sample : Sample or None
        Some rows of A in a plane of the leading eigenvectors, if the start was made from them.
    seconds : dict
        Seconds of each phase.
    """

    outcomes: list[Outcome]
    labels: Rows | None
    basis: Basis | None
    before: int
    sample: Sample | None = None
    seconds: dict[str, float] = field(default_factory=dict)

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
    clock = time.perf_counter()
    tell_phase(listeners, "start")
    A, K = graph.A, settings["k"]
    _, (sum_A, norm_A) = A.settle((), A.sum_entries(entry_sums))
    weights = A.hold(A.rows(graph.weights, 2, dtype=np.float64)) if settings["init"] == "kmeans" else None
    if settings["init"] in INITS:
        begun = begin(graph, settings, sum_A=float(sum_A), weights=weights)
    elif earlier is not None:
        begun = Begun(SOLVERS[settings["solver"]].State(*earlier.state).L)
    else:
        assert L is not None, "a start is given where none is to be made"
        begun = Begun(L)
    solver, products = choose_solver(graph, settings, begun.values)
    done, products, labels, numbers = 0, products + begun.products, begun.labels, begun.basis
    L = begun.L if earlier is not None else masked(graph, begun.L, weights)
    sample = begun.sample
    del begun  # as large as a part of the state
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
    ready = time.perf_counter()
    tell_phase(listeners, "iterations")
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
    seconds = {"start": ready - clock, "iterations": time.perf_counter() - ready}
    return Found(outcomes, labels, numbers, products, sample, seconds)


class Begun(NamedTuple):
    """Where a fit begins.

    Attributes
    ----------
    L : rows, (n, R·K)
        The starts, side by side.
    labels : rows of int, (n, 1), or None
        Plain spectral clustering, if the start was made from it.
    basis : Basis or None
        The leading eigenvectors, if the start was made from them, without the vectors.
    products : int
        Products with A that it took.
    sample : Sample or None
        Some rows of A in a plane of the leading eigenvectors, if the start was made from them.
    """

    L: Rows
    labels: Rows | None = None
    basis: Basis | None = None
    products: int = 0
    sample: Sample | None = None

    @property
    def values(self) -> list[float]:
        """The leading eigenvalues, if they are known."""
        return [] if self.basis is None else list(self.basis.values.tolist())


def begin(
    graph: GraphFacts,
    settings: Mapping[str, Any],
    *,
    sum_A: float,
    weights: Rows | None,
    basis: Basis | None = None,
) -> Begun:
    """Make the start that the settings name.

    Parameters
    ----------
    sum_A : float
        The sum of all entries of A.
    weights : rows, (n, 2), or None
        As in `Problem`; given for ``init="kmeans"``.
    basis : Basis, optional
        The one that `make_basis` makes with these settings, if it is at hand.
    """
    A, K, init = graph.A, settings["k"], settings["init"]
    seeds = [settings["seed"] + r for r in range(settings["n_init"])]
    if init == "random":
        return Begun(random_start(A, K, seeds=seeds, sum_A=sum_A, dtype=graph.dtype).L)
    own = (make_basis(graph, settings, weights) if basis is None else basis).leading(A, K)
    own = replace(own, U=A.hold(own.U))
    if init == "kmeans":
        assert weights is not None, "clusters are weighed"
        start = kmeans_start(A, own, K, weights, seeds=seeds)
    else:
        start = spectral_start(A, own, K, seeds=seeds)
    labels = start.labels
    if labels is not None and graph.parts is not None:
        labels = A.map(_labels_in_parts, labels, read_parts(A, graph.parts))
    sample = sample_plane(A, own.U, seed=seeds[0])
    return Begun(start.L, labels, replace(own, U=None), start.products + own.products, sample)


def masked(graph: GraphFacts, L: Rows, weights: Rows | None) -> Rows:
    """L with zeros in the rows that are left out: those of small parts, and those without entries."""
    A = graph.A
    if graph.parts is not None:
        L = A.map(in_parts, L, read_parts(A, graph.parts))
    if graph.isolated:
        of_all = A.rows(graph.weights, 2, dtype=np.float64) if weights is None else weights
        L = A.map(connected_only, L, of_all)
    return L


def make_basis(graph: GraphFacts, settings: Mapping[str, Any], weights: Rows | None) -> Basis:
    """The leading eigenvectors that starts are made from; the same ones for runs that share them.

    Where the graph falls into parts, it begins with the eigenvectors that the parts have.
    """
    A, facts, start = graph.A, graph.parts, None
    shared = settings["basis_columns"]
    columns, seed = (settings["k"], settings["seed"]) if shared is None else (shared, SHARED_SEED)
    of_all = A.rows(graph.weights, 2, dtype=np.float64) if weights is None else weights
    if facts is not None:
        parts, count = read_parts(A, facts), facts.count

        def start(V: Rows) -> Rows:
            return A.map(begin_with_parts, V, parts, of_all, count=count, K=columns)

    numbers: dict[str, Any] = {"seed": seed, "dtype": graph.dtype, "limit": graph.limit}
    return leading_basis(A, columns, begin=start, weights=of_all, **numbers)


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
    clock = time.perf_counter()
    tell_phase(listeners, "iterations")
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
    return Found(outcomes, labels, basis, facts["products"], None, {"iterations": time.perf_counter() - clock})


def choose_solver(graph: GraphFacts, settings: Mapping[str, Any], values: list[float]) -> tuple[Any, int]:
    """The algorithm, and the products it took to learn the scale of A."""
    solver, rho, products = SOLVERS[settings["solver"]], settings["rho"], 0
    adapt = rho == "auto"
    if adapt:
        top = values[0] if values else graph.top
        if top is None:
            top, products = largest_eigenvalue(graph.A, dtype=graph.dtype)
        rho = solver.penalty * top
    return solver.from_settings(settings, rho, adapt=adapt), products
