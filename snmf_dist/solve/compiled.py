"""The kernels that go over memory once: numba, without the GIL, compiled at first use and kept on disk.

Each goes through its rows in tiles that stay in a core's cache: what a tile needs is done while it is there. The
rows of A are given as `indptr`, `indices`, `data` with columns numbered [own rows | halo], the matrix B they
are multiplied with as `own` above `halo`. Results are written to the last arguments; `gram` and `squares` are
added to. Several runs may stand side by side, as in `kernels`. Their plain twins are in the tests.

Arrays are copied and added in loops: ``a[:] = b`` takes numba seconds to compile, for the text of its errors.
"""

from typing import Any

import numpy as np
from numba import njit

from snmf_dist.solve.vector import add_product

TILE = 256  # rows

_fast: dict[str, Any] = {"nogil": True, "cache": True, "fastmath": {"contract", "reassoc", "nsz"}}


@njit(**_fast)
def product(indptr, indices, data, own, halo, out):  # type: ignore[no-untyped-def]
    """out = A · B."""
    for start in range(0, len(out), TILE):
        tile = out[start : start + TILE]
        tile[:] = 0
        add_product(indptr, start, indices, data, own, halo, tile)


@njit(**_fast)
def chebyshev(indptr, indices, data, own, halo, V, W, centre, scale, back, out):  # type: ignore[no-untyped-def]
    """out = scale · (AV − centre · V) − back · W; V are the block's rows of `own`, and W may be `out`."""
    room = np.empty((TILE, out.shape[1]), out.dtype)
    for start in range(0, len(out), TILE):
        rows = slice(start, start + TILE)
        tile = room[: len(V[rows])]
        tile[:] = 0
        add_product(indptr, start, indices, data, own, halo, tile)
        av, v, w = tile.ravel(), V[rows].ravel(), W[rows].ravel()
        for i in range(len(av)):
            av[i] = scale * (av[i] - centre * v[i]) - back * w[i]
        _copy(tile, out[rows])


@njit(**_fast)
def grams(X, gram):  # type: ignore[no-untyped-def]
    """gram += XᵀX of each run, in the same tiles and sums as the solves add it up."""
    K = gram.shape[1]
    one = np.empty((TILE, K), X.dtype)
    for start in range(0, len(X), TILE):
        tile = X[start : start + TILE]
        for r in range(len(gram)):
            part = one[: len(tile)]
            _copy(tile[:, r * K : (r + 1) * K], part)
            _add(np.dot(part.T, part), gram[r])


@njit(**_fast)
def _copy(source, out):  # type: ignore[no-untyped-def]
    """out = source."""
    for i in range(source.shape[0]):
        for j in range(source.shape[1]):
            out[i, j] = source[i, j]


@njit(**_fast)
def _add(part, total):  # type: ignore[no-untyped-def]
    """total += part, in the precision of `total`."""
    for i in range(part.shape[0]):
        for j in range(part.shape[1]):
            total[i, j] += part[i, j]


