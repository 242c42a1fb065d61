"""What is done to the rows of a block in one pass over A: the functions that `rows.sweep` is given.

Each is called with rows of A, the matrix they are multiplied with as `own` above `halo`, rows aligned with A's,
and arrays to write to. The work is in `compiled`, which is loaded at first use: importing numba takes a second.
"""

import glob
import importlib
import math
import os
import time
from functools import cache
from typing import Any

import numpy as np
from scipy import sparse

from snmf_dist.halo import Block, whole_block


@cache
def _compiled() -> Any:
    return importlib.import_module("snmf_dist.solve.compiled")


def kept_in() -> str | None:
    """The folder that compiled kernels are kept in, or None if there are none yet."""
    folder = _compiled().product.stats.cache_path
    return folder if glob.glob(os.path.join(glob.escape(folder), "compiled.*.nbi")) else None


def compile_all(dtype: Any) -> float:
    """Compile the kernels for rows of a type, or load them if they were kept; the seconds it took."""
    begin = time.perf_counter()
    A = whole_block(sparse.csr_matrix(np.ones((1, 1), dtype)))
    X, G, one = np.ones((1, 1), dtype), np.ones((1, 1, 1)), np.ones(1)
    wide = np.ones((1, 3))
    product_rows(A, X, X, out=[X.copy()])
    chebyshev_rows(A, X, X, X, X, centre=0.0, scale=1.0, back=0.0, out=[X.copy()])
    first_half(A, X, X, X, X, X, inverse=G, rho=one, out=[X.copy()])
    second_half(A, X, X, X, X, X, X, X, inverse=G, rho=one, omega=one, out=[X.copy() for _ in range(4)])
    quality_rows(A, X, X, X, sums=(G,), scale=one, out=[])
    gram_sums(X, runs=1)
    ridge_inverse((G,), rho=one)
    weight_inside(A, wide, wide, wide, out=[])
    return time.perf_counter() - begin


def product_rows(A: Block, own: np.ndarray, halo: np.ndarray, *, out: list[np.ndarray]) -> int:
    """A · B."""
    _compiled().product(A.indptr, A.indices, A.data, own, halo, out[0])
    return 0


def chebyshev_rows(
    A: Block,
    own: np.ndarray,
    halo: np.ndarray,
    V: np.ndarray,
    W: np.ndarray,
    *,
    centre: float,
    scale: float,
    back: float,
    out: list[np.ndarray],
) -> int:
    """scale · (AV − centre · V) − back · W: the three-term recurrence of a Chebyshev polynomial of A."""
    numbers = (V.dtype.type(number) for number in (centre, scale, back))
    _compiled().chebyshev(A.indptr, A.indices, A.data, own, halo, V, W, *numbers, out[0])
    return 0


def first_half(
    A: Block,
    own: np.ndarray,
    halo: np.ndarray,
    L: np.ndarray,
    Lam: np.ndarray,
    X0: np.ndarray,
    *,
    inverse: np.ndarray,
    rho: np.ndarray,
    out: list[np.ndarray],
) -> tuple[np.ndarray, np.ndarray]:
    """X = (AY + ρL + Λ)(YᵀY + ρI)⁻¹ with its Gram matrices, (R, K, K), and squares as in `compiled`, (2, R)."""
    lost, small = _finite(inverse, rho, L.dtype)
    gram, squares = np.zeros(inverse.shape), np.zeros((len(rho), 2))
    _compiled().solve_first(A.indptr, A.indices, A.data, own, halo, L, Lam, X0, *small, *out, gram, squares)
    if lost:
        gram[lost], squares[lost] = np.nan, np.nan
    return gram, squares.T


def second_half(
    A: Block,
    own: np.ndarray,
    halo: np.ndarray,
    X: np.ndarray,
    L: np.ndarray,
    Lam: np.ndarray,
    Gam: np.ndarray,
    Y0: np.ndarray,
    *,
    inverse: np.ndarray,
    rho: np.ndarray,
    omega: np.ndarray,
    out: list[np.ndarray],
) -> tuple[np.ndarray, np.ndarray]:
    """Y = (AX + ρL + Γ)(XᵀX + ρI)⁻¹, the new L, Λ, Γ, with YᵀY, (R, K, K), and squares, (9, R).

    Y is taken ω times as far from the Y before. A run whose numbers overflowed keeps the L it has.
    """
    lost, small = _finite(inverse, rho, L.dtype)
    gram, squares = np.zeros(inverse.shape), np.zeros((len(rho), 9))
    if lost:
        columns = [r * inverse.shape[-1] + j for r in lost for j in range(inverse.shape[-1])]
        last = L[:, columns]
    given = (X, L, Lam, Gam, Y0, *small, omega.astype(L.dtype))
    _compiled().solve_second(A.indptr, A.indices, A.data, own, halo, *given, *out, gram, squares)
    if lost:
        out[1][:, columns] = last
        gram[lost], squares[lost] = np.nan, np.nan
    return gram, squares.T


def _finite(inverse: np.ndarray, rho: np.ndarray, dtype: Any) -> tuple[list[int], tuple[np.ndarray, np.ndarray]]:
    """The runs that are lost, their inverse being NaN; the inverse, 0 for those, and ρ as the rows are."""
    lost = [r for r, corner in enumerate(inverse[:, 0, 0].tolist()) if math.isnan(corner)]
    usable = inverse.astype(dtype)
    if lost:
        usable[lost] = 0
    return lost, (usable, rho.astype(dtype))


def quality_rows(
    A: Block,
    own: np.ndarray,
    halo: np.ndarray,
    L: np.ndarray,
    *,
    sums: tuple[np.ndarray],
    scale: np.ndarray,
    out: list[np.ndarray],
) -> tuple[np.ndarray, np.ndarray]:
    """tr(LᵀAL), and ‖L − [L − ∇/s]₊‖² with ∇ = L(LᵀL) − AL, of each run, (R,): the second is 0 at KKT points."""
    found = np.zeros((len(scale), 2))
    small = (sums[0].astype(L.dtype), scale.astype(L.dtype))
    _compiled().quality(A.indptr, A.indices, A.data, own, halo, L, *small, found)
    return found[:, 0], found[:, 1]


def gram_sums(X: np.ndarray, *, runs: int) -> tuple[np.ndarray]:
    """XᵀX of each run, to the last bit as the two halves add it up."""
    K = X.shape[1] // runs
    gram = np.zeros((runs, K, K))
    _compiled().grams(X, gram)
    return (gram,)


def ridge_inverse(sums: tuple[np.ndarray, ...], *, rho: np.ndarray) -> np.ndarray:
    """(G + ρI)⁻¹ of each run, (R, K, K), where G is the first of the sums of a sweep.

    NaN if G overflowed, or is so large that ρI is lost beside it: the loop then sees the divergence.
    """
    inverse = np.empty_like(sums[0])
    _compiled().ridge_inverse(sums[0], rho, inverse)
    return inverse


def weight_inside(
    A: Block, own: np.ndarray, halo: np.ndarray, rows: np.ndarray, *, out: list[np.ndarray]
) -> np.ndarray:
    """The weight of the edges that stay within a cluster, for each partition, (R,).

    `rows` are those of the block among (factor r, degree, label, label, …) of all.
    """
    total = np.zeros(rows.shape[1] - 2)
    _compiled().weight_inside(A.indptr, A.indices, A.data, own, halo, rows, total)
    return total
