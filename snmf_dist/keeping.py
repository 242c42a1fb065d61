"""Keeps a run's progress in checkpoints beside its output, and ends a run with one when it is asked to."""

import json
import logging
import math
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from snmf_dist import storage
from snmf_dist.engine.machine import threads
from snmf_dist.engine.rows import Graph, Rows
from snmf_dist.errors import Interrupted, ResultWarning, StoreCorrupt, WorkersJoined, reason
from snmf_dist.result.checkpoints import SUFFIX, Checkpoint, CheckpointFolder
from snmf_dist.solve.progress import Progress
from snmf_dist.validation import choice, positive_number, whole_number

logger = logging.getLogger(__name__)

COST = 0.02  # share of a run's time that writing checkpoints may take; with all that comes with it 3 %
SPEED = 5e8  # bytes a second that the first checkpoint is expected to be written with
RESTARTS = 10  # times that a run starts again after workers were lost, without a new checkpoint in between
IN_VAIN = 180.0  # seconds that these must have taken: where machines are preempted, losses come in bursts
LEAST_SECONDS = 2.0  # between two checkpoints
AFTER_LOSS = 4.0  # times as often after workers were lost, so that a run between losses still moves

_open: "weakref.WeakSet[CheckpointKeeper]" = weakref.WeakSet()  # from the beginning of a run to its end
_active: "weakref.WeakSet[CheckpointKeeper]" = weakref.WeakSet()  # of runs whose graph is read


def ask_to_stop(signal: int) -> bool:
    """Ask all runs of this process to write a checkpoint and end; whether there are any that can."""
    for keeper in _active:
        keeper.signal = signal
    return bool(_active)


def kept_checkpoints() -> list[str]:
    """The folders of the checkpoints that the runs of this process can be continued from."""
    return sorted(keeper.folder.path for keeper in _open if keeper.folder is not None and keeper.can_continue)


