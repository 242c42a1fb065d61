"""The kernels that go over memory once: numba, without the GIL, compiled at first use and kept on disk.

They are called as those of `plain`, and say the same. Each goes through its rows in tiles that stay in a core's
cache: what a tile needs is done while it is there. Within a tile sums are in the rows' own precision, over the
tiles in float64.

A compiled loop gets the rows of A as `indptr`, `indices`, `data`, and `at`, where each run begins and the last one
ends among the columns. It writes results to its last arguments, which may be what it reads, and adds to `gram` and
`squares`.
"""

import numpy as np
from numba import njit

from snmf_dist.engine.halo import Block
from snmf_dist.solve.kernels.compiled import FAST
from snmf_dist.solve.kernels.entrywise import Formula, Operand, by_entry
from snmf_dist.solve.kernels.simd import add_product, times
from snmf_dist.solve.kernels.stacked import Widths, count, edges, usable
from snmf_dist.solve.kernels.weights import group_weights, weight_inside

__all__ = [
    "cache_dir",
    "chebyshev_step",
    "gram",
    "group_weights",
    "product",
    "quality",
    "update_X",
    "update_rest",
    "weight_inside",
]

# Numba takes a kernel that it kept on disk to depend on this file alone. So this file holds the SHA-256 of simd.py
# and entrywise.py, one after the other, and changes when they do; a test compares.
MADE_OF = "630981a69d6390847ca35c2ef1a30a485b33cc380769b46140291f20f0b8cc18"

TILE = 128  # rows

NONE = np.empty(0)  # for a formula without sums


# Formulas of the entries: what is written, and what is added up


@by_entry
def _clear(out: Operand) -> Formula:
    """0."""
    return (out.zero,), ()


@by_entry
def _three_terms(av: Operand, v: Operand, w: Operand, scale: Operand, centre: Operand, back: Operand) -> Formula:
    """scale · (AV − centre · V) − back · W."""
    return (scale * (av - centre * v) - back * w,), ()


@by_entry
def _pull(low: Operand, lam: Operand, rho: Operand) -> Formula:
    """ρL + Λ."""
    return (rho * low + lam,), ()


@by_entry
def _past(y: Operand, y0: Operand, omega: Operand) -> Formula:
    """Y⁰ + ω(Y − Y⁰)."""
    return (y0 + omega * (y - y0),), ()


@by_entry
def _first(x: Operand, x0: Operand) -> Formula:
    """X; ‖X−X⁰‖², ‖X⁰‖²."""
    return (x,), ((x - x0).squared, x0.squared)


@by_entry
def _second(
    x: Operand,
    y: Operand,
    y0: Operand,
    l0: Operand,
    lam0: Operand,
    gam0: Operand,
    rho: Operand,
    inverse_rho: Operand,
    half: Operand,
) -> Formula:
    """Y, L = ½[X + Y − (Λ⁰+Γ⁰)/ρ]₊, Λ = Λ⁰ + ρ(L−X), Γ = Γ⁰ + ρ(L−Y); the squares of `solve_second`."""
    low = half * (x + y - (lam0 + gam0) * inverse_rho).positive
    lam, gam = lam0 + rho * (low - x), gam0 + rho * (low - y)
    sums = (y - y0, y0, low - l0, l0, low - x, low - y, low, lam, gam)
    return (y, low, lam, gam), tuple(one.squared for one in sums)


@by_entry
def _natural(low: Operand, turned: Operand, al: Operand, shrink: Operand) -> Formula:
    """Nothing; tr(LᵀAL), ‖L − [L − (LG − AL)/s]₊‖²."""
    return (), (low * al, (low - (low - (turned - al) * shrink).positive).squared)


# Kernels


@njit(**FAST)
def _product(indptr, indices, data, own, halo, out):  # type: ignore[no-untyped-def]
    """out = A · B."""
    for start in range(0, len(out), TILE):
        tile = out[start : start + TILE]
        _clear((tile,), (), (tile,), NONE)
        add_product(indptr, start, indices, data, own, halo, tile)


@njit(**FAST)
def _chebyshev(indptr, indices, data, own, halo, V, W, centre, scale, back, out):  # type: ignore[no-untyped-def]
    """out = scale · (AV − centre · V) − back · W; V are the block's rows of `own`, and W may be `out`."""
    room = np.empty((TILE, out.shape[1]), out.dtype)
    for start in range(0, len(out), TILE):
        rows = slice(start, start + TILE)
        tile = room[: len(V[rows])]
        _clear((tile,), (), (tile,), NONE)
        add_product(indptr, start, indices, data, own, halo, tile)
        _three_terms((tile, V[rows], W[rows]), (scale, centre, back), (out[rows],), NONE)


