"""Runs on one graph side by side, of any K and seed: they share every pass over A, and each gets its own bits.

Runs that start from eigenvectors share one basis too, if their setting `basis_columns` says how wide it is.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from snmf_dist.engine.machine import release_memory
from snmf_dist.engine.rows import Rows
from snmf_dist.listeners import Listener, tell_phase
from snmf_dist.solve.basis import Basis
from snmf_dist.solve.kernels import entry_sums, side_by_side, take_columns
from snmf_dist.solve.loop import run
from snmf_dist.solve.pipeline import (
    SPECTRAL,
    Begun,
    Found,
    GraphFacts,
    Resumed,
    begin,
    choose_solver,
    make_basis,
    masked,
)
from snmf_dist.solve.problem import Problem
from snmf_dist.solve.progress import Keeper

MAY_DIFFER = ("k", "seed")  # among the settings of the runs of a stack


def can_stack(settings: Mapping[str, Any]) -> bool:
    """Whether a run may go side by side with others: one start, at random or from a basis that runs share."""
    shared = settings["init"] == "random" or settings["basis_columns"] is not None
    return bool(shared and settings["n_init"] == 1)


def solve_stack(
    graphs: Sequence[GraphFacts],
    many: Sequence[Mapping[str, Any]],
    *,
    listeners: Sequence[Listener] = (),
    resume: Resumed | None = None,
    keeper: Keeper | None = None,
) -> list[Found]:
    """Iterate all runs of a stack until each is done.

    Parameters
    ----------
    graphs : sequence of GraphFacts
        The graph as each run sees it: the parts that are clustered depend on K.
    many : sequence of mapping
        The settings of each run, those of `fit`, checked; they differ in k and seed alone.
    """
    tell_phase(listeners, "start")
    A, first, widths = graphs[0].A, many[0], tuple(settings["k"] for settings in many)
    _, (sum_A, norm_A) = A.settle((), A.sum_entries(entry_sums))
    weights = A.hold(A.rows(graphs[0].weights, 2, dtype=np.float64)) if first["init"] == "kmeans" else None
    if resume is None:
        begun = _begin(graphs, many, float(sum_A), weights)
        solver, products = choose_solver(graphs[0], first, begun[0].values)
        solver = replace(solver, rho=solver.rho * len(many), widths=widths)
        products += begun[0].products
        bases, samples = [one.basis for one in begun], [one.sample for one in begun]
        labels = _side_by_side(graphs[0], [one.labels for one in begun])
        L = _side_by_side(graphs[0], [one.L for one in begun])
        del begun
        state = solver.init(A, L)
        del L
        release_memory()
    else:
        solver, state, products = resume.progress.solver, resume.progress.state, resume.facts["products"]
        bases = [None if facts is None else Basis.from_facts(facts) for facts in resume.facts["basis"]]
        labels, samples = resume.rows.get("labels"), [None] * len(many)
    if keeper is not None:
        facts = {"done": 0, "products": products, "basis": [None if one is None else one.facts() for one in bases]}
        keeper.note(facts, {} if labels is None else {"start-labels": labels})
    tell_phase(listeners, "iterations")
    outcomes = run(
        solver,
        Problem(A, float(norm_A), max(widths), weights if first["stop"] == "auto" else None),
        state,
        stop=first["stop"],
        tol=first["tol"],
        max_iter=first["max_iter"],
        evaluate_every=first["evaluate_every"],
        products=products,
        listeners=listeners,
        resume=None if resume is None else resume.progress,
        keeper=keeper,
        keep_all=True,
    )
    of_each: list[Rows | None] = [None] * len(many)
    if labels is not None:
        of_each = [A.map(take_columns, labels, columns=np.array([r]), width=1) for r in range(len(many))]
    return [
        Found([one], own, basis, products, sample)
        for one, own, basis, sample in zip(outcomes, of_each, bases, samples, strict=True)
    ]


def _begin(
    graphs: Sequence[GraphFacts], many: Sequence[Mapping[str, Any]], sum_A: float, weights: Rows | None
) -> list[Begun]:
    """Where each run begins, as it does alone."""
    A, basis = graphs[0].A, None
    if many[0]["init"] in SPECTRAL:
        basis = make_basis(graphs[0], many[0], weights)
        basis = replace(basis, U=A.hold(basis.U))
    found = []
    for graph, settings in zip(graphs, many, strict=True):
        one = begin(graph, settings, sum_A=sum_A, weights=weights, basis=basis)
        found.append(one._replace(L=masked(graph, one.L, weights)))
    return found


def _side_by_side(graph: GraphFacts, parts: Sequence[Rows | None]) -> Any:
    """The rows of all runs in one matrix, held; None if there are none."""
    given = [one for one in parts if one is not None]
    if not given:
        return None
    width = sum(one.shape[1] for one in given)
    return graph.A.hold(graph.A.map(side_by_side, *given, width=width) if len(given) > 1 else given[0])
