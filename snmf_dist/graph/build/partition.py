"""Cells of points that fit in memory, and the order of rows that keeps neighbours together.

A tree of k-means splits of a sample gives leaves. They are put in an order in which a cut anywhere separates few
neighbours, and consecutive leaves form a cell. A row belongs to the cell of its nearest leaf, its home; a copy
goes to each cell with a leaf almost as near, so that neighbours on both sides of a border meet in some cell. Rows
are renumbered leaf by leaf.
"""

from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.cluster.hierarchy import leaves_list, linkage
from threadpoolctl import threadpool_limits

TILE_ROWS = 4096  # rows whose distances to all leaves are held at a time
LEAVES_A_CELL = 16  # at least
ROWS_A_LEAF = 2000  # at most, as far as the sample has 100 for each: rows of few leaves stay in a core's cache

JOINED = 4096  # leaves, at most, whose distances to each other are taken: 70 MB
CUTS = (2, 4, 8, 16)  # equal parts that an order of the leaves is judged by


class Partition(NamedTuple):
    """Where points go.

    Attributes
    ----------
    leaves : ndarray, shape (F, d)
        Centres of the leaves, similar ones next to each other.
    starts : ndarray of int, shape (P,)
        The first leaf of each cell.
    reach : float
        Squared distances up to `reach` times that of the nearest leaf make a copy; 1 makes none.
    """

    leaves: np.ndarray
    starts: np.ndarray
    reach: float

    @property
    def n_cells(self) -> int:
        """Number of cells, P."""
        return len(self.starts)


class CellPlaces(NamedTuple):
    """Where the rows of one block go.

    Attributes
    ----------
    leaf : ndarray of int32, shape (rows,)
        The nearest leaf of each row.
    member : ndarray of bool, shape (rows, P)
        The cells it is put in.
    """

    leaf: np.ndarray
    member: np.ndarray


