"""A held-out score: how well clusters of some entries of A predict the others.

Pairs of rows are drawn, each with the same probability p, whatever A has there, and both entries of a pair are
hidden together, so that symmetry gives nothing away. Clusters are found without them. A partition stands for the
model M = Σ_c s_c h_c h_cᵀ, h_c being r within cluster c and 0 outside, and s_c fits the entries that are left.
The score

    1 − Σ (A − M)² / Σ A² = (2 Σ A M − Σ M²) / Σ A²

is taken over the hidden pairs, zeros among them: 1 is a perfect prediction, 0 no better than none. Too few
clusters miss what could be known, and too many learn what was chance. ΣM² is p times its sum over all pairs, its
mean.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from snmf_dist.engine.plan import Plan
from snmf_dist.fitting import loaded
from snmf_dist.graph.store import GraphStore
from snmf_dist.solve.kernels import entry_sums
from snmf_dist.study.screening import cluster_weights, screen


@dataclass(frozen=True)
class HiddenPairs:
    """Reads rows of A with zeros in the place of hidden entries.

    Attributes
    ----------
    read : callable
        Rows start to stop of A.
    share : float
        Share p of the pairs that are hidden.
    seed : int
        Seed of which.
    """

    read: Callable[[int, int], Any]
    share: float
    seed: int

    def __call__(self, start: int, stop: int) -> Any:
        """Rows `start` to `stop`."""
        A = self.read(start, stop)
        rows = np.repeat(np.arange(start, stop), np.diff(A.indptr))
        A.data = np.where(hidden(rows, A.indices, share=self.share, seed=self.seed), 0, A.data)
        return A


def hidden(i: np.ndarray, j: np.ndarray, *, share: float, seed: int) -> np.ndarray:
    """Whether the pairs (i, j) are hidden; the same for (j, i), and never for (i, i).

    Examples
    --------
    >>> i, j = np.arange(4), np.array([1, 2, 3, 3])
    >>> bool((hidden(i, j, share=0.5, seed=0) == hidden(j, i, share=0.5, seed=0)).all())
    True
    """
    low, high = np.minimum(i, j).astype(np.uint64), np.maximum(i, j).astype(np.uint64)
    number = _mixed(_mixed(_mixed(np.full(1, seed, np.uint64)) + low) + high)
    return np.asarray((number < np.uint64(int(share * 2**64))) & (low != high))


def _mixed(x: np.ndarray) -> np.ndarray:
    """Numbers that look random, one for each of 2⁶⁴ (splitmix64; Steele, Lea, Flood 2014)."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(x ^ (x >> np.uint64(31)))


def held_out_scores(
    store: GraphStore, ks: Sequence[int], settings: dict[str, Any], *, plan: Plan, share: float, seed: int
) -> tuple[list[float], int]:
    """The score of the screening's partition for each K, found without the hidden pairs; and the passes over A.

    Parameters
    ----------
    settings : dict
        As `loaded` has them.
    share : float
        Share of the pairs that are hidden; if no entry is among them, the scores are NaN.
    """
    with loaded(store, settings, plan=plan, change=partial(HiddenPairs, share=share, seed=seed)) as facts:
        found = screen(facts, ks, seed=seed)
        left, norm_left, passes = _of_graph(facts, found.labels, ks)
    with loaded(store, settings, plan=plan) as facts:
        whole, norm, more = _of_graph(facts, found.labels, ks)
    r = store.read_weights(0, store.n)[:, 0]
    scores = []
    for labels, K, before, after in zip(found.labels.T, ks, left, whole, strict=True):
        squares, fourths = (np.bincount(labels % (K + 1), r**power, K + 1)[:K] for power in (2, 4))
        s = np.divide(before / (1 - share), squares**2, out=np.zeros(K), where=squares > 0)
        both = (s * (after - before)).sum()  # both entries of a pair, here and below
        model = share * (s**2 * (squares**2 - fourths)).sum()
        scores.append(float((2 * both - model) / (norm - norm_left)) if norm > norm_left else float("nan"))
    return scores, found.products + passes + more


def _of_graph(facts: Any, labels: np.ndarray, ks: Sequence[int]) -> tuple[list[np.ndarray], float, int]:
    """hᵀAh of all clusters, ‖A‖², and the passes over A."""
    A = facts.A
    weights = A.hold(A.rows(facts.weights, 2, dtype=np.float64))
    columns = [A.hold(A.rows_from(np.ascontiguousarray(one[:, None]), dtype=np.int32)) for one in labels.T]
    inside, passes = cluster_weights(A, columns, weights, ks, width=max(ks))
    _, (_, norm) = A.settle((), A.sum_entries(entry_sums))
    return inside, float(norm), passes
