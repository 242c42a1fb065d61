"""Study: many runs in one folder, to look at while they go and afterwards."""

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from snmf_dist import storage
from snmf_dist.card import card
from snmf_dist.errors import InputError, StoreNotFound
from snmf_dist.report.study_page import write_study_report
from snmf_dist.result.records import Status
from snmf_dist.result.solution import Solution, open_solution
from snmf_dist.study.folder import PICTURE, StudyFolder
from snmf_dist.study.table import BY, Row, best_row, counts, make_rows, seconds_left
from snmf_dist.validation import choice

if TYPE_CHECKING:
    import pandas as pd


class Study:
    """The runs of `fit_many`; every property looks at the files anew, so that a study can be watched.

    Parameters
    ----------
    folder : StudyFolder
        Its files.
    spec : mapping, optional
        What the study is; read from its files otherwise.
    """

    def __init__(self, folder: StudyFolder, spec: Mapping[str, Any] | None = None) -> None:
        self.folder = folder
        self.spec: Mapping[str, Any] = folder.read_spec() if spec is None else spec

    def __repr__(self) -> str:
        return f"Study({self.path!r}, {self.summary()})"

    def _repr_html_(self) -> str:
        return card("Study", self._facts)

    def _facts(self) -> dict[str, Any]:
        """What a notebook shows: what was asked for. How far it is must be read from the files."""
        runs = self.spec["runs"]
        ks = sorted({run["settings"]["k"] for run in runs})
        return {
            "path": self.path,
            "runs": len(runs),
            "graphs": ", ".join(sorted({str(run["graph"]) for run in runs})),
            "k": ", ".join(map(str, ks[:12])) + (", …" if len(ks) > 12 else ""),
            "state": "study.summary() reads it",
        }

    def report(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write a page to look at: the runs, how they compare, and the errors of those that failed.

        Parameters
        ----------
        path : str or path-like
            The file, ``.html``. It needs nothing else, and has no script.
        overwrite : bool, default False
            Replace the file.
        """
        write_study_report(path, self, overwrite=overwrite)

    @property
    def path(self) -> str:
        """Path or URL of the folder."""
        return self.folder.path

    @property
    def reason(self) -> str | None:
        """Which K `choose_k` suggests and why, in words; None if it was not asked or has not answered yet."""
        found = self.folder.read_choice()
        return None if found is None else str(found["reason"])

    @property
    def picture(self) -> bytes | None:
        """The picture of what `choose_k` measured, as a PNG; None if there is none."""
        return self.folder.read(PICTURE)

    @property
    def rows(self) -> list[Row]:
        """The table: a mapping for each run."""
        return make_rows(self.spec["runs"], self.folder.events())

    def to_pandas(self) -> "pd.DataFrame":
        """Return the table as a data frame, a row a run; pandas must be installed."""
        import pandas as pd

        return pd.DataFrame(self.rows)

    @property
    def cv_results_(self) -> dict[str, Any]:
        """The table as scikit-learn's searches have it: a mapping of columns, for `pandas.DataFrame` too.

        ``params`` has the settings of each run, ``param_*`` one each; ``mean_fit_time`` are the seconds,
        ``mean_test_score`` is the captured energy, and ``rank_test_score`` the rank among runs of the same graph
        and k.
        """
        rows = self.rows
        found: dict[str, Any] = {"params": [dict(run["settings"]) for run in self.spec["runs"]]}
        for name in rows[0]:
            values = [row[name] for row in rows]
            plain = all(isinstance(value, int | float | None) for value in values)
            found[name] = np.array([np.nan if v is None else v for v in values] if plain else values)
        names = {"mean_fit_time": "seconds", "mean_test_score": "captured", "rank_test_score": "rank"}
        return {**found, **{new: found[old] for new, old in names.items()}}

    def best(self, by: str = "captured", **where: Any) -> Solution:
        """Return the result of the run with the best value of a column.

        Parameters
        ----------
        by : str, default "captured"
            A column of the table. Of "captured", "captured_share", "modularity", "ac", "nmi" and "ari" the highest
            value is best, of others ("kkt", "n_iter", "seconds", …) the lowest. The captured energy grows with k,
            so compare it among runs of one k.
        **where
            Only runs with these settings, as ``k=10`` or ``graph="mnist"``.
        """
        return self.solution(self.best_run(by, **where)["run_id"])

    def best_run(self, by: str = "captured", **where: Any) -> Row:
        """Return the row of the table that `best` returns the result of."""
        rows = self.rows
        choice("by", by, BY)
        for name, value in where.items():
            column = name if name in rows[0] else f"param_{name}"
            if column not in rows[0]:
                raise InputError(
                    f"{name} is not a setting of the study; expected graph or a setting of fit, as k=10"
                )
            rows = [row for row in rows if row[column] == value]
            if not rows:
                raise InputError(f"{self.path}: has no run with {name}={value!r}")
        found = best_row(rows, by)
        if found is None:
            raise InputError(f"{self.path}: no run that is done has {by}; look at the table with to_pandas()")
        return found

    def solution(self, run_id: str) -> Solution:
        """Return the result of a run that is done."""
        known = {row["run_id"]: row["state"] for row in self.rows}
        if run_id not in known:
            raise InputError(f"{self.path}: has no run {run_id!r}; the table (to_pandas) has their run_id")
        try:
            return open_solution(self.folder.result(run_id), storage_options=self.folder.options)
        except StoreNotFound:
            raise StoreNotFound(
                f"{self.folder.result(run_id)}: no result is there, the run is {known[run_id]}; give the command "
                "of the study again to run it"
            ) from None

    def error(self, run_id: str) -> str | None:
        """Return the traceback of a run that failed, None if there is none."""
        return self.folder.read_text(f"errors/{run_id}.txt")

    @property
    def counts(self) -> dict[str, int]:
        """How many runs are waiting, running, done and failed."""
        return counts(self.rows)

    @property
    def seconds_left(self) -> float | None:
        """An estimate of the time that the other runs will take; None while none is done."""
        return seconds_left(self.rows)

    @property
    def exit_code(self) -> int:
        """0 if all runs are done and converged, 1 if some did not converge or are not done, 3 if some failed."""
        rows = self.rows
        if any(row["state"] == "failed" for row in rows):
            return 3
        return 0 if all(row["state"] == "done" and Status[row["status"]].converged for row in rows) else 1

    def summary(self) -> str:
        """Return one line: the runs in each state, those that did not converge, and the distinct errors."""
        rows = self.rows
        parts = [f"{number} {state}" for state, number in counts(rows).items() if number]
        ended = [row["status"] for row in rows if row["state"] == "done"]
        unfinished = sum(not Status[status].converged for status in ended)
        text = f"{len(rows)} runs: {', '.join(parts)}"
        text += f"; {unfinished} did not converge" if unfinished else ""
        errors = dict.fromkeys(row["error"] for row in rows if row["state"] == "failed")
        return text + "".join(f"; {error}" for error in errors)


def open_study(path: str | os.PathLike[str], *, storage_options: storage.Options = None) -> Study:
    """Open a study, finished or under way.

    Parameters
    ----------
    path : str or path-like
        The folder that `fit_many` writes to, or its URL.
    storage_options : mapping, optional
        Passed to fsspec for a URL.

    Examples
    --------
    >>> import numpy as np, scipy.sparse, snmf_dist, tempfile
    >>> folder = tempfile.mkdtemp()
    >>> cliques = scipy.sparse.block_diag([np.ones((4, 4)), np.ones((3, 3))])
    >>> _ = snmf_dist.import_graph(cliques, folder + "/cliques.zarr")
    >>> _ = snmf_dist.fit_many(folder + "/cliques.zarr", ks=[2], seeds=2, out=folder + "/study")
    >>> snmf_dist.open_study(folder + "/study").counts["done"]
    2
    """
    return Study(StudyFolder(storage.normal_path(path), storage_options))
