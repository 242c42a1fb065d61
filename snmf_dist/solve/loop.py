"""run(): iterate, stop, tell the listeners. Holds no formula."""

import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Protocol, Self

import numpy as np

from snmf_dist.engine.rows import Graph, Rows, Step, rebuild
from snmf_dist.errors import InputError
from snmf_dist.listeners import Listener
from snmf_dist.result.records import IterationRecord, Status
from snmf_dist.solve.kernels import moved, row_labels, take_columns
from snmf_dist.solve.modularity import modularities
from snmf_dist.solve.progress import Keeper, Outcome, Progress
from snmf_dist.solve.stopping import WINDOW, Judge, Quality, StepNumbers, quality

CUT_EVERY = 50  # iterations after which what a cluster remembers of them is forgotten


class Solver(Protocol):
    """What the loop, the planner and the command line ask of an algorithm; it may carry several runs side by side.

    Attributes
    ----------
    name : str
        What users call it.
    products : int
        Products with A in a step.
    penalty : float
        The penalty of ``rho="auto"``, times the largest eigenvalue of A.
    arrays : int
        The n × K arrays that it holds at a time.
    task_columns : int
        Times K: the columns that a step reads and writes of a row.
    """

    name: ClassVar[str]
    products: ClassVar[int]
    penalty: ClassVar[float]
    arrays: ClassVar[int]
    task_columns: ClassVar[int]

    @property
    def rho(self) -> tuple[float, ...]:
        """Penalty of each run, for the record."""

    def init(self, A: Graph, L: Rows) -> Any:
        """Return the state to begin with at L."""

    def step(self, A: Graph, s: Any) -> tuple[Any, Any]:
        """Describe one iteration, and the `StepNumbers` of each run in it; `s` is used up, but see `restart`."""

    def restart(self, A: Graph, old: Any, new: Any) -> Any:
        """Return a finite state for runs whose numbers overflowed in the step from `old` to `new`."""

    def decides(self, iteration: int) -> bool:
        """Whether `adapted` looks at the numbers of this iteration."""

    def keep(self, runs: Sequence[int]) -> Self:
        """Return the solver of some of the runs."""

    def adapted(self, iteration: int, numbers: Sequence[StepNumbers], stalled: Sequence[bool]) -> Self:
        """Return the solver of the next iteration; `stalled` runs come no nearer to a stationary point."""


