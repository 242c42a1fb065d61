"""What an iteration of ADMM costs: the paper's formula, and the time measured against n.

Run ``python examples/paper/cost.py``. The operations of our step are counted in ``tests/test_paper_cost.py``.
"""

import argparse
import tempfile
import warnings
from collections.abc import Sequence

import numpy as np
from scipy import sparse

import snmf_dist

SIZES = (10_000, 20_000, 40_000, 80_000, 160_000)
ITERATIONS = 30


def paper_operations(n: int, K: int) -> float:
    """The paper's count of an iteration: 2/3 K³ + 6nK² + 4n·log₂n·K + 22nK.

    Examples
    --------
    >>> paper_operations(1024, 4)
    352298.6666666667
    """
    return 2 / 3 * K**3 + 6 * n * K**2 + 4 * n * np.log2(n).item() * K + 22 * n * K


def ring(n: int, near: int = 8, seed: int = 0) -> sparse.csr_matrix:
    """A graph as sparse as a neighbourhood graph, in a good order: each node and the `near` after it."""
    rows = np.repeat(np.arange(n), near)
    columns = (rows + np.tile(np.arange(1, near + 1), n)) % n
    half = sparse.csr_matrix((np.random.default_rng(seed).uniform(0.5, 1, len(rows)), (rows, columns)), (n, n))
    return (half + half.T).tocsr()


def seconds_an_iteration(n: int, K: int, *, iterations: int = ITERATIONS) -> float:
    """The time of an iteration with the paper's settings on a graph of n nodes, the first ones left out."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(action="ignore"):
        graph = snmf_dist.import_graph(ring(n), f"{folder}/ring.zarr", reorder=False)
        solution = snmf_dist.fit(
            graph, K, init="random", rho=0.1, stop="paper", max_iter=iterations, evaluate_every=iterations
        )
    times = np.array([record.seconds for record in solution.history[:-1]])  # the last has a look at the quality
    return float(np.median(np.diff(times[len(times) // 3 :])))


def growth(sizes: Sequence[int], seconds: Sequence[float]) -> float:
    """The exponent b of the line through log n, log seconds: seconds ~ n^b.

    Examples
    --------
    >>> round(growth([10, 100, 1000], [1, 10, 100]), 6)
    1.0
    """
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])


def main(arguments: Sequence[str] | None = None) -> float:
    """Print the time of an iteration for each n, and how it grows; returns the exponent."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", type=int, default=SIZES)
    parser.add_argument("-k", type=int, default=20)
    given = parser.parse_args(arguments)
    seconds_an_iteration(1000, given.k)  # compiles
    times = [seconds_an_iteration(n, given.k) for n in given.sizes]
    for n, time in zip(given.sizes, times, strict=True):
        rate = paper_operations(n, given.k) / time / 1e9
        print(f"n = {n:7}: {1e3 * time:8.2f} ms an iteration, {rate:.1f} Gflop/s by the paper's count")
    exponent = growth(given.sizes, times)
    print(f"seconds an iteration ~ n^{exponent:.2f}")
    return exponent


if __name__ == "__main__":
    main()
