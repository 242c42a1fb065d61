"""Tables 2 and 3 as means with standard errors, with tests of the differences, as the documentation shows them.

Run ``python examples/paper/summary.py --table2 FOLDER --table3 FOLDER --json FILE``; the folders are those that
the tables wrote. A subset of the classes counts once, by the mean over its starts, so the standard errors are
those of the paper's 20 subsets; at k = 20 there is one set, and they are those of the starts. A cell that lacks
subsets is left out; where runs were given up for their time it says how many subsets came to an end, since a mean
over those would be one over the smaller sets. Differences are taken on the same subsets of all k < 20 and tested
by Wilcoxon's signed-rank test. ``--picture FILE`` draws AC and seconds against k.
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
from methods import UNFINISHED
from published import ACCURACY, SECONDS
from published import METHODS as PAPERS
from real import KS, draw_by_k
from runs import PACKAGES, Ledger, processor
from scipy.stats import wilcoxon

SUBSETS, STARTS = 20, 5
FEWER_STARTS = {("Reuters", "SymNMF"): 1}  # where most runs meet the limit of their time, from k = 4 on
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
PUBLISHED = {"AC": ACCURACY, "cpu": SECONDS}


def starts_of(set: str, k: int, method: str) -> int:
    """Starts that a subset has."""
    return FEWER_STARTS.get((set, method), STARTS) if k > min(KS) else STARTS


def _wanted(set: str, k: int, method: str) -> int:
    """Figures that make a complete cell: of subsets, or of starts at k = 20."""
    return starts_of(set, k, method) if k == max(KS) else SUBSETS


def by_subset(ledger: Ledger, name: str, set: str, k: int, method: str) -> dict[int, float]:
    """The mean of a figure over the starts of each subset that has all of them; at k = 20 that of each start."""
    runs = ledger.by_run(name, set=set, k=k, method=method)
    if k == max(KS):
        return {start: value for (_, start), value in runs.items()}
    found: dict[int, list[float]] = {}
    for (subset, _), value in runs.items():
        found.setdefault(subset, []).append(value)
    least = starts_of(set, k, method)
    return {subset: float(np.mean(values)) for subset, values in found.items() if len(values) >= least}


def means(ledger: Ledger, name: str, set: str) -> list[dict[str, Any]]:
    """A row for each k: mean, standard error and the paper's figure of each method that is complete there."""
    lines = []
    for k in KS:
        line: dict[str, Any] = {"k": f"k={k}"}
        published = dict(zip(PAPERS, PUBLISHED.get(name, {}).get(set, {}).get(k, ()), strict=False))
        for method in METHODS:
            values = list(by_subset(ledger, name, set, k, method).values())
            wanted = _wanted(set, k, method)
            if len(values) >= wanted:
                cell: dict[str, Any] = {"found": float(np.mean(values))}
                if wanted > 1:
                    cell["error"] = float(np.std(values, ddof=1) / np.sqrt(len(values)))
                if name == "cpu" and _unfinished(ledger, set, k, method):
                    cell["above"] = True
                line[method] = cell | ({"paper": published[method]} if method in published else {})
            elif len(by_subset(ledger, "cpu", set, k, method)) >= wanted:
                line[method] = f"{len(values)} of {wanted} ended"
        lines.append(line)
    return lines


def faster(ledger: Ledger, set: str) -> list[dict[str, Any]]:
    """How many times the seconds of ADMM the other methods of the paper take, for each k."""
    lines = []
    for k in KS:
        line: dict[str, Any] = {"k": f"k={k}"}
        ours = list(by_subset(ledger, "cpu", set, k, "ADMM").values())
        for method in ("SymNMF", "APG"):
            theirs = list(by_subset(ledger, "cpu", set, k, method).values())
            if ours and len(theirs) >= _wanted(set, k, method):
                paper = dict(zip(PAPERS, SECONDS[set][k], strict=True))
                line[method] = {
                    "found": float(np.mean(theirs) / np.mean(ours)),
                    "paper": paper[method] / paper["ADMM"],
                }
                if _unfinished(ledger, set, k, method):
                    line[method]["above"] = True
        lines.append(line)
    return lines


def _unfinished(ledger: Ledger, set: str, k: int, method: str) -> bool:
    """Whether a run was given up, so that the mean of the seconds is too low."""
    return UNFINISHED in ledger.figures("note", set=set, k=k, method=method)


def differences(ledgers: dict[str, Ledger]) -> list[dict[str, Any]]:
    """AC of ADMM, and of the default, less that of each method, over the subsets that both have."""
    lines = []
    for set, ledger in ledgers.items():
        for reference in ("ADMM", "default"):
            for method in METHODS:
                apart = _apart(ledger, set, reference, method)
                if method in ("ADMM", reference) or len(apart) < 2:
                    continue
                error = float(np.std(apart, ddof=1) / np.sqrt(len(apart)))
                chance = float(wilcoxon(apart).pvalue) if np.any(apart) else 1.0
                line = {"set": set, "reference": reference, "method": method, "subsets": len(apart)}
                lines.append({**line, "apart": {"found": float(np.mean(apart)), "error": error}, "chance": chance})
    return lines


def _apart(ledger: Ledger, set: str, reference: str, method: str) -> list[float]:
    """The difference of the AC on each subset of all k < 20 that both have."""
    found = []
    for k in KS[:-1]:
        one, other = (by_subset(ledger, "AC", set, k, name) for name in (reference, method))
        found += [one[subset] - other[subset] for subset in one if subset in other]
    return found


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
    parser.add_argument("--picture", type=Path, help="draw AC and seconds against k here")
    given = parser.parse_args(arguments)
    ledgers = {SETS[name]: Ledger(getattr(given, name)) for name in SETS}
    head = [{"key": "k", "title": "k"}, *({"key": name, "title": name, "format": ".2f"} for name in METHODS)]
    tables: dict[str, Any] = {}
    for name, set in SETS.items():
        for figure in ("AC", "NMI", "cpu"):
            rows = means(ledgers[set], figure, set)
            columns = [column for column in head if any(column["key"] in row for row in rows)]
            tables[f"{name}-{figure}"] = {"columns": columns, "rows": rows}
        ratios = [{"key": name, "title": name, "format": ".1f"} for name in ("SymNMF", "APG")]
        tables[f"{name}-faster"] = {
            "columns": [{"key": "k", "title": "k"}, *ratios],
            "rows": faster(ledgers[set], set),
        }
    tables["differences"] = {
        "columns": [
            {"key": "set", "title": "set"},
            {"key": "reference", "title": "method"},
            {"key": "method", "title": "less"},
            {"key": "subsets", "title": "subsets"},
            {"key": "apart", "title": "AC, mean difference", "format": "+.2f"},
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
    if given.picture is not None:
        draw_by_k(ledgers, given.picture)
    given.json.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    return found


if __name__ == "__main__":
    main()
