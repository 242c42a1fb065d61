"""run(): iterate, stop, tell the listeners. Holds no formula."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from snmf_dist.listeners import Listener
from snmf_dist.result.records import IterationRecord, Status
from snmf_dist.rows import Rows, in_blocks, settle
from snmf_dist.solve.stopping import quality, verdict


class Solver(Protocol):
    """What the loop asks of an algorithm."""

    @property
    def rho(self) -> float:
        """Penalty, for the record."""

    @property
    def products(self) -> int:
        """Products with A in a step."""

    def init(self, L: Rows) -> Any:
        """Return the state to begin with."""

    def step(self, A: Rows, s: Any) -> Any:
        """Describe one iteration."""

    def watched(self, old: Any, new: Any) -> Any:
        """Describe the `StepNumbers` of the step from `old` to `new`."""


@dataclass
class Outcome:
    """Where the loop ended."""

    state: Any
    status: Status
    history: list[IterationRecord]


def run(
    solver: Solver,
    A: Rows,
    L: Rows,
    *,
    norm_A: float,
    tol: float,
    max_iter: int,
    evaluate_every: int = 10,
    products: int = 0,
    listeners: Sequence[Listener] = (),
) -> Outcome:
    """Iterate from `L` until the change is at most `tol` or `max_iter` iterations are done.

    Parameters
    ----------
    solver : Solver
        The algorithm.
    A, L : rows
        The graph, (n, n), and the start, (n, K).
    norm_A : float
        ‖A‖².
    evaluate_every : int, default 10
        Take objective and KKT distance at the first, every so manyth and the last iteration.
    products : int, default 0
        Products with A that the start took.
    """
    begin = time.perf_counter()
    state, _ = settle(solver.init(L), {})
    history: list[IterationRecord] = []
    for iteration in range(1, max_iter + 1):
        new = solver.step(A, state)
        new, numbers = settle(new, solver.watched(state, new))
        products += solver.products
        status = verdict(numbers, tol=tol)
        if status is not Status.DIVERGED:
            state = new
        if status is None and iteration == max_iter:
            status = Status.MAX_ITER

        record = IterationRecord(
            iteration=iteration,
            change=numbers.change,
            primal=numbers.primal,
            dual=numbers.dual,
            rho=solver.rho,
            products=products,
            seconds=time.perf_counter() - begin,
        )
        if status is not None or iteration == 1 or iteration % evaluate_every == 0:
            _, found = settle((), quality(A, state.L, norm_A=norm_A))
            products += 1
            record = replace(
                record,
                **found._asdict(),
                products=products,
                seconds=time.perf_counter() - begin,
            )
        history.append(record)
        if listeners:
            shown = in_blocks(state)
            for listener in listeners:
                listener.on_iteration(record, shown)
        if status is not None:
            return Outcome(in_blocks(state), status, history)
    raise ValueError(f"max_iter is {max_iter}; expected at least 1")
