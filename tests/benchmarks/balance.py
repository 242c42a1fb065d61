"""Classes of unequal size: the methods that are compared, their figures set by set, means and paired tests.

Figures are kept in ``balance.jsonl`` in the folder of the graphs, a line for each set and method, so that a run
that was stopped continues. Take a new folder after a change of the code.
"""

import json
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import wilcoxon

import snmf_dist
from snmf_dist.solve import start
from tests.benchmarks import unequal

METHODS: dict[str, dict] = {
    "default": {},
    "start by modularity alone": {},  # the default with its former rule for the choice of the start
    "spectral": {"init": "spectral"},
    "paper's ADMM": {"init": "random", "rho": 0.1, "stop": "paper"},
    "paper's APG": {"init": "random", "solver": "apg", "rho": 1.0, "stop": "paper"},
    "hals, random": {"init": "random", "solver": "hals"},
    "graph with tau = 0": {},  # the default on a graph whose degrees are not regularised: imported graphs alone
}
UNBALANCED = ("Reuters subsets", "MNIST samples, thinned", "digits, thinned", "COIL-20, thinned")
BALANCED = ("MNIST samples", "digits", "COIL-20 subsets")
KINDS = {"classes of unequal size": UNBALANCED, "classes of equal size": BALANCED}
IMPORTED = ("whiskers", "Coauthor CS")
SLOW = ("paper's APG",)  # minutes a fit: run on sets of unequal classes to confirm with, and on no others


class Line(NamedTuple):
    """One line of the table: a method on a group of sets."""

    split: str
    group: unequal.Group
    method: str


class Figures:
    """AC, NMI, products, c/bound and share of the largest cluster of each set and method, kept in a file.

    Parameters
    ----------
    folder : path
        Where graphs and figures are.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder, self.path = str(folder), Path(folder) / "balance.jsonl"
        text = self.path.read_text(encoding="utf-8") if self.path.exists() else ""
        kept = map(json.loads, text[: text.rfind("\n") + 1].splitlines())
        self.rows: dict[tuple[str, str], dict[str, float]] = {(row["set"], row["method"]): row for row in kept}

    def of(self, name: str, method: str) -> dict[str, float]:
        """The figures of a method on a set; made if they are not there."""
        if (name, method) not in self.rows:
            row = {"set": name, "method": method, **_fit(name, method, self.folder)}
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
            self.rows[name, method] = row
        return self.rows[name, method]

    def mean(self, line: Line) -> dict[str, Any]:
        """The means over a group, with the standard error of the AC."""
        found = [self.of(name, line.method) for name in line.group.sets]
        accuracy = [one["accuracy"] for one in found]
        return {
            "split": line.split,
            "group": line.group.name,
            "method": line.method,
            "count": len(found),
            "accuracy": float(np.mean(accuracy)),
            "error": _standard_error(accuracy),
            "nmi": float(np.mean([one["nmi"] for one in found])),
            "products": float(np.mean([one["products"] for one in found])),
            "largest": float(np.max([one["largest"] for one in found])),
        }


def lines(spared: Iterable[str] = ()) -> list[Line]:
    """The lines of the table, the sets to confirm with first."""
    found = []
    for split, groups in (("confirm", unequal.CONFIRM), ("choose", unequal.CHOOSE)):
        for group in groups:
            for method in METHODS:
                slow = method in SLOW and (split == "choose" or group.name not in UNBALANCED)
                apart = method == "graph with tau = 0" and group.name not in IMPORTED
                if method not in spared and not slow and not apart:
                    found.append(Line(split, group, method))
    return found


def differences(figures: Mapping[tuple[str, str], Mapping[str, float]]) -> list[dict[str, Any]]:
    """AC of the default less that of each method, in percent, on the same sets to confirm with, and a test of it.

    Parameters
    ----------
    figures : mapping
        (set, method) to the figures.
    """
    rows = []
    for kind, groups in KINDS.items():
        sets = [name for group in unequal.CONFIRM if group.name in groups for name in group.sets]
        for method in METHODS:
            if method == "default":
                continue
            apart = [
                100 * (figures[name, "default"]["accuracy"] - figures[name, method]["accuracy"])
                for name in sets
                if (name, method) in figures and (name, "default") in figures
            ]
            if len(apart) > 1:
                mean = {"found": float(np.mean(apart)), "error": _standard_error(apart)}
                rows.append(
                    {"kind": kind, "method": method, "count": len(apart), "apart": mean, "chance": chance(apart)}
                )
    return rows


def chance(apart: list[float]) -> float:
    """p of Wilcoxon's signed-rank test that paired differences lie about 0."""
    return float(wilcoxon(apart).pvalue) if np.any(apart) else 1.0


def _standard_error(values: list[float]) -> float | None:
    return float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else None


def _fit(name: str, method: str, folder: str) -> dict[str, float]:
    """Fit a set, from three seeds if the start is random; means, and the highest c/bound."""
    settings, equal = METHODS[method], start.EQUAL
    seeds = range(3) if settings.get("init") == "random" else range(1)
    graph, y, k = unequal.load(name, folder, **({"tau": 0} if method == "graph with tau = 0" else {}))
    start.EQUAL = np.inf if method == "start by modularity alone" else equal
    try:
        with warnings.catch_warnings(action="ignore"):
            fits = [snmf_dist.fit(graph, k, seed=seed, **settings) for seed in seeds]
    finally:
        start.EQUAL = equal
    scores = [snmf_dist.score(one.labels, y) for one in fits]
    return {
        "accuracy": float(np.mean([one.accuracy for one in scores])),
        "nmi": float(np.mean([one.nmi for one in scores])),
        "products": float(np.mean([one.n_products for one in fits])),
        "largest": max(float(one.sizes.max() / one.sizes.sum()) for one in fits),
        "share": max(float(one.captured / one.bound) if one.bound > 0 else 0.0 for one in fits),  # NaN at random
    }
