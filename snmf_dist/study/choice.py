"""Which K: a suggestion with its reason and its runner-up, or that none stands out.

A K stands out if its clusters are set apart from every other partition into K (`screening.separation` of at
least ½) and fits from several starts agree on them. Of several the one with the highest separation is suggested.

The three best come from three rules, for where one sees nothing another often does: the K that stands out, or
else the one of the highest balanced modularity; the largest eigengap of the K whose modularity is nearly the
highest; and the fewest clusters that come near it. The others follow in the order of the first rule.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from snmf_dist.study.stability import Stability

STANDS_OUT = 0.5  # separation: the cut exceeds its bound by no more than the eigengap, for each cluster
AGREE = 0.75  # mean adjusted Rand index of fits from several starts
NEARLY = 0.01  # share of the highest modularity that a K may lack for its eigengap to count,
NEARLY_BEST = 0.03  # and that fewer clusters may lack. Both were chosen on COIL-20 and MNIST


class KChoice(NamedTuple):
    """What is suggested.

    Attributes
    ----------
    k : int or None
        The number of clusters, None if none stands out.
    runner_up : int or None
        The next one, by the same rule.
    best : tuple of int
        All K, the best first.
    reason : str
        The reason in words.
    """

    k: int | None
    runner_up: int | None
    best: tuple[int, ...]
    reason: str


def rank(rows: Sequence[Mapping[str, Any]], stable: Mapping[int, Stability]) -> list[Mapping[str, Any]]:
    """The rows of the screening, the best K first.

    Parameters
    ----------
    stable : mapping
        The agreement of fits, for each K that was fitted.
    """
    order = [row for row, _ in _by_rules(rows, stable)]
    apart = [row for row in rows if stands_out(row, stable)]
    order += sorted(apart, key=lambda row: -row["separation"])
    order += sorted(rows, key=lambda row: -row["balanced_modularity"])
    return list({row["k"]: row for row in order}.values())


def _by_rules(
    rows: Sequence[Mapping[str, Any]], stable: Mapping[int, Stability]
) -> list[tuple[Mapping[str, Any], str]]:
    """The K that each rule names, and the rule in words."""
    apart = [row for row in rows if stands_out(row, stable)]
    first = max(apart, key=lambda row: row["separation"], default=None)
    highest = max(row["modularity"] for row in rows)
    nearly, near = (
        [row for row in rows if row["modularity"] >= highest - share * abs(highest)]
        for share in (NEARLY, NEARLY_BEST)
    )
    return [
        (first or max(rows, key=lambda row: row["balanced_modularity"]), "the highest balanced modularity"),
        (
            max(nearly, key=lambda row: float(np.nan_to_num(row["eigengap"]))),
            f"the largest eigengap where modularity is within {NEARLY:.0%} of the highest",
        ),
        (
            min(near, key=lambda row: row["k"]),
            f"the fewest clusters with a modularity within {NEARLY_BEST:.0%} of the highest",
        ),
    ]


def stands_out(row: Mapping[str, Any], stable: Mapping[int, Stability]) -> bool:
    """Whether a K is separated, and stable as far as it was fitted."""
    agrees = row["k"] not in stable or stable[row["k"]].ari >= AGREE
    return bool(row["separation"] >= STANDS_OUT and agrees)


def suggest(rows: Sequence[Mapping[str, Any]], stable: Mapping[int, Stability]) -> KChoice:
    """Suggest a K, and say why.

    Examples
    --------
    >>> rows = [
    ...     {"k": 2, "separation": 0.1, "balanced_modularity": 0.7, "modularity": 0.4, "eigengap": 0.01},
    ...     {"k": 3, "separation": 0.9, "balanced_modularity": 0.8, "modularity": 0.6, "eigengap": 0.3},
    ... ]
    >>> suggest(rows, {})[:3]
    (3, 2, (3, 2))
    """
    ranked = rank(rows, stable)
    first, second = ranked[0], ranked[1] if len(ranked) > 1 else None
    best = tuple(row["k"] for row in ranked)
    runner_up = None if second is None else second["k"]
    if not stands_out(first, stable):
        return KChoice(None, runner_up, best, _why_none(rows, stable))
    reason = (
        f"K = {first['k']}: its clusters are set apart (separation {first['separation']:.2f} of 1; "
        f"{STANDS_OUT} is needed), with an eigengap of {first['eigengap']:.3g} after eigenvalue {first['k']} and "
        f"modularity {first['modularity']:.3f}{_agreement(first['k'], stable)}."
    )
    if second is not None:
        reason += f" Runner-up: K = {runner_up}, {_why_second(rows, second, stable)}."
    return KChoice(first["k"], runner_up, best, reason)


def _agreement(k: int, stable: Mapping[int, Stability]) -> str:
    return f"; fits from several starts agree (adjusted Rand index {stable[k].ari:.2f})" if k in stable else ""


def _why_second(rows: Sequence[Mapping[str, Any]], row: Mapping[str, Any], stable: Mapping[int, Stability]) -> str:
    if not stands_out(row, stable) and row["separation"] >= STANDS_OUT:
        return f"whose fits disagree (adjusted Rand index {stable[row['k']].ari:.2f})"
    apart = f"which is set apart less (separation {row['separation']:.2f})"
    rules = [why for named, why in _by_rules(rows, stable)[1:] if named is row]
    return f"{apart}, and has {rules[0]}" if rules else apart


def _why_none(rows: Sequence[Mapping[str, Any]], stable: Mapping[int, Stability]) -> str:
    highest = max(rows, key=lambda row: row["separation"])
    why = (
        f"the highest separation is {highest['separation']:.2f}, at K = {highest['k']}, and {STANDS_OUT} is needed"
    )
    if highest["separation"] >= STANDS_OUT:
        why = (
            f"K = {highest['k']} is set apart, but fits from several starts disagree (adjusted Rand index "
            f"{stable[highest['k']].ari:.2f}; {AGREE} is needed)"
        )
    nearest: dict[int, str] = {}
    for row, rule in _by_rules(rows, stable):
        nearest[row["k"]] = f"{nearest[row['k']]} and {rule}" if row["k"] in nearest else rule
    named = "; ".join(f"K = {k} has {rules}" for k, rules in nearest.items())
    return (
        f"No K stands out: {why}. The clusters may blend into each other, or there may be none. "
        f"The nearest: {named}."
    )
