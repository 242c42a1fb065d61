"""run(): iterate, stop, tell the listeners. Holds no formula."""

import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from snmf_dist.engine.rows import Graph, Rows, Step, rebuild
from snmf_dist.engine.spent import spending
from snmf_dist.errors import InputError
from snmf_dist.listeners import Listener
from snmf_dist.result.records import Status
from snmf_dist.solve.columns import copied, part, without
from snmf_dist.solve.kernels import moved, row_labels, take_columns
from snmf_dist.solve.modularity import modularities
from snmf_dist.solve.problem import Problem, Solver
from snmf_dist.solve.progress import Keeper, Outcome, Progress
from snmf_dist.solve.stopping import REST_ITERATIONS, Judge, Quality, StepNumbers, quality, record

CUT_EVERY = 50  # iterations after which what a cluster remembers of them is forgotten


def run(
    solver: Solver,
    problem: Problem,
    state: Any,
    *,
    stop: str = "auto",
    tol: float,
    max_iter: int,
    evaluate_every: int = 10,
    done: int = 0,
    products: int = 0,
    listeners: Sequence[Listener] = (),
    resume: Progress | None = None,
    keeper: Keeper | None = None,
    keep_all: bool = False,
) -> list[Outcome]:
    """Iterate from `state` until each run is done, or `max_iter` iterations are.

    Parameters
    ----------
    solver : Solver
        The algorithm, with as many runs side by side as its penalty has entries. A run that is done leaves: its
        columns cost nothing from then on.
    state : named tuple of rows
        Where to begin; `solver.init` makes one from L.
    stop, tol
        As `Judge` has them.
    evaluate_every : int, default 10
        Take objective, KKT distance and labels at the first, the last and every `evaluate_every` iterations.
    done : int, default 0
        Iterations that came before.
    products : int, default 0
        Products that came before.
    listeners : sequence of Listener
        Called after each iteration.
    resume : Progress, optional
        Where an interrupted loop was; it is continued, and `solver` and `state` are not looked at.
    keeper : Keeper, optional
        Called after each iteration, to write the progress down.
    keep_all : bool, default False
        Keep the state of every run, not of the best alone.
    """
    started = time.perf_counter()
    A, look, steps, last = problem.A, _Look(problem), _Steps(problem.A), done + max_iter
    if resume is None:
        outcomes = [Outcome(Judge(stop, tol), products, rho) for rho in solver.rho]
        active, first = outcomes, done + 1
    else:
        solver, state, outcomes = resume.solver, resume.state, resume.outcomes
        active, first = [outcomes[r] for r in resume.active], resume.iteration + 1
        look.labels, look.since, started = resume.labels, resume.since, started - resume.seconds
        for one in outcomes:
            one.judge.tol = tol
    state, _ = A.settle(state, {})
    regular = partial(_is_regular, first=done + 1, every=evaluate_every)
    pauses = partial(_is_pause, regular=regular)
    for iteration in range(first, last + 1):
        now = partial(_progress, iteration - 1, solver, state, outcomes, active, look, started)
        if iteration > first and (iteration - 1) % CUT_EVERY == 0:
            A.cut_lineage(now().rows().values())
        if keeper is not None and (iteration > first or resume is None):
            keeper.after_iteration(now)
        widths = problem.widths(solver)
        before, (state, numbers) = state, steps.next(solver, state, iteration, last, pauses)
        verdicts = [one.judge.of_step(found) for one, found in zip(active, numbers, strict=True)]
        lost = [verdict is Status.DIVERGED for verdict in verdicts]
        if any(lost):
            state = without(A, lost, solver.restart(A, before, state), state, widths)
        del before  # its memory is the next state's
        late = keeper is not None and keeper.out_of_time()
        if iteration == last or late:
            limit = Status.MAX_ITER if iteration == last else Status.OUT_OF_TIME
            verdicts = [verdict or limit for verdict in verdicts]

        look_now = regular(iteration)
        seen = [i for i, verdict in enumerate(verdicts) if look_now or verdict]
        found: dict[int, Quality] = {}
        if seen:
            with spending("evaluation", time.process_time):
                found = dict(zip(seen, look(iteration, state.L, seen, widths, bool(solver.widths)), strict=True))
        for i, one in enumerate(active):
            one.products += solver.products + (look.products if i in found else 0)
            seconds = time.perf_counter() - started
            one.history.append(record(iteration, numbers[i], solver.rho[i], one.products, seconds, found.get(i)))
            one.status = one.judge.of_look(iteration, verdicts[i], found[i]) if i in found else None
        _tell(listeners, active, state, widths)

        stalled = [i in found and one.judge.stalled for i, one in enumerate(active)]
        solver = solver.adapted(iteration, numbers, stalled)
        if not seen:
            continue
        for i, one in enumerate(active):
            if i in found and not math.isnan(found[i].score):
                one.label_score = one.judge.best if one.status is Status.PEAKED else found[i].score
            if one.status is Status.PEAKED:
                del one.history[one.peak :]
            elif one.status:
                one.rho = solver.rho[i]
            elif i in found and one.judge.at_peak:
                one.at_peak = None  # its memory is for the copy: the next step writes over L
                one.at_peak = copied(A, state.L, i, widths)
                one.peak, one.rho = len(one.history), solver.rho[i]
        staying = [i for i, one in enumerate(active) if one.status is None]
        if len(staying) < len(active):
            keep = _keep_ended if keep_all else _keep_best
            keep(A, solver, outcomes, active, state, widths)
        if not staying:
            return outcomes
        if len(staying) < len(active):
            state = part(A, state, staying, widths)
            look.keep(staying)
            solver, active = solver.keep(staying), [active[i] for i in staying]
            steps.forget()
    raise InputError(f"{max_iter} iterations are allowed, and {first - 1 - done} are done; raise max_iter")


