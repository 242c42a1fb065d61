"""One run of a scaling study: a fit, and what each phase of it cost in every process.

The phases that are looked at from outside, at their ends, are reading, start, iterations and saving. The
iterations are then split by what the processes themselves have counted (`engine.spent`):

- sweep: going over A and making rows, the mean over the workers;
- halo: waiting for rows of other workers, the mean over the workers;
- KxK: the work that is done once for all rows;
- evaluation: objective, KKT distance and labels every tenth iteration;
- engine: the rest, which is messages, scheduling, and waiting for the slowest worker.
"""

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from snmf_dist.api import fit
from snmf_dist.engine import machine
from snmf_dist.engine.asking import Answer, ask_scheduler, ask_workers, limited
from snmf_dist.engine.metrics import counts
from snmf_dist.engine.spent import Spent, spent
from snmf_dist.engine.waiting import worker_addresses
from snmf_dist.errors import WorkLost
from snmf_dist.listeners import Listener
from snmf_dist.result.solution import Solution

RUN_PHASES = ("read", "start", "sweep", "halo", "KxK", "engine", "evaluation", "save")
OUTER = {"checks": "start", "reading": "read", "start": "start", "saving": "save"}  # as fit tells them: as we do
COLUMNS = (
    "seconds",
    "cpu_client",
    "cpu_scheduler",
    "cpu_workers",
    "bytes_read",
    "bytes_written",
    "bytes_sent",
    "products",
    "tasks",
)
OF_A_STEP = ("update_X", "update_rest")  # the two sweeps of an iteration of ADMM
NOT_OF_A_STEP = "others"  # the sweeps that are not
NOTHING = Spent()


@dataclass(frozen=True)
class Process:
    """What a process has spent so far.

    Attributes
    ----------
    pid : int
        Number of the process.
    cpu : float
        Seconds of the processor.
    read : int
        Bytes read from files.
    written : int
        Bytes written to files.
    sent : int
        Bytes of rows sent to other workers.
    peak : int
        The most bytes of memory since they were last forgotten.
    tasks : int
        Tasks that the scheduler has seen end.
    work : mapping
        What each kind of work took.
    """

    pid: int
    cpu: float
    read: int
    written: int
    sent: int
    peak: int
    tasks: int
    work: Mapping[str, Spent]


def this_process() -> Process:
    """What this process has spent so far."""
    read, written = machine.bytes_moved()
    cpu, sent, peak = time.process_time(), counts().bytes, machine.recent_peak()
    return Process(os.getpid(), cpu, read, written, sent, peak, 0, spent())


def scheduler_process(dask_scheduler: Any) -> Process:
    """The same of the scheduler, which Dask hands over, with the tasks that it has seen end."""
    ended = sum(prefix.state_counts["memory"] for prefix in dask_scheduler.task_prefixes.values())
    return replace(this_process(), tasks=ended)


@dataclass(frozen=True)
class Mark:
    """All processes at one moment: the one that asks, the scheduler if there is one, and the workers by address.

    Attributes
    ----------
    name : str
        The phase that begins here.
    entered : float
        The clock before the processes were asked.
    left : float
        The clock afterwards.
    """

    name: str
    entered: float
    left: float
    client: Process
    scheduler: Process | None
    workers: Mapping[str, Process]


