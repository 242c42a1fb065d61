"""Numbers of ours on the `/metrics` of scheduler and workers, which Dask serves where there is prometheus-client.

The client sends what it knows of its run to the scheduler's `Board`; a worker counts the rows that it has sent to
others. Without prometheus-client nothing is kept.
"""

import time
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

FORGET = 86400.0  # seconds after which a run whose client has fallen silent is no longer shown
HELP = {
    "snmf_iteration": "Iterations that the run has done",
    "snmf_captured": "Captured energy, 2 tr(L'AL) - |L'L|^2",
    "snmf_captured_share": "Captured energy as a share of its bound",
    "snmf_kkt": "Relative distance to the optimality conditions",
    "snmf_seconds": "Seconds since the run began",
    "snmf_checkpoint_age_seconds": "Seconds since the last checkpoint was whole",
    "snmf_silent_seconds": "Seconds since the client of the run last sent its numbers",
    "snmf_study_runs": "Runs of a study, by state",
}
AGES = {"snmf_checkpoint_age_seconds", "snmf_silent_seconds"}  # grow by themselves
Labels = tuple[tuple[str, str], ...]


class Board:
    """What the scheduler knows of runs: a collector of prometheus-client."""

    def __init__(self) -> None:
        self.rows: dict[Labels, tuple[float, dict[str, float]]] = {}

    def collect(self) -> Iterator[Any]:
        """All families of metrics, at this moment."""
        from prometheus_client.core import GaugeMetricFamily

        now = time.monotonic()
        self.rows = {labels: row for labels, row in self.rows.items() if now - row[0] < FORGET}
        for name, text in HELP.items():
            kinds: dict[tuple[str, ...], Any] = {}
            for labels, (at, values) in self.rows.items():
                if name in values:
                    keys = tuple(key for key, _ in labels)
                    family = kinds.setdefault(keys, GaugeMetricFamily(name, text, labels=keys))
                    family.add_metric([value for _, value in labels], values[name] + (now - at) * (name in AGES))
            yield from kinds.values()


class Counts:
    """What a worker has sent to others: a collector of prometheus-client."""

    def __init__(self) -> None:
        self.rows = self.bytes = 0

    def add(self, rows: Any) -> None:
        """Count an array that is sent; None is nothing."""
        if rows is not None:
            self.rows, self.bytes = self.rows + len(rows), self.bytes + rows.nbytes

    def collect(self) -> Iterator[Any]:
        """Both counters."""
        from prometheus_client.core import CounterMetricFamily

        yield CounterMetricFamily("snmf_rows_sent", "Rows of other blocks that this worker has sent", self.rows)
        yield CounterMetricFamily("snmf_bytes_sent", "The same in bytes", self.bytes)


@cache
def board() -> Board | None:
    """The board of this process; None without prometheus-client."""
    here = Board()
    return here if _register(here) else None


@cache
def counts() -> Counts:
    """The counts of this process, shown if there is prometheus-client."""
    found = Counts()
    _register(found)
    return found


def _register(collector: Any) -> bool:
    try:
        from prometheus_client import REGISTRY
    except ModuleNotFoundError:
        return False
    REGISTRY.register(collector)
    return True


def show(rows: Mapping[Labels, Mapping[str, float] | None]) -> bool:
    """Run on the scheduler: show these values, or no longer those of a run that has None; whether it can.

    Examples
    --------
    >>> show({(("run", "a"),): {"snmf_iteration": 3.0}}) in (True, False)
    True
    >>> _ = show({(("run", "a"),): None})
    """
    here = board()
    if here is None:
        return False
    for labels, values in rows.items():
        if values is None:
            here.rows.pop(labels, None)
        else:
            here.rows[labels] = (time.monotonic(), dict(values))
    return True