def _progress(
    iteration: int,
    solver: Solver,
    state: Any,
    outcomes: list[Outcome],
    active: list[Outcome],
    look: "_Look",
    started: float,
) -> Progress:
    seconds = time.perf_counter() - started
    places = [outcomes.index(one) for one in active]
    return Progress(iteration, solver, state, outcomes, places, look.labels, look.since, seconds)


def _is_regular(iteration: int, *, first: int, every: int) -> bool:
    return iteration == first or iteration % every == 0


def _is_pause(iteration: int, *, regular: Callable[[int], bool]) -> bool:
    return regular(iteration) or iteration % CUT_EVERY == 0


@dataclass
class _Steps:
    """Steps under way: on a cluster the next ones are described while the numbers of the last one travel.

    A step is begun ahead if nothing that happens before it can change it: no pause (a look at the quality may end
    a run) and no new penalty.
    """

    A: Graph
    under_way: deque[Step] = field(default_factory=deque)

    def next(
        self, solver: Solver, state: Any, iteration: int, last: int, pauses: Callable[[int], bool]
    ) -> tuple[Any, list[StepNumbers]]:
        """The state after iteration `iteration` and its numbers."""
        ahead = self.A.ahead
        if not ahead:
            return solver.step(self.A, state)
        described: list[tuple[Any, Any]] = []
        if len(self.under_way) <= ahead - 2 or not self.under_way:  # several at once: each submission costs
            latest = self.under_way[-1].state if self.under_way else state
            for t in range(iteration + len(self.under_way), iteration + ahead):
                if t > iteration and (t > last or pauses(t - 1) or solver.decides(t - 1)):
                    break
                described.append(solver.step(self.A, latest))
                latest = described[-1][0]
        self.under_way.extend(self.A.begin(*described))
        state, numbers = self.under_way.popleft()
        return state, self.A.finish(numbers)

    def forget(self) -> None:
        """Drop what was begun: the runs are others now."""
        self.under_way.clear()


