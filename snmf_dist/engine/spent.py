"""What this process has spent on each kind of work so far: always counted, a few numbers a task."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple


class Spent(NamedTuple):
    """What one kind of work took: how often it was done, seconds of the clock and of the processor, and bytes."""

    calls: int = 0
    seconds: float = 0.0
    cpu: float = 0.0
    size: int = 0


@dataclass
class Moved:
    """The bytes that a piece of work has moved, to be set by it."""

    size: int = 0


_lock = threading.Lock()
_spent: dict[str, Spent] = {}


@contextmanager
def spending(kind: str, cpu: Callable[[], float] = time.thread_time) -> Iterator[Moved]:
    """Count the body as work of a kind.

    Parameters
    ----------
    kind : str
        The name of the kind.
    cpu : callable, default `time.thread_time`
        The clock of the processor; `time.process_time` where other threads do the work.

    Examples
    --------
    >>> with spending("a trip") as moved:
    ...     moved.size = 10
    >>> spent()["a trip"].calls, spent()["a trip"].size
    (1, 10)
    """
    moved, began, worked = Moved(), time.perf_counter(), cpu()
    try:
        yield moved
    finally:
        seconds, work = time.perf_counter() - began, cpu() - worked
        with _lock:
            was = _spent.get(kind, Spent())
            _spent[kind] = Spent(was.calls + 1, was.seconds + seconds, was.cpu + work, was.size + moved.size)


def spent() -> dict[str, Spent]:
    """What each kind of work has taken so far."""
    with _lock:
        return dict(_spent)
