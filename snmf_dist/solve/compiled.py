"""The kernels that go over memory once: numba, without the GIL, compiled at first use and kept on disk.

Each goes through its rows in tiles that stay in a core's cache: what a tile needs is done while it is there. The
rows of A are given as `indptr`, `indices`, `data` with columns numbered [own rows | halo], the matrix B they
are multiplied with as `own` above `halo`. Results are written to the last arguments, which may be what they
replace; `gram` and `squares` are added to. Several runs may stand side by side, as in `kernels`: run r has columns
rK to (r+1)K. Within a tile sums are in the rows' own precision, over the tiles in float64. Plain twins are in
the tests.
"""

from typing import Any

import numpy as np
from numba import njit

from snmf_dist.solve.vector import Formula, Value, add_product, by_entry, times

# What numba keeps on disk it takes to be of this file alone, so this file changes with what it is made of: the
# SHA-256 of vector.py, which a test compares.
MADE_OF = "8cd5a327fe47a78994999e090313c5afb55c5dcc5aec182f27d91378f1b6eeca"

TILE = 128  # rows

NONE = np.empty(0)  # where no sums are asked for

_fast: dict[str, Any] = {"nogil": True, "cache": True, "fastmath": {"contract", "reassoc", "nsz"}}

# Formulas of the entries: what is written, and what is added up


@by_entry
def _clear(out: Value) -> Formula:
    """0."""
    return (out.zero,), ()


@by_entry
def _three_terms(av: Value, v: Value, w: Value, scale: Value, centre: Value, back: Value) -> Formula:
    """scale · (AV − centre · V) − back · W."""
    return (scale * (av - centre * v) - back * w,), ()


@by_entry
def _pull(low: Value, lam: Value, rho: Value) -> Formula:
    """ρL + Λ."""
    return (rho * low + lam,), ()


@by_entry
def _past(y: Value, y0: Value, omega: Value) -> Formula:
    """Y⁰ + ω(Y − Y⁰)."""
    return (y0 + omega * (y - y0),), ()


@by_entry
def _first(x: Value, x0: Value) -> Formula:
    """X; ‖X−X⁰‖², ‖X⁰‖²."""
    return (x,), ((x - x0).squared, x0.squared)


@by_entry
def _second(
    x: Value, y: Value, y0: Value, l0: Value, lam0: Value, gam0: Value, rho: Value, inverse_rho: Value, half: Value
) -> Formula:
    """Y, L = ½[X + Y − (Λ⁰+Γ⁰)/ρ]₊, Λ = Λ⁰ + ρ(L−X), Γ = Γ⁰ + ρ(L−Y); the squares of `solve_second`."""
    low = half * (x + y - (lam0 + gam0) * inverse_rho).positive
    lam, gam = lam0 + rho * (low - x), gam0 + rho * (low - y)
    sums = (y - y0, y0, low - l0, l0, low - x, low - y, low, lam, gam)
    return (y, low, lam, gam), tuple(one.squared for one in sums)


@by_entry
def _natural(low: Value, turned: Value, al: Value, shrink: Value) -> Formula:
    """Nothing; tr(LᵀAL), ‖L − [L − (LG − AL)/s]₊‖²."""
    return (), (low * al, (low - (low - (turned - al) * shrink).positive).squared)


# Kernels


@njit(**_fast)
def product(indptr, indices, data, own, halo, out):  # type: ignore[no-untyped-def]
    """out = A · B."""
    for start in range(0, len(out), TILE):
        tile = out[start : start + TILE]
        _clear((tile,), (), (tile,), NONE)
        add_product(indptr, start, indices, data, own, halo, tile)


@njit(**_fast)
def chebyshev(indptr, indices, data, own, halo, V, W, centre, scale, back, out):  # type: ignore[no-untyped-def]
    """out = scale · (AV − centre · V) − back · W; V are the block's rows of `own`, and W may be `out`."""
    room = np.empty((TILE, out.shape[1]), out.dtype)
    for start in range(0, len(out), TILE):
        rows = slice(start, start + TILE)
        tile = room[: len(V[rows])]
        _clear((tile,), (), (tile,), NONE)
        add_product(indptr, start, indices, data, own, halo, tile)
        _three_terms((tile, V[rows], W[rows]), (scale, centre, back), (out[rows],), NONE)


