"""A · B, the simplest sweep, and how large A is."""

import numpy as np

from snmf_dist.engine.rows import Graph, Rows
from snmf_dist.solve.kernels import column_squares, cross, product, scale_columns, uniform_rows

POWER_STEPS = 30


def multiply(A: Graph, B: Rows) -> Rows:
    """A · B."""
    (AB,) = A.sweep(product, B, rows={}, makes={"AB": B.shape[1]}, adds_up=False)
    found: Rows = AB
    return found


def largest_eigenvalue(A: Graph, *, dtype: np.dtype) -> tuple[float, int]:
    """About the largest eigenvalue of a nonnegative A, from below, and the products it took.

    The power method, until the Rayleigh quotient grows by less than a hundredth; from a positive vector, which
    no eigenvector of the largest eigenvalue is orthogonal to.
    """
    V = A.rows(uniform_rows, 1, dtype=dtype, K=1, seed=0, scale=1.0, type=dtype)
    value, products = 0.0, 0
    while products < POWER_STEPS:
        products += 1
        (V,), square = A.settle((V,), A.sum(column_squares, V))
        V = A.map(scale_columns, V, scale=1 / np.sqrt(square))
        AV = multiply(A, V)
        (AV,), quotient = A.settle((AV,), A.sum(cross, V, AV))
        new = float(quotient[0, 0])
        if new <= 1.01 * value:
            break
        value, V = new, AV
    return max(new, value), products
