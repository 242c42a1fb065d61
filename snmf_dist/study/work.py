"""Does the runs of a study, side by side where they can be, and writes down what happens to each."""

import logging
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from snmf_dist import storage
from snmf_dist.api import fit
from snmf_dist.engine import client as cluster
from snmf_dist.engine import machine
from snmf_dist.errors import (
    ClusterError,
    NoRoom,
    OutputBusy,
    ResultNotSaved,
    ResultWarning,
    SnmfError,
    StoreCorrupt,
    reason,
)
from snmf_dist.gauges import show_study
from snmf_dist.listeners import Listener
from snmf_dist.locks import only_writer
from snmf_dist.result.checkpoints import SUFFIX
from snmf_dist.result.solution import open_solution
from snmf_dist.study.folder import TABLE
from snmf_dist.study.spec import Run, StudyGraph
from snmf_dist.study.stacks import fit_stack, make_stacks, stack_id
from snmf_dist.study.table import make_rows, measured, parquet, scored
from snmf_dist.study.view import Study

logger = logging.getLogger(__name__)

TABLE_EVERY = 2.0  # seconds between two writes of runs.parquet, at least


class Work:
    """Does the runs of a study and writes down what happens.

    Parameters
    ----------
    study : Study
        The study.
    graphs : sequence of StudyGraph
        Its graphs, open.
    how : mapping
        Settings of `fit` that do not change what a run finds.
    stop : bool
        Whether an error ends the study.
    joined : bool
        Whether another process may be at work on the study.
    limit : int or None
        Runs side by side, at most.
    """

    def __init__(
        self,
        study: Study,
        graphs: Sequence[StudyGraph],
        how: Mapping[str, Any],
        *,
        listeners: Sequence[Listener],
        progress: Callable[[Study], None] | None,
        stop: bool,
        joined: bool,
        limit: int | None,
    ) -> None:
        self.study, self.folder, self.how = study, study.folder, how
        self.graphs = {graph.name: graph for graph in graphs}
        self.listeners, self.progress = list(listeners), progress
        self.stop, self.joined, self.limit = stop, joined, limit
        self.client = cluster.current_client()
        self._written = 0.0

    def through(self, runs: Sequence[Run]) -> None:
        """Do all runs that are not done; the table is valid however this ends."""
        try:
            waiting = self._sort_out(runs)
            for stack in self._stacks(runs, {run.run_id for run in waiting}):
                self._do_stack(stack)
        finally:
            self.tell(now=True)

    def _sort_out(self, runs: Sequence[Run]) -> list[Run]:
        """The runs to do; what earlier processes left without a word is written down."""
        rows = {row["run_id"]: row for row in self.study.rows}
        labelled = {event["run_id"]: event["labels"] for event in self.folder.events() if "labels" in event}
        waiting = []
        for run in runs:
            path, state = self.folder.result(run.run_id), rows[run.run_id]["state"]
            if self._whole(run):
                if state != "done":
                    self._add_done(run, {})
                elif self.graphs[run.graph].labels_id not in (None, labelled.get(run.run_id)):
                    self._add_scores(run)
                continue
            if storage.exists(path, self.folder.options) and not self.joined:
                self.folder.remove(f"runs/{run.run_id}.zarr")
            if state == "done":
                text = f"{path}: the result is missing or damaged; the run is done again"
                warnings.warn(text, ResultWarning, stacklevel=4)
                self.folder.add_event("lost", run.run_id)
            waiting.append(run)
        self.tell(now=True)
        return waiting

    def _stacks(self, runs: Sequence[Run], waiting: set[str]) -> Iterator[list[Run]]:
        """Runs that go side by side: the same ones as before if they left a checkpoint, else those not done."""
        for stack in make_stacks(runs, self.graphs, self.how, 1 if self.joined else self.limit):
            left = [run for run in stack if run.run_id in waiting]
            if left:
                yield stack if self._begun(stack) else left

    def _do_stack(self, stack: list[Run]) -> None:
        """Do runs side by side; after an error, one after the other, so that each has its own."""
        left = stack
        if len(stack) > 1:
            try:
                with ExitStack() as held:
                    left = [run for run in stack if self._take(run, held)]
                    together = stack if self._begun(stack) else left
                    if left and len(together) > 1:
                        self._fit_stack(together, left)
                        return
            except (KeyboardInterrupt, NoRoom, ResultNotSaved, ClusterError):
                raise
            except Exception as error:
                logger.warning("runs side by side failed (%s); they go one after the other", _in_short(error))
        for run in left:
            if not self._do(run):
                logger.info("%s: left to another process", run)

    def _take(self, run: Run, held: ExitStack) -> bool:
        """Keep other processes from a run; False if one of them is at it, or has done it meanwhile."""
        try:
            held.enter_context(only_writer(self.folder.result(run.run_id)))
        except OutputBusy:
            logger.info("%s: left to another process", run)
            return False
        return not self._whole(run)

    def _begun(self, stack: list[Run]) -> bool:
        """Whether a stack left a checkpoint."""
        return storage.exists(f"{self.folder.path}/runs/{stack_id(stack)}{SUFFIX}", self.folder.options)

    def _fit_stack(self, stack: list[Run], fresh: list[Run]) -> None:
        """Do the runs of a stack, of which only the `fresh` ones are not done or taken."""
        for run in fresh:
            self.folder.add_event("started", run.run_id)
        self.tell()
        began, worked, ended = time.perf_counter(), time.process_time(), False
        try:
            with warnings.catch_warnings(record=True):
                warnings.simplefilter("always")
                store, wanted = self.graphs[stack[0].graph].store, [run.run_id for run in fresh]
                fit_stack(store, stack, self.folder, self.how, self.listeners, wanted)
            ended = True
        finally:
            if not ended:
                for run in fresh:
                    if self._whole(run):
                        self._add_done(run, {})
                    else:
                        self.folder.add_event("stopped", run.run_id)
        share = {
            "seconds": round((time.perf_counter() - began) / len(stack), 3),
            "cpu_seconds": round((time.process_time() - worked) / len(stack), 3),
            "peak_bytes": machine.peak_memory(),
            "stack": len(stack),
        }
        for run in fresh:
            self._add_done(run, share)
        self.tell()

    def _whole(self, run: Run) -> bool:
        """Whether the result of a run is there and can be opened."""
        path = self.folder.result(run.run_id)
        if not storage.exists(path, self.folder.options):
            return False
        try:
            open_solution(path, storage_options=self.folder.options)
        except SnmfError:
            return False
        return True

    def _do(self, run: Run) -> bool:
        """Do a run; False if another process is at it."""
        if self.client is not None and cluster.current_client() is not self.client:
            raise ClusterError(
                "the connection to the Dask scheduler was lost; start the cluster, and the study again"
            )
        if self._whole(run):  # by another process, meanwhile
            return True
        try:
            self._add_done(run, self._fit(run))
        except OutputBusy:
            return False
        except KeyboardInterrupt:  # `Interrupted` is one, and an Exception too
            self.folder.add_event("stopped", run.run_id)
            raise
        except (NoRoom, ResultNotSaved, ClusterError) as error:
            self._add_failed(run, error)
            raise
        except Exception as error:
            self._add_failed(run, error)
            if self.stop:
                raise
        except BaseException:
            self.folder.add_event("stopped", run.run_id)
            raise
        self.tell()
        return True

    def _fit(self, run: Run) -> dict[str, Any]:
        """Do a run, and say what it cost."""
        out = self.folder.result(run.run_id)
        began, worked = time.perf_counter(), time.process_time()
        given: dict[str, Any] = {"out": out, "listeners": [_Begins(self, run), *self.listeners]}
        given |= {**run.settings, **self.how}
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                fit(self.graphs[run.graph].store, **given)
            except StoreCorrupt as error:
                if not storage.exists(out + SUFFIX, self.folder.options):
                    raise
                logger.warning("%s: its checkpoint is damaged (%s); it begins anew", run, error)
                fit(self.graphs[run.graph].store, resume=False, **given)
        for warning in caught:
            logger.info("%s: %s", run, warning.message)
        return {
            "seconds": round(time.perf_counter() - began, 3),
            "cpu_seconds": round(time.process_time() - worked, 3),
            "peak_bytes": machine.peak_memory(),
            "stack": 1,
        }

    def _add_done(self, run: Run, cost: Mapping[str, Any]) -> None:
        solution = open_solution(self.folder.result(run.run_id), storage_options=self.folder.options)
        graph = self.graphs[run.graph]
        facts = measured(solution, graph.labels)
        if graph.labels is not None:
            facts["labels"] = graph.labels_id
        self.folder.add_event("done", run.run_id, **{**facts, **cost})
        self.folder.remove(f"errors/{run.run_id}.txt")

    def _add_scores(self, run: Run) -> None:
        """Compare a run that is done with labels that were not known, or were others, when it was done."""
        solution = open_solution(self.folder.result(run.run_id), storage_options=self.folder.options)
        graph = self.graphs[run.graph]
        assert graph.labels is not None, "there is something to compare with"
        self.folder.add_event("scored", run.run_id, labels=graph.labels_id, **scored(solution, graph.labels))

    def _add_failed(self, run: Run, error: BaseException) -> None:
        """Keep the traceback; a disk that is full does not hide the first error."""
        text = "".join(traceback.format_exception(error))
        try:
            self.folder.write(f"errors/{run.run_id}.txt", text.encode())
            self.folder.add_event("failed", run.run_id, error=_in_short(error))
        except NoRoom as second:
            raise second from error

    def tell(self, *, now: bool = False) -> None:
        """Write the table, if it is time to, and show the progress."""
        if now or time.monotonic() - self._written >= TABLE_EVERY:
            self.folder.write(TABLE, parquet(make_rows(self.study.spec["runs"], self.folder.events())))
            self._written = time.monotonic()
        if self.progress is not None:
            self.progress(self.study)
        if self.client is not None:
            show_study(self.client, self.folder.path, self.study.counts)


class _Begins(Listener):
    """Writes down that a run has begun, once its output is locked."""

    sees_state = False

    def __init__(self, work: Work, run: Run) -> None:
        self.work, self.run = work, run

    def on_start(self, settings: dict[str, Any]) -> None:
        """Write it down."""
        self.work.folder.add_event("started", self.run.run_id)
        self.work.tell()


def _in_short(error: BaseException) -> str:
    """An error as one line."""
    if isinstance(error, SnmfError):
        return str(error)
    return reason(error).splitlines()[0]
