"""When to stop, and how good L is: the paper's criterion, ADMM's residuals, objective, KKT distance, labels."""

import math
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from snmf_dist.engine.rows import Graph, Rows, Value
from snmf_dist.result.records import IterationRecord, Status
from snmf_dist.solve import kernels
from snmf_dist.solve.kernels import Widths

REST_ITERATIONS = 9  # iterations, at least, over which labels and c must rest: from the look at 1 to that at 10
MOVED = 0.01  # share of the labels that may change in a window of a settled run
GAIN = 5e-4  # relative change of c in a window of a settled run
NEAR = 3e-3  # KKT distance of a settled run, at most: one that goes round in circles is farther
STATIONARY = 1e-4  # KKT distance at which an iterate counts as a stationary point
CYCLE_LOOKS = 5  # looks, at least, in each half of a run that may be said to cycle
CLUSTERED = 0.1  # modularity of labels, at least, whose fall means something
PEAK = 0.01  # relative fall of the score of the labels below its best that says the labels get worse


class StepNumbers(NamedTuple):
    """What one iteration tells of itself."""

    change: float
    primal: float
    dual: float
    size: float
    dual_size: float = math.nan


class Quality(NamedTuple):
    """How good L is; `moved`, `modularity` and `score`, F of `modularities`, tell of its labels."""

    objective: float
    captured: float
    kkt: float
    moved: float = math.nan
    modularity: float = math.nan
    score: float = math.nan


@dataclass
class Judge:
    """Says when one run is done, and why.

    Parameters
    ----------
    stop : {"auto", "paper", "kkt"}
        "paper" knows the paper's criterion alone, "kkt" the KKT distance alone; "auto" takes the first of these,
        of labels and c at rest, and, where the modularity is taken, of its fall.
    tol : float
        Tolerance of the paper's criterion, or of the KKT distance.
    """

    stop: str
    tol: float
    reference: tuple[int, float] | None = None  # iteration and c that a window began with
    best: float = -math.inf  # score of the labels
    sharpest: float = -math.inf  # modularity
    at_peak: bool = False  # whether the last look found the best score
    distances: list[float] = field(default_factory=list)  # KKT, of all looks

    def of_step(self, numbers: StepNumbers) -> Status | None:
        """Judge an iteration by its numbers; None to go on."""
        if not math.isfinite(numbers.primal + numbers.dual + numbers.size):
            return Status.DIVERGED
        if numbers.size == 0:
            return Status.COLLAPSED
        return Status.CONVERGED if self.stop != "kkt" and numbers.change <= self.tol else None

    @property
    def stalled(self) -> bool:
        """Whether the last looks, far from a stationary point, came no nearer than those before."""
        cut = len(self.distances) - CYCLE_LOOKS
        if cut < CYCLE_LOOKS or cut % CYCLE_LOOKS:
            return False
        return min(self.distances[cut:]) > max(NEAR, min(self.distances[:cut]))

    def of_look(self, iteration: int, verdict: Status | None, quality: Quality) -> Status | None:
        """Judge an evaluated iteration, given the verdict on its numbers; None to go on."""
        if not math.isfinite(quality.captured) and verdict is not Status.COLLAPSED:
            return Status.DIVERGED  # L is finite, but its squares are not: nothing that is taken of it means much
        if verdict is Status.CONVERGED and self.stop == "auto" and quality.kkt > NEAR:
            return Status.STUCK
        if verdict in (None, Status.MAX_ITER):
            judged = self._of_quality(iteration, quality)
            return judged or (self._at_limit() if verdict else None)
        return verdict

    def _of_quality(self, iteration: int, quality: Quality) -> Status | None:
        self.distances.append(quality.kkt)
        if self.stop != "auto":
            return Status.STATIONARY if self.stop == "kkt" and quality.kkt <= self.tol else None
        self.at_peak = quality.score > self.best
        self.best = quality.score if self.at_peak else self.best
        self.sharpest = max(self.sharpest, quality.modularity)
        begun, captured = self.reference or (iteration, quality.captured)
        rested = iteration - begun >= REST_ITERATIONS
        if rested or self.reference is None:
            self.reference = (iteration, quality.captured)
        if self.sharpest >= CLUSTERED and quality.score < (1 - PEAK) * self.best:
            return Status.PEAKED
        if quality.kkt <= STATIONARY:
            return Status.STATIONARY
        still = abs(quality.captured - captured) <= GAIN * abs(quality.captured)
        if rested and still and quality.moved <= MOVED and quality.kkt <= NEAR:
            return Status.SETTLED
        return None

    def _at_limit(self) -> Status:
        """Say why a run is not done when its iterations are: has it come no nearer in the latter half of them?"""
        half = len(self.distances) // 2
        if half >= CYCLE_LOOKS and min(self.distances[half:]) >= max(NEAR, min(self.distances[:half])):
            return Status.CYCLING
        return Status.MAX_ITER


