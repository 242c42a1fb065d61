"""What the loop solves, and what it asks of an algorithm."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, Self

from snmf_dist.engine.rows import Graph, Rows
from snmf_dist.solve.stopping import StepNumbers


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
        The columns of a row that a step reads and writes, in multiples of K.
    """

    name: ClassVar[str]
    products: ClassVar[int]
    penalty: ClassVar[float]
    arrays: ClassVar[int]
    task_columns: ClassVar[int]

    @property
    def rho(self) -> tuple[float, ...]:
        """Penalty of each run, for the record."""

    @property
    def widths(self) -> tuple[int, ...]:
        """Columns of each run, where they may differ; empty if all have as many."""

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
        Columns of a run; of the widest, where the solver says that they differ.
    weights : rows, (n, 2), or None
        Factors and degrees of the rows; given, the modularity of the labels is watched too.
    """

    A: Graph
    norm_A: float
    K: int
    weights: Rows | None = None

    def widths(self, solver: Solver) -> tuple[int, ...]:
        """Columns of each run that the solver carries."""
        return solver.widths or (self.K,) * len(solver.rho)
