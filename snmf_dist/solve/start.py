"""Where L begins: at random, or from the leading eigenvectors of A."""

import numpy as np
from scipy import linalg

from snmf_dist.rows import Rows, central, map_rows, rows_like, settle, sum_rows
from snmf_dist.solve.basis import Basis
from snmf_dist.solve.kernels import column_squares, scale_columns, uniform_rows

LLOYD_STEPS = 100


def random_start(A: Rows, K: int, *, seed: int, sum_A: float, dtype: np.dtype) -> Rows:
    """Uniform rows on [0, 2·sqrt(mean(A)/K)), (n, K): the convention of SymNMF and PLANC.

    A row depends on the seed and its number alone, not on the block it is in.
    """
    n = A.shape[0]
    scale = 2 * np.sqrt(sum_A / n / n / K)
    return rows_like(A, uniform_rows, K, dtype=dtype, K=K, seed=seed, scale=scale, type=dtype)


def spectral_start(basis: Basis, K: int) -> Rows:
    """The leading eigenvectors, turned to be as nonnegative as a rotation makes them, and clipped.

    UΛ^½ times a rotation is as good a square root of A as any; the one chosen makes K rows that differ most
    (by pivoted QR; Damle, Minden, Ying 2019) as near to unit vectors as a rotation can.
    """
    scaled = map_rows(scale_columns, basis.U, scale=np.sqrt(np.maximum(basis.values, 0)))
    _, pivots = settle((), central(_pivot_rows, sum_rows(_candidates, scaled)))
    left, _, right = np.linalg.svd(pivots.T, full_matrices=False)
    return map_rows(_turned, scaled, rotation=left @ right, K=K, width=K)


def kmeans_start(basis: Basis, K: int, root: Rows) -> Rows:
    """Spectral clustering's own clusters: a unit column for each, √degree within it and 0 outside.

    K-means of the rows of U divided by their length (Ng, Jordan, Weiss 2001), from the rows that pivoted QR
    chooses. √degree is the leading eigenvector of a cluster that hangs together with no other.

    Parameters
    ----------
    root : rows, (n, 1)
        √degree.
    """
    points = map_rows(_unit_rows, basis.U)
    _, centres = settle((), central(_pivot_rows, sum_rows(_candidates, points)))
    inertia = np.inf
    for _ in range(LLOYD_STEPS):
        _, total = settle((), sum_rows(_lloyd_sums, points, centres=centres))
        counts, sums, new_inertia = total[:, 0], total[:, 1:-1], total[:, -1].sum()
        centres = np.where(counts[:, None] > 0, sums / np.maximum(counts, 1)[:, None], centres)
        if inertia - new_inertia <= 1e-6 * new_inertia:
            break
        inertia = new_inertia
    labels = map_rows(_nearest, points, centres=centres, width=1)
    raw = map_rows(_indicators, root, labels, K=K, width=K)
    _, squares = settle((), sum_rows(column_squares, raw))
    return map_rows(scale_columns, raw, scale=1 / np.sqrt(np.where(squares > 0, squares, 1)))


def _unit_rows(U: np.ndarray) -> np.ndarray:
    length = np.linalg.norm(U, axis=1, keepdims=True)
    return np.divide(U, length, out=np.zeros_like(U), where=length > 0)


def _candidates(U: np.ndarray) -> list[np.ndarray]:
    """The rows of a block that pivoted QR puts first, as many as there are columns."""
    return [_pivot_rows([U])]


def _pivot_rows(blocks: list[np.ndarray]) -> np.ndarray:
    """The winners among the candidates of all blocks."""
    rows = np.concatenate(blocks).astype(np.float64)
    _, order = linalg.qr(rows.T, mode="r", pivoting=True)
    return rows[order[: rows.shape[1]]]


def _turned(U: np.ndarray, *, rotation: np.ndarray, K: int) -> np.ndarray:
    L = np.zeros((len(U), K), dtype=U.dtype)
    L[:, : rotation.shape[1]] = np.maximum(U @ rotation.astype(U.dtype), 0)
    return L


def _squared_distances(X: np.ndarray, centres: np.ndarray) -> np.ndarray:
    own = np.einsum("ij,ij->i", X, X, dtype=np.float64)[:, None]
    return np.maximum(own + (centres**2).sum(axis=1) - 2 * (X @ centres.T), 0)


def _lloyd_sums(X: np.ndarray, *, centres: np.ndarray) -> np.ndarray:
    """For each centre: how many rows are nearest to it, their sum, and their squared distances."""
    squares = _squared_distances(X, centres)
    nearest = squares.argmin(axis=1)
    total = np.zeros((len(centres), X.shape[1] + 2))
    total[:, 0] = np.bincount(nearest, minlength=len(centres))
    for j in range(X.shape[1]):
        total[:, j + 1] = np.bincount(nearest, weights=X[:, j], minlength=len(centres))
    total[:, -1] = np.bincount(nearest, weights=squares.min(axis=1), minlength=len(centres))
    return total


def _nearest(X: np.ndarray, *, centres: np.ndarray) -> np.ndarray:
    return _squared_distances(X, centres).argmin(axis=1).astype(np.int32)[:, None]


def _indicators(root: np.ndarray, labels: np.ndarray, *, K: int) -> np.ndarray:
    L = np.zeros((len(root), K), dtype=root.dtype)
    L[np.arange(len(root)), labels.ravel()] = root.ravel()
    return L
