"""The connected components of a graph, found from batches of edges that are seen once."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.sparse.csgraph import connected_components

SMALL_COMPONENT = 1000  # a component of fewer rows, and of fewer than n/100, is small
LISTED = 20  # sizes that the manifest lists


class Components(NamedTuple):
    """The connected components of a graph.

    Attributes
    ----------
    of : ndarray of int, shape (n,)
        Number of the component of each row; 0 is the largest.
    sizes : ndarray of int
        Number of rows of each component, largest first.
    """

    of: np.ndarray
    sizes: np.ndarray

    @property
    def small(self) -> np.ndarray:
        """Numbers of the small components; never the largest."""
        limit = min(SMALL_COMPONENT, max(2, len(self.of) // 100))
        return np.flatnonzero(self.sizes < limit)[int(self.sizes[0] < limit) :]

    @property
    def facts(self) -> dict[str, Any]:
        """What the manifest says of them."""
        return {"components": len(self.sizes), "component_sizes": self.sizes[:LISTED].tolist()}

    def joined(self, edges: np.ndarray) -> "Components":
        """The components with the rows of `edges`, (m, 2), joined too."""
        ends = self.of[edges].T
        rank = find_components(len(self.sizes), [(ends[0], ends[1])]).of
        return _ranked(rank[self.of])

    def reordered(self, order: np.ndarray) -> "Components":
        """The same components after row ``order[i]`` became row i."""
        return Components(self.of[order], self.sizes)


def find_components(n: int, blocks: Iterable[tuple[np.ndarray, np.ndarray]]) -> Components:
    """Connected components of a graph seen once, a batch of edges at a time; 8 bytes a row are kept.

    Examples
    --------
    >>> edges = [(np.array([0, 1]), np.array([1, 2])), (np.array([3]), np.array([4]))]
    >>> find_components(5, edges).sizes
    array([3, 2])
    """
    of = np.arange(n)
    for rows, columns in blocks:
        ends = np.stack([of[rows], of[columns]])
        ends = ends[:, ends[0] != ends[1]]  # the others join nothing
        if not ends.size:
            continue
        if 4 * ends.size > n:
            names, (first, second) = np.arange(n), ends
        else:
            names, compact = np.unique(ends, return_inverse=True)
            first, second = compact.reshape(ends.shape)
        edges = sparse.coo_matrix((np.ones(len(first), dtype=bool), (first, second)), shape=(len(names),) * 2)
        joined = connected_components(edges, directed=False)[1]
        new = np.arange(n)
        least = np.empty(len(names), dtype=np.int64)
        least[joined[::-1]] = names[::-1]  # what is written last stays: the first name of those joined
        new[names] = least[joined]
        of = new[of]
    return _ranked((np.cumsum(of == np.arange(n)) - 1)[of])


def find_anchors(components: Components, edges: np.ndarray) -> np.ndarray:
    """The row of a component that is not small that each row of a small one is joined to, (n,); −1 in others.

    Parameters
    ----------
    edges : ndarray of int, (m, 2)
        Rows to join, which lead from every small component, through others if need be, to one that is not small.

    Examples
    --------
    >>> of = np.repeat([0, 1, 2], [3, 1, 1])
    >>> find_anchors(Components(of, np.array([3, 1, 1])), np.array([[4, 3], [3, 2]]))
    array([-1, -1, -1,  2,  2])
    """
    reached = np.full(len(components.sizes), -1)  # row that a small component is joined to
    settled = np.ones(len(components.sizes), dtype=bool)
    settled[components.small] = False
    both = np.concatenate((edges, edges[:, ::-1]))
    start, end = components.of[both].T
    while True:
        new = np.flatnonzero(~settled[start] & settled[end])
        if not len(new):
            break
        first = new[np.unique(start[new], return_index=True)[1]]
        further = reached[end[first]]
        reached[start[first]] = np.where(further < 0, both[first, 1], further)
        settled[start[first]] = True
    return np.asarray(reached[components.of])


def edges_above(indptr: np.ndarray, indices: np.ndarray, *, first_row: int) -> tuple[np.ndarray, np.ndarray]:
    """The entries of a row block above the diagonal: each edge of the graph once."""
    rows = np.repeat(np.arange(first_row, first_row + len(indptr) - 1, dtype=np.int64), np.diff(indptr))
    above = rows < indices
    return rows[above], indices[above]


def _ranked(of: np.ndarray) -> Components:
    """Components numbered by size, the largest first."""
    sizes = np.bincount(of)
    sizes, names = np.sort(sizes)[::-1], np.argsort(-sizes, kind="stable")
    rank = np.empty(len(names), dtype=np.int64)
    rank[names] = np.arange(len(names))
    return Components(rank[of], sizes[sizes > 0])
