"""Which columns of the rows belong to which of the runs side by side, and how to take some of them."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from snmf_dist.engine.rows import Graph, Rows, rebuild
from snmf_dist.solve.kernels import take_columns


def columns_of(widths: Sequence[int], chosen: Sequence[int]) -> np.ndarray:
    """The columns of some of the runs.

    Examples
    --------
    >>> columns_of([2, 3, 1], [0, 2]).tolist()
    [0, 1, 5]
    """
    ends = np.cumsum(widths)
    return np.concatenate([np.arange(ends[r] - widths[r], ends[r]) for r in chosen])


def part(A: Graph, state: Any, chosen: Sequence[int], widths: Sequence[int]) -> Any:
    """The rows of some of the runs, in memory of their own unless these are all."""
    if len(chosen) == len(widths):
        return state
    columns = columns_of(widths, chosen)
    parts = [A.map(take_columns, rows, columns=columns, width=len(columns)) for rows in state]
    return A.settle(rebuild(state, parts), {})[0]


def copied(A: Graph, rows: Rows, run: int, widths: Sequence[int]) -> Rows:
    """A copy of the columns of one run."""
    copy = A.map(take_columns, rows, columns=columns_of(widths, [run]), width=widths[run])
    (found,), _ = A.settle((copy,), {})
    return found


def without(A: Graph, lost: Sequence[bool], old: Any, new: Any, widths: Sequence[int]) -> Any:
    """The new state, but the old one of runs that are lost."""
    columns = np.repeat(lost, widths)
    parts = [A.map(_choose, a, b, old=columns) for a, b in zip(old, new, strict=True)]
    return A.settle(rebuild(new, parts), {})[0]


def _choose(before: np.ndarray, after: np.ndarray, *, old: np.ndarray) -> np.ndarray:
    return np.where(old, before, after)