class PhaseClock(Listener):
    """Looks at all processes whenever a phase of a fit begins.

    Parameters
    ----------
    client : distributed.Client or None
        The client of the cluster that the fit runs on.
    """

    sees_state = False

    def __init__(self, client: Any) -> None:
        self.client, self.marks = client, list[Mark]()
        self.addresses = [] if client is None else worker_addresses(client)

    def on_phase(self, name: str) -> None:
        """Look."""
        if any(mark.name == name for mark in self.marks):
            raise WorkLost(f"the phase {name!r} began twice, since a worker was lost; it is not measured")
        entered = time.perf_counter()
        workers = self._ask(this_process)
        scheduler = None
        if self.client is not None:
            scheduler = _value("the scheduler", ask_scheduler(self.client, scheduler_process))
        self.marks.append(Mark(name, entered, time.perf_counter(), this_process(), scheduler, workers))

    def forget_peaks(self) -> None:
        """Have the memory of each process counted from now on."""
        machine.release_memory()
        machine.forget_peak()
        self._ask(machine.release_memory)
        self._ask(machine.forget_peak)

    def _ask(self, f: Callable[[], Any]) -> dict[str, Any]:
        if self.client is None:
            return {}
        answers = ask_workers(self.client, dict.fromkeys(self.addresses, ()), f)
        return {address: _value(f"worker {address}", answer) for address, answer in answers.items()}


def _value(who: str, answer: Answer) -> Any:
    if answer.problem:
        raise WorkLost(
            f"{who} was asked what it has spent, and did not say ({answer.problem}); start the study again"
        )
    return answer.value


@dataclass(frozen=True)
class Measured:
    """What a run cost.

    Attributes
    ----------
    solution : Solution
        What it found.
    wall : float
        Seconds from the call of `fit` to its end, without those in which the processes were asked.
    phases : list of dict
        A row a phase, in the order of `RUN_PHASES`.
    facts : dict
        Numbers of the whole run.
    """

    solution: Solution
    wall: float
    phases: list[dict[str, Any]]
    facts: dict[str, Any]


def measure_run(store: Any, k: int, out: str, client: Any, **settings: Any) -> Measured:
    """Fit, save the result to `out`, and say what each phase cost; `settings` are those of `fit`."""
    clock = PhaseClock(client)
    clock.forget_peaks()
    clock.on_phase("checks")
    saving: Any = {"out": out, "overwrite": True, "resume": False, "checkpoint_every": None}
    solution = fit(store, k, listeners=[clock], **saving, **settings)
    clock.on_phase("end")
    spans = {before.name: Span(before, after) for before, after in pairwise(clock.marks)}
    rows = {name: dict.fromkeys(COLUMNS, 0.0) for name in RUN_PHASES}
    for name, phase in OUTER.items():
        _add(rows[phase], spans[name].row())
    steps = spans["iterations"]
    iterations = max(solution.n_iter, 1)
    blocks = max(round(steps.all_work("sweep of ", OF_A_STEP[:1]).calls / iterations), 1)
    lanes = 1 if client is None else min(sum(limited(client.nthreads).values()), blocks)
    for phase, row in split(steps, lanes).items():
        _add(rows[phase], row)
    for span, phase in ((spans["start"], "start"), (steps, "sweep"), (steps, "evaluation")):
        names = {"start": None, "sweep": OF_A_STEP, "evaluation": NOT_OF_A_STEP}[phase]
        rows[phase]["products"] = span.all_work("sweep of ", names).calls / blocks
    halo, last = steps.all_work("halo of ", OF_A_STEP), clock.marks[-1]
    peaks = [one.peak for one in last.workers.values()]
    facts = {
        "n": store.n,
        "nnz": store.nnz,
        "iterations": solution.n_iter,
        "evaluations": sum(record.evaluated for record in solution.history),
        "start_products": rows["start"]["products"],
        "blocks": blocks,
        "halo_rows": halo.size / (k * store.dtype.itemsize) / max(halo.calls, 1),
        "tasks": rows["engine"]["tasks"] / iterations,
        "peak_bytes": max(peaks or [last.client.peak]),
        "planned_bytes": solution.provenance["planned_bytes"],
        "way": solution.provenance["way"],
    }
    wall = sum(span.seconds for span in spans.values())
    return Measured(solution, wall, [{"phase": name, **rows[name]} for name in RUN_PHASES], facts)


