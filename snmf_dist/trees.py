"""Sums in a tree of fixed shape, so that they do not depend on who added what when."""

from functools import reduce
from operator import add
from typing import Any

FAN_IN = 8  # values added at a time


def tree_sum(values: list[Any]) -> Any:
    """The sum of all values; tuples are added place by place, lists are put together.

    Examples
    --------
    >>> tree_sum([(1, 2.0), (10, 20.0)])
    (11, 22.0)
    """
    while len(values) > 1:
        values = [add_up(values[i : i + FAN_IN]) for i in range(0, len(values), FAN_IN)]
    return values[0]


def add_up(values: list[Any]) -> Any:
    """The sum of a few values, from the first to the last."""
    if isinstance(values[0], tuple):
        return tuple(reduce(add, column) for column in zip(*values, strict=True))
    return reduce(add, values)
