"""Symmetric nonnegative matrix factorisation of graphs that do not fit: A ≈ LLᵀ, L ≥ 0.

>>> import snmf_dist
>>> solution = snmf_dist.fit("graph.zarr", 20)   # doctest: +SKIP
"""

from typing import TYPE_CHECKING, Any

from snmf_dist.api import fit, plan_fit
from snmf_dist.errors import SnmfError
from snmf_dist.graph.build import build_graph
from snmf_dist.graph.ingest import import_graph
from snmf_dist.graph.store import GraphStore, open_graph
from snmf_dist.listeners import JsonLines, Listener, TableLog
from snmf_dist.planted import Planted, generate
from snmf_dist.result.records import IterationRecord, Status
from snmf_dist.result.scores import score
from snmf_dist.result.solution import Solution, open_solution
from snmf_dist.scaling.cost import FitCost, plan_cost
from snmf_dist.scaling.running import scaling_study
from snmf_dist.scaling.view import ScalingStudy
from snmf_dist.study.choosing import KStudy, choose_k
from snmf_dist.study.many import fit_many
from snmf_dist.study.view import Study, open_study

if TYPE_CHECKING:
    from snmf_dist.estimator import SNMF

__all__ = [
    "SNMF",
    "FitCost",
    "GraphStore",
    "IterationRecord",
    "JsonLines",
    "KStudy",
    "Listener",
    "Planted",
    "ScalingStudy",
    "SnmfError",
    "Solution",
    "Status",
    "Study",
    "TableLog",
    "build_graph",
    "choose_k",
    "fit",
    "fit_many",
    "generate",
    "import_graph",
    "open_graph",
    "open_solution",
    "open_study",
    "plan_cost",
    "plan_fit",
    "scaling_study",
    "score",
]


def __getattr__(name: str) -> Any:
    """Load the estimator and the version when they are asked for: scikit-learn alone takes a second or more."""
    if name == "__version__":
        from importlib.metadata import version

        return version("snmf-dist")
    if name == "SNMF":
        from snmf_dist.estimator import SNMF

        return SNMF
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
