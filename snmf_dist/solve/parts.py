"""The parts that a graph falls into: which of them are clustered, and the eigenvectors that they give for nothing.

In a graph that is normalised by its degrees, √degree within a component and 0 outside is an eigenvector of
eigenvalue 1. A product with A leaves a component of zeros at zero, so a part that is not to take a cluster needs
no more than zeros to begin with.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from snmf_dist.engine.rows import Graph, Rows

SPECKS = ("drop", "own", "join")
SPECK_SHARE = 20  # a part is a speck if it has fewer rows than a mean cluster by this factor,
LARGEST_SPECK = 1000  # and fewer than this


@dataclass(frozen=True)
class PartFacts:
    """The parts of a graph that are clustered: its largest components.

    Attributes
    ----------
    read : callable
        Rows start to stop of the component's number, 0 the largest, (rows, 1).
    count : int
        The parts that are clustered; the components after these are left out.
    specks : int
        Number of components that are left out though they have edges or loops.
    speck_rows : int
        Number of their rows.
    limit : int
        Rows of the smallest part that is not a speck.
    """

    read: Callable[[int, int], np.ndarray]
    count: int
    specks: int
    speck_rows: int
    limit: int


def speck_limit(n: int, K: int) -> int:
    """Rows of the smallest component that is worth a cluster.

    Examples
    --------
    >>> speck_limit(10_000, 10), speck_limit(300, 20), speck_limit(10**7, 10)
    (50, 2, 1000)
    """
    return int(np.clip(n // (SPECK_SHARE * K), 2, LARGEST_SPECK))


def count_parts(sizes: np.ndarray, *, K: int, specks: str) -> tuple[int, int]:
    """How many components are clustered into K clusters, and the rows that one needs to be.

    Parameters
    ----------
    sizes : ndarray of int
        Rows of each component, largest first.

    Examples
    --------
    >>> count_parts(np.array([600, 390, 10]), K=2, specks="drop")
    (2, 25)
    """
    limit = speck_limit(int(sizes.sum()), K) if specks != "own" else 1
    return max(int(np.count_nonzero(sizes >= limit)), 1), limit


def find_parts(
    read: Callable[[int, int], np.ndarray], sizes: np.ndarray, *, isolated: int, K: int, specks: str
) -> PartFacts:
    """The parts to cluster into K clusters; with ``specks="own"`` all that have an edge.

    Parameters
    ----------
    sizes : ndarray of int
        Rows of each component, largest first.
    isolated : int
        Number of rows without entries.
    """
    count, limit = count_parts(sizes, K=K, specks=specks)
    left_out = sizes[count:]
    return PartFacts(read, count, max(len(left_out) - isolated, 0), max(int(left_out.sum()) - isolated, 0), limit)


def read_parts(A: Graph, facts: PartFacts) -> Rows:
    """The part of each row, (n, 1) int32; −1 in those that are left out."""
    return A.hold(A.map(_part_of, A.rows(facts.read, 1, dtype=np.int32), count=facts.count))


def in_parts(L: np.ndarray, parts: np.ndarray) -> np.ndarray:
    """L with zeros in the rows of parts that are left out."""
    return np.where(parts >= 0, L, 0).astype(L.dtype)


def begin_with_parts(V: np.ndarray, parts: np.ndarray, weights: np.ndarray, *, count: int, K: int) -> np.ndarray:
    """V whose first columns are the leading eigenvectors of the parts, and zero in the rows of no part.

    Of more than K parts the K largest are taken: any K of as many equal eigenvalues would do, and mixtures of them
    are of no use.
    """
    taken, of = min(count, K), parts[:, 0]
    V = np.where((parts >= 0) & ((parts < K) | (count <= K)), V, 0).astype(V.dtype)
    V[:, :taken] = 0
    rows = np.flatnonzero((of >= 0) & (of < taken))
    V[rows, of[rows]] = weights[rows, 0]
    return V


def _part_of(component: np.ndarray, *, count: int) -> np.ndarray:
    return np.where(component < count, component, -1).astype(np.int32)
