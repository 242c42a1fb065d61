"""Points of a mixture of curved clusters that may overlap."""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

BLOCK_COORDINATES = 1 << 21  # coordinates in a block: 8 MB as they are written
CANDIDATES = 16  # drawn for each centre; the one farthest from the others is taken
SHAPES, ROWS = 0, 1  # what a stream of random numbers is for


class Shapes(NamedTuple):
    """Where the clusters lie.

    Attributes
    ----------
    centres : ndarray, shape (K, d)
        The mean of each cluster.
    axes : ndarray, shape (K, d, q)
        Orthonormal directions that a cluster extends in.
    bends : ndarray, shape (K, d, q)
        Orthonormal directions that it bends into, orthogonal to its axes.
    """

    centres: np.ndarray
    axes: np.ndarray
    bends: np.ndarray


@dataclass(frozen=True)
class CurvedMixture:
    """x = centre + a (axes t + κ bends (t² − 1)/√2) + noise, t normal; see `generate` for the settings.

    The mean of a cluster is its centre. The mean variance of a coordinate within a cluster is 1, of which the
    share `noise` is the same in every direction.
    """

    n: int
    k: int
    seed: int
    shares: tuple[float, ...]
    dimensions: int
    separation: float
    intrinsic: int
    curvature: float
    noise: float

    @property
    def block_rows(self) -> int:
        """Rows of a block; they depend on the dimensions alone, as the points depend on them."""
        return max(BLOCK_COORDINATES // self.dimensions, 1024)

    @property
    def blocks(self) -> int:
        """Number of blocks."""
        return -(-self.n // self.block_rows)

    @cached_property
    def shapes(self) -> Shapes:
        """The clusters, the same for every block."""
        random = np.random.default_rng((self.seed, SHAPES))
        k, d, q = self.k, self.dimensions, self.intrinsic
        centres = _spread_out(random, k, d)
        if k > 1:
            centres *= self.separation / _nearest_pair(centres)
        frames = np.linalg.qr(random.standard_normal((k, d, 2 * q)))[0]
        return Shapes(centres, frames[..., :q], frames[..., q:])

    def labels(self, random: np.random.Generator, rows: int) -> np.ndarray:
        """Draw the cluster of each of some rows, (rows,)."""
        edges = np.cumsum(self.shares)[:-1]
        return np.searchsorted(edges, random.random(rows), side="right").astype(np.int32)

    def block(self, b: int) -> tuple[np.ndarray, np.ndarray]:
        """The points of block `b`, (rows, d) float32, and their clusters, (rows,)."""
        random = np.random.default_rng((self.seed, ROWS, b))
        rows = min(self.block_rows, self.n - b * self.block_rows)
        d, q = self.dimensions, self.intrinsic
        y = self.labels(random, rows)
        T = random.standard_normal((rows, q), dtype=np.float32)
        X = random.standard_normal((rows, d), dtype=np.float32) * np.float32(np.sqrt(self.noise))
        a = np.sqrt((1 - self.noise) * d / (q * (1 + self.curvature**2)))
        bent = (T**2 - 1) * np.float32(self.curvature / np.sqrt(2))
        by_cluster = np.argsort(y, kind="stable")
        cuts = np.searchsorted(y[by_cluster], np.arange(self.k + 1))
        for c in map(int, np.flatnonzero(np.diff(cuts))):
            mine = by_cluster[cuts[c] : cuts[c + 1]]
            axes, bends = (a * part[c].T.astype(np.float32) for part in self.shapes[1:])
            X[mine] += self.shapes.centres[c].astype(np.float32) + T[mine] @ axes + bent[mine] @ bends
        return X.astype(np.float32, copy=False), y


def _spread_out(random: np.random.Generator, k: int, d: int) -> np.ndarray:
    """K normal points none of which is close to another, (K, d)."""
    centres = random.standard_normal((1, d))
    while len(centres) < k:
        candidates = random.standard_normal((CANDIDATES, d))
        gaps = np.linalg.norm(candidates[:, None] - centres, axis=2).min(axis=1)
        centres = np.vstack((centres, candidates[np.argmax(gaps)]))
    return centres


def _nearest_pair(centres: np.ndarray) -> float:
    """The distance of the two nearest centres."""
    return min(float(np.linalg.norm(centres[i + 1 :] - centres[i], axis=1).min()) for i in range(len(centres) - 1))