def make_partition(sample: Any, cells: int, *, n: int, replication: float, seed: int) -> Partition:
    """Cut a sample into `cells` cells of equal size, and calibrate the reach of copies on it.

    Parameters
    ----------
    sample : ndarray or csr_matrix, shape (m, d)
        Rows drawn evenly from all points.
    cells : int
        Number of cells, P.
    n : int
        Number of points.
    replication : float
        Mean number of cells that a row is put in, including its home.
    seed : int
        Seed of the random number generator.
    """
    from sklearn.cluster import BisectingKMeans

    m = sample.shape[0]
    leaves = max(LEAVES_A_CELL * cells, min(n // ROWS_A_LEAF, m // 100))
    leaves = min(leaves, max(1, m // 8))
    # Borders of cells need not be optimal: ten steps a split cost a fiftieth of converged ones.
    tree = BisectingKMeans(leaves, bisecting_strategy="largest_cluster", max_iter=10, tol=1e-2, random_state=seed)
    with threadpool_limits(1):  # its splits are small; threads that wait for each other cost more
        tree.fit(sample)
    centres = np.ascontiguousarray(tree.cluster_centers_, dtype=np.float32)
    order = _leaf_order(centres, sample)
    counts = np.bincount(tree.labels_, minlength=leaves)[order]
    before = np.cumsum(counts) - counts
    starts = np.searchsorted(before, np.arange(cells) * (m / cells))
    partition = Partition(leaves=centres[order], starts=np.unique(np.minimum(starts, leaves - 1)), reach=1.0)
    return partition._replace(reach=_calibrate(partition, sample, replication))


def _leaf_order(leaves: np.ndarray, sample: Any) -> np.ndarray:
    """Leaves in the order of the tree, or in that in which Ward's method joins them, if that cuts less.

    The tree cuts from above, through clusters too if they are in the way; Ward's method joins from below, and
    keeps a cluster in one piece. Where there are no clusters the tree's cuts are the straighter ones.
    """
    given = np.arange(len(leaves))
    if not 2 < len(leaves) <= JOINED:
        return given
    nearest = np.concatenate([np.argpartition(s, 1, axis=1)[:, :2] for s in _squares_to_leaves(leaves, sample)])
    joined = leaves_list(linkage(leaves, "ward"))
    return min((given, joined), key=lambda order: _cut(order, nearest))


def _cut(order: np.ndarray, nearest: np.ndarray) -> float:
    """How many rows have their two nearest leaves, (m, 2), in different parts, on the mean over `CUTS`."""
    rows = np.bincount(nearest[:, 0], minlength=len(order))[order]
    place = np.empty(len(order))
    place[order] = (np.cumsum(rows) - rows / 2) / len(nearest)
    return float(np.mean([np.diff(np.floor(place[nearest] * parts)) != 0 for parts in CUTS]))


def _calibrate(partition: Partition, sample: Any, replication: float) -> float:
    """The reach at which a row is put in `replication` cells on the mean."""
    if partition.n_cells == 1 or replication <= 1:
        return 1.0
    ratios = []
    for squares in _squares_to_leaves(partition.leaves, sample):
        to_cells = np.minimum.reduceat(squares, partition.starts, axis=1)
        nearest = np.maximum(to_cells.min(axis=1, keepdims=True), np.finfo(np.float32).tiny)
        ratios.append((to_cells / nearest).ravel())
    ratio = np.concatenate(ratios)
    wanted = min(int(replication * sample.shape[0]), len(ratio)) - 1
    return float(max(np.partition(ratio, wanted)[wanted], 1.0))


def place(partition: Partition, X: Any) -> CellPlaces:
    """Find the nearest leaf and the cells of each row of a block."""
    leaf, member = [], []
    for squares in _squares_to_leaves(partition.leaves, X):
        leaf.append(squares.argmin(axis=1).astype(np.int32))
        to_cells = np.minimum.reduceat(squares, partition.starts, axis=1)
        member.append(to_cells <= to_cells.min(axis=1, keepdims=True) * partition.reach)
    home = np.searchsorted(partition.starts, np.concatenate(leaf), side="right") - 1
    members = np.concatenate(member)
    members[np.arange(len(home)), home] = True
    return CellPlaces(np.concatenate(leaf), members)


def _squares_to_leaves(leaves: np.ndarray, X: Any) -> Any:
    """Squared distances of the rows of X to all leaves, a tile of rows at a time."""
    own = np.einsum("ij,ij->i", leaves, leaves)
    for start in range(0, X.shape[0], TILE_ROWS):
        tile = X[start : start + TILE_ROWS]
        product = np.asarray(tile @ leaves.T)
        mine = tile.multiply(tile).sum(axis=1) if sparse.issparse(tile) else np.einsum("ij,ij->i", tile, tile)
        yield np.maximum(np.asarray(mine).reshape(-1, 1) + own - 2 * product, 0)


def positions(leaf_of: list[np.ndarray], leaves: int) -> list[np.ndarray]:
    """New row numbers that go leaf by leaf, and within a leaf in the order of the input.

    Parameters
    ----------
    leaf_of : list of arrays of int
        The leaf of each row, for each block of the input in turn.
    leaves : int
        Number of leaves.

    Examples
    --------
    >>> positions([np.array([1, 0]), np.array([0, 1])], 2)
    [array([2, 0]), array([1, 3])]
    """
    counts = np.array([np.bincount(leaf, minlength=leaves) for leaf in leaf_of])
    total = counts.sum(axis=0)
    begin = np.cumsum(total) - total + np.cumsum(counts, axis=0) - counts
    result = []
    for leaf, first in zip(leaf_of, begin, strict=True):
        by_leaf = np.argsort(leaf, kind="stable")
        sizes = np.bincount(leaf, minlength=leaves)
        within = np.arange(len(leaf)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        numbers = np.empty(len(leaf), dtype=np.int64)
        numbers[by_leaf] = first[leaf[by_leaf]] + within
        result.append(numbers)
    return result
