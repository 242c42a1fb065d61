"""The algebra of one row block. Matrices by position, scalars by keyword, inputs untouched, dtype kept.

Rows are float32 or float64 as the graph store is; what has K × K entries, and every sum, is float64.

Several runs may stand side by side: R factors of K columns in a matrix of R·K. Small values then have R as
their first axis (Gram matrices are (R, K, K), penalties (R,)), and each run gets what it would get alone.
"""

import numpy as np

from snmf_dist.halo import Block

TILE = 4096  # rows turned to float64 at a time: a tile of 20 columns stays in a core's cache


def gram(X: np.ndarray) -> np.ndarray:
    """XᵀX, (K, K) in float64."""
    return run_grams(X, runs=1)[0]


def run_grams(X: np.ndarray, *, runs: int) -> np.ndarray:
    """XᵀX of each run, (R, K, K) in float64."""
    K = X.shape[1] // runs
    total = np.zeros((runs, K, K))
    for start in range(0, len(X), TILE):
        tile = X[start : start + TILE].astype(np.float64, copy=False)
        for r in range(runs):
            part = tile[:, r * K : (r + 1) * K]
            total[r] += part.T @ part
    return total


def cross(X: np.ndarray, Y: np.ndarray) -> np.ndarray:
    """XᵀY, (K, K) in float64."""
    total = np.zeros((X.shape[1], Y.shape[1]))
    for start in range(0, len(X), TILE):
        rows = slice(start, start + TILE)
        total += X[rows].T.astype(np.float64) @ Y[rows].astype(np.float64)
    return total


def times(X: np.ndarray, *, M: np.ndarray) -> np.ndarray:
    """XM for a small M."""
    return X @ M.astype(X.dtype)


def chebyshev_step(
    AV: np.ndarray, V: np.ndarray, W: np.ndarray, *, centre: float, scale: float, back: float
) -> np.ndarray:
    """scale · (AV − centre · V) − back · W: the three-term recurrence of a Chebyshev polynomial of A."""
    return (scale * (AV - centre * V) - back * W).astype(V.dtype)


def residual_squares(V: np.ndarray, AV: np.ndarray, *, values: np.ndarray) -> np.ndarray:
    """‖AVⱼ − λⱼ Vⱼ‖² of each column, (K,)."""
    rest = AV - V * values
    return np.einsum("ij,ij->j", rest, rest, dtype=np.float64)


def run_times(X: np.ndarray, *, M: np.ndarray) -> np.ndarray:
    """XM for a small M of each run, (R, K, K)."""
    M = M.astype(X.dtype)
    if len(M) == 1:
        return X @ M[0]
    parts = np.split(X, len(M), axis=1)
    return np.concatenate([part @ one for part, one in zip(parts, M, strict=True)], axis=1)


def zeros(X: np.ndarray) -> np.ndarray:
    """As many zeros."""
    return np.zeros_like(X)


def same(X: np.ndarray) -> np.ndarray:
    """A copy."""
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
) -> np.ndarray:
    """Accelerated projected gradient on ‖A − LZᵀ‖² + ρ‖L − Z‖² in L; G = ZᵀZ.

    S is L, Φ and the L before it, side by side, and so is what comes back after iterations `first` to
    `first + steps` of the inner loop. Runs that are not `busy` stay as they are.
    """
    L, Phi, before = np.split(S, 3, axis=1)
    K = G.shape[-1]
    penalty = rho[:, None, None] * np.eye(K)
    alpha = np.array([1 / np.linalg.norm(one, 2) if np.isfinite(one).all() else np.nan for one in G + penalty])
    shrink = np.eye(K) - alpha[:, None, None] * (G + penalty)
    pull = _wide(alpha, L) * (AZ + _wide(rho, L) * Z)
    at_work = np.repeat(busy, K)
    for i in range(first, first + steps):
        before, L = L, np.maximum(run_times(Phi, M=shrink) + pull, 0)
        Phi = L + L.dtype.type(i / (i + 3)) * (L - before)
    return np.where(np.tile(at_work, 3), np.concatenate([L, Phi, before], axis=1), S)


def last_change(S: np.ndarray, *, runs: int) -> np.ndarray:
    """Squares of the last ‖ΔL‖ and of the ‖L‖ before it, from what `fast_gradient` returns, (2, R)."""
    L, _, before = np.split(S, 3, axis=1)
    return np.stack([run_squares(L - before, runs=runs), run_squares(before, runs=runs)])


