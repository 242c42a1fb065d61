"""What a run on a cluster says of itself to Prometheus, by way of the scheduler: see `engine.metrics`."""

import math
import os
import time
from collections.abc import Mapping
from typing import Any

from snmf_dist.engine.asking import Notifier
from snmf_dist.engine.metrics import show
from snmf_dist.keeping import CheckpointKeeper
from snmf_dist.listeners import Listener
from snmf_dist.result.records import IterationRecord, Status

SEND_EVERY = 2.0  # seconds


class Gauges(Listener):
    """Sends the numbers of a run to the scheduler now and then, and takes them away at its end.

    Parameters
    ----------
    client : distributed.Client
        The cluster.
    name : str
        The label of the run: the path of its result, or of the graph.
    keeper : CheckpointKeeper
        Knows when the last checkpoint was whole, and the bound of the captured energy.
    """

    sees_state = False

    def __init__(self, client: Any, name: str, keeper: CheckpointKeeper) -> None:
        self.notifier, self.keeper = Notifier(client), keeper
        self.labels = (("run", os.path.basename(name.rstrip("/"))),)
        self.values: dict[str, float] = {}
        self.next = 0.0

    def on_iteration(self, record: IterationRecord, state: Any) -> None:
        """Note the numbers, and send them if it is time to."""
        self.values |= {"snmf_iteration": record.iteration, "snmf_seconds": record.seconds}
        if record.evaluated:
            share = record.captured / self.keeper.bound
            new = {"snmf_captured": record.captured, "snmf_kkt": record.kkt, "snmf_captured_share": share}
            self.values |= {name: float(value) for name, value in new.items() if math.isfinite(value)}
        if time.monotonic() >= self.next:
            self.next = time.monotonic() + SEND_EVERY
            self.notifier.tell(show, {self.labels: {**self.values, "snmf_silent_seconds": 0.0, **self._age()}})

    def on_end(self, status: Status | None) -> None:
        """Take the run off the board."""
        self.notifier.finish()
        self.notifier.tell(show, {self.labels: None})
        self.notifier.finish()

    def _age(self) -> dict[str, float]:
        at = self.keeper.saved_at
        return {} if at is None else {"snmf_checkpoint_age_seconds": time.monotonic() - at}


def show_study(client: Any, name: str, counts: Mapping[str, int]) -> None:
    """Show how many runs of a study are in each state."""
    study = os.path.basename(name.rstrip("/"))
    rows = {(("study", study), ("state", state)): {"snmf_study_runs": float(n)} for state, n in counts.items()}
    notifier = Notifier(client)
    notifier.tell(show, rows)
    notifier.finish()
