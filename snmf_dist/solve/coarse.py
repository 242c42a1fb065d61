"""A coarse graph to begin the basis with: groups of consecutive rows, merged into one node each.

Rows are stored so that neighbours are near each other. So the leading eigenvectors of A are nearly constant, times
√degree, on groups of consecutive rows, and those of the small matrix PᵀAP, a column of P for each group, come near
to them. They are found in one pass over A. Where the order of the rows says nothing the columns are as good as
random ones, and the pass is all that is lost.
"""

import numpy as np
from scipy import linalg

from snmf_dist.engine.rows import Graph, Rows
from snmf_dist.solve.kernels import group_weights

GROUPS = 512  # of rows, or twice the columns that are wanted, if that is more
GROUP_ROWS = 48  # rows of a group, at least: smaller graphs begin at random
NOISE = 0.3  # length of the random part of a column, so that no eigenvector is missing from all of them


def groups_of(n: int, width: int) -> int:
    """Number of groups for `width` columns; 0 if the graph is too small to be worth it.

    Examples
    --------
    >>> groups_of(100_000, 30), groups_of(10_000, 30)
    (511, 0)
    """
    wanted = max(GROUPS, 2 * width)
    if n < GROUP_ROWS * wanted:
        return 0
    return -(-n // -(-n // wanted))


def coarse_columns(A: Graph, V: Rows, weights: Rows) -> Rows:
    """Columns near leading eigenvectors of A, made from random ones `V`; one pass over A.

    Parameters
    ----------
    V : rows, (n, width)
        Uniform on [0, 1).
    weights : rows, (n, 2)
        For each row its factor r, with W = rAr, and its degree in W.
    """
    n, width = A.shape[0], V.shape[1]
    m = groups_of(n, width)
    size = -(-n // m)
    numbers = A.rows(_group_of, 1, dtype=np.float64, size=size)
    rows = A.map(_factor_and_group, weights, numbers)
    found = {
        "weights": A.sweep_sum(group_weights, rows, rows={"rows": rows}, groups=m),
        "squares": A.sum(_group_squares, rows, groups=m),
    }
    (rows,), sums = A.settle((rows,), found)
    Q = _leading(sums["weights"], sums["squares"], width)
    return A.map(_prolonged, V, rows, Q=Q, noise=NOISE * np.sqrt(3 / n))


def _leading(parts: list[tuple[int, np.ndarray]], squares: np.ndarray, width: int) -> np.ndarray:
    """The leading eigenvectors of PᵀAP, each row to be multiplied by the factors of its group's rows."""
    m = len(squares)
    C = np.zeros((m, m))
    for first, part in parts:
        C[first : first + len(part)] += part
    scale = np.divide(1, np.sqrt(squares), out=np.zeros(m), where=squares > 0)
    C *= np.outer(scale, scale)
    if not np.isfinite(C).all():  # products with A will say so
        return np.zeros((m, width))
    C = C.astype(np.float32).astype(
        np.float64
    )  # so that the order of the sums, which blocks decide, does not show
    return np.asarray(scale[:, None] * linalg.eigh((C + C.T) / 2, subset_by_index=(m - width, m - 1))[1][:, ::-1])


def _group_of(start: int, stop: int, *, size: int) -> np.ndarray:
    return (np.arange(start, stop) // size)[:, None].astype(np.float64)


def _factor_and_group(weights: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    return np.concatenate([weights[:, :1], numbers], axis=1)


def _group_squares(rows: np.ndarray, *, groups: int) -> np.ndarray:
    return np.bincount(rows[:, 1].astype(np.int64), np.square(rows[:, 0]), groups)


def _prolonged(V: np.ndarray, rows: np.ndarray, *, Q: np.ndarray, noise: float) -> np.ndarray:
    type = V.dtype.type
    columns = Q.astype(type)[rows[:, 1].astype(np.int64)]
    columns *= rows[:, :1].astype(type)
    return np.asarray(columns + type(noise) * V)