@dataclass
class _Look:
    """Takes the quality of runs, and compares their labels with those of a window before."""

    problem: Problem
    labels: Rows | None = None
    since: int = 0

    @property
    def products(self) -> int:
        """Passes over A that a look takes."""
        return 1 if self.problem.weights is None else 2

    def __call__(
        self, iteration: int, L: Rows, seen: list[int], widths: Sequence[int], differ: bool
    ) -> list[Quality]:
        """Quality of the runs `seen`; labels are compared, and remembered, if these are all."""
        problem, A = self.problem, self.problem.A
        (L,) = part(A, (L,), seen, widths)
        whole = len(seen) == len(widths)
        Ks = np.array([widths[i] for i in seen])
        own = Ks if differ else None
        labels = A.map(row_labels, L, runs=len(seen), widths=own, width=len(seen), dtype=np.int32)
        numbers = {"quality": quality(A, L, norm_A=problem.norm_A, Ks=Ks, widths=own)}
        if problem.weights is not None:
            numbers["modularity"] = modularities(A, labels, problem.weights, K=Ks)
        if whole and self.labels is not None:
            numbers["moved"] = A.sum(moved, self.labels, labels)
        (labels,), values = A.settle((labels,), numbers)
        if whole and (self.labels is None or iteration - self.since >= REST_ITERATIONS):
            self.labels, self.since = labels, iteration
        found = []
        for i, one in enumerate(values["quality"]):
            shares = {"moved": float(values["moved"][i]) / L.shape[0]} if "moved" in values else {}
            scores = values["modularity"][:, i].tolist() if "modularity" in values else (math.nan, math.nan)
            found.append(one._replace(**shares, modularity=scores[0], score=scores[1]))
        return found

    def keep(self, runs: list[int]) -> None:
        """Forget the other runs."""
        if self.labels is not None:
            self.labels = self.problem.A.map(take_columns, self.labels, columns=np.array(runs), width=len(runs))


def _keep_best(
    A: Graph, solver: Solver, outcomes: list[Outcome], active: list[Outcome], state: Any, widths: Sequence[int]
) -> None:
    """Give the best of the runs that are done its state; the others need none."""
    done = [one for one in outcomes if one.status]
    best = max(done, key=lambda one: one.score)
    for one in done:
        if one is not best:
            one.state = one.at_peak = None
    if best.status is Status.PEAKED and best.at_peak is not None:
        i = active.index(best)
        best.state, _ = A.settle(solver.keep([i]).init(A, best.at_peak), {})
    elif best.state is None:
        best.state = part(A, state, [active.index(best)], widths)
    best.at_peak = None


def _keep_ended(
    A: Graph, solver: Solver, outcomes: list[Outcome], active: list[Outcome], state: Any, widths: Sequence[int]
) -> None:
    """Give each of the runs that have just ended its state."""
    for i, one in enumerate(active):
        if one.status is Status.PEAKED and one.at_peak is not None:
            one.state, _ = A.settle(solver.keep([i]).init(A, one.at_peak), {})
        elif one.status:
            one.state = part(A, state, [i], widths)
        if one.status:
            one.at_peak = None


def _tell(listeners: Sequence[Listener], active: list[Outcome], state: Any, widths: Sequence[int]) -> None:
    """Tell the listeners of the run that leads: the one that captures most."""
    if not listeners:
        return
    curious = any(listener.sees_state for listener in listeners)
    leader = int(np.argmax([one.captured for one in active])) if len(active) > 1 else 0
    shown: Any = rebuild(state, [rows.array for rows in state]) if curious else None
    if curious and len(active) > 1:  # cut when looked at
        end = sum(widths[: leader + 1])
        shown = type(state)(*(rows[:, end - widths[leader] : end] for rows in shown))
    for listener in listeners:
        listener.on_iteration(active[leader].history[-1], shown)
