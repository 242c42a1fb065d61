"""Two clusterings of the same rows side by side."""

from typing import Any, NamedTuple

import numpy as np

from snmf_dist.errors import InputError
from snmf_dist.ids import same_ids


class Comparison(NamedTuple):
    """How two results agree.

    Attributes
    ----------
    table : ndarray of int, shape (K + 1, K' + 1)
        Rows in each pair of clusters; the last row and column count those in no cluster.
    ari : float
        Adjusted Rand index, 1 at best.
    nmi : float
        Normalised mutual information, 1 at best.
    matched : dict of int to int
        The cluster of the other result that each cluster of this one corresponds to (one to one, Kuhn–Munkres).
    moved : ndarray of int
        Rows, of this result, that are not in the matched cluster of the other one.
    """

    table: np.ndarray
    ari: float
    nmi: float
    matched: dict[int, int]
    moved: np.ndarray

    def __repr__(self) -> str:
        return (
            f"Comparison(ari={self.ari:.4f}, nmi={self.nmi:.4f}, moved={len(self.moved)}, matched={self.matched})"
        )


def compare_results(one: Any, other: Any) -> Comparison:
    """Compare two results. Rows are matched by their ids if both have ids, else by their number."""
    sizes = {"k": one.k, "other_k": other.k}
    if one.ids is None or other.ids is None or same_ids(one.ids, other.ids):
        return compare(one.labels, other.labels, **sizes)
    there = other.ids.find(one.ids.to_arrow())
    rows = np.flatnonzero(there >= 0)
    if not len(rows):
        raise InputError("the results have no id in common; expected two clusterings of the same rows")
    found = compare(one.labels[rows], other.labels[there[rows]], **sizes)
    return found._replace(moved=rows[found.moved])


def compare(labels: np.ndarray, others: np.ndarray, *, k: int, other_k: int) -> Comparison:
    """Compare labels with others of the same rows; −1 is in no cluster.

    Examples
    --------
    >>> compare(np.array([0, 0, 1, 1]), np.array([1, 1, 0, -1]), k=2, other_k=2).matched
    {0: 1, 1: 0}
    """
    from scipy.optimize import linear_sum_assignment
    from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

    if labels.shape != others.shape:
        raise InputError(
            f"the results have {len(labels)} and {len(others)} rows; expected two clusterings of the same rows"
        )
    table = np.zeros((k + 1, other_k + 1), dtype=np.int64)
    np.add.at(table, (labels, others), 1)  # −1 counts from the end
    pairs = linear_sum_assignment(table[:k, :other_k], maximize=True)
    matched = {int(one): int(two) for one, two in zip(*pairs, strict=True)}
    name = np.full(k + 1, -2)
    name[list(matched)] = list(matched.values())
    name[k] = -1
    return Comparison(
        table=table,
        ari=float(adjusted_rand_score(labels, others)),
        nmi=float(normalized_mutual_info_score(labels, others)),
        matched=matched,
        moved=np.flatnonzero(name[labels] != others),
    )