@njit(**_fast)
def solve_first(indptr, indices, data, own, halo, L, Lam, X0, inverse, rho, X, gram, squares):  # type: ignore[no-untyped-def]
    """X = (AY + ρL + Λ)(YᵀY + ρI)⁻¹; gram: XᵀX; squares: ‖X−X⁰‖², ‖X⁰‖² of each run, (2, R).

    X may be X⁰.
    """
    right, tile, one, other, length = _room(X, inverse)
    for start in range(0, len(X), TILE):
        rows = slice(start, start + TILE)
        x0 = X0[rows].ravel()
        new = tile[: len(X0[rows])]
        _solve_tile(
            indptr, start, indices, data, own, halo, L[rows], Lam[rows], inverse, rho, right, one, other, new, gram
        )
        x = new.ravel()
        for first in range(0, len(x), length):
            part = slice(first, first + length)
            _add_change(x[part], x0[part], squares[:, first // length % len(rho)])
        _copy(new, X[rows])


@njit(**_fast)
def solve_second(  # type: ignore[no-untyped-def]
    indptr, indices, data, own, halo, X, L0, Lam0, Gam0, Y0, inverse, rho, Y, L, Lam, Gam, gram, squares
):
    """Y = (AX + ρL⁰ + Γ⁰)(XᵀX + ρI)⁻¹, and L, Λ and Γ of the same rows; gram: YᵀY.

    squares: ‖Y−Y⁰‖², ‖Y⁰‖², ‖L−L⁰‖², ‖L⁰‖², ‖L−X‖², ‖L−Y‖², ‖L‖², ‖Λ‖², ‖Γ‖² of each run, (9, R). Each
    result may be what it replaces.
    """
    right, tile, one, other, length = _room(Y, inverse)
    found = np.empty((3, *tile.shape), Y.dtype)
    for start in range(0, len(Y), TILE):
        rows = slice(start, start + TILE)
        new = tile[: len(Y0[rows])]
        _solve_tile(
            indptr,
            start,
            indices,
            data,
            own,
            halo,
            L0[rows],
            Gam0[rows],
            inverse,
            rho,
            right,
            one,
            other,
            new,
            gram,
        )
        x, y, y0, l0 = X[rows].ravel(), new.ravel(), Y0[rows].ravel(), L0[rows].ravel()
        lam0, gam0 = Lam0[rows].ravel(), Gam0[rows].ravel()
        low, lam, gam = found[0].ravel()[: len(x)], found[1].ravel()[: len(x)], found[2].ravel()[: len(x)]
        for first in range(0, len(x), length):
            r, part = first // length % len(rho), slice(first, first + length)
            _ascend(x[part], y[part], lam0[part], gam0[part], rho[r], low[part], lam[part], gam[part])
            _add_change(y[part], y0[part], squares[:, r])
            _add_change(low[part], l0[part], squares[2:, r])
            _add_sizes(x[part], y[part], low[part], lam[part], gam[part], squares[4:, r])
        _copy(new, Y[rows])
        _copy(found[0, : len(new)], L[rows])
        _copy(found[1, : len(new)], Lam[rows])
        _copy(found[2, : len(new)], Gam[rows])


@njit(**_fast)
def _room(X, inverse):  # type: ignore[no-untyped-def]
    """What a tile is worked on in, and how many numbers of a tile in turn belong to one run.

    Results go to memory at the end of a tile: a loop whose input may be its output is not made of vectors.
    """
    K, m = inverse.shape[1], X.shape[1]
    right, tile = np.empty((TILE, m), X.dtype), np.empty((TILE, m), X.dtype)
    one, other = np.empty((TILE, K), X.dtype), np.empty((TILE, K), X.dtype)
    return right, tile, one, other, TILE * K if len(inverse) == 1 else K


@njit(**_fast)
def _solve_tile(indptr, start, indices, data, own, halo, L, Lam, inverse, rho, right, one, other, X, gram):  # type: ignore[no-untyped-def]
    """X = (A·B + ρL + Λ) · inverse for the rows of a tile; gram += XᵀX.

    Within a tile sums are in X's own precision, over the tiles in float64.
    """
    K = inverse.shape[1]
    right, one, other = right[: len(X)], one[: len(X)], other[: len(X)]
    for t in range(len(X)):
        for r in range(len(rho)):
            penalty, part = rho[r], slice(r * K, (r + 1) * K)
            low, lam, out = L[t, part], Lam[t, part], right[t, part]
            for j in range(K):
                out[j] = penalty * low[j] + lam[j]
    add_product(indptr, start, indices, data, own, halo, right)
    if len(rho) == 1:
        np.dot(right, inverse[0], X)
        _add(np.dot(X.T, X), gram[0])
        return
    for r in range(len(rho)):
        part = slice(r * K, (r + 1) * K)
        _copy(right[:, part], one)
        np.dot(one, inverse[r], other)
        _copy(other, X[:, part])
        _add(np.dot(other.T, other), gram[r])


@njit(**_fast)
def _ascend(x, y, lam0, gam0, rho, low, lam, gam):  # type: ignore[no-untyped-def]
    """½[X + Y − (Λ+Γ)/ρ]₊, Λ + ρ(L−X), Γ + ρ(L−Y): a loop each, which the compiler makes of vectors."""
    half, zero, shrink = low.dtype.type(0.5), low.dtype.type(0), low.dtype.type(1) / rho
    for i in range(len(low)):
        low[i] = half * max(x[i] + y[i] - (lam0[i] + gam0[i]) * shrink, zero)
    for i in range(len(low)):
        lam[i] = lam0[i] + rho * (low[i] - x[i])
    for i in range(len(low)):
        gam[i] = gam0[i] + rho * (low[i] - y[i])


@njit(**_fast)
def _add_change(new, old, squares):  # type: ignore[no-untyped-def]
    """squares += ‖new − old‖², ‖old‖²."""
    a = b = new.dtype.type(0)
    for i in range(len(new)):
        a += (new[i] - old[i]) * (new[i] - old[i])
        b += old[i] * old[i]
    squares[0] += a
    squares[1] += b


@njit(**_fast)
def _add_sizes(x, y, low, lam, gam, squares):  # type: ignore[no-untyped-def]
    """squares += ‖L−X‖², ‖L−Y‖², ‖L‖², ‖Λ‖², ‖Γ‖²."""
    a = b = c = d = e = low.dtype.type(0)
    for i in range(len(low)):
        a += (low[i] - x[i]) * (low[i] - x[i])
        b += (low[i] - y[i]) * (low[i] - y[i])
        c += low[i] * low[i]
        d += lam[i] * lam[i]
        e += gam[i] * gam[i]
    squares[0] += a
    squares[1] += b
    squares[2] += c
    squares[3] += d
    squares[4] += e


@njit(**_fast)
def quality(indptr, indices, data, own, halo, L, G, scale, inner, residual):  # type: ignore[no-untyped-def]
    """inner += tr(LᵀAL), residual += ‖L − [L − (LG − AL)/s]₊‖² of each run, (R,)."""
    runs, K = len(G), G.shape[1]
    room = np.empty((TILE, L.shape[1]), L.dtype)
    one, turned = np.empty((TILE, K), L.dtype), np.empty((TILE, K), L.dtype)
    for start in range(0, len(L), TILE):
        tile = L[start : start + TILE]
        AL = room[: len(tile)]
        AL[:] = 0
        add_product(indptr, start, indices, data, own, halo, AL)
        part, LG = one[: len(tile)], turned[: len(tile)]
        for r in range(runs):
            _copy(tile[:, r * K : (r + 1) * K], part)
            np.dot(part, G[r], LG)
            shrink, zero = L.dtype.type(1) / scale[r], L.dtype.type(0)
            a = b = zero
            for t in range(len(part)):
                row, rest, al = part[t], LG[t], AL[t, r * K : (r + 1) * K]
                for j in range(K):
                    distance = row[j] - max(row[j] - (rest[j] - al[j]) * shrink, zero)
                    a += row[j] * al[j]
                    b += distance * distance
            inner[r] += a
            residual[r] += b


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
