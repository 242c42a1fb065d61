"""The algebra of rows without A. Matrices by position, scalars by keyword, inputs untouched, dtype kept.

Rows are float32 or float64 as the graph store is; what has K × K entries, and every sum, is float64. Several runs
may stand side by side: `runs` is how many of equal width, `widths` the columns of each where they differ.
"""

import numpy as np

from snmf_dist.engine.halo import Block
from snmf_dist.solve.kernels.stacked import Widths, count, spans, widest

WIDENED = 4096  # rows turned to float64 at a time: 20 columns of them stay in a core's cache


def cross(X: np.ndarray, Y: np.ndarray | None = None) -> np.ndarray:
    """XᵀY, or XᵀX if Y is omitted, (K, K), all of it in float64."""
    total = np.zeros((X.shape[1], (X if Y is None else Y).shape[1]))
    for start in range(0, len(X), WIDENED):
        rows = slice(start, start + WIDENED)
        left = X[rows].astype(np.float64, copy=False)
        total += left.T @ (left if Y is None else Y[rows].astype(np.float64, copy=False))
    return total


def run_grams(X: np.ndarray, *, runs: int = 1, widths: Widths = None) -> np.ndarray:
    """XᵀX of each run, (R, K, K), all of it in float64."""
    parts = spans(X.shape[1], count(runs, widths), widths)
    total = np.zeros((len(parts), widest(parts), widest(parts)))
    for sums, part in zip(total, parts, strict=True):
        K = part.stop - part.start
        for start in range(0, len(X), WIDENED):
            tile = np.ascontiguousarray(X[start : start + WIDENED, part], dtype=np.float64)
            sums[:K, :K] += tile.T @ tile
    return total


def times(X: np.ndarray, *, M: np.ndarray) -> np.ndarray:
    """XM for a small M."""
    return np.asarray(X @ M.astype(X.dtype))


def run_times(X: np.ndarray, *, M: np.ndarray, widths: Widths = None) -> np.ndarray:
    """XM for a small M of each run, (R, K, K)."""
    M = M.astype(X.dtype)
    if len(M) == 1:
        return np.asarray(X @ M[0])
    found = np.empty_like(X)
    for one, part in zip(M, spans(X.shape[1], len(M), widths), strict=True):
        K = part.stop - part.start
        found[:, part] = np.ascontiguousarray(X[:, part]) @ np.ascontiguousarray(one[:K, :K])
    return found


def three_terms(
    AV: np.ndarray, V: np.ndarray, W: np.ndarray, *, centre: float, scale: float, back: float
) -> np.ndarray:
    """scale · (AV − centre · V) − back · W, where the product AV is at hand."""
    return (scale * (AV - centre * V) - back * W).astype(V.dtype)


def residual_squares(V: np.ndarray, AV: np.ndarray, *, values: np.ndarray) -> np.ndarray:
    """‖AVⱼ − λⱼ Vⱼ‖² of each column, (K,)."""
    return column_squares(AV - V * values)


def zeros(X: np.ndarray) -> np.ndarray:
    """Zeros of the same shape."""
    return np.zeros_like(X)


def copy(X: np.ndarray) -> np.ndarray:
    """X, in memory of its own."""
    return X.copy()


def fast_gradient(
    S: np.ndarray,
    AZ: np.ndarray,
    Z: np.ndarray,
    *,
    G: np.ndarray,
    rho: np.ndarray,
    busy: np.ndarray,
    first: int,
    steps: int,
    widths: Widths = None,
) -> np.ndarray:
    """Accelerated projected gradient on ‖A − LZᵀ‖² + ρ‖L − Z‖² in L, with G = ZᵀZ.

    S is [L, Φ, L⁰] side by side, with L⁰ the L of one iteration before. The result has the same layout after the
    inner iterations `first` to `first + steps`. Runs that are not `busy` stay unchanged.
    """
    L, Phi, before = np.split(S, 3, axis=1)
    parts = spans(L.shape[1], len(rho), widths)
    H = G + rho[:, None, None] * np.eye(G.shape[-1])
    alpha = np.empty(len(rho))
    for r, part in enumerate(parts):
        own = H[r, : part.stop - part.start, : part.stop - part.start]
        alpha[r] = 1 / np.linalg.norm(own, 2) if np.isfinite(own).all() else np.nan
    shrink = np.eye(G.shape[-1]) - alpha[:, None, None] * H
    pull = _by_column(alpha, parts, L.dtype) * (AZ + _by_column(rho, parts, L.dtype) * Z)
    at_work = _by_column(busy, parts, bool)
    for i in range(first, first + steps):
        before, L = L, np.maximum(run_times(Phi, M=shrink, widths=widths) + pull, 0)
        Phi = L + L.dtype.type(i / (i + 3)) * (L - before)
    return np.where(np.tile(at_work, 3), np.concatenate([L, Phi, before], axis=1), S)