@njit(**FAST)
def _grams(X, at, gram):  # type: ignore[no-untyped-def]
    """gram += XᵀX of each run, in the tiles of the updates."""
    part = np.empty(gram.shape[1:], X.dtype)
    for start in range(0, len(X), TILE):
        for r in range(len(gram)):
            _add_gram(X[start : start + TILE, at[r] : at[r + 1]], part, gram[r])


@njit(**FAST)
def _add_gram(X, part, gram):  # type: ignore[no-untyped-def]
    """gram += XᵀX of the rows of a tile."""
    K = X.shape[1]
    times(X.T, X, part[:K, :K])
    for i in range(K):
        for j in range(K):
            gram[i, j] += part[i, j]


@njit(**FAST)
def _update_X(indptr, indices, data, own, halo, L, Lam, X0, inverse, rho, at, X, gram, squares):  # type: ignore[no-untyped-def]
    """X = (AY + ρL + Λ) · inverse; gram: XᵀX; squares: ‖X−X⁰‖², ‖X⁰‖² of each run, (R, 2)."""
    right, new, part = _room(X, inverse)
    for start in range(0, len(X), TILE):
        rows = slice(start, start + TILE)
        _solve_tile(indptr, start, indices, data, own, halo, L[rows], Lam[rows], inverse, rho, at, right, new)
        for r in range(len(rho)):
            run = slice(at[r], at[r + 1])
            old = X0[rows, run]
            x = new[: len(old), run]
            _add_gram(x, part, gram[r])
            _first((x, old), (), (X[rows, run],), squares[r])


@njit(**FAST)
def _update_rest(  # type: ignore[no-untyped-def]
    indptr, indices, data, own, halo, X, L0, Lam0, Gam0, Y0, inverse, rho, omega, at, Y, L, Lam, Gam, gram, squares
):
    """Y, L, Λ and Γ as in `plain.update_rest`; gram: YᵀY; squares: (R, 9)."""
    right, new, part = _room(Y, inverse)
    half = rho.dtype.type(0.5)
    for start in range(0, len(Y), TILE):
        rows = slice(start, start + TILE)
        _solve_tile(indptr, start, indices, data, own, halo, L0[rows], Gam0[rows], inverse, rho, at, right, new)
        for r in range(len(rho)):
            run = slice(at[r], at[r + 1])
            x, y0 = X[rows, run], Y0[rows, run]
            y = new[: len(x), run]
            if omega[r] != 1:
                _past((y, y0), (omega[r],), (y,), NONE)
            _add_gram(y, part, gram[r])
            given = (x, y, y0, L0[rows, run], Lam0[rows, run], Gam0[rows, run])
            found = (Y[rows, run], L[rows, run], Lam[rows, run], Gam[rows, run])
            _second(given, (rho[r], 1 / rho[r], half), found, squares[r])


@njit(**FAST)
def _room(X, inverse):  # type: ignore[no-untyped-def]
    """Return memory for a tile: its right-hand side, its solution, its Gram matrix."""
    K, m = inverse.shape[1], X.shape[1]
    return np.empty((TILE, m), X.dtype), np.empty((TILE, m), X.dtype), np.empty((K, K), X.dtype)


@njit(**FAST)
def _solve_tile(indptr, start, indices, data, own, halo, L, Lam, inverse, rho, at, right, X):  # type: ignore[no-untyped-def]
    """X = (AB + ρL + Λ) · inverse for the rows of a tile."""
    count = len(L)
    for r in range(len(rho)):
        run = slice(at[r], at[r + 1])
        _pull((L[:, run], Lam[:, run]), (rho[r],), (right[:count, run],), NONE)
    add_product(indptr, start, indices, data, own, halo, right[:count])
    for r in range(len(rho)):
        run, K = slice(at[r], at[r + 1]), at[r + 1] - at[r]
        times(right[:count, run], inverse[r, :K, :K], X[:count, run])


