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


def kkt_square(L: np.ndarray, AL: np.ndarray, *, G: np.ndarray, scale: float) -> float:
    """‖L − [L − ∇/s]₊‖² with ∇ = L(LᵀL) − AL: zero where the KKT conditions of a row hold."""
    gradient = L @ G.astype(L.dtype) - AL
    return square(L - np.maximum(L - gradient / scale, 0))


def row_labels(L: np.ndarray) -> np.ndarray:
    """argmax of each row, (rows, 1) int32; −1 for a row of zeros, which no cluster touches."""
    labels = np.argmax(L, axis=1).astype(np.int32)
    labels[L.max(axis=1) <= 0] = -1
    return labels[:, None]
