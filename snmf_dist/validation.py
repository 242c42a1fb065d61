"""Checks of settings that every verb shares: each names the setting, what was found and what was expected."""

import difflib
import math
import numbers
from collections.abc import Collection, Iterable
from typing import Any

from snmf_dist.errors import InputError


def whole_number(name: str, value: Any, low: int, high: int | None = None, *, why: str = "") -> int:
    """Return `value` as an int within the limits, or say what is wrong.

    Examples
    --------
    >>> whole_number("k", 3, 1, 10)
    3
    """
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise InputError(f"{name} is {value!r}; expected a whole number")
    number = int(value)
    if number < low or (high is not None and number > high):
        limit = f"at least {low}" if high is None else f"{low} to {high}{why}"
        raise InputError(f"{name} is {number}; expected {limit}")
    return number


def positive_number(name: str, value: Any, *, or_else: str = "") -> float:
    """Return `value` as a float above 0, or say what is wrong; `or_else` names a word that is allowed too."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise InputError(f"{name} is {value!r}; expected a number" + (f" or {or_else}" if or_else else ""))
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number) or number <= 0:
        raise InputError(f"{name} is {number}; expected a finite number above 0")
    return number


def synchronous(client: Any) -> Any:
    """Return the Dask client, or None, unless it is an asynchronous one, whose answers have to be awaited."""
    if client is not None and client.asynchronous:
        raise InputError(
            "the current Dask client is asynchronous; use Client(…) without asynchronous=True, outside a coroutine"
        )
    return client


def choice(name: str, value: Any, choices: tuple[Any, ...]) -> Any:
    """Return `value` if it is one of `choices`, or say what is wrong."""
    if value not in choices:
        raise InputError(f"{name} is {value!r}; expected one of {', '.join(map(repr, choices))}")
    return value


def known_names(what: str, given: Iterable[Any], valid: Collection[str]) -> None:
    """Refuse a name that is not one of `valid`, and suggest the nearest one.

    Examples
    --------
    >>> known_names("graph_settings", ["metrc"], ["metric", "seed"])
    Traceback (most recent call last):
    snmf_dist.errors.InputError: graph_settings has no setting 'metrc'; did you mean 'metric'? Expected some of ...
    """
    for name in given:
        if name not in valid:
            near = difflib.get_close_matches(str(name), valid, n=1)
            hint = f"did you mean {near[0]!r}? Expected" if near else "expected"
            raise InputError(f"{what} has no setting {name!r}; {hint} some of {', '.join(sorted(valid))}")