def column_sweep(L: np.ndarray, AZ: np.ndarray, Z: np.ndarray, *, G: np.ndarray, rho: np.ndarray) -> np.ndarray:
    """Minimise ‖A − LZᵀ‖² + ρ‖L − Z‖² over L ≥ 0 one column after the other, each exactly; G = ZᵀZ."""
    K = G.shape[-1]
    L = L.copy()
    for r, (one, penalty) in enumerate(zip(G.astype(L.dtype), rho.astype(L.dtype), strict=True)):
        own = L[:, r * K : (r + 1) * K]
        for j in range(K):
            column = r * K + j
            rest = AZ[:, column] - own @ one[:, j] + one[j, j] * own[:, j] + penalty * Z[:, column]
            own[:, j] = np.maximum(rest / (one[j, j] + penalty), 0)
    return L


def pair_norms(L0: np.ndarray, L: np.ndarray, Z0: np.ndarray, Z: np.ndarray, *, runs: int) -> np.ndarray:
    """Squares of ‖L−L⁰‖, ‖L⁰‖, ‖Z−Z⁰‖, ‖Z⁰‖, ‖L−Z‖, ‖L‖, (6, R)."""
    terms = (L - L0, L0, Z - Z0, Z0, L - Z, L)
    return np.stack([run_squares(term, runs=runs) for term in terms])


def run_squares(X: np.ndarray, *, runs: int) -> np.ndarray:
    """‖X‖² of each run, (R,), added up in float64."""
    return column_squares(X).reshape(runs, -1).sum(axis=1)


def entry_sums(A: Block) -> np.ndarray:
    """The sum of the entries of A and of their squares, (2,)."""
    return np.array([A.entries.sum(dtype=np.float64), np.square(A.entries, dtype=np.float64).sum()])


def largest_row_sum(A: Block) -> list[float]:
    """The largest sum of a row of A, in a list: lists add up to the list of all blocks."""
    up_to = np.concatenate([[0.0], np.cumsum(A.entries, dtype=np.float64)])
    return [float(np.diff(up_to[A.indptr - A.indptr[0]]).max())]


def row_labels(L: np.ndarray, *, runs: int = 1) -> np.ndarray:
    """argmax of each row of each run, (rows, R) int32; −1 for a row of zeros, which no cluster touches."""
    parts = L.reshape(len(L), runs, -1)
    labels = np.argmax(parts, axis=2).astype(np.int32)
    labels[parts.max(axis=2) <= 0] = -1
    return labels


def moved(before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """How many rows have another label than before, (R,)."""
    return np.count_nonzero(before != after, axis=0)


def take_columns(X: np.ndarray, *, columns: np.ndarray) -> np.ndarray:
    """Some columns of X, as an array of its own."""
    return np.ascontiguousarray(X[:, columns])


def side_by_side(*parts: np.ndarray) -> np.ndarray:
    """The columns of all parts in one matrix."""
    return np.concatenate(parts, axis=1)


def scale_columns(X: np.ndarray, *, scale: np.ndarray) -> np.ndarray:
    """X with column j times scaleⱼ."""
    return X * scale.astype(X.dtype)


def column_squares(X: np.ndarray) -> np.ndarray:
    """‖Xⱼ‖² of each column, (K,), added up in float64."""
    return np.einsum("ij,ij->j", X, X, dtype=np.float64)


def uniform_rows(start: int, stop: int, *, K: int, seed: int, scale: float, type: np.dtype) -> np.ndarray:
    """Rows `start` to `stop` of an endless random matrix on [0, scale), by a counter-based generator.

    Philox gives four numbers a count, so a row takes ⌈K/4⌉ counts and row i starts at i times that.
    """
    counts = -(-K // 4)
    generator = np.random.Generator(np.random.Philox(key=seed, counter=start * counts))
    return (generator.random((stop - start, 4 * counts))[:, :K] * scale).astype(type)


def _wide(value: np.ndarray, X: np.ndarray) -> np.ndarray:
    """A number for each run as a number for each column of X, in X's dtype."""
    return np.repeat(value, X.shape[1] // len(value)).astype(X.dtype)
