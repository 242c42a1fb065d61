"""Tables 2 and 3 as means with standard errors, with tests of the differences, as the documentation shows them.

Run ``python examples/paper/summary.py --table2 FOLDER --table3 FOLDER --json FILE``; the folders are those that
the tables wrote. A subset of the classes counts once, by the mean over its starts, so the standard errors are
those of the paper's 20 subsets; at k = 20 there is one set, and they are those of the starts. A cell that lacks
subsets is left out. Differences are taken on the same subsets of all k < 20 and tested by Wilcoxon's signed-
rank test.
"""

import argparse
import json
import os
from collections.abc import Sequence
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from real import KS
from runs import PACKAGES, Ledger, processor
from scipy.stats import wilcoxon

SUBSETS = 20
METHODS = (
    "ADMM",
    "APG",
    "SymNMF",
    "Spec",
    "NMF",
    "default",
    "ADMM, our stop",
    "HALS",
    "Spec, 10 k-means++",
    "Leiden",
)
SETS = {"table2": "COIL-20", "table3": "Reuters"}


def by_subset(ledger: Ledger, name: str, set: str, k: int, method: str) -> dict[int, float]:
    """The mean of a figure over the starts of each subset; at k = 20 the figure of each start."""
    runs = ledger.by_run(name, set=set, k=k, method=method)
    if k == max(KS):
        return {start: value for (_, start), value in runs.items()}
    subsets = sorted({subset for subset, _ in runs})
    return {subset: float(np.mean([runs[run] for run in runs if run[0] == subset])) for subset in subsets}


def means(ledger: Ledger, name: str, set: str) -> list[dict[str, Any]]:
    """A row for each k: mean ± standard error of each method that is complete there."""
    lines = []
    for k in KS:
        line: dict[str, Any] = {"k": f"k={k}"}
        for method in METHODS:
            values = list(by_subset(ledger, name, set, k, method).values())
            if len(values) >= (5 if k == max(KS) else SUBSETS):
                error = np.std(values, ddof=1) / np.sqrt(len(values))
                line[method] = f"{np.mean(values):.2f} ± {error:.2f}"
        lines.append(line)
    return lines


def differences(ledgers: dict[str, Ledger]) -> list[dict[str, Any]]:
    """AC of ADMM less that of each method, over the subsets that both have."""
    lines = []
    for set, ledger in ledgers.items():
        for method in METHODS[1:]:
            apart = []
            for k in KS[:-1]:
                one, other = (by_subset(ledger, "AC", set, k, name) for name in ("ADMM", method))
                apart += [one[subset] - other[subset] for subset in one if subset in other]
            if len(apart) < 2:
                continue
            error = float(np.std(apart, ddof=1) / np.sqrt(len(apart)))
            chance = float(wilcoxon(apart).pvalue) if np.any(apart) else 1.0
            mean = f"{np.mean(apart):+.2f} ± {error:.2f}"
            lines.append({"set": set, "method": method, "subsets": len(apart), "apart": mean, "chance": chance})
    return lines


def endings(ledgers: dict[str, Ledger]) -> list[dict[str, Any]]:
    """How many runs with the paper's settings met its criterion, and the AC of those that did and did not."""
    lines = []
    for set, ledger in ledgers.items():
        for method in ("ADMM", "APG"):
            for k in KS:
                rows = [r for r in ledger.rows.values() if (r["k"], r["method"]) == (k, method)]
                met = [row["AC"] for row in rows if not row["note"]]
                rest = [row["AC"] for row in rows if row["note"]]
                if rows:
                    line = {"set": set, "method": method, "k": k, "met": {"found": len(met), "of": len(rows)}}
                    lines.append(
                        {**line, "of met": _mean(met), "of rest": _mean(rest), "products": _products(rows)}
                    )
    return lines


def _mean(values: list[float]) -> float | None:
    return float(np.mean(values)) if values else None


def _products(rows: list[dict[str, Any]]) -> float:
    return float(np.median([row["products"] for row in rows]))


def main(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Write the summary as JSON; returns it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table2", type=Path, required=True)
    parser.add_argument("--table3", type=Path, required=True)
    parser.add_argument("--json", type=Path, required=True)
    given = parser.parse_args(arguments)
    ledgers = {SETS[name]: Ledger(getattr(given, name)) for name in SETS}
    head = [{"key": "k", "title": "k"}, *({"key": name, "title": name} for name in METHODS)]
    tables: dict[str, Any] = {}
    for name, set in SETS.items():
        for figure in ("AC", "NMI", "cpu"):
            rows = means(ledgers[set], figure, set)
            columns = [column for column in head if any(column["key"] in row for row in rows)]
            tables[f"{name}-{figure}"] = {"columns": columns, "rows": rows}
    tables["differences"] = {
        "columns": [
            {"key": "set", "title": "set"},
            {"key": "method", "title": "ADMM less"},
            {"key": "subsets", "title": "subsets"},
            {"key": "apart", "title": "AC, mean difference"},
            {"key": "chance", "title": "p", "format": ".1e"},
        ],
        "rows": differences(ledgers),
    }
    tables["endings"] = {
        "columns": [
            {"key": "set", "title": "set"},
            {"key": "method", "title": "method"},
            {"key": "k", "title": "k"},
            {"key": "met", "title": "runs that met ε"},
            {"key": "of met", "title": "their AC", "format": ".1f"},
            {"key": "of rest", "title": "AC of the others", "format": ".1f"},
            {"key": "products", "title": "products, median", "format": ".0f"},
        ],
        "rows": endings(ledgers),
    }
    found = {
        "benchmark": "paper-subsets",
        "command": "python examples/paper/table2.py, table3.py and summary.py",
        "date": date.today().isoformat(),
        "machine": {"processor": processor(), "cores": os.cpu_count()},
        "versions": {name: version(name) for name in PACKAGES},
        "notes": [],
        "tables": tables,
    }
    if given.json.exists():  # remarks are written by hand
        found["notes"] = json.loads(given.json.read_text())["notes"]
    given.json.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    return found


if __name__ == "__main__":
    main()
