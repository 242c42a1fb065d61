"""From what a solver found to a `Solution` in the input's own order, with how it came about, and to disk."""

import time
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from typing import Any

import numpy as np

from snmf_dist.engine.client import explain_losses
from snmf_dist.engine.machine import peak_memory
from snmf_dist.engine.plan import Plan
from snmf_dist.engine.rows import Graph, rebuild
from snmf_dist.errors import ResultNotSaved, WorkLost, reason
from snmf_dist.graph.store import GraphStore
from snmf_dist.result.records import Sample
from snmf_dist.result.solution import Solution, open_solution
from snmf_dist.solve.basis import Basis
from snmf_dist.solve.kernels import row_labels
from snmf_dist.solve.parts import PartFacts
from snmf_dist.solve.pipeline import Found


def to_solution(
    A: Graph, graph: GraphStore, found: Found, settings: dict[str, Any], facts: dict[str, Any]
) -> Solution:
    """Labels and membership in the input's own order, and how they came about."""
    best = found.best
    L = best.state.L
    labels = A.fetch(A.map(row_labels, L, width=1, dtype=np.int32)).ravel()
    spectral = None if found.labels is None else A.fetch(found.labels).ravel()
    membership = L.array
    sample = found.sample
    if settings["specks"] == "join" and (anchor := graph.anchor) is not None:
        joined = (labels < 0) & (anchor >= 0)
        labels = np.where(joined, labels[anchor], labels)
        facts["joined_rows"] = int(np.count_nonzero(joined & (labels >= 0)))
    if graph.reordered:
        order = graph.order
        back = np.argsort(order)
        if sample is not None:
            by_input = np.argsort(order[sample.rows])
            sample = Sample(order[sample.rows][by_input], sample.places[by_input])
        labels, membership = labels[back], A.reorder(L, back)
        spectral = None if spectral is None else spectral[back]
    return Solution(
        labels=labels,
        membership=membership,
        status=best.ended,
        history=best.history,
        settings=settings,
        spectral_labels=spectral,
        sample=sample,
        provenance={
            "graph": graph.path,
            "fingerprint": graph.fingerprint,
            **facts,
            "finished": datetime.now(UTC).isoformat(timespec="seconds"),
            "versions": dict(versions()),
            **_spectrum(found.basis),
            "phases": _phases(facts["seconds"], found.seconds),
            "products": found.products,
            "rho": best.rho,
            "runs": [
                {
                    "status": one.ended.name,
                    "iterations": one.history[-1].iteration,
                    "products": one.products - found.before,
                    "captured": one.captured,
                }
                for one in found.outcomes
            ],
        },
        state=rebuild(best.state, [rows.array for rows in best.state]),
        ids=graph.ids,
    )


def save_solution(path: str, saving: dict[str, Any], solution: Solution) -> Solution:
    """Save, and return the solution as it was saved; one that is not in memory is read from disk from then on.

    If saving fails, the error holds the solution.
    """
    try:
        with explain_losses():
            solution.write(path, **saving)
    except WorkLost:  # rows went with a worker: the run continues from its checkpoint
        raise
    except Exception as error:  # whatever it is, hours of work are at stake
        raise ResultNotSaved(
            f"{path}: the result could not be written ({reason(error)}); the run is done, and this error's "
            ".solution can be saved elsewhere",
            solution,
        ) from error
    if solution.provenance["way"] == "in memory":
        return solution if saving["save_state"] else replace(solution, state=None)
    saved = open_solution(path, storage_options=saving["options"])
    return replace(solution, membership=saved.membership, state=saved.state, ids=saved.ids)


def run_facts(store: GraphStore, parts: PartFacts | None, plan: Plan, begun: float) -> dict[str, Any]:
    """Where and how long a run went, and what it left out, for its result."""
    facts = {
        "place": "cluster" if plan.workers else "threads",
        "way": plan.way.name,
        "planned_bytes": round(plan.way.process),
        "peak_bytes": None if plan.workers else peak_memory(),
        "seconds": round(time.perf_counter() - begun, 3),
        "components": store.components,
        "isolated": store.block["zero_degree"],
        "tau": store.tau,
        "built": store.recall is not None,
    }
    if parts is not None:
        facts |= {"parts": parts.count, "specks": parts.specks, "speck_rows": parts.speck_rows}
        facts["speck_limit"] = parts.limit
    return facts


def _phases(total: float, found: dict[str, float]) -> dict[str, float]:
    """Seconds of each phase; what is not in a phase of its own is reading the graph."""
    rest = max(total - sum(found.values()), 0.0)
    return {name: round(value, 3) for name, value in {"reading": rest, **found}.items()}


@cache
def versions() -> dict[str, str]:
    """The packages that a result is made with; reading what is installed takes longer than a small fit."""
    packages = ("snmf-dist", "numpy", "scipy", "dask", "distributed", "zarr", "scikit-learn")
    return {name: version(name) for name in packages}


def _spectrum(basis: Basis | None) -> dict[str, Any]:
    """What a result tells of the eigenvectors that its start was made from."""
    if basis is None:
        return {"eigenvalues": [], "next_eigenvalue": None}
    return {
        "eigenvalues": basis.values.tolist(),
        "next_eigenvalue": basis.next_value,
        "upper_eigenvalues": basis.upper.tolist(),
        "basis_residual": basis.residual,
        "basis_converged": basis.converged,
        "basis_products": basis.products,
    }