def quality(A: Graph, L: Rows, *, norm_A: float, Ks: np.ndarray, widths: Widths = None) -> Value:
    """Objective, captured energy and KKT distance of each run, by one product with A.

    ‖A − LLᵀ‖² = ‖A‖² − c with c = 2 tr(LᵀAL) − ‖LᵀL‖². The KKT distance is that of the natural
    residual, ‖L − [L − ∇/s]₊‖ / ‖L‖ with ∇ = L(LᵀL) − AL and s = ‖LᵀL‖₂, which does not change
    with the scale of A. `Ks` are the columns of each run, `widths` the same where they differ.
    """
    G = A.sum(kernels.gram, L, runs=len(Ks), widths=widths)
    scale = A.central(run_scales, G, Ks=Ks)
    found = A.sweep_sum(kernels.quality, L, rows={"L": L}, G=G, scale=scale, widths=widths)
    return A.central(_quality, found, G, Ks=Ks, norm_A=norm_A)


def run_scales(G: np.ndarray, *, Ks: np.ndarray) -> np.ndarray:
    """`largest_eigenvalues` of the part of each Gram matrix that is the run's own, (R,)."""
    return np.concatenate([largest_eigenvalues(one[None, :K, :K]) for one, K in zip(G, Ks, strict=True)])


def largest_eigenvalues(G: np.ndarray) -> np.ndarray:
    """‖G‖₂ of each symmetric G, (R,); 1 if G is zero or overflowed, to divide by."""
    finite = np.isfinite(G).all(axis=(1, 2), keepdims=True)
    norms = np.linalg.norm(np.where(finite, G, 0.0), 2, axis=(1, 2))
    return np.where(norms > 0, norms, 1.0)


def _quality(
    found: tuple[np.ndarray, np.ndarray], G: np.ndarray, *, Ks: np.ndarray, norm_A: float
) -> list[Quality]:
    results = []
    for inner, rest, padded, K in zip(*(x.tolist() for x in found), G, Ks, strict=True):
        one = np.ascontiguousarray(padded[:K, :K])
        captured = 2 * inner - float(np.sum(one * one))
        kkt = ratio(math.sqrt(rest), math.sqrt(np.trace(one)))
        results.append(Quality(objective=norm_A - captured, captured=captured, kkt=kkt))
    return results


def ratio(part: float, whole: float) -> float:
    """part / whole; 0/0 is no change, anything else over 0 is endless."""
    if whole == 0:
        return 0.0 if part == 0 else math.inf
    return float(part / whole)


def record(
    iteration: int, step: StepNumbers, rho: float, products: int, seconds: float, found: Quality | None
) -> IterationRecord:
    """The record of an iteration, from its numbers and, if it was evaluated, its quality."""
    numbers = {"change": step.change, "primal": step.primal, "dual": step.dual, "rho": rho}
    looked = {} if found is None else found._asdict()
    looked.pop("score", None)
    return IterationRecord(iteration=iteration, products=products, seconds=seconds, **numbers, **looked)
