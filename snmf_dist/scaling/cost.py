"""plan_cost(): hours, memory, network and files of a fit, predicted by a cost model that was measured."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from snmf_dist.engine import machine
from snmf_dist.engine.plan import Plan, plan
from snmf_dist.errors import InputError, StoreNotFound
from snmf_dist.report.words import count, duration, size
from snmf_dist.scaling.model import AN_ITERATION, OF_TIME, FitSize, foretell, place_of, whole_time
from snmf_dist.solve.pipeline import INITS
from snmf_dist.solve.solvers import SOLVERS
from snmf_dist.validation import choice, positive_number, whole_number

SHIPPED = "default.json"  # beside this file
ROUGH = 100.0  # times beyond what was measured from which on a figure is no more than a guess
EXPECTED = "expected model.json of snmf-dist scale"


@dataclass(frozen=True)
class FitCost:
    """What a fit is expected to cost.

    Attributes
    ----------
    seconds : float
        Seconds of the wall clock.
    iterations : float
        Number of iterations that is assumed.
    phases : dict
        Seconds of each phase; of the iterations, those of all of them.
    memory : float
        Bytes of the largest process.
    network : float
        Bytes of rows sent from worker to worker.
    files : dict
        Bytes of the graph store and of the result.
    extrapolated : dict
        By how much rows, entries, k and workers exceed what was measured, as factors above 1.
    errors : dict
        The errors of time and memory on the size that was left out of the fit, lowest and highest, as shares.
    measured : str
        Where and when the model was measured.
    """

    seconds: float
    iterations: float
    phases: dict[str, float]
    memory: float
    network: float
    files: dict[str, float]
    extrapolated: dict[str, float]
    errors: dict[str, tuple[float, float]]
    measured: str

    def lines(self) -> list[str]:
        """The cost as text."""
        parts = ", ".join(f"{name} {duration(value)}" for name, value in self.phases.items())
        each = sum(self.phases[name] for name in AN_ITERATION) / max(self.iterations, 1)
        kept = ", ".join(f"{name} {size(value)}" for name, value in self.files.items())
        found = [
            f"time         {duration(self.seconds)}, {self.iterations:.0f} iterations of {duration(each)} each"
            + self._error("time"),
            f"             {parts}",
            f"memory       {size(self.memory)} in the largest process" + self._error("memory"),
            f"network      {size(self.network)} of rows between workers",
            f"files        {kept}",
        ]
        beyond = ", ".join(f"× {factor:.3g} in {name}" for name, factor in self.extrapolated.items())
        rough = "; no more than a rough guess" if max(self.extrapolated.values(), default=1) > ROUGH else ""
        found.append(f"extrapolated {beyond} beyond what was measured{rough}" if beyond else "extrapolated no")
        found.append(f"measured on  {self.measured}")
        return found

    def _error(self, name: str) -> str:
        if name not in self.errors:
            return "; not tried on a size that it was not fitted to"
        low, high = self.errors[name]
        return f"; on the size left out the model was {low:+.0%} to {high:+.0%} off"


def plan_cost(
    rows: int,
    entries: int,
    k: int,
    *,
    workers: int = 0,
    halo: float | None = None,
    iterations: int | None = None,
    planned: float | None = None,
    model: str | os.PathLike[str] | None = None,
) -> FitCost | None:
    """Say what a fit would cost, of a graph that need not exist, as far as a measured model tells.

    Parameters
    ----------
    rows : int
        Rows of the graph.
    entries : int
        Stored entries of A: each edge counts twice.
    k : int
        Number of clusters.
    workers : int, default 0
        Worker processes of one thread each; 0 for the threads of one process.
    halo : float, optional
        Rows that the block of a worker needs of others; by default the share of them that the measured graphs
        needed.
    iterations : int, optional
        Number of iterations to assume; by default as many as the measured runs took.
    planned : float, optional
        Bytes of the largest process as planned; by default those of the fastest way of running.
    model : str or path-like, optional
        ``model.json`` of `scaling_study`; by default the one that comes with the package.

    Returns
    -------
    FitCost or None
        None if no model is given and none comes with the package, or if it has no runs in such a place.

    Examples
    --------
    >>> import snmf_dist, tempfile
    >>> folder = tempfile.mkdtemp() + "/scaling"
    >>> _ = snmf_dist.scaling_study(folder, rows=[400, 800, 1600], ks=[3], workers=[0], degrees=[12], repeats=1)
    >>> cost = snmf_dist.plan_cost(10**9, 3 * 10**10, 20, model=folder + "/model.json")
    >>> cost.extrapolated["rows"] > 10**6
    True
    """
    whole_number("rows", rows, 1)
    whole_number("entries", entries, 1)
    whole_number("k", k, 1, rows)
    whole_number("workers", workers, 0)
    if halo is not None:
        halo = min(positive_number("halo", halo) if halo else 0.0, rows)
    if iterations is not None:
        whole_number("iterations", iterations, 1)
    found = read_model(model)
    place = None if found is None else found["places"].get(place_of(workers))
    if found is None or place is None:
        return None
    typical, w = place["typical"], max(workers, 1)
    if halo is None:
        halo = typical["halo_share"] * rows * (w - 1) / w
    times = typical["iterations"] if iterations is None else iterations
    looks = typical["evaluations"] * times / max(typical["iterations"], 1)
    if planned is None:
        planned = plan_sizes(rows, entries, k, workers=workers, model=model).way.process
    job = FitSize(rows, entries, k, workers, halo, typical["start_products"], planned)
    costs = foretell(place, job)
    how_often = {**dict.fromkeys(OF_TIME, 1), **dict.fromkeys(AN_ITERATION, times), "evaluation": looks}
    phases = {name: costs[name] * how_often[name] for name in OF_TIME}
    beyond = {name: getattr(job, name) / max(high, 1) for name, (_, high) in place["range"].items()}
    held = [one for one in place["held_out"] if not one["more_than_cores"]]
    errors = {
        name: (min(one[key]["error"] for one in held), max(one[key]["error"] for one in held))
        for name, key in {"time": "seconds", "memory": "memory"}.items()
        if held
    }
    return FitCost(
        seconds=whole_time(costs, times, looks),
        iterations=times,
        phases=phases,
        memory=costs["memory"],
        network=costs["traffic"] * times,
        files={"graph": costs["graph_files"], "result": costs["result_files"]},
        extrapolated={name: factor for name, factor in beyond.items() if factor > 1},
        errors=errors,
        measured=_where(found, place),
    )


def plan_sizes(
    rows: int,
    entries: int,
    k: int,
    *,
    workers: int | None = None,
    threads: int | None = None,
    memory_limit: int | str | None = None,
    model: str | os.PathLike[str] | None = None,
    **settings: Any,
) -> Plan:
    """What `plan_fit` says, of a graph that need not exist; without a limit of the memory all ways fit.

    Parameters
    ----------
    rows, entries, k, workers, model
        As in `plan_cost`.
    threads, memory_limit
        As in `plan_fit`.
    **settings
        ``solver``, ``init``, ``n_init`` and ``block_rows`` of `plan_fit`.
    """
    solver, init = SOLVERS[settings.pop("solver", "admm")], settings.pop("init", "kmeans")
    choice("init", init, INITS)
    found, w = read_model(model), workers or 0
    place = None if found is None else found["places"].get(place_of(w))
    share = 1.0 if place is None else place["typical"]["halo_share"]
    return plan(
        whole_number("rows", rows, 1),
        whole_number("entries", entries, 1),
        whole_number("k", k, 1, rows),
        arrays=solver.arrays,
        task_columns=solver.task_columns,
        init=init,
        memory=None if memory_limit is None else machine.memory_limit(memory_limit),
        workers=whole_number("workers", w, 0),
        threads=threads or (1 if w else machine.threads() + 1),
        halo=share * max(w - 1, 0),
        **settings,
    )


def _where(model: Mapping[str, Any], place: Mapping[str, Any]) -> str:
    machine = model.get("machine", {})
    sizes, cores = place["range"]["rows"], machine.get("cores", place["cores"])
    return (
        f"{cores} cores of {machine.get('processor', 'a machine that is not recorded')}, "
        f"{count(sizes[0])} to {count(sizes[1])} rows, at least {place['repeats']} equal runs of each"
    )


def read_model(path: str | os.PathLike[str] | None) -> dict[str, Any] | None:
    """A cost model; without a path the one that comes with the package, if there is one."""
    if path is None:
        shipped = files("snmf_dist.scaling").joinpath(SHIPPED)
        return dict(json.loads(shipped.read_text(encoding="utf-8"))) if shipped.is_file() else None
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
    except FileNotFoundError:
        raise StoreNotFound(f"{path}: no such file; {EXPECTED}") from None
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path}: cannot be read as JSON ({error}); {EXPECTED}") from None
    if not isinstance(found, dict) or found.get("kind") != "cost model of snmf_dist" or found.get("version") != 1:
        raise InputError(f"{path}: is not a cost model of snmf_dist; {EXPECTED}")
    return found
