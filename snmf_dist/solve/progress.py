"""How far runs are: all that the next iteration depends on, as data that can be written down and read back."""

import dataclasses
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from snmf_dist.engine.rows import Rows
from snmf_dist.result.records import IterationRecord, Status
from snmf_dist.solve.stopping import Judge


@dataclass(eq=False)
class Outcome:
    """One run: how far it is, and in the end, if it is the best of all, its state."""

    judge: Judge
    products: int
    rho: float
    history: list[IterationRecord] = field(default_factory=list)
    status: Status | None = None
    state: Any = None
    label_score: float = 0.0  # F of the labels, the score of `modularities`, if it is watched
    peak: int = 0  # length of the history when the labels were best, if that is watched
    at_peak: Rows | None = None  # L at that time

    @property
    def ended(self) -> Status:
        """How it ended; for runs that have."""
        assert self.status is not None
        return self.status

    @property
    def score(self) -> tuple[bool, float, float]:
        """What the runs of a fit compete by: not lost, F of the labels if it is watched, and c."""
        return (self.status is not Status.DIVERGED, self.label_score, self.captured)

    @property
    def captured(self) -> float:
        """c when it was last taken."""
        return next((record.captured for record in reversed(self.history) if record.evaluated), math.nan)


@dataclass(eq=False)
class Progress:
    """Where a loop is after an iteration.

    Attributes
    ----------
    iteration : int
        The last iteration done.
    solver : Solver
        The solver of the next one.
    state : named tuple of rows
        Its state, of the runs that go on.
    outcomes : list of Outcome
        All runs.
    active : list of int
        Which of them go on.
    labels : rows of int, or None
        The labels that the next evaluation compares with.
    since : int
        The iteration that they are from.
    seconds : float
        Time spent so far.
    """

    iteration: int
    solver: Any
    state: Any
    outcomes: list[Outcome]
    active: list[int]
    labels: Rows | None = None
    since: int = 0
    seconds: float = 0.0

    def rows(self) -> dict[str, Rows]:
        """All rows of it, by names."""
        found: dict[str, Rows] = {f"state-{name}": rows for name, rows in self.state._asdict().items()}
        if self.labels is not None:
            found["labels"] = self.labels
        for r, one in enumerate(self.outcomes):
            if one.at_peak is not None:
                found[f"peak-{r}"] = one.at_peak
            if one.state is not None:
                found |= {f"ended-{r}-{name}": rows for name, rows in one.state._asdict().items()}
        return found

    def facts(self) -> str:
        """All else of it, as text."""
        outcomes = [
            {
                "judge": dataclasses.asdict(one.judge),
                "products": one.products,
                "rho": one.rho,
                "history": [dataclasses.astuple(record) for record in one.history],
                "status": one.status and one.status.name,
                "label_score": one.label_score,
                "peak": one.peak,
            }
            for one in self.outcomes
        ]
        here = {
            "iteration": self.iteration,
            "solver": dataclasses.asdict(self.solver),
            "outcomes": outcomes,
            "active": self.active,
            "since": self.since,
            "seconds": self.seconds,
        }
        return json.dumps(here)

    @classmethod
    def restored(cls, facts: str, names: list[str], read: Callable[[str], Rows], make: Any) -> "Progress":
        """The progress that was written down.

        Parameters
        ----------
        facts : str
            What `facts` returned.
        names : list of str
            The names of the rows.
        read : callable
            Gives the rows of a name.
        make : class
            The class of the solver.
        """
        given = json.loads(facts)
        fields = {k: tuple(v) if isinstance(v, list) else v for k, v in given["solver"].items()}
        outcomes = []
        for r, one in enumerate(given["outcomes"]):
            judge = one["judge"] | {"reference": one["judge"]["reference"] and tuple(one["judge"]["reference"])}
            ended = [name for name in names if name.startswith(f"ended-{r}-")]
            outcomes.append(
                Outcome(
                    Judge(**judge),
                    one["products"],
                    one["rho"],
                    [IterationRecord(*record) for record in one["history"]],
                    Status[one["status"]] if one["status"] else None,
                    make.State(*(read(f"ended-{r}-{f}") for f in make.State._fields)) if ended else None,
                    one["label_score"],
                    one["peak"],
                    read(f"peak-{r}") if f"peak-{r}" in names else None,
                )
            )
        return cls(
            iteration=given["iteration"],
            solver=make(**fields),
            state=make.State(*(read(f"state-{name}") for name in make.State._fields)),
            outcomes=outcomes,
            active=given["active"],
            labels=read("labels") if "labels" in names else None,
            since=given["since"],
            seconds=given["seconds"],
        )


class Keeper(Protocol):
    """Writes progress down now and then; the loop calls it after each iteration."""

    def after_iteration(self, progress: Callable[[], Progress]) -> None:
        """Write the progress down if it is time to; raise to end the run."""

    def out_of_time(self) -> bool:
        """Whether the run is to end with the next iteration."""

    def note(self, facts: Mapping[str, Any], rows: Mapping[str, Rows]) -> None:
        """Remember what the start of a run found, to be written down with each progress."""
