"""What the commands print: facts, a line each, and the summary of a solution; and where it goes."""

import errno
import io
import math
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

import click
from rich.console import Console
from rich.markup import escape

import snmf_dist


def new_console(*, stderr: bool = False) -> Console:
    """Lines as they are: not wrapped at the width of a terminal, numbers not coloured."""
    return Console(soft_wrap=True, highlight=False, stderr=stderr)


class SafeOutput(io.TextIOBase):
    """A text file that takes every line: what cannot be written is dropped, and what was lost is remembered.

    Letters that its encoding does not have become question marks. A reader that went away has read what it wanted.

    Parameters
    ----------
    stream : text file
        Where the lines go.
    """

    def __init__(self, stream: IO[str]) -> None:
        self.stream = stream
        self.error: OSError | None = None

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """Of the stream."""
        return str(getattr(self.stream, "encoding", None) or "utf-8")

    @property
    def lost(self) -> OSError | None:
        """Why lines were lost that someone might have read; None if none were."""
        gone = self.error is not None and self.error.errno == errno.EPIPE
        return None if gone else self.error

    def write(self, text: str) -> int:
        """Write, unless writing failed before."""
        if self.error is None:
            try:
                self.stream.write(text.encode(self.encoding, "replace").decode(self.encoding))
            except OSError as error:
                self.error = error
        return len(text)

    def flush(self) -> None:
        """Write what was kept back."""
        if self.error is None:
            try:
                self.stream.flush()
            except OSError as error:
                self.error = error

    def isatty(self) -> bool:
        """Whether the stream is a terminal."""
        return self.stream.isatty()

    def fileno(self) -> int:
        """The number of the stream's file."""
        return self.stream.fileno()


@contextmanager
def safe_output() -> Iterator[SafeOutput]:
    """Let standard output and standard error be `SafeOutput` in the body, and give the first of them."""
    streams = sys.stdout, sys.stderr
    with open(os.devnull, "w", encoding="utf-8") as null:
        out, err = (SafeOutput(stream or null) for stream in streams)  # None: it was closed from the start
        sys.stdout, sys.stderr = out, err
        try:
            yield out
        finally:
            sys.stdout, sys.stderr = streams
            for kept in (out, err):
                kept.flush()
                if kept.error is not None:  # else Python tries again when it ends, and fails
                    os.dup2(null.fileno(), kept.stream.fileno())


def print_facts(console: Console, facts: dict[str, Any]) -> None:
    """Print a line for each fact: its name and its value."""
    for name, value in facts.items():
        console.print(f"[bold]{name:23}[/] {escape(str(value))}")


def print_solution(console: Console, solution: snmf_dist.Solution, truth: Any) -> None:
    """Print how a run ended, what it found, and, if the true labels are known, how well they were met."""
    facts: dict[str, Any] = {
        "status": f"{solution.status.name}: {solution.status.value}",
        "iterations": solution.n_iter,
        "products with A": solution.n_products,
        "captured energy": f"{solution.captured:.6g}"
        + ("" if math.isnan(solution.bound) else f" ({solution.captured / solution.bound:.4%} of the bound)"),
        "objective": f"{solution.objective:.6g}",
        "KKT distance": f"{solution.kkt:.2e}",
        "cluster sizes": " ".join(map(str, sorted(solution.sizes.tolist(), reverse=True))),
        "rows in no cluster": solution.n_unassigned,
    }
    if len(solution.runs) > 1:
        facts["runs, captured"] = " ".join(f"{run['captured']:.6g}" for run in solution.runs)
    if len(solution.eigengap):
        facts["largest eigengap"] = f"{solution.eigengap.max():.3g} after {solution.eigengap.argmax() + 1}"
    if truth is not None:
        facts |= _scores(solution.labels, truth)
        if solution.spectral_labels is not None:
            facts |= _scores(solution.spectral_labels, truth, "spectral clustering: ")
    print_facts(console, facts)


def _scores(labels: Any, truth: Any, who: str = "") -> dict[str, str]:
    return {who + name: f"{value:.4f}" for name, value in snmf_dist.score(labels, truth)._asdict().items()}


def number_or_auto(text: str, option: str) -> float | str:
    """The value of an option: "auto" or a number."""
    if text == "auto":
        return text
    try:
        return float(text)
    except ValueError:
        raise click.BadParameter(f"{text!r} is neither a number nor auto", param_hint=option) from None
