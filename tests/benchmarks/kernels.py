"""Plain SciPy, a plain numba loop and the fused kernels, side by side, on one thread.

    python -m tests.benchmarks.kernels [--quick]

Prints seconds of a product with A, and of the first half of an ADMM iteration, `update_X`; the three take turns,
and medians are compared. `--quick` has a tenth of the rows.
"""

import argparse
import statistics
import time

import numpy as np
from numba import njit
from threadpoolctl import threadpool_limits

from snmf_dist.engine.halo import Block, padded
from snmf_dist.solve.kernels import fused, plain
from snmf_dist.solve.kernels.stacked import ridge

ROWS = 200_000
ENTRIES = 31  # of a row of A
NEAR = 2000  # how far from the diagonal they are
TURNS = 9
WIDTHS = (5, 20, 64)


@njit(nogil=True, cache=True, fastmath=True)
def loop_product(indptr, indices, data, B, out):
    """A · B, as one would write it."""
    for i in range(len(out)):
        out[i] = 0
        for p in range(indptr[i], indptr[i + 1]):
            for j in range(out.shape[1]):
                out[i, j] += data[p] * B[indices[p], j]


@njit(nogil=True, cache=True, fastmath=True)
def loop_update_X(indptr, indices, data, Y, L, Lam, X0, inverse, rho, X, gram, squares):
    """X = (AY + ρL + Λ)(C Cᵀ)⁻¹ with its sums, row by row."""
    K = X.shape[1]
    right = np.empty(K, X.dtype)
    for i in range(len(X)):
        for j in range(K):
            right[j] = rho * L[i, j] + Lam[i, j]
        for p in range(indptr[i], indptr[i + 1]):
            for j in range(K):
                right[j] += data[p] * Y[indices[p], j]
        for j in range(K):
            squares[1] += X0[i, j] ** 2
            total = right[0] * inverse[0, j]
            for p in range(1, K):
                total += right[p] * inverse[p, j]
            squares[0] += (total - X0[i, j]) ** 2
            X[i, j] = total
        for p in range(K):
            for j in range(K):
                gram[p, j] += X[i, p] * X[i, j]


def problem(n, K, dtype):
    random = np.random.default_rng(0)
    columns = np.sort((np.arange(n)[:, None] + random.integers(-NEAR, NEAR, (n, ENTRIES))) % n, axis=1)
    entries = random.uniform(size=n * ENTRIES).astype(dtype)
    A = Block(np.arange(n + 1, dtype=np.int64) * ENTRIES, padded(columns.ravel()), entries)
    return A, [random.uniform(size=(n, K)).astype(dtype) for _ in range(4)]


def calls(n, K, dtype):
    """What is timed: {kernel: {how: a function that returns all its results}}."""
    A, (Y, L, Lam, X0) = problem(n, K, dtype)
    rho, halo = np.array([0.5]), Y[:0]
    inverse = ridge(plain.gram(Y), rho=rho)

    def by_module(module):
        out = np.empty_like(Y)

        def product():
            module.product(A, Y, halo, out=[out])
            return [out]

        def update():
            sums = module.update_X(A, Y, halo, L, Lam, X0, inverse=inverse, rho=rho, out=[out])
            return [out, *sums]

        return product, update

    def by_loop():
        out, small = np.empty_like(Y), (inverse[0].astype(dtype), dtype(rho[0]))

        def product():
            loop_product(*A[:3], Y, out)
            return [out]

        def update():
            gram, squares = np.zeros((K, K)), np.zeros(2)
            loop_update_X(*A[:3], Y, L, Lam, X0, *small, out, gram, squares)
            return [out, gram[None], squares[:, None]]

        return product, update

    ways = {"SciPy": by_module(plain), "numba loop": by_loop(), "fused": by_module(fused)}
    return {name: {way: pair[i] for way, pair in ways.items()} for i, name in enumerate(("product", "update_X"))}


def compare(n, K, dtype):
    """The median seconds of each way of each kernel, which first have to agree."""
    found = {}
    for name, ways in calls(n, K, dtype).items():
        results = [[one.copy() for one in f()] for f in ways.values()]
        for other in results[1:]:
            for one, expected in zip(other, results[0], strict=True):
                np.testing.assert_allclose(one, expected, rtol=0, atol=1e-3 * np.abs(expected).max())
        times = {way: [] for way in ways}
        for turn in range(TURNS):
            for way in sorted(ways, reverse=turn % 2 == 1):
                begin = time.perf_counter()
                ways[way]()
                times[way].append(time.perf_counter() - begin)
        found[name] = {way: statistics.median(seconds) for way, seconds in times.items()}
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of the rows")
    n = ROWS // 10 if parser.parse_args().quick else ROWS
    print(f"{n} rows, {ENTRIES} entries each; medians of {TURNS} turns on one thread")
    print("| kernel | K | type | SciPy | numba loop | fused | SciPy / fused | numba loop / fused |")
    print("|---|---|---|---|---|---|---|---|")
    with threadpool_limits(1):
        for K in WIDTHS:
            for dtype in (np.float32, np.float64):
                for name, seconds in compare(n, K, dtype).items():
                    times = " | ".join(f"{1e3 * one:.1f} ms" for one in seconds.values())
                    ratios = " | ".join(
                        f"{seconds[way] / seconds['fused']:.1f}" for way in ("SciPy", "numba loop")
                    )
                    print(f"| {name} | {K} | {np.dtype(dtype).name} | {times} | {ratios} |", flush=True)


if __name__ == "__main__":
    main()