class CheckpointKeeper:
    """Writes checkpoints of one fit.

    Parameters
    ----------
    folder : CheckpointFolder or None
        Where to; None to write none.
    every : int or "auto"
        Write one every so many iterations; "auto": as often as `COST` allows.
    time_limit : float, optional
        Seconds after which the run is to end.
    """

    def __init__(
        self, folder: CheckpointFolder | None, *, every: int | str = "auto", time_limit: float | None = None
    ) -> None:
        self.folder, self.every = folder, every
        self.signal: int | None = None
        self.saved = 0  # checkpoints that are whole
        self.saved_at: float | None = None  # when the last one was, by the monotonic clock
        self.losses = 0
        self.in_vain = 0  # losses since the newest checkpoint
        self._vain_since, self._saved_then = 0.0, 0
        self._ends = None if time_limit is None else time.monotonic() + time_limit
        self._begun = time.monotonic()
        self._next: float | None = None
        self._last_iteration: int | None = None
        self._number = 0
        self._start: tuple[Mapping[str, Any], Mapping[str, Rows]] = ({}, {})
        self._pending: tuple[str, dict[str, Any], dict[str, Any], float] | None = None
        self._thread: threading.Thread | None = None
        self._failed = False
        self._damaged: set[int] = set()
        self._spread = 0  # checkpoints that were whole when the workers were last counted
        self.A: Graph | None = None
        self.can_continue = False  # whether a checkpoint is whole
        _open.add(self)

    def attach(self, A: Graph) -> None:
        """Work with this graph from now on; what was under way on another one is given up."""
        self.A, self._pending = A, None
        if self.folder is not None:
            _active.add(self)

    def latest(self) -> Checkpoint | None:
        """The newest checkpoint of this output."""
        self._join()
        found = None if self.folder is None else self.folder.latest(self._damaged)
        self.can_continue = found is not None
        if found is not None:
            self._number = found.number
        return found

    def pass_over(self, checkpoint: Checkpoint) -> bool:
        """Note that a checkpoint is damaged; whether there is another one to continue from."""
        self._damaged.add(checkpoint.number)
        return self.latest() is not None

    def lost(self) -> None:
        """Note that workers were lost: the next checkpoint comes soon, and sooner after every further loss."""
        self.losses += 1
        now, moved = time.monotonic(), self.saved > self._saved_then
        if moved or not self.in_vain:
            self._vain_since = now
        self.in_vain = 0 if moved else self.in_vain + 1
        self._saved_then = self.saved
        self._next = now + LEAST_SECONDS / 2**self.in_vain

    def gives_up(self) -> bool:
        """Whether too many losses have come, for too long, without a new checkpoint."""
        return self.in_vain > RESTARTS and time.monotonic() - self._vain_since > IN_VAIN

    def note(self, facts: Mapping[str, Any], rows: Mapping[str, Rows]) -> None:
        """Remember what the start of a run found, to be written with each checkpoint."""
        self._start = (facts, rows)

    @property
    def bound(self) -> float:
        """Σλ² over the leading eigenvalues that the start of a run found, as `Solution.bound`; NaN without them.

        NaN for a stack too: its runs have a bound each.
        """
        basis = self._start[0].get("basis")
        return float(np.sum(np.square(np.maximum(basis["upper"], 0)))) if isinstance(basis, Mapping) else math.nan

    def out_of_time(self) -> bool:
        """Whether the time limit has come."""
        return self._ends is not None and time.monotonic() >= self._ends

    def after_iteration(self, progress: Callable[[], Progress]) -> None:
        """Write a checkpoint if it is time to, and end the run if somebody asked for that."""
        self._complete(wait=False)
        stopping = self.signal is not None or self.out_of_time()
        if not stopping:
            self._use_newcomers()
        if self.folder is not None:
            now = progress()
            if stopping or self._is_due(now):
                self._save(now)
            if stopping:
                self._complete(wait=True)
                self._join()
        if self.signal is not None:
            raise Interrupted(self.signal, None if self.folder is None or not self.saved else self.folder.path)

    def _use_newcomers(self) -> None:
        """Once after each checkpoint: end this attempt if workers have joined, to spread the blocks over them."""
        if self._thread is not None and self._thread.is_alive():
            return
        saved, self._spread = self._spread, self.saved
        if self.saved > saved and self.A is not None and self.A.more_workers():
            raise WorkersJoined("workers have joined")

    def close(self, *, done: bool, results: Iterable[str] = ()) -> None:
        """Stop; remove the checkpoints if the run is done and its results have reached the disk."""
        _active.discard(self)
        _open.discard(self)
        self._join()
        self.A = self._pending = None
        self._start = ({}, {})
        if not done or self.folder is None:
            return
        try:
            if self.folder.is_there():
                for path in results:
                    storage.flush(path)
        except OSError as error:
            text = f"{self.folder.path}: is kept, for the result may not be on the disk ({reason(error)})"
            warnings.warn(text, ResultWarning, stacklevel=2)
            return
        self.folder.remove()

    def _is_due(self, progress: Progress) -> bool:
        if self._pending is not None or self._failed:
            return False
        if not isinstance(self.every, str):
            last = self._last_iteration
            return progress.iteration > 0 if last is None else progress.iteration - last >= self.every
        if self._next is None:
            size = sum(rows.shape[0] * rows.shape[1] * rows.dtype.itemsize for rows in progress.rows().values())
            self._next = self._begun + max(size / SPEED / COST, LEAST_SECONDS)
        return time.monotonic() >= self._next

    def _save(self, progress: Progress) -> None:
        """Begin to write a checkpoint; in one process its rows are written when this returns."""
        assert self.folder is not None, "there is a folder to write to"
        assert self.A is not None, "the keeper is attached"
        self._complete(wait=True)
        self._join()
        began, number = time.monotonic(), self._number + 1
        facts, more = self._start
        try:
            place = self.folder.begin(number)
            rows = {**progress.rows(), **more}
            values = {}
            for name, one in rows.items():
                writer = self.folder.writer(place, name, one.shape, one.dtype, self.A.write_rows)
                values[name] = self.A.write(one, writer)
            self.A.begin(((), values))
        except OSError as error:
            self._give_up(error)
            return
        block = {
            "number": number,
            "bounds": self.A.bounds.tolist(),
            "facts": progress.facts(),
            "start": json.dumps(dict(facts)),
            "types": {name: str(one.dtype) for name, one in rows.items()},
        }
        self._number, self._last_iteration = number, progress.iteration
        self._pending = (place, values, block, began)
        self._complete(wait=False)

    def _complete(self, *, wait: bool) -> None:
        """Make the checkpoint under way whole, beside the next iterations, once its rows are written."""
        if self._pending is None or self.A is None or self.folder is None:
            return
        place, values, block, began = self._pending
        if not wait and not self.A.ready(values):
            return
        self._pending = None
        try:
            checksums = self.A.finish(values)
        except OSError as error:
            self._give_up(error)
            return
        took = time.monotonic() - began
        self._wait_after(took)
        self._thread = threading.Thread(target=self._commit, args=(place, {**block, "checksums": checksums}, took))
        self._thread.start()

    def _wait_after(self, cost: float) -> None:
        """Set when the next checkpoint is due, after one that took so many seconds from the run."""
        often = AFTER_LOSS if self.losses else 1.0
        self._next = time.monotonic() + max(cost / COST / often, LEAST_SECONDS)

    def _commit(self, place: str, block: Mapping[str, Any], took: float) -> None:
        assert self.folder is not None, "there is a folder to write to"
        began = time.monotonic()
        try:
            self.folder.commit(place, block)
            beside = time.monotonic() - began  # on one core of those that iterate
            self._wait_after(took + beside / threads())
            self._damaged.discard(block["number"])
            self.saved += 1
            self.can_continue = True
            self.saved_at = time.monotonic()
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        """Write no more checkpoints: the disk may be full, and the run matters more."""
        self._failed, self._pending = True, None
        text = f"no more checkpoints are written ({error}); the run goes on"
        if threading.current_thread() is threading.main_thread():
            warnings.warn(text, ResultWarning, stacklevel=2)
        else:
            logger.warning(text)

    def _join(self) -> None:
        if self._thread is not None:
            self._thread.join()
            self._thread = None


