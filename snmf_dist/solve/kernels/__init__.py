"""The algebra of one row block, under one set of names.

A sweep, which is a kernel that goes over rows of A, is called as ``f(A, own, halo, *row blocks, out=[…],
**scalars)``: see `plain`, whose docstrings are the formulas. Here each calls its fused twin, which numba compiles
at first use; or the plain one where that does not work, after one warning. All other kernels are those of
`rowwise` and `stacked`.

Importing this package does not import numba. The environment variable ``SNMF_DIST_KERNELS`` chooses the sweeps of
a process: ``plain`` for NumPy and SciPy, ``fused`` for the compiled ones or an error, and ``auto``, the default,
for what works. Set it for the workers of a cluster too. It is read at the first call; `use` chooses again.
"""

import glob
import importlib
import os
import threading
import time
import warnings
from functools import cache
from typing import Any

import numpy as np
from scipy import sparse

from snmf_dist.engine.halo import Block, whole_block
from snmf_dist.errors import InputError, SlowKernels
from snmf_dist.solve.kernels import plain
from snmf_dist.solve.kernels.rowwise import (
    column_squares,
    column_sweep,
    copy,
    cross,
    entry_sums,
    fast_gradient,
    largest_row_sum,
    last_change,
    moved,
    pair_norms,
    residual_squares,
    row_labels,
    run_grams,
    run_squares,
    run_times,
    scale_columns,
    side_by_side,
    take_columns,
    three_terms,
    times,
    uniform_rows,
    zeros,
)
from snmf_dist.solve.kernels.stacked import Widths, ridge

__all__ = [
    "Widths",
    "cache_dir",
    "chebyshev_step",
    "chosen",
    "column_squares",
    "column_sweep",
    "compile_all",
    "copy",
    "cross",
    "entry_sums",
    "fast_gradient",
    "gram",
    "group_weights",
    "largest_row_sum",
    "last_change",
    "moved",
    "must_compile",
    "pair_norms",
    "product",
    "quality",
    "residual_squares",
    "ridge",
    "row_labels",
    "run_grams",
    "run_squares",
    "run_times",
    "scale_columns",
    "side_by_side",
    "take_columns",
    "three_terms",
    "times",
    "uniform_rows",
    "update_X",
    "update_rest",
    "use",
    "weight_inside",
    "zeros",
]

CHOICE = "SNMF_DIST_KERNELS"

_one_at_a_time = threading.Lock()
_in_use: Any = None  # the module whose sweeps are used, from the first call on


def use(choice: str) -> None:
    """Choose the sweeps of this process from now on: "auto", "fused" or "plain", as the variable does at first."""
    global _in_use
    with _one_at_a_time:
        _in_use = _module(choice)


def chosen() -> str:
    """Return which sweeps this process uses: "fused" or "plain"."""
    return str(_sweeps().__name__.rpartition(".")[2])


def _sweeps() -> Any:
    """Return the module whose sweeps are used."""
    if _in_use is None:
        use(os.environ.get(CHOICE, "auto"))
    return _in_use


def _module(choice: str) -> Any:
    if choice == "auto":
        return _what_works()
    if choice == "fused":
        return _fused()
    if choice == "plain":
        return plain
    raise InputError(f"{CHOICE} is {choice!r}; expected 'auto', 'fused' or 'plain'")


def _fused() -> Any:
    return importlib.import_module("snmf_dist.solve.kernels.fused")


@cache
def _what_works() -> Any:
    """Return `fused` if numba can compile it, else `plain`, with a warning."""
    try:
        _try(_fused())
    except Exception as error:  # whatever a missing, older or newer numba raises
        reason = f"{type(error).__name__}: {str(error).strip() or 'no message'}".splitlines()[0]
        warnings.warn(
            f"the compiled kernels do not work here ({reason}); NumPy and SciPy do the work, two to three times "
            f"slower. Install a numba that fits this NumPy, or set {CHOICE}=plain to see no warning",
            SlowKernels,
            stacklevel=6,  # who called the kernel
        )
        return plain
    return _fused()


def _try(module: Any) -> None:
    """Compile one kernel that has all kinds of loops, and check its result: tr(LᵀAL) = 4 for A = 1, L = 2."""
    L, one = np.full((1, 1), 2, np.float32), np.ones(1)
    A = whole_block(sparse.csr_matrix(np.ones((1, 1), np.float32)))
    inner, _ = module.quality(A, L, L, L, G=np.ones((1, 1, 1)), scale=one, out=[])
    if inner[0] != 4:
        raise ArithmeticError(f"a compiled kernel returned {inner[0]} where 4 is right")