@dataclass(frozen=True)
class Problem:
    """What the runs solve and are judged by.

    Attributes
    ----------
    A : Graph
        The graph.
    norm_A : float
        ‖A‖².
    K : int
        Columns of a run.
    weights : rows, (n, 2), or None
        Factors and degrees of the rows; given, the modularity of the labels is watched too.
    """

    A: Graph
    norm_A: float
    K: int
    weights: Rows | None = None


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
    done, products : int, default 0
        Iterations and products that came before.
    listeners : sequence of Listener
        Called after each iteration.
    resume : Progress, optional
        Where an interrupted loop was; it is continued, and `solver` and `state` are not looked at.
    keeper : Keeper, optional
        Called after each iteration, to write the progress down.
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
        before, (state, numbers) = state, steps.next(solver, state, iteration, last, pauses)
        verdicts = [one.judge.of_step(found) for one, found in zip(active, numbers, strict=True)]
        lost = [verdict is Status.DIVERGED for verdict in verdicts]
        if any(lost):
            state = _without(A, lost, solver.restart(A, before, state), state, problem.K)
        del before  # its memory is the next state's
        late = keeper is not None and keeper.out_of_time()
        if iteration == last or late:
            limit = Status.MAX_ITER if iteration == last else Status.OUT_OF_TIME
            verdicts = [verdict or limit for verdict in verdicts]

        look_now = regular(iteration)
        seen = [i for i, verdict in enumerate(verdicts) if look_now or verdict]
        found = dict(zip(seen, look(iteration, state.L, seen, len(active)), strict=True)) if seen else {}
        for i, one in enumerate(active):
            one.products += solver.products + (look.products if i in found else 0)
            seconds = time.perf_counter() - started
            one.history.append(_record(iteration, numbers[i], solver.rho[i], one.products, seconds, found.get(i)))
            one.status = one.judge.of_look(iteration, verdicts[i], found[i]) if i in found else None
        _tell(listeners, active, state, problem.K)

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
                columns = np.arange(i * problem.K, (i + 1) * problem.K)
                copy = A.map(take_columns, state.L, columns=columns, width=problem.K)
                (one.at_peak,), _ = A.settle((copy,), {})
                one.peak, one.rho = len(one.history), solver.rho[i]
        staying = [i for i, one in enumerate(active) if one.status is None]
        if len(staying) < len(active):
            _keep_best(A, solver, outcomes, active, state, problem.K)
        if not staying:
            return outcomes
        if len(staying) < len(active):
            state = _part(A, state, staying, len(active), problem.K)
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

    def __call__(self, iteration: int, L: Rows, seen: list[int], runs: int) -> list[Quality]:
        """Quality of the runs `seen`; labels are compared, and remembered, if these are all."""
        problem, A = self.problem, self.problem.A
        (L,) = _part(A, (L,), seen, runs, problem.K)
        labels = A.map(row_labels, L, runs=len(seen), width=len(seen), dtype=np.int32)
        numbers = {"quality": quality(A, L, norm_A=problem.norm_A, runs=len(seen))}
        if problem.weights is not None:
            numbers["modularity"] = modularities(A, labels, problem.weights, K=problem.K)
        whole = len(seen) == runs
        if whole and self.labels is not None:
            numbers["moved"] = A.sum(moved, self.labels, labels)
        (labels,), values = A.settle((labels,), numbers)
        if whole and (self.labels is None or iteration - self.since >= WINDOW):
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
    A: Graph, solver: Solver, outcomes: list[Outcome], active: list[Outcome], state: Any, K: int
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
        best.state = _part(A, state, [active.index(best)], len(active), K)
    best.at_peak = None


def _record(
    iteration: int, step: StepNumbers, rho: float, products: int, seconds: float, found: Quality | None
) -> IterationRecord:
    numbers = {"change": step.change, "primal": step.primal, "dual": step.dual, "rho": rho}
    looked = {} if found is None else found._asdict()
    looked.pop("score", None)
    return IterationRecord(iteration=iteration, products=products, seconds=seconds, **numbers, **looked)


def _part(A: Graph, state: Any, chosen: list[int], runs: int, K: int) -> Any:
    """The columns of some of the runs."""
    if len(chosen) == runs:
        return state
    columns = np.concatenate([np.arange(r * K, (r + 1) * K) for r in chosen])
    parts = [A.map(take_columns, rows, columns=columns, width=len(columns)) for rows in state]
    return A.settle(rebuild(state, parts), {})[0]


def _without(A: Graph, lost: list[bool], old: Any, new: Any, K: int) -> Any:
    """The new state, but the old one of runs that are lost."""
    columns = np.repeat(lost, K)
    parts = [A.map(_choose, a, b, old=columns) for a, b in zip(old, new, strict=True)]
    return A.settle(rebuild(new, parts), {})[0]


def _choose(before: np.ndarray, after: np.ndarray, *, old: np.ndarray) -> np.ndarray:
    return np.where(old, before, after)


def _tell(listeners: Sequence[Listener], active: list[Outcome], state: Any, K: int) -> None:
    """Tell the listeners of the run that leads: the one that captures most."""
    if not listeners:
        return
    curious = any(listener.sees_state for listener in listeners)
    leader = int(np.argmax([one.captured for one in active])) if len(active) > 1 else 0
    shown: Any = rebuild(state, [rows.array for rows in state]) if curious else None
    if curious and len(active) > 1:  # cut when looked at
        shown = type(state)(*(rows[:, leader * K : (leader + 1) * K] for rows in shown))
    for listener in listeners:
        listener.on_iteration(active[leader].history[-1], shown)
