"""The algebra of one row block. Matrices by position, scalars by keyword, inputs untouched, dtype kept.

Rows are float32 or float64 as the graph store is; what has K × K entries, and every sum, is float64.
"""

import numpy as np
from scipy import linalg, sparse

TILE = 4096  # rows turned to float64 at a time: a tile of 20 columns stays in a core's cache


def gram(X: np.ndarray) -> np.ndarray:
    """XᵀX, (K, K) in float64."""
    K = X.shape[1]
    total = np.zeros((K, K))
    for start in range(0, len(X), TILE):
        tile = X[start : start + TILE].astype(np.float64, copy=False)
        total += tile.T @ tile
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


def ridge_inverse(G: np.ndarray, *, rho: float) -> np.ndarray:
    """(G + ρI)⁻¹ through the Cholesky factor of the box: C Cᵀ = G + ρI.

    NaN if G overflowed, or is so large that ρI is lost beside it: the loop then sees the divergence.
    """
    identity = np.eye(len(G))
    try:
        return linalg.cho_solve(linalg.cho_factor(G + rho * identity, lower=True), identity)
    except ValueError:  # LinAlgError is one too
        return np.full_like(G, np.nan)


def ridge_solve(AY: np.ndarray, L: np.ndarray, Lam: np.ndarray, *, inverse: np.ndarray, rho: float) -> np.ndarray:
    """(AY + ρL + Λ)(YᵀY + ρI)⁻¹."""
    return (AY + rho * L + Lam) @ inverse.astype(L.dtype)


def positive_mean(X: np.ndarray, Y: np.ndarray, Lam: np.ndarray, Gam: np.ndarray, *, rho: float) -> np.ndarray:
    """½ [X + Y − (Λ + Γ)/ρ]₊."""
    return 0.5 * np.maximum(X + Y - (Lam + Gam) / rho, 0)


def dual_ascent(Lam: np.ndarray, L: np.ndarray, X: np.ndarray, *, rho: float) -> np.ndarray:
    """Λ + ρ(L − X)."""
    return Lam + rho * (L - X)


def step_norms(
    X0: np.ndarray, X: np.ndarray, Y0: np.ndarray, Y: np.ndarray, L0: np.ndarray, L: np.ndarray
) -> np.ndarray:
    """Squares of ‖X−X⁰‖, ‖X⁰‖, ‖Y−Y⁰‖, ‖Y⁰‖, ‖L−L⁰‖, ‖L⁰‖, ‖L−X‖, ‖L−Y‖, ‖L‖, (9,)."""
    terms = (X - X0, X0, Y - Y0, Y0, L - L0, L0, L - X, L - Y, L)
    return np.array([square(term) for term in terms])


def square(X: np.ndarray) -> float:
    """‖X‖², added up in float64."""
    return inner(X, X)


def inner(X: np.ndarray, Y: np.ndarray) -> float:
    """⟨X, Y⟩ = tr(XᵀY), added up in float64."""
    return float(np.einsum("ij,ij->", X, Y, dtype=np.float64))


def entry_sums(A: sparse.csr_matrix) -> np.ndarray:
    """The sum of the entries of A and of their squares, (2,)."""
    return np.array([A.data.sum(dtype=np.float64), np.square(A.data, dtype=np.float64).sum()])


def largest_row_sum(A: sparse.csr_matrix) -> list[float]:
    """The largest sum of a row of A, in a list: lists add up to the list of all blocks."""
    return [float(A.sum(axis=1).max())]


def kkt_square(L: np.ndarray, AL: np.ndarray, *, G: np.ndarray, scale: float) -> float:
    """‖L − [L − ∇/s]₊‖² with ∇ = L(LᵀL) − AL: zero where the KKT conditions of a row hold."""
    gradient = L @ G.astype(L.dtype) - AL
    return square(L - np.maximum(L - gradient / scale, 0))


def row_labels(L: np.ndarray) -> np.ndarray:
    """argmax of each row, (rows, 1) int32; −1 for a row of zeros, which no cluster touches."""
    labels = np.argmax(L, axis=1).astype(np.int32)
    labels[L.max(axis=1) <= 0] = -1
    return labels[:, None]


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
