"""A result beside another of the same rows."""

from typing import Any

import numpy as np

from snmf_dist.report.cluster_table import LISTED_CLUSTERS
from snmf_dist.report.html import Html, facts, section, table
from snmf_dist.report.words import count, share


def comparison_section(solution: Any, other: Any) -> Html:
    """How far two results agree, and which clusters correspond."""
    found = solution.compare(other)
    rows_of_both = int(found.table.sum())
    head = {
        "Rows compared": count(rows_of_both),
        "Adjusted Rand index": f"{found.ari:.4f}",
        "Normalised mutual information": f"{found.nmi:.4f}",
        "Rows that moved": f"{count(len(found.moved))} ({share(len(found.moved) / max(rows_of_both, 1))})",
        "The other result": f"k = {other.k}, {other.status.name}, seed {other.settings.get('seed', '–')}",
    }
    rows = []
    for mine in range(min(solution.k, LISTED_CLUSTERS)):
        here, theirs = int(found.table[mine].sum()), found.matched.get(mine)
        if theirs is None:
            rows.append([str(mine), count(here), "–", "–", "–", _into(found.table[mine])])
            continue
        both = int(found.table[mine, theirs])
        there = int(found.table[:, theirs].sum())
        kept = share(both / here) if here else "–"
        rows.append(
            [
                str(mine),
                count(here),
                f"{theirs}",
                count(there),
                f"{count(both)} ({kept})",
                _into(found.table[mine], theirs),
            ]
        )
    columns = ["Cluster", "Rows", "Matches", "Rows there", "In both", "Others went mostly to"]
    return section(
        "Beside another result",
        facts(head),
        table(columns, rows, words={0}, caption="Matched clusters"),
        note="Clusters are matched one to one so that they share as many rows as possible.",
    )


def _into(line: np.ndarray, matched: int | None = None) -> str:
    """The other cluster that most rows went to."""
    rest = line.copy()
    if matched is not None:
        rest[matched] = 0
    if not rest.any():
        return "–"
    where = int(rest.argmax())
    return f"{'no cluster' if where == len(line) - 1 else where} ({count(rest[where])})"
