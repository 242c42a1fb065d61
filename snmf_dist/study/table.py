"""The table of a study: a row a run, made from what the study is and what happened to its runs."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from snmf_dist.result.scores import score
from snmf_dist.result.solution import Solution

STATES = ("waiting", "running", "done", "failed")
MEASURES = ("captured", "captured_share", "modularity", "kkt", "n_iter", "n_products")
SCORES = ("ac", "nmi", "ari")
COSTS = ("seconds", "cpu_seconds", "peak_bytes", "stack")
HIGHER = ("captured", "captured_share", "modularity", *SCORES)  # is better; of all else lower is
BY = (*MEASURES, *COSTS, "attempts", *SCORES, "rank")  # columns that a best run can be had by
WHOLE = ("n_iter", "n_products", "peak_bytes", "stack")  # numbers without fractions

Row = dict[str, Any]


def measured(solution: Solution, labels: np.ndarray | None) -> dict[str, Any]:
    """What the table says of a result: a function of the result and the known labels alone."""
    bound = solution.bound
    found: dict[str, Any] = {
        "status": solution.status.name,
        "captured": solution.captured,
        "captured_share": solution.captured / bound if bound > 0 else math.nan,
        "modularity": solution.history[-1].modularity,
        "kkt": solution.kkt,
        "n_iter": solution.n_iter,
        "n_products": solution.n_products,
        "seconds": solution.provenance.get("seconds", math.nan),
    }
    if labels is not None:
        found |= scored(solution, labels)
    return {name: _plain(value) for name, value in found.items()}


def scored(solution: Solution, labels: np.ndarray) -> dict[str, float]:
    """How well a result agrees with known labels."""
    scores = score(solution.labels, labels)
    return {"ac": scores.accuracy, "nmi": scores.nmi, "ari": scores.ari}


def _plain(value: Any) -> Any:
    """None for numbers that JSON does not have."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def make_rows(runs: Iterable[Mapping[str, Any]], events: Iterable[Mapping[str, Any]]) -> list[Row]:
    """One row a run, in the order of the study.

    Parameters
    ----------
    runs : iterable of mapping
        The runs as ``study.json`` has them.
    events : iterable of mapping
        What happened, in order.
    """
    listed = list(runs)
    varied = sorted({name for run in listed for name in run["settings"]})
    rows: dict[str, Row] = {}
    for run in listed:
        row: Row = {"run_id": run["run_id"], "graph": run["graph"]}
        row |= {f"param_{name}": run["settings"].get(name) for name in varied}
        row |= {"state": "waiting", "status": None}
        row |= dict.fromkeys((*MEASURES, *COSTS))
        row |= {"attempts": 0, "error": None, **dict.fromkeys(SCORES), "rank": None}
        row["path"] = f"runs/{run['run_id']}.zarr"
        rows[run["run_id"]] = row
    for event in events:
        if event["run_id"] in rows:
            _apply(rows[event["run_id"]], event)
    _rank(list(rows.values()))
    return list(rows.values())


def _apply(row: Row, event: Mapping[str, Any]) -> None:
    kind = event["event"]
    if kind == "started":
        row["attempts"] += 1
        row["state"], row["error"] = "running", None
    elif kind == "done":
        row["state"], row["error"] = "done", None
        row |= {name: event[name] for name in ("status", *MEASURES, *COSTS, *SCORES) if name in event}
    elif kind == "scored":
        row |= {name: event[name] for name in SCORES if name in event}
    elif kind == "failed":
        row["state"], row["error"] = "failed", event.get("error")
    elif kind in ("stopped", "lost"):
        row["state"] = "waiting"
        row |= dict.fromkeys(("status", *MEASURES, *COSTS, *SCORES))


def _rank(rows: list[Row]) -> None:
    """Rank the runs that are done among those of the same graph and k: 1 captures most."""
    groups: dict[Any, list[Row]] = {}
    for row in rows:
        if row["state"] == "done" and row["captured"] is not None:
            groups.setdefault((row["graph"], row["param_k"]), []).append(row)
    for group in groups.values():
        group.sort(key=lambda row: (-row["captured"], row["run_id"]))
        for place, row in enumerate(group, start=1):
            row["rank"] = place


def counts(rows: Iterable[Row]) -> dict[str, int]:
    """How many runs are in each state.

    Examples
    --------
    >>> counts([{"state": "done"}, {"state": "done"}, {"state": "failed"}])
    {'waiting': 0, 'running': 0, 'done': 2, 'failed': 1}
    """
    found = dict.fromkeys(STATES, 0)
    for row in rows:
        found[row["state"]] += 1
    return found


def best_row(rows: Iterable[Row], by: str) -> Row | None:
    """The row of a run that is done with the best value of a column; the first of equal ones."""
    done = [row for row in rows if row["state"] == "done" and row.get(by) is not None]
    sign = -1 if by in HIGHER else 1
    return min(done, key=lambda row: sign * row[by], default=None)


def seconds_left(rows: Iterable[Row]) -> float | None:
    """An estimate of the time that the runs not done yet will take; None while none is done.

    Runs are taken to cost as much a cluster as those done so far on the same graph, or on any if there is none.
    """
    rows = list(rows)
    done = [row for row in rows if row["state"] == "done" and row["seconds"] is not None]
    if not done:
        return None
    total = 0.0
    for row in rows:
        if row["state"] in ("waiting", "running"):
            like = [one for one in done if one["graph"] == row["graph"]] or done
            total += row["param_k"] * sum(one["seconds"] for one in like) / sum(one["param_k"] for one in like)
    return total


def parquet(rows: list[Row]) -> bytes:
    """The table as a Parquet file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns, fields = [], []
    for name in rows[0]:
        values = [row[name] for row in rows]
        kind = _type(name, values)
        if kind == pa.string():
            values = [value if value is None else str(value) for value in values]
        columns.append(pa.array(values, type=kind))
        fields.append(pa.field(name, kind))
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(columns, schema=pa.schema(fields)), sink, write_page_checksum=True)
    return bytes(sink.getvalue())


def _type(name: str, values: list[Any]) -> Any:
    """The Arrow type of a column: fixed for our own, and for settings by their values."""
    import pyarrow as pa

    if name in (*WHOLE, "attempts", "rank"):
        return pa.int64()
    if name in (*MEASURES, *COSTS, *SCORES):
        return pa.float64()
    known = [value for value in values if value is not None]
    if known and all(isinstance(value, int) for value in known):
        return pa.int64()
    if known and all(isinstance(value, int | float) for value in known):
        return pa.float64()
    return pa.string()
