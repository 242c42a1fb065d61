"""How far partitions of the same rows agree, from K × K tables of counts alone: nothing of size n × n is formed.

The consensus matrix C has the share of R partitions that put rows i and j together. With n_ab(r, s) the rows in
cluster a of partition r and cluster b of partition s,

    ΣC² = R⁻² Σ_rs Σ_ab n_ab(r, s)²        ΣC = R⁻¹ Σ_r Σ_a n_a(r)²

over all n² entries. A row labelled −1 counts as a cluster of its own.
"""

from typing import NamedTuple

import numpy as np

PAIRS = 200_000  # sampled for PAC: its standard error is then at most 0.0012
AMBIGUOUS = (0.1, 0.9)  # shares of partitions between which a pair is ambiguous (Șenbabaoğlu et al. 2014)


class Stability(NamedTuple):
    """Agreement of partitions.

    Attributes
    ----------
    dispersion : float
        Mean of (2C − 1)² over all pairs, rows with themselves included: 1 if all partitions agree.
    ari : float
        Mean adjusted Rand index of two partitions.
    pac : float
        Share of pairs of rows that more than 10 % and fewer than 90 % of the partitions put together; estimated
        from sampled pairs.
    """

    dispersion: float
    ari: float
    pac: float


def stability(labels: np.ndarray, *, seed: int = 0, pairs: int = PAIRS) -> Stability:
    """Agreement of the partitions in the columns of `labels`.

    Parameters
    ----------
    labels : ndarray of int, (n, R)
        Cluster numbers; −1 marks rows in none.
    seed : int, default 0
        Seed of the pairs that PAC is estimated from.
    pairs : int
        Number of these pairs.

    Examples
    --------
    >>> stability(np.array([[0, 1], [0, 1], [1, 0]]))
    Stability(dispersion=1.0, ari=1.0, pac=0.0)
    """
    n, R = labels.shape
    squares = np.array([[_squares(labels[:, r], labels[:, s]) for s in range(R)] for r in range(R)])
    total, mean = squares.sum() / R**2, np.trace(squares) / R  # ΣC² and ΣC
    dispersion = float((4 * total - 4 * mean + n * n) / (n * n))
    pair_aris = [_ari(squares[r, s], squares[r, r], squares[s, s], n) for r in range(R) for s in range(r + 1, R)]
    ari = float(np.mean(pair_aris)) if pair_aris else 1.0
    return Stability(dispersion, ari, _pac(labels, seed=seed, pairs=pairs))


def contingency(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Rows in cluster a of one partition and b of another, (K, K'); rows labelled −1 in either are left out."""
    found = (one >= 0) & (other >= 0)
    shape = int(one.max(initial=-1)) + 1, int(other.max(initial=-1)) + 1
    flat = one[found].astype(np.int64) * shape[1] + other[found]
    return np.bincount(flat, minlength=shape[0] * shape[1]).reshape(shape)


def _squares(one: np.ndarray, other: np.ndarray) -> float:
    """Σ_ab n_ab², where each row labelled −1 in either partition shares its cell with none."""
    table = contingency(one, other).astype(float)
    return float((table**2).sum() + np.count_nonzero((one < 0) | (other < 0)))


def _ari(both: float, one: float, other: float, n: int) -> float:
    """The adjusted Rand index from the sums of squares of the table and of its margins."""
    pairs = n * (n - 1)
    if pairs == 0:
        return 1.0
    both, one, other = both - n, one - n, other - n  # ordered pairs of different rows that are together
    chance, most = one * other / pairs, (one + other) / 2
    return 1.0 if most == chance else float((both - chance) / (most - chance))


def _pac(labels: np.ndarray, *, seed: int, pairs: int) -> float:
    n, R = labels.shape
    if n < 2:
        return 0.0
    random = np.random.default_rng(seed)
    i = random.integers(0, n, pairs)
    j = (i + random.integers(1, n, pairs)) % n  # never i itself
    together = np.zeros(pairs)
    for column in labels.T:
        together += (column[i] == column[j]) & (column[i] >= 0)
    low, high = AMBIGUOUS
    return float(np.mean((together > low * R) & (together < high * R)))
