"""The kernels in NumPy and SciPy: what the fused ones are compared with, and what runs where those cannot.

Each is called as ``f(A, own, halo, *row blocks, out=[…], **scalars)``. A is rows of the graph, whose columns are
numbered as the rows of `own` above those of `halo`; the matrix they are multiplied with is `own` above `halo`. A
kernel writes rows to `out`, which may be arrays that it reads, and returns what is to be added up over the blocks.
"""

import numpy as np
from scipy import sparse

from snmf_dist.engine.halo import Block
from snmf_dist.solve.kernels.rowwise import run_grams
from snmf_dist.solve.kernels.stacked import Widths, spans, usable


def product(A: Block, own: np.ndarray, halo: np.ndarray, *, out: list[np.ndarray]) -> int:
    """A · B."""
    out[0][:] = _product(A, own, halo)
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
    number = V.dtype.type
    out[0][:] = number(scale) * (_product(A, own, halo) - number(centre) * V) - number(back) * W
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
    """X = (AY + ρL + Λ)(C Cᵀ)⁻¹; XᵀX, (R, K, K), and ‖X−X⁰‖², ‖X⁰‖², (2, R)."""
    lost, (inverse, rho) = usable(inverse, rho, L.dtype)
    AY = _product(A, own, halo)
    squares = np.empty((2, len(rho)))
    for r, run in enumerate(spans(L.shape[1], len(rho), widths)):
        X = (AY[:, run] + rho[r] * L[:, run] + Lam[:, run]) @ _own(inverse[r], run)
        squares[:, r] = _squares(X - X0[:, run], X0[:, run])
        out[0][:, run] = X
    return _without(lost, run_grams(out[0], runs=len(rho), widths=widths), squares)


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
    """Y = Y⁰ + ω((AX + ρL⁰ + Γ⁰)(D Dᵀ)⁻¹ − Y⁰), L = ½[X + Y − (Λ⁰ + Γ⁰)/ρ]₊, Λ = Λ⁰ + ρ(L − X), Γ = Γ⁰ + ρ(L − Y).

    Returns YᵀY, (R, K, K), and ‖Y−Y⁰‖², ‖Y⁰‖², ‖L−L⁰‖², ‖L⁰‖², ‖L−X‖², ‖L−Y‖², ‖L‖², ‖Λ‖², ‖Γ‖², (9, R).
    A run whose inverse is NaN keeps its L.
    """
    lost, (inverse, rho) = usable(inverse, rho, L.dtype)
    omega = omega.astype(L.dtype)
    AX = _product(A, own, halo)
    squares = np.empty((9, len(rho)))
    for r, run in enumerate(spans(L.shape[1], len(rho), widths)):
        x, L0, Lam0, Gam0, y0 = (rows[:, run] for rows in (X, L, Lam, Gam, Y0))
        y = (AX[:, run] + rho[r] * L0 + Gam0) @ _own(inverse[r], run)
        y = y0 + omega[r] * (y - y0)
        new = rho.dtype.type(0.5) * np.maximum(x + y - (Lam0 + Gam0) / rho[r], 0)
        lam, gam = Lam0 + rho[r] * (new - x), Gam0 + rho[r] * (new - y)
        squares[:, r] = _squares(y - y0, y0, new - L0, L0, new - x, new - y, new, lam, gam)
        results = (y, L0.copy() if r in lost else new, lam, gam)
        for rows, result in zip(out, results, strict=True):
            rows[:, run] = result
    return _without(lost, run_grams(out[0], runs=len(rho), widths=widths), squares)


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
    G, scale = G.astype(L.dtype), scale.astype(L.dtype)
    AL = _product(A, own, halo)
    found = np.empty((2, len(scale)))
    for r, run in enumerate(spans(L.shape[1], len(scale), widths)):
        low = np.ascontiguousarray(L[:, run])
        al = np.ascontiguousarray(AL[:, run])
        residual = low - np.maximum(low - (low @ _own(G[r], run) - al) / scale[r], 0)
        found[:, r] = np.einsum("ij,ij->", low, al, dtype=np.float64), *_squares(residual)
    return found[0], found[1]


def gram(X: np.ndarray, *, runs: int = 1, widths: Widths = None) -> np.ndarray:
    """XᵀX of each run, (R, K, K), to the last bit as `update_X` and `update_rest` return it."""
    return run_grams(X, runs=runs, widths=widths)


def weight_inside(
    A: Block, own: np.ndarray, halo: np.ndarray, rows: np.ndarray, *, out: list[np.ndarray]
) -> np.ndarray:
    """Σᵢⱼ rᵢ Aᵢⱼ rⱼ over the entries whose rows have the same label ≥ 0, for each partition, (R,).

    The columns of `own`, `halo` and `rows` are the factor r, the degree, and a label for each partition.
    """
    B = _stack(A, own, halo)
    here = np.repeat(np.arange(len(rows)), np.diff(A.indptr))
    weight = A.entries * rows[here, 0] * B[A.columns, 0]
    labels = ((rows[here, j], B[A.columns, j]) for j in range(2, rows.shape[1]))
    return np.array([weight[(one == other) & (other >= 0)].sum(dtype=np.float64) for one, other in labels])


def group_weights(
    A: Block, own: np.ndarray, halo: np.ndarray, rows: np.ndarray, *, groups: int, out: list[np.ndarray]
) -> list[tuple[int, np.ndarray]]:
    """Σᵢⱼ rᵢ Aᵢⱼ rⱼ of each pair of groups: the number of the first group of these rows, and its row and the next.

    The columns of `own`, `halo` and `rows` are the factor r and the number of the group, which grows with the row.
    """
    if not len(rows):
        return []
    B = _stack(A, own, halo)
    here = np.repeat(np.arange(len(rows)), np.diff(A.indptr))
    weight = A.entries * rows[here, 0] * B[A.columns, 0]
    first, last = int(rows[0, 1]), int(rows[-1, 1])
    at = (rows[here, 1].astype(np.int64) - first) * groups + B[A.columns, 1].astype(np.int64)
    found = np.bincount(at, weight, (last - first + 1) * groups)
    return [(first, found.reshape(-1, groups))]


def _stack(A: Block, own: np.ndarray, halo: np.ndarray) -> np.ndarray:
    """B, which is `own` above `halo`; without the halo if these rows of A do not touch it."""
    return own if A.columns.max(initial=0) < len(own) else np.concatenate([own, halo])


def _product(A: Block, own: np.ndarray, halo: np.ndarray) -> np.ndarray:
    """A · B."""
    B = _stack(A, own, halo)
    S = sparse.csr_matrix((A.entries, A.columns, A.indptr - A.indptr[0]), shape=(len(A.indptr) - 1, len(B)))
    return np.asarray(S @ B)


def _own(M: np.ndarray, run: slice) -> np.ndarray:
    """The part of a K × K matrix that a run of fewer columns uses."""
    K = run.stop - run.start
    return np.ascontiguousarray(M[:K, :K])


def _squares(*terms: np.ndarray) -> list[float]:
    """‖X‖² of each term, added up in float64."""
    each = (np.ascontiguousarray(term) for term in terms)
    return [float(np.einsum("ij,ij->", term, term, dtype=np.float64)) for term in each]


def _without(lost: list[int], gram: np.ndarray, squares: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The sums of a sweep, NaN for runs that are lost."""
    if lost:
        gram[lost], squares[:, lost] = np.nan, np.nan
    return gram, squares
