"""One membership from several runs with the same K: columns matched one to one, then averaged."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from snmf_dist.result.solution import Solution
from snmf_dist.solve.kernels import row_labels
from snmf_dist.study.stability import contingency


class Consensus(NamedTuple):
    """What several runs have in common.

    Attributes
    ----------
    membership : dask.array.Array, (n, K)
        Mean of the runs' memberships in the input's order, each row as shares that add up to 1; computed when
        used.
    labels : ndarray of int32, (n,)
        Its largest column in each row; −1 in rows that no run has in a cluster.
    row_stability : ndarray, (n,)
        Share of the runs that put the row in this cluster.
    cluster_stability : ndarray, (K,)
        Mean Jaccard index of the cluster and the one it is matched with in each run; NaN if it is empty.
    """

    membership: Any
    labels: np.ndarray
    row_stability: np.ndarray
    cluster_stability: np.ndarray


def match(labels: np.ndarray, reference: np.ndarray, K: int) -> np.ndarray:
    """Column c of the result's run goes with cluster c of the reference: the pairing with most rows in common.

    Examples
    --------
    >>> match(np.array([1, 1, 0]), np.array([0, 0, 1]), 2)
    array([1, 0])
    """
    from scipy.optimize import linear_sum_assignment

    table = np.zeros((K, K))
    found = contingency(reference, labels)
    table[: found.shape[0], : found.shape[1]] = found
    return np.asarray(linear_sum_assignment(table, maximize=True)[1])


def consensus(solutions: Sequence[Solution]) -> Consensus:
    """Match the columns of all runs with those of the first, and average.

    Parameters
    ----------
    solutions : sequence of Solution
        Runs on one graph with one K, the best first.
    """
    K, first = solutions[0].k, solutions[0].labels
    orders = [match(one.labels, first, K) for one in solutions]
    parts = [_shares(one.membership)[:, order] for one, order in zip(solutions, orders, strict=True)]
    mean = sum(part.rechunk(parts[0].chunks) for part in parts) / len(parts)
    blocks = mean.map_blocks(row_labels, chunks=(mean.chunks[0], (1,)), dtype=np.int32)
    labels = np.asarray(blocks).ravel()
    renamed = np.stack([_renamed(one.labels, order) for one, order in zip(solutions, orders, strict=True)], axis=1)
    rows = (renamed == labels[:, None]).mean(axis=1)
    return Consensus(mean, labels, rows, _jaccard(renamed, labels, K))


def _shares(membership: Any) -> Any:
    """Rows divided by their sums; rows of zeros stay."""
    return membership.map_blocks(_row_shares, dtype=np.float64)


def _row_shares(L: np.ndarray) -> np.ndarray:
    sums = L.sum(axis=1, keepdims=True, dtype=np.float64)
    return np.divide(L, sums, out=np.zeros(L.shape), where=sums > 0)


def _renamed(labels: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Labels of a run by the numbers of the clusters that they are matched with."""
    return np.where(labels >= 0, np.argsort(order)[labels], -1)


def _jaccard(renamed: np.ndarray, labels: np.ndarray, K: int) -> np.ndarray:
    found = np.full(K, np.nan)
    for c in range(K):
        own = labels == c
        if own.any():
            of_runs = renamed == c
            common = (of_runs & own[:, None]).sum(axis=0)
            found[c] = np.mean(common / (of_runs | own[:, None]).sum(axis=0))
    return found
