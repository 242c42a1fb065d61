"""ScalingStudy: what the runs of a scaling study cost, to look at while they go and afterwards."""

import importlib.util
import json
import os
from typing import Any, Self

from snmf_dist import storage
from snmf_dist.errors import InputError
from snmf_dist.scaling.measure import COLUMNS
from snmf_dist.scaling.model import fit_model, place_of, split_sweep
from snmf_dist.scaling.page import draw_page
from snmf_dist.study.folder import MODEL, PAGE, PHASE_TABLE, SCALING, SCALING_PICTURE, TABLE, StudyFolder
from snmf_dist.study.table import parquet
from snmf_dist.study.view import Study

FACTS = (
    *("wall", "n", "nnz", "iterations", "evaluations", "start_products", "blocks", "halo_rows", "tasks", "cores"),
    *("peak_bytes", "client_peak_bytes", "planned_bytes", "graph_bytes", "result_bytes"),
)


class ScalingStudy(Study):
    """The runs of `scaling_study`; every property looks at the files anew.

    Besides what a `Study` has, ``phases`` holds a row a run and phase. Results are removed once they are measured.
    """

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Self:
        """Open a study, finished or under way, by its folder."""
        found = cls(StudyFolder(storage.normal_path(path)))
        if found.spec["settings"].get("study") != SCALING:
            raise InputError(f"{found.path}: holds a study of other runs; open it with open_study")
        return found

    @property
    def measured(self) -> list[dict[str, Any]]:
        """What the runs that are done cost: settings, facts, and a list of phases, a mapping a run."""
        settings = {run["run_id"]: run["settings"] for run in self.spec["runs"]}
        found: dict[str, dict[str, Any]] = {}
        for event in self.folder.events():
            if event["event"] == "done" and event["run_id"] in settings and "phases" in event:
                found[event["run_id"]] = {**settings[event["run_id"]], **event}
        return [found[run_id] for run_id in settings if run_id in found]

    @property
    def phases(self) -> list[dict[str, Any]]:
        """The table of phases, a mapping a run and phase; the parts of a sweep are `modelled`, and within it."""
        found, places = [], self.model["places"]
        for run in self.measured:
            names = ("run_id", "rows", "degree", "k", "workers", "repeat")
            both = {**{name: run[name] for name in names}, **{name: run.get(name) for name in FACTS}}
            listed = [{**one, "modelled": False} for one in run["phases"]]
            for part, seconds in split_sweep(places[place_of(run["workers"])], run).items():
                listed.append({"phase": f"sweep: {part}", "seconds": seconds, "modelled": True})
            found += [{**both, **dict.fromkeys(COLUMNS), **one} for one in listed]
        return found

    @property
    def model(self) -> dict[str, Any]:
        """The cost model that the runs done so far give, with where and when they were measured."""
        return {**fit_model(self.measured), "created": self.spec["created"], "machine": self.spec["machine"]}

    def write_model(self) -> None:
        """Write ``model.json`` anew, and ``scaling.html`` and ``scaling.png`` if matplotlib is installed."""
        if not self.measured:
            return
        self.folder.write(MODEL, json.dumps(self.model, indent=1).encode())
        if importlib.util.find_spec("matplotlib") is not None:
            page, picture = draw_page(self)
            self.folder.write(PAGE, page)
            self.folder.write(SCALING_PICTURE, picture)

    def write_tables(self) -> None:
        """Write ``runs.parquet`` and ``phases.parquet`` anew."""
        self.folder.write(TABLE, parquet(self.rows))
        rows = self.phases
        if rows:
            self.folder.write(PHASE_TABLE, _table(rows))


def _table(rows: list[dict[str, Any]]) -> bytes:
    """Rows as a Parquet file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(rows), sink)
    return bytes(sink.getvalue())
