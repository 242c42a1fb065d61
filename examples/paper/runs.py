"""What the tables share: rows that are kept as they are made, the command line, and pages of results.

A row is one method on one problem from one start. Each is appended to ``rows.jsonl`` when it is done, so a run
that was killed goes on where it was.
"""

import argparse
import csv
import json
import platform
import tempfile
from collections.abc import Iterable, Iterator
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import methods
import numpy as np
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from sets import Points, draw_classes, make_problem, read_points

import snmf_dist

KEY = ("set", "k", "subset", "start", "method")
FIGURES = ("AC", "NMI", "seconds", "cpu", "products", "objective", "note")
PACKAGES = ("snmf-dist", "numpy", "scipy", "scikit-learn", "numba", "dask")


class Case(NamedTuple):
    """One problem: a data set, so many of its classes, and the number of their draw."""

    set: str
    k: int
    subset: int = 0


class Ledger:
    """The rows of a run, in a file that grows by a line a row.

    Parameters
    ----------
    folder : path
        Made if it is not there; its ``rows.jsonl`` is gone on with.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / "rows.jsonl"
        self.rows: dict[tuple, dict[str, Any]] = {}
        text = self.path.read_text() if self.path.exists() else ""
        whole = text[: text.rfind("\n") + 1]
        if whole != text:  # a kill cut the last line short: its row is made again
            self.path.write_text(whole)
        for row in map(json.loads, whole.splitlines()):
            self.rows[tuple(row[name] for name in KEY)] = row

    def add(self, key: tuple, figures: dict[str, Any]) -> None:
        """Keep a row, on disk too."""
        row = {**dict(zip(KEY, key, strict=True)), **figures}
        with self.path.open("a") as file:
            file.write(json.dumps(row) + "\n")
        self.rows[key] = row

    def figures(self, name: str, **where: Any) -> list[Any]:
        """One figure of all rows that match, without those that have none."""
        found = [row[name] for row in self.rows.values() if all(row[key] == where[key] for key in where)]
        return [value for value in found if value is not None]

    def by_run(self, name: str, **where: Any) -> dict[tuple[int, int], Any]:
        """One figure of all rows that match, by the subset and the start: to compare methods on the same runs."""
        rows = [row for row in self.rows.values() if all(row[key] == where[key] for key in where)]
        return {(row["subset"], row["start"]): row[name] for row in rows if row[name] is not None}

    def mean(self, name: str, **where: Any) -> float:
        """The mean of a figure over all rows that match; NaN if there is none."""
        values = self.figures(name, **where)
        return float(np.mean(values)) if values else float("nan")

    def write_csv(self) -> None:
        """Write all rows as ``rows.csv`` beside."""
        with self.path.with_suffix(".csv").open("w", newline="") as file:
            table = csv.DictWriter(file, [*KEY, *FIGURES])
            table.writeheader()
            table.writerows(self.rows.values())


def run_cases(cases: Iterable[Case], given: argparse.Namespace, ledger: Ledger) -> None:
    """Run each method on each case from each start, but for the rows there are."""
    cases = list(cases)
    wanted = [[(*case, start, name) for start, name in _runs(given)] for case in cases]
    total = sum(map(len, wanted))
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns) as progress, tempfile.TemporaryDirectory() as folder:
        bar = progress.add_task("compiling", total=total)
        if any(key not in ledger.rows for keys in wanted for key in keys):
            methods.warm_up(given.methods)
        all_points: dict[str, Points] = {}
        for case, keys in zip(cases, wanted, strict=True):
            missing = [key for key in keys if key not in ledger.rows]
            progress.advance(bar, len(keys) - len(missing))
            if not missing:
                continue
            if case.set not in all_points:
                all_points[case.set] = read_points(case.set)
            points = draw_classes(all_points[case.set], case.k, case.subset)
            problem = make_problem(points, case.k, folder)
            for key in missing:
                progress.update(bar, description=f"{case.set}, k={case.k}, subset {case.subset}: {key[-1]}")
                ledger.add(key, _row(problem, points.y, key, given))
                progress.advance(bar)


def _runs(given: argparse.Namespace) -> Iterator[tuple[int, str]]:
    for start in range(given.starts):
        for name in given.methods:
            yield start, name


def _row(problem: Any, y: np.ndarray, key: tuple, given: argparse.Namespace) -> dict[str, Any]:
    """Run and score; a method that cannot be run leaves a row that says why."""
    *_, start, name = key
    try:
        found = methods.run(name, problem, start, seconds=given.budget, threads=given.threads)
    except methods.Absent as why:
        return {**dict.fromkeys(FIGURES), "note": str(why)}
    scores = snmf_dist.score(found.labels, y)
    finished = found.note != methods.UNFINISHED
    return {
        "AC": round(100 * scores.accuracy, 4) if finished else None,
        "NMI": round(100 * scores.nmi, 4) if finished else None,
        "seconds": round(found.seconds, 4),
        "cpu": round(found.cpu, 4),
        "products": found.products,
        "objective": found.objective,
        "note": found.note,
    }


def command_line(about: str, out: str, **defaults: Any) -> argparse.ArgumentParser:
    """The options that all tables have."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", nargs="?", type=Path, default=Path(out), help="folder of the results (%(default)s)")
    parser.add_argument("--quick", action="store_true", help="a few starts and the fast methods: some minutes")
    parser.add_argument("--starts", type=int, default=defaults["starts"], help="random starts (%(default)s)")
    parser.add_argument("--methods", nargs="+", choices=methods.METHODS, default=None, metavar="NAME")
    parser.add_argument(
        "--budget", type=float, default=3600, help="seconds of the processor that SymNMF may take (%(default)s)"
    )
    parser.add_argument("--threads", type=int, default=1, help="for each method alike (%(default)s)")
    return parser


def markdown(head: Iterable[str], lines: Iterable[Iterable[Any]]) -> str:
    """A Markdown table."""
    head = list(head)
    rows = [head, ["---"] * len(head), *lines]
    return "\n".join("| " + " | ".join(map(str, row)) + " |" for row in rows) + "\n"


def made_with(threads: int) -> str:
    """A line on the date, the machine and the versions."""
    packages = ", ".join(f"{name} {version(name)}" for name in PACKAGES)
    return (
        f"{date.today():%d %B %Y}; {processor()}, {threads} thread(s) a method; "
        f"Python {platform.python_version()}, {packages}.\n"
    )


def processor() -> str:
    """The name of this machine's processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "?")


def show(number: float, digits: int = 2) -> str:
    """A number, or a dash where there is none."""
    return "–" if np.isnan(number) else f"{number:.{digits}f}"