@njit(**_fast)
def grams(X, gram):  # type: ignore[no-untyped-def]
    """gram += XᵀX of each run, in the same tiles and sums as the solves add it up."""
    K = gram.shape[1]
    part = np.empty((K, K), X.dtype)
    for start in range(0, len(X), TILE):
        for r in range(len(gram)):
            _add_gram(X[start : start + TILE, r * K : (r + 1) * K], part, gram[r])


@njit(**_fast)
def _add_gram(X, part, gram):  # type: ignore[no-untyped-def]
    """gram += XᵀX of the rows of a tile."""
    times(X.T, X, part)
    for i in range(part.shape[0]):
        for j in range(part.shape[1]):
            gram[i, j] += part[i, j]


@njit(**_fast)
def ridge_inverse(G, rho, inverse):  # type: ignore[no-untyped-def]
    """inverse = (G + ρI)⁻¹ of each run; NaN where G overflowed, or ρI is lost beside it.

    By the box: C Cᵀ = G + ρI. As fast as LAPACK from K = 1 to several hundred, and a step that takes less than a
    millisecond has no time to call that.
    """
    K = G.shape[1]
    C, W = np.empty((K, K)), np.empty((K, K))
    for r in range(len(G)):
        if _factor(G[r], rho[r], C):
            _invert(C, W, inverse[r])
        else:
            inverse[r] = np.nan


@njit(**_fast)
def _factor(G, rho, C):  # type: ignore[no-untyped-def]
    """C Cᵀ = G + ρI with a lower C, in its lower half; whether there is one."""
    for i in range(len(G)):
        for j in range(i):
            rest = G[i, j]
            for p in range(j):
                rest -= C[i, p] * C[j, p]
            C[i, j] = rest / C[j, j]
        rest = G[i, i] + rho
        for p in range(i):
            rest -= C[i, p] * C[i, p]
        if not 0 < rest < np.inf:
            return False
        C[i, i] = np.sqrt(rest)
    return True


@njit(**_fast)
def _invert(C, W, inverse):  # type: ignore[no-untyped-def]
    """inverse = WᵀW with W = C⁻¹, both lower."""
    W[:], inverse[:] = 0, 0
    for i in range(len(C)):
        W[i, i] = 1
        for p in range(i):
            for j in range(p + 1):
                W[i, j] -= C[i, p] * W[p, j]
        for j in range(i + 1):
            W[i, j] /= C[i, i]
        for p in range(i + 1):
            for j in range(p + 1):
                inverse[p, j] += W[i, p] * W[i, j]
    for i in range(len(C)):
        for j in range(i):
            inverse[j, i] = inverse[i, j]


@njit(**_fast)
def solve_first(indptr, indices, data, own, halo, L, Lam, X0, inverse, rho, X, gram, squares):  # type: ignore[no-untyped-def]
    """X = (AY + ρL + Λ)(YᵀY + ρI)⁻¹; gram: XᵀX; squares: ‖X−X⁰‖², ‖X⁰‖² of each run, (R, 2)."""
    right, new, part = _room(X, inverse)
    for start in range(0, len(X), TILE):
        rows = slice(start, start + TILE)
        _solve_tile(indptr, start, indices, data, own, halo, L[rows], Lam[rows], inverse, rho, right, new)
        for r in range(len(rho)):
            run = slice(r * inverse.shape[1], (r + 1) * inverse.shape[1])
            old = X0[rows, run]
            x = new[: len(old), run]
            _add_gram(x, part, gram[r])
            _first((x, old), (), (X[rows, run],), squares[r])


