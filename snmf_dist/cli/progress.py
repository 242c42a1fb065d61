"""Progress for people at a terminal: a bar for each stage, a moving line for the iterations.

Where the output is not a terminal, `iterations` gives the plain table and `stages` a line a stage.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from snmf_dist.listeners import HEADER, Listener, TableLog, format_record
from snmf_dist.result.records import IterationRecord, Status


@contextmanager
def stages(console: Console) -> Iterator[Callable[[str, int, int], None]]:
    """Give a ``progress(stage, done, total)`` that draws a bar for each stage."""
    if not console.is_terminal:
        yield lambda stage, done, total: _line(console, stage, done, total)
        return
    bars: dict[str, TaskID] = {}
    columns = (TextColumn("{task.description:12}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:

        def advance(stage: str, done: int, total: int) -> None:
            if stage not in bars:
                bars[stage] = progress.add_task(stage, total=total)
            progress.update(bars[stage], completed=done, total=total)

        yield advance


def iterations(console: Console) -> Listener:
    """Return the listener that shows iterations on `console`."""
    return LiveTable(console) if console.is_terminal else TableLog(console.file)


class LiveTable(Listener):
    """The table of `TableLog`, with a moving line below it for the iteration under way."""

    sees_state = False

    def __init__(self, console: Console) -> None:
        columns = (
            BarColumn(bar_width=24),
            TextColumn("iteration {task.completed} of at most {task.total}  {task.description}"),
            TimeElapsedColumn(),
        )
        self.progress = Progress(*columns, console=console, transient=True)

    def on_start(self, settings: dict[str, Any]) -> None:
        """Draw the head of the table and the bar."""
        self.progress.console.print(HEADER, style="bold")
        self.task = self.progress.add_task("", total=settings["max_iter"])
        self.begun: int | None = None
        self.progress.start()

    def on_wait(self, why: str) -> None:
        """Print it above the bar."""
        self.progress.console.print(why)

    def on_iteration(self, record: IterationRecord, state: Any) -> None:
        """Move the bar; add a line for an evaluated iteration."""
        if record.evaluated:
            self.objective = record.objective
            self.progress.console.print(format_record(record))
        if self.begun is None:  # a resumed run continues the count
            self.begun = record.iteration - 1
        self.progress.update(
            self.task,
            completed=record.iteration - self.begun,
            description=f"objective {self.objective:.6g}  change {record.change:.1e}",
        )

    def on_end(self, status: Status | None) -> None:
        """Take the bar away."""
        self.progress.stop()


def _line(console: Console, stage: str, done: int, total: int) -> None:
    if done == total:
        console.print(f"{stage}: {total} done")
