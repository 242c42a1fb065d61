"""Listeners: the loop tells them of each iteration; one logs, one prints, one writes JSON lines.

A listener has five methods, all optional to override. Solvers and kernels neither print nor log.
"""

import dataclasses
import json
import logging
import math
import os
import sys
import warnings
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import IO, Any

from snmf_dist.errors import ResultWarning, StoreExists, StoreNotFound, reason
from snmf_dist.result.records import IterationRecord, Status

logger = logging.getLogger(__name__)

HEADER = "  iter  objective      captured       change    primal    dual      rho       time"


class Listener:
    """Base class of listeners, whose methods `fit` calls; here they do nothing.

    Attributes
    ----------
    sees_state : bool, default True
        Whether the listener looks at the state of the solver. If not, it gets None in its place.
    """

    sees_state = True

    def on_start(self, settings: dict[str, Any]) -> None:
        """Called with the settings of the run, before the first iteration."""

    def on_wait(self, why: str) -> None:
        """Called with a sentence on what takes a while, or on why the run continues from a checkpoint."""

    def on_phase(self, name: str) -> None:
        """Called when a phase of the run begins: "reading", "start", "iterations" or "saving"."""

    def on_iteration(self, record: IterationRecord, state: Any) -> None:
        """Called after an iteration; `state` is the named tuple of the solver (X, Y, L, …), as Dask arrays."""

    def on_end(self, status: Status | None) -> None:
        """Called with how the run ended; None if an error ended it."""


class LogLines(Listener):
    """Logs evaluated iterations (the first, every tenth, the last) at level INFO."""

    sees_state = False

    def on_wait(self, why: str) -> None:
        """Log it."""
        logger.info("%s", why)

    def on_iteration(self, record: IterationRecord, state: Any) -> None:
        """Log the line of an evaluated iteration."""
        if record.evaluated:
            logger.info("%s", format_record(record))

    def on_end(self, status: Status | None) -> None:
        """Log the status."""
        if status is not None:
            logger.info("%s: %s", status.name, status.value)


class TableLog(Listener):
    """Prints a plain table: a line for each evaluated iteration (the first, every tenth and the last).

    Parameters
    ----------
    stream : text file, default sys.stderr
        Where to print.
    """

    sees_state = False

    def __init__(self, stream: IO[str] | None = None) -> None:
        self.stream = stream

    def on_start(self, settings: dict[str, Any]) -> None:
        """Print the head of the table."""
        self._print(HEADER)

    def on_wait(self, why: str) -> None:
        """Print the sentence."""
        self._print(why)

    def on_iteration(self, record: IterationRecord, state: Any) -> None:
        """Print the line of an evaluated iteration."""
        if record.evaluated:
            self._print(format_record(record))

    def _print(self, line: str) -> None:
        print(line, file=self.stream or sys.stderr, flush=True)


class JsonLines(Listener):
    """Writes lines of JSON: an object for the settings, one for each iteration, and one for the status.

    Parameters
    ----------
    path : str, path-like or text file
        An open file, or the path of one that is written anew. Each line is written at once, so that another
        program can follow it.
    """

    sees_state = False

    def __init__(self, path: str | os.PathLike[str] | IO[str]) -> None:
        self.torn = False  # whether the last line may be there in part
        self.stream = None if isinstance(path, str | os.PathLike) else path
        if not isinstance(path, str | os.PathLike):
            return
        self.path = os.path.abspath(os.path.expanduser(path))
        if os.path.isdir(self.path):
            raise StoreExists(f"{self.path}: is a folder; expected a file for the lines of JSON")
        if not os.path.isdir(os.path.dirname(self.path)):
            raise StoreNotFound(f"{os.path.dirname(self.path)}: no such directory; make it first")

    def on_start(self, settings: dict[str, Any]) -> None:
        """Begin the file with the settings."""
        self._write({"event": "start", **settings}, mode="w")

    def on_iteration(self, record: IterationRecord, state: Any) -> None:
        """Add an iteration; numbers that were not taken are null."""
        fields = dataclasses.asdict(record)
        plain = {k: v if math.isfinite(v) else None for k, v in fields.items()}
        self._write({"event": "iteration", **plain})

    def on_end(self, status: Status | None) -> None:
        """Add the status, null if an error ended the run."""
        name, text = (None, "an error ended the run") if status is None else (status.name, status.value)
        self._write({"event": "end", "status": name, "message": text})

    def _write(self, event: dict[str, Any], mode: str = "a") -> None:
        line = ("\n" if self.torn else "") + json.dumps(event) + "\n"
        self.torn = True
        if self.stream is not None:
            self.stream.write(line)
            self.stream.flush()
        else:
            with open(self.path, mode, encoding="utf-8") as file:
                file.write(line)
        self.torn = False


class Guarded(Listener):
    """Hears for another listener; what that one cannot write is warned of once, and does not end the run.

    Parameters
    ----------
    listener : Listener
        After it failed to write it hears of the end only. Errors other than those of writing are its own.
    """

    def __init__(self, listener: Listener) -> None:
        self.listener, self.failed = listener, False

    @property
    def sees_state(self) -> bool:  # type: ignore[override]
        """As the other listener has it."""
        return self.listener.sees_state

    def on_start(self, settings: dict[str, Any]) -> None:
        """Pass it on."""
        self._pass_on(self.listener.on_start, settings)

    def on_wait(self, why: str) -> None:
        """Pass it on."""
        self._pass_on(self.listener.on_wait, why)

    def on_phase(self, name: str) -> None:
        """Pass it on."""
        self._pass_on(self.listener.on_phase, name)

    def on_iteration(self, record: IterationRecord, state: Any) -> None:
        """Pass it on."""
        self._pass_on(self.listener.on_iteration, record, state)

    def on_end(self, status: Status | None) -> None:
        """Pass it on, whatever happened before."""
        failed, self.failed = self.failed, False
        self._pass_on(self.listener.on_end, status, quiet=failed)

    def _pass_on(self, hear: Callable[..., None], *heard: Any, quiet: bool = False) -> None:
        if self.failed:
            return
        try:
            hear(*heard)
        except (OSError, UnicodeError) as error:
            self.failed = True
            if not quiet:
                where = getattr(self.listener, "path", None)
                what = (
                    f"{where}: the iterations are" if where else f"{type(self.listener).__name__}: its lines are"
                )
                text = f"{what} no longer written ({reason(error)}); the run goes on"
                warnings.warn(text, ResultWarning, stacklevel=2)


def tell_phase(listeners: Iterable[Listener], name: str) -> None:
    """Tell listeners that a phase of the run begins."""
    for listener in listeners:
        listener.on_phase(name)


def format_record(record: IterationRecord) -> str:
    """Format an evaluated iteration as a line under `HEADER`.

    Examples
    --------
    >>> format_record(IterationRecord(10, 3.3e-2, 4e-2, 1.9e-2, 0.1, 21, 19.2, 655.3, 155.1, 1e-3))
    '    10  6.553000e+02   1.551000e+02   3.3e-02   4.0e-02   1.9e-02   1.0e-01   0:00:19'
    """
    return (
        f"{record.iteration:6d}  {record.objective:.6e}   {record.captured:.6e}   "
        f"{record.change:.1e}   {record.primal:.1e}   {record.dual:.1e}   {record.rho:.1e}   "
        f"{timedelta(seconds=int(record.seconds))}"
    )