@njit(**_fast)
def solve_second(  # type: ignore[no-untyped-def]
    indptr, indices, data, own, halo, X, L0, Lam0, Gam0, Y0, inverse, rho, omega, Y, L, Lam, Gam, gram, squares
):
    """Y = (AX + ρL⁰ + Γ⁰)(XᵀX + ρI)⁻¹, taken ω times as far from Y⁰, and L, Λ and Γ of the same rows; gram: YᵀY.

    squares: ‖Y−Y⁰‖², ‖Y⁰‖², ‖L−L⁰‖², ‖L⁰‖², ‖L−X‖², ‖L−Y‖², ‖L‖², ‖Λ‖², ‖Γ‖² of each run, (R, 9).
    """
    right, new, part = _room(Y, inverse)
    half = rho.dtype.type(0.5)
    for start in range(0, len(Y), TILE):
        rows = slice(start, start + TILE)
        _solve_tile(indptr, start, indices, data, own, halo, L0[rows], Gam0[rows], inverse, rho, right, new)
        for r in range(len(rho)):
            run = slice(r * inverse.shape[1], (r + 1) * inverse.shape[1])
            x, y0 = X[rows, run], Y0[rows, run]
            y = new[: len(x), run]
            if omega[r] != 1:
                _past((y, y0), (omega[r],), (y,), NONE)
            _add_gram(y, part, gram[r])
            given = (x, y, y0, L0[rows, run], Lam0[rows, run], Gam0[rows, run])
            found = (Y[rows, run], L[rows, run], Lam[rows, run], Gam[rows, run])
            _second(given, (rho[r], 1 / rho[r], half), found, squares[r])


@njit(**_fast)
def _room(X, inverse):  # type: ignore[no-untyped-def]
    """What a tile is worked on in: its right hand side, its solution, its Gram matrix."""
    K, m = inverse.shape[1], X.shape[1]
    return np.empty((TILE, m), X.dtype), np.empty((TILE, m), X.dtype), np.empty((K, K), X.dtype)


@njit(**_fast)
def _solve_tile(indptr, start, indices, data, own, halo, L, Lam, inverse, rho, right, X):  # type: ignore[no-untyped-def]
    """X = (A·B + ρL + Λ) · inverse for the rows of a tile."""
    K, count = inverse.shape[1], len(L)
    for r in range(len(rho)):
        run = slice(r * K, (r + 1) * K)
        _pull((L[:, run], Lam[:, run]), (rho[r],), (right[:count, run],), NONE)
    add_product(indptr, start, indices, data, own, halo, right[:count])
    for r in range(len(rho)):
        run = slice(r * K, (r + 1) * K)
        times(right[:count, run], inverse[r], X[:count, run])


@njit(**_fast)
def quality(indptr, indices, data, own, halo, L, G, scale, sums):  # type: ignore[no-untyped-def]
    """sums += tr(LᵀAL), ‖L − [L − (LG − AL)/s]₊‖² of each run, (R, 2)."""
    K = G.shape[1]
    room, turned = np.empty((TILE, L.shape[1]), L.dtype), np.empty((TILE, K), L.dtype)
    for start in range(0, len(L), TILE):
        tile = L[start : start + TILE]
        AL = room[: len(tile)]
        _clear((AL,), (), (AL,), NONE)
        add_product(indptr, start, indices, data, own, halo, AL)
        for r in range(len(G)):
            low, LG = tile[:, r * K : (r + 1) * K], turned[: len(tile)]
            times(low, G[r], LG)
            _natural((low, LG, AL[:, r * K : (r + 1) * K]), (1 / scale[r],), (), sums[r])


@njit(**_fast)
def weight_inside(indptr, indices, data, own, halo, rows, total):  # type: ignore[no-untyped-def]
    """total += rᵢ Aᵢⱼ rⱼ over entries whose rows have the same label ≥ 0; rows: r, degree, labels."""
    cut = len(own)
    for i in range(len(rows)):
        for p in range(indptr[i], indptr[i + 1]):
            c = np.int64(indices[p])
            there = own[c] if c < cut else halo[c - cut]
            weight = data[p] * rows[i, 0] * there[0]
            for r in range(len(total)):
                if rows[i, 2 + r] == there[2 + r] and there[2 + r] >= 0:
                    total[r] += weight
