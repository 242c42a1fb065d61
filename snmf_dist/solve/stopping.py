"""When to stop, and how good L is: the paper's criterion, ADMM's residuals, objective and KKT distance."""

import math
from typing import Any, NamedTuple

import numpy as np

from snmf_dist.result.records import Status
from snmf_dist.rows import Rows, central, multiply, sum_rows
from snmf_dist.solve.kernels import gram, inner, kkt_square


class StepNumbers(NamedTuple):
    """What one iteration tells of itself."""

    change: float
    primal: float
    dual: float
    size: float


class Quality(NamedTuple):
    """How good L is."""

    objective: float
    captured: float
    kkt: float


def admm_numbers(squares: np.ndarray, *, rho: float) -> StepNumbers:
    """The paper's change and ADMM's residuals (Boyd et al. 2011, §3.3) from `kernels.step_norms`."""
    dX, X0, dY, Y0, dL, L0, LX, LY, L = np.sqrt(squares).tolist()
    change = _ratio(dX, X0) + _ratio(dY, Y0) + _ratio(dL, L0)
    return StepNumbers(change, primal=math.hypot(LX, LY), dual=math.sqrt(2) * rho * dL, size=L)


def verdict(numbers: StepNumbers, *, tol: float) -> Status | None:
    """Say whether to stop after a step, and why; None to go on."""
    if not math.isfinite(numbers.primal + numbers.dual + numbers.size):
        return Status.DIVERGED
    if numbers.size == 0:
        return Status.COLLAPSED
    return Status.CONVERGED if numbers.change <= tol else None


def quality(A: Rows, L: Rows, *, norm_A: float) -> Any:
    """Objective, captured energy and KKT distance of L, by one product with A.

    ‖A − LLᵀ‖² = ‖A‖² − c with c = 2 tr(LᵀAL) − ‖LᵀL‖². The KKT distance is that of the natural
    residual, ‖L − [L − ∇/s]₊‖ / ‖L‖ with ∇ = L(LᵀL) − AL and s = ‖LᵀL‖₂, which does not change
    with the scale of A.
    """
    AL = multiply(A, L)
    G = sum_rows(gram, L)
    scale = central(largest_eigenvalue, G)
    residual = sum_rows(kkt_square, L, AL, G=G, scale=scale)
    return central(_quality, sum_rows(inner, L, AL), G, residual, norm_A=norm_A)


def largest_eigenvalue(G: np.ndarray) -> float:
    """‖G‖₂ of a symmetric G; 1 if G is zero, to divide by."""
    return float(np.linalg.norm(G, 2)) or 1.0


def _quality(LAL: float, G: np.ndarray, residual: float, *, norm_A: float) -> Quality:
    captured = 2 * LAL - float(np.sum(G * G))
    kkt = _ratio(math.sqrt(residual), math.sqrt(np.trace(G)))
    return Quality(objective=norm_A - captured, captured=captured, kkt=kkt)


def _ratio(part: float, whole: float) -> float:
    """part / whole; 0/0 is no change, anything else over 0 is endless."""
    if whole == 0:
        return 0.0 if part == 0 else math.inf
    return float(part / whole)