@dataclass(frozen=True)
class Span:
    """What lies between two marks."""

    before: Mark
    after: Mark

    @property
    def seconds(self) -> float:
        """On the wall clock."""
        return self.after.entered - self.before.left

    def pairs(self) -> list[tuple[Process, Process]]:
        """The processes that have the rows, before and after: the workers, or the one there is."""
        if not self.before.workers:
            return [(self.before.client, self.after.client)]
        return [(one, self.after.workers[address]) for address, one in self.before.workers.items()]

    def all_work(self, kind: str, names: Any = None) -> Spent:
        """What all processes took for a kind of work: of the kernels named, of all, or of `NOT_OF_A_STEP`."""
        return _sum(self.pairs(), kind, names)

    def row(self) -> dict[str, float]:
        """The numbers of a phase that is not split."""
        here, there = self.before, self.after
        found = {"seconds": self.seconds, "cpu_client": there.client.cpu - here.client.cpu}
        everyone = [(here.client, there.client)]
        if here.scheduler is not None and there.scheduler is not None:
            found["tasks"] = there.scheduler.tasks - here.scheduler.tasks
            if here.scheduler.pid != here.client.pid:
                found["cpu_scheduler"] = there.scheduler.cpu - here.scheduler.cpu
        if here.workers:
            found["cpu_workers"] = sum(after.cpu - before.cpu for before, after in self.pairs())
            everyone += self.pairs()
        for name, field in {"bytes_read": "read", "bytes_written": "written", "bytes_sent": "sent"}.items():
            found[name] = sum(getattr(after, field) - getattr(before, field) for before, after in everyone)
        return found


def split(steps: Span, lanes: int) -> dict[str, dict[str, float]]:
    """The iterations, by what is done in them; `lanes` threads of workers work side by side."""
    whole, local = steps.row(), not steps.before.workers
    sweep, halo = steps.all_work("sweep of ", OF_A_STEP), steps.all_work("halo of ", OF_A_STEP)
    central = steps.all_work("central")
    looks = _sum([(steps.before.client, steps.after.client)], "evaluation")
    asked = halo.size + steps.all_work("halo of ", NOT_OF_A_STEP).size
    sent = whole["bytes_sent"] * halo.size / max(asked, 1)
    cpu = "cpu_client" if local else "cpu_workers"
    found: dict[str, dict[str, float]] = {
        "sweep": {"seconds": sweep.seconds / lanes, cpu: sweep.cpu, "bytes_read": whole["bytes_read"]},
        "halo": {"seconds": halo.seconds / lanes, cpu: halo.cpu, "bytes_sent": sent},
        "KxK": {"seconds": central.seconds, cpu: central.cpu},
        "evaluation": {
            "seconds": looks.seconds,
            "cpu_client": looks.cpu,
            "bytes_sent": whole["bytes_sent"] - sent,
        },
    }
    if not local:
        others = [steps.all_work(kind, NOT_OF_A_STEP).cpu for kind in ("sweep of ", "halo of ")]
        found["evaluation"]["cpu_workers"] = sum(others)
    rest = {name: whole.get(name, 0.0) - sum(row.get(name, 0.0) for row in found.values()) for name in COLUMNS}
    found["engine"] = {name: max(value, 0.0) for name, value in rest.items()}
    return found


def _sum(pairs: list[tuple[Process, Process]], kind: str, names: Any = None) -> Spent:
    total = NOTHING
    for before, after in pairs:
        for full, now in after.work.items():
            if full.startswith(kind) and _is_named(full.removeprefix(kind), names):
                was = before.work.get(full, NOTHING)
                calls, seconds, cpu, size = (a + b - c for a, b, c in zip(total, now, was, strict=True))
                total = Spent(int(calls), seconds, cpu, int(size))
    return total


def _is_named(name: str, names: Any) -> bool:
    if names is None:
        return True
    return name not in OF_A_STEP if names is NOT_OF_A_STEP else name in names


def _add(row: dict[str, float], more: Mapping[str, float]) -> None:
    for name, value in more.items():
        row[name] += value
