"""What a single task on a worker does: call a function on row blocks, on small values, or in a sweep over A.

Each call is a picklable object that carries the function and all arguments that are known when it is described.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from snmf_dist.engine.halo import RowSource
from snmf_dist.engine.reduce import add_up
from snmf_dist.engine.serving import WorkerBlock, fetch_halo, room_of
from snmf_dist.engine.spent import spending


@dataclass(frozen=True)
class SweepCall:
    """The work of one block in a sweep.

    Attributes
    ----------
    f : callable
        ``f(block, own, halo, **rows, out=[…], **scalars)``, which writes to `out` and returns a value to add up.
    rows : tuple of str
        The names of the aligned row blocks.
    late : tuple of str
        The names of the scalars that other tasks compute.
    scalars : mapping
        The other scalars.
    widths : tuple of int
        Columns of each result.
    adds_up : bool
        Whether what `f` returns is added up over the blocks.
    source : RowSource
        Where the rows of the other blocks are.
    """

    f: Callable[..., Any]
    rows: tuple[str, ...]
    late: tuple[str, ...]
    scalars: Mapping[str, Any]
    widths: tuple[int, ...]
    adds_up: bool
    source: RowSource

    def __call__(self, A: WorkerBlock, own: np.ndarray, *values: Any) -> Any:
        """Do it; the results and then the value to add up, or the only one of these."""
        buffers = room_of(A.run).buffers
        work = getattr(self.f, "__name__", type(self.f).__name__)
        with spending(f"halo of {work}") as moved:
            halo = fetch_halo(A, self.source, own, buffers)
            moved.size = halo.nbytes
        out = [buffers.empty((len(own), width), own.dtype) for width in self.widths]
        rows, late = dict(zip(self.rows, values, strict=False)), values[len(self.rows) :]
        scalars = {**self.scalars, **dict(zip(self.late, late, strict=False))}
        with spending(f"sweep of {work}"):
            total = self.f(A.open(), own, halo, **rows, out=out, **scalars)
        if not self.adds_up:
            return out[0]
        return (*out, total) if out else total


@dataclass(frozen=True)
class RowCall:
    """``f(*row blocks, **scalars)``; scalars that other tasks compute come behind the row blocks."""

    f: Callable[..., Any]
    late: tuple[str, ...] = ()
    scalars: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self, *values: Any) -> Any:
        """Call it; a block of A is opened first."""
        cut = len(values) - len(self.late)
        rows = [value.open() if isinstance(value, WorkerBlock) else value for value in values[:cut]]
        return self.f(*rows, **self.scalars, **dict(zip(self.late, values[cut:], strict=True)))


@dataclass(frozen=True)
class ReadCall:
    """``f(start, stop, **scalars)`` for the rows of a block of A."""

    f: Callable[..., np.ndarray]
    scalars: Mapping[str, Any]

    def __call__(self, A: WorkerBlock) -> np.ndarray:
        """Call it."""
        return self.f(int(A.bounds[A.i]), int(A.bounds[A.i + 1]), **self.scalars)


@dataclass(frozen=True)
class WriteCall:
    """``write(start, rows)`` for a row block; the whole number it returns comes in a list, to be put together."""

    write: Callable[[int, np.ndarray], int]

    def __call__(self, start: int, rows: np.ndarray) -> list[int]:
        """Write it."""
        return [int(self.write(start, rows))]


@dataclass(frozen=True)
class CentralCall:
    """``f(*values, **scalars)`` of small values, some of which are first added up.

    Attributes
    ----------
    sums : tuple of bool
        For each value whether it comes as a list to add up.
    """

    f: Callable[..., Any]
    sums: tuple[bool, ...]
    scalars: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self, *values: Any) -> Any:
        """Call it."""
        pairs = zip(values, self.sums, strict=True)
        with spending("central"):
            return self.f(*(add_up(value) if to_add else value for value, to_add in pairs), **self.scalars)


def pick(made: Any, part: int) -> Any:
    """One of the things that a task returned."""
    return made[part]


def nothing(*rows: Any) -> int:
    """0, once the rows are there."""
    return 0


def converted(A: WorkerBlock, rows: np.ndarray, *, type: np.dtype) -> np.ndarray:
    """The rows with entries of a type; `A` is there to have them made where it is."""
    return np.asarray(rows, dtype=type)


def same_value(value: Any) -> Any:
    """The value itself: a sum that is added up once for all who use it."""
    return value


def some_rows(rows: np.ndarray, index: np.ndarray) -> np.ndarray:
    """Some rows of a block."""
    return np.asarray(rows[index])