@njit(**FAST)
def _quality(indptr, indices, data, own, halo, L, G, scale, at, sums):  # type: ignore[no-untyped-def]
    """sums += tr(LᵀAL), ‖L − [L − (LG − AL)/s]₊‖² of each run, (R, 2)."""
    room, turned = np.empty((TILE, L.shape[1]), L.dtype), np.empty((TILE, L.shape[1]), L.dtype)
    for start in range(0, len(L), TILE):
        tile = L[start : start + TILE]
        AL = room[: len(tile)]
        _clear((AL,), (), (AL,), NONE)
        add_product(indptr, start, indices, data, own, halo, AL)
        for r in range(len(G)):
            run, K = slice(at[r], at[r + 1]), at[r + 1] - at[r]
            low, LG = tile[:, run], turned[: len(tile), run]
            times(low, G[r, :K, :K], LG)
            _natural((low, LG, AL[:, run]), (1 / scale[r],), (), sums[r])


# The kernels as they are called


def product(A: Block, own: np.ndarray, halo: np.ndarray, *, out: list[np.ndarray]) -> int:
    """A · B."""
    _product(*A[:3], own, halo, out[0])
    return 0


def chebyshev_step(
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
    """scale · (AV − centre · V) − back · W."""
    numbers = (V.dtype.type(number) for number in (centre, scale, back))
    _chebyshev(*A[:3], own, halo, V, W, *numbers, out[0])
    return 0


def update_X(
    A: Block,
    own: np.ndarray,
    halo: np.ndarray,
    L: np.ndarray,
    Lam: np.ndarray,
    X0: np.ndarray,
    *,
    inverse: np.ndarray,
    rho: np.ndarray,
    widths: Widths = None,
    out: list[np.ndarray],
) -> tuple[np.ndarray, np.ndarray]:
    """X = (AY + ρL + Λ)(C Cᵀ)⁻¹; sums as in `plain.update_X`."""
    lost, small = usable(inverse, rho, L.dtype)
    at = edges(L.shape[1], len(rho), widths)
    gram, squares = np.zeros(inverse.shape), np.zeros((len(rho), 2))
    _update_X(*A[:3], own, halo, L, Lam, X0, *small, at, *out, gram, squares)
    if lost:
        gram[lost], squares[lost] = np.nan, np.nan
    return gram, squares.T


def update_rest(
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
    widths: Widths = None,
    out: list[np.ndarray],
) -> tuple[np.ndarray, np.ndarray]:
    """Y = Y⁰ + ω((AX + ρL⁰ + Γ⁰)(D Dᵀ)⁻¹ − Y⁰), L, Λ, Γ; formulas and sums as in `plain.update_rest`."""
    lost, small = usable(inverse, rho, L.dtype)
    at = edges(L.shape[1], len(rho), widths)
    gram, squares = np.zeros(inverse.shape), np.zeros((len(rho), 9))
    columns = [j for r in lost for j in range(at[r], at[r + 1])]
    last = L[:, columns] if lost else None
    given = (X, L, Lam, Gam, Y0, *small, omega.astype(L.dtype))
    _update_rest(*A[:3], own, halo, *given, at, *out, gram, squares)
    if lost:
        out[1][:, columns] = last
        gram[lost], squares[lost] = np.nan, np.nan
    return gram, squares.T


def quality(
    A: Block,
    own: np.ndarray,
    halo: np.ndarray,
    L: np.ndarray,
    *,
    G: np.ndarray,
    scale: np.ndarray,
    widths: Widths = None,
    out: list[np.ndarray],
) -> tuple[np.ndarray, np.ndarray]:
    """tr(LᵀAL), and ‖L − [L − (LG − AL)/s]₊‖² with G = LᵀL, of each run, (R,) and (R,)."""
    found = np.zeros((len(scale), 2))
    at = edges(L.shape[1], len(scale), widths)
    _quality(*A[:3], own, halo, L, G.astype(L.dtype), scale.astype(L.dtype), at, found)
    return found[:, 0], found[:, 1]


def gram(X: np.ndarray, *, runs: int = 1, widths: Widths = None) -> np.ndarray:
    """XᵀX of each run, (R, K, K), to the last bit as `update_X` and `update_rest` return it."""
    at = edges(X.shape[1], count(runs, widths), widths)
    K = int(np.diff(at).max())
    found = np.zeros((len(at) - 1, K, K))
    _grams(X, at, found)
    return found


def cache_dir() -> str | None:
    """Return the folder that numba keeps the compiled kernels in; None if it keeps none."""
    folder: str | None = _product.stats.cache_path
    return folder
