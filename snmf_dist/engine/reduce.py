"""Sums in a tree of fixed shape, so that they do not depend on who added what when."""

from functools import reduce
from operator import add
from typing import Any

FAN_IN = 8  # values that are added at a time


def tree_sum(values: list[Any]) -> Any:
    """The sum of all values; tuples are added place by place, lists are put together.

    Examples
    --------
    >>> tree_sum([(1, 2.0), (10, 20.0)])
    (11, 22.0)
    """
    while len(values) > 1:
        values = [add_up(group) for group in in_groups(values)]
    return values[0]


def in_groups(values: list[Any]) -> list[list[Any]]:
    """One level of the tree: the values that are added to each other."""
    return [values[i : i + FAN_IN] for i in range(0, len(values), FAN_IN)]


def add_up(values: list[Any]) -> Any:
    """The sum of a few values, from the first to the last."""
    if isinstance(values[0], tuple):
        return tuple(reduce(add, column) for column in zip(*values, strict=True))
    return reduce(add, values)