def open_keeper(
    fingerprint: str,
    settings: Mapping[str, Any],
    out: str | None,
    *,
    every: int | str | None = "auto",
    time_limit: float | None = None,
    resume: bool = True,
    options: storage.Options = None,
) -> CheckpointKeeper:
    """What writes the checkpoints of a fit; a checkpoint of another run is refused before any work.

    Parameters
    ----------
    fingerprint : str
        The fingerprint of the graph.
    settings : mapping
        The settings of the fit, checked.
    out : str or None
        Where the result will be; without it there are no checkpoints.
    every, time_limit, resume, options
        As `fit` has them.
    """
    if time_limit is not None:
        time_limit = positive_number("time_limit", time_limit)
    if every is not None:
        every = choice("checkpoint_every", every, ("auto",)) if isinstance(every, str) else every
        every = every if isinstance(every, str) else whole_number("checkpoint_every", every, 1)
    if out is None or every is None:
        return CheckpointKeeper(None, time_limit=time_limit)
    folder = CheckpointFolder(out.rstrip("/") + SUFFIX, fingerprint, settings, options)
    if not resume:
        folder.remove()
    keeper = CheckpointKeeper(folder, every=every, time_limit=time_limit)
    keeper.latest()
    return keeper


def restored(checkpoint: Checkpoint, A: Graph, make: Any) -> tuple[Progress, dict[str, Any], dict[str, Rows]]:
    """The progress, and what the start had found, of a checkpoint; the rows are read now and checked.

    Parameters
    ----------
    checkpoint : Checkpoint
        The checkpoint.
    A : Graph
        The graph, in the blocks that the checkpoint has.
    make : class
        The class of the solver.
    """
    arrays = checkpoint.arrays

    def read(name: str) -> Rows:
        if name not in arrays:
            raise StoreCorrupt(f"the checkpoint lacks {name}; pass resume=False to start over")
        return A.hold(A.rows_from(arrays[name], dtype=arrays[name].dtype))

    progress = Progress.restored(checkpoint.facts, list(arrays), read, make)
    start = {name.removeprefix("start-"): read(name) for name in arrays if name.startswith("start-")}
    return progress, json.loads(checkpoint.start), start