def last_change(S: np.ndarray, *, runs: int = 1, widths: Widths = None) -> np.ndarray:
    """‖L − L⁰‖² and ‖L⁰‖² of each run, (2, R), from the result of `fast_gradient`."""
    L, _, before = np.split(S, 3, axis=1)
    return np.stack([run_squares(term, runs=runs, widths=widths) for term in (L - before, before)])


def column_sweep(
    L: np.ndarray, AZ: np.ndarray, Z: np.ndarray, *, G: np.ndarray, rho: np.ndarray, widths: Widths = None
) -> np.ndarray:
    """Minimise ‖A − LZᵀ‖² + ρ‖L − Z‖² over L ≥ 0 one column after the other, each exactly; G = ZᵀZ."""
    L = L.copy()
    parts = spans(L.shape[1], len(rho), widths)
    for one, penalty, part in zip(G.astype(L.dtype), rho.astype(L.dtype), parts, strict=True):
        K = part.stop - part.start
        own = L[:, part]
        for j in range(K):
            column = part.start + j
            rest = AZ[:, column] - own @ one[:K, j] + one[j, j] * own[:, j] + penalty * Z[:, column]
            own[:, j] = np.maximum(rest / (one[j, j] + penalty), 0)
    return L


def pair_norms(
    L0: np.ndarray, L: np.ndarray, Z0: np.ndarray, Z: np.ndarray, *, runs: int = 1, widths: Widths = None
) -> np.ndarray:
    """‖L−L⁰‖², ‖L⁰‖², ‖Z−Z⁰‖², ‖Z⁰‖², ‖L−Z‖², ‖L‖² of each run, (6, R)."""
    terms = (L - L0, L0, Z - Z0, Z0, L - Z, L)
    return np.stack([run_squares(term, runs=runs, widths=widths) for term in terms])


def run_squares(X: np.ndarray, *, runs: int = 1, widths: Widths = None) -> np.ndarray:
    """‖X‖² of each run, (R,), added up in float64."""
    squares = column_squares(X)
    return np.array([squares[part].sum() for part in spans(X.shape[1], count(runs, widths), widths)])


def entry_sums(A: Block) -> np.ndarray:
    """Σ Aᵢⱼ and Σ Aᵢⱼ², (2,)."""
    return np.array([A.entries.sum(dtype=np.float64), np.square(A.entries, dtype=np.float64).sum()])


def largest_row_sum(A: Block) -> list[float]:
    """The largest Σⱼ Aᵢⱼ of a row, in a list: lists of several blocks add up to the list of all."""
    up_to = np.concatenate([[0.0], np.cumsum(A.entries, dtype=np.float64)])
    return [float(np.diff(up_to[A.indptr - A.indptr[0]]).max())]


def row_labels(L: np.ndarray, *, runs: int = 1, widths: Widths = None) -> np.ndarray:
    """argmaxⱼ Lᵢⱼ of each row of each run, (rows, R) int32; −1 for a row of zeros, which is in no cluster."""
    if widths is None:
        parts = L.reshape(len(L), runs, -1)
        labels: np.ndarray = np.argmax(parts, axis=2).astype(np.int32)
        labels[parts.max(axis=2) <= 0] = -1
        return labels
    each = [row_labels(L[:, part]) for part in spans(L.shape[1], len(widths), widths)]
    return np.concatenate(each, axis=1)


def moved(before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """The number of rows whose label changed, (R,)."""
    return np.asarray(np.count_nonzero(before != after, axis=0))


def take_columns(X: np.ndarray, *, columns: np.ndarray) -> np.ndarray:
    """Some columns of X, in memory of their own."""
    return np.ascontiguousarray(X[:, columns])


def side_by_side(*parts: np.ndarray) -> np.ndarray:
    """The columns of all parts in one matrix."""
    return np.concatenate(parts, axis=1)


def scale_columns(X: np.ndarray, *, scale: np.ndarray) -> np.ndarray:
    """X with column j times scaleⱼ."""
    return np.asarray(X * scale.astype(X.dtype))


def column_squares(X: np.ndarray) -> np.ndarray:
    """‖Xⱼ‖² of each column, (K,), added up in float64."""
    return np.asarray(np.einsum("ij,ij->j", X, X, dtype=np.float64))


def uniform_rows(start: int, stop: int, *, K: int, seed: int, scale: float, type: np.dtype) -> np.ndarray:
    """Rows `start` to `stop` of an endless random matrix on [0, scale), by a counter-based generator.

    Philox gives four numbers a count, so a row takes ⌈K/4⌉ counts and row i starts at i times that.
    """
    counts = -(-K // 4)
    generator = np.random.Generator(np.random.Philox(key=seed, counter=start * counts))
    return (generator.random((stop - start, 4 * counts))[:, :K] * scale).astype(type)


def _by_column(value: np.ndarray, parts: list[slice], dtype: type | np.dtype) -> np.ndarray:
    """Repeat the number of each run for each of its columns."""
    return np.repeat(value, [part.stop - part.start for part in parts]).astype(dtype)
