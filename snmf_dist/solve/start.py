"""Where L begins."""

import numpy as np

from snmf_dist.rows import Rows, rows_like


def random_start(A: Rows, K: int, *, seed: int, sum_A: float, dtype: np.dtype) -> Rows:
    """Uniform rows on [0, 2·sqrt(mean(A)/K)), (n, K): the convention of SymNMF and PLANC.

    A row depends on the seed and its number alone, not on the block it is in.
    """
    n = A.shape[0]
    scale = 2 * np.sqrt(sum_A / n / n / K)
    return rows_like(A, uniform_rows, K, dtype=dtype, K=K, seed=seed, scale=scale, type=dtype)


def uniform_rows(start: int, stop: int, *, K: int, seed: int, scale: float, type: np.dtype) -> np.ndarray:
    """Rows `start` to `stop` of an endless random matrix, by a counter-based generator.

    Philox gives four numbers a count, so a row takes ⌈K/4⌉ counts and row i starts at i times that.
    """
    counts = -(-K // 4)
    generator = np.random.Generator(np.random.Philox(key=seed, counter=start * counts))
    return (generator.random((stop - start, 4 * counts))[:, :K] * scale).astype(type)