def cache_dir() -> str | None:
    """Return the folder that compiled kernels are kept in, or None if there are none yet."""
    try:
        folder = _fused().cache_dir()
    except Exception:  # `chosen` says what is wrong
        return None
    if folder is None:
        return None
    return folder if glob.glob(os.path.join(glob.escape(folder), "fused.*.nbi")) else None


def must_compile() -> bool:
    """Return whether the fused sweeps are to be used, and none is kept from before."""
    return _in_use is not plain and os.environ.get(CHOICE) != "plain" and cache_dir() is None


def compile_all(dtype: Any) -> float:
    """Compile the sweeps for rows of a type, or load them if they were kept; return the seconds it took."""
    begin = time.perf_counter()
    if _sweeps() is plain:
        return 0.0
    A = whole_block(sparse.csr_matrix(np.ones((1, 1), dtype)))
    X, G, one = np.ones((1, 1), dtype), np.ones((1, 1, 1)), np.ones(1)
    wide = np.ones((1, 3))
    product(A, X, X, out=[X.copy()])
    chebyshev_step(A, X, X, X, X, centre=0.0, scale=1.0, back=0.0, out=[X.copy()])
    update_X(A, X, X, X, X, X, inverse=G, rho=one, out=[X.copy()])
    update_rest(A, X, X, X, X, X, X, X, inverse=G, rho=one, omega=one, out=[X.copy() for _ in range(4)])
    quality(A, X, X, X, G=G, scale=one, out=[])
    gram(X)
    weight_inside(A, wide, wide, wide, out=[])
    group_weights(A, wide, wide, wide, groups=2, out=[])
    return time.perf_counter() - begin


def product(A: Block, own: np.ndarray, halo: np.ndarray, *, out: list[np.ndarray]) -> int:
    """A · B."""
    return int(_sweeps().product(A, own, halo, out=out))


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
    """scale · (AV − centre · V) − back · W: the three-term recurrence of a Chebyshev polynomial of A."""
    return int(_sweeps().chebyshev_step(A, own, halo, V, W, centre=centre, scale=scale, back=back, out=out))


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
    found: tuple[np.ndarray, np.ndarray] = _sweeps().update_X(
        A, own, halo, L, Lam, X0, inverse=inverse, rho=rho, widths=widths, out=out
    )
    return found


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
    found: tuple[np.ndarray, np.ndarray] = _sweeps().update_rest(
        A, own, halo, X, L, Lam, Gam, Y0, inverse=inverse, rho=rho, omega=omega, widths=widths, out=out
    )
    return found


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
    """tr(LᵀAL), and ‖L − [L − ∇/s]₊‖² with ∇ = LG − AL, G = LᵀL, of each run, (R,) and (R,).

    The second is 0 at KKT points.
    """
    small = {"G": G, "scale": scale, "widths": widths}
    found: tuple[np.ndarray, np.ndarray] = _sweeps().quality(A, own, halo, L, **small, out=out)
    return found


def gram(X: np.ndarray, *, runs: int = 1, widths: Widths = None) -> np.ndarray:
    """XᵀX of each run, (R, K, K), to the last bit as `update_X` and `update_rest` return it."""
    found: np.ndarray = _sweeps().gram(X, runs=runs, widths=widths)
    return found


def weight_inside(
    A: Block, own: np.ndarray, halo: np.ndarray, rows: np.ndarray, *, out: list[np.ndarray]
) -> np.ndarray:
    """Σᵢⱼ rᵢ Aᵢⱼ rⱼ over the entries whose rows have the same label ≥ 0, for each partition, (R,).

    The columns of `own`, `halo` and `rows` are the factor r, the degree, and a label for each partition.
    """
    found: np.ndarray = _sweeps().weight_inside(A, own, halo, rows, out=out)
    return found


def group_weights(
    A: Block, own: np.ndarray, halo: np.ndarray, rows: np.ndarray, *, groups: int, out: list[np.ndarray]
) -> list[tuple[int, np.ndarray]]:
    """Σᵢⱼ rᵢ Aᵢⱼ rⱼ of each pair of groups: the number of the first group of these rows, and its row and the next.

    The columns of `own`, `halo` and `rows` are the factor r and the number of the group, which grows with the row.
    """
    found: list[tuple[int, np.ndarray]] = _sweeps().group_weights(A, own, halo, rows, groups=groups, out=out)
    return found
