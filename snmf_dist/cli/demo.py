"""The demo: points that k-means cannot separate."""

from typing import NamedTuple

import numpy as np

from snmf_dist.errors import InputError

CLUSTERS = 4
Pair = tuple[float, float]
# The paper's q = ⌊log₂ n⌋ + 1 and p = 7 give these shapes a sparser graph, on which a random start needs
# several thousand iterations.
NEIGHBORS, SCALE_NEIGHBOR = 40, 20


class Points(NamedTuple):
    """Points in the plane, (n, 2), and the cluster each was drawn from, (n,)."""

    X: np.ndarray
    y: np.ndarray


def make_points(n: int = 2000, *, seed: int = 0) -> Points:
    """Draw `n` points from a disc inside a ring and two half rings that interlock, in random order.

    Examples
    --------
    >>> points = make_points(500)
    >>> points.X.shape, np.bincount(points.y).tolist()
    ((500, 2), [60, 190, 125, 125])
    """
    if n < 10 * NEIGHBORS:
        raise InputError(f"{n} points are too few for clusters to show; expected at least {10 * NEIGHBORS}")
    random = np.random.default_rng(seed)

    def ring(size: int, radii: Pair, angles: Pair, centre: Pair) -> np.ndarray:
        inner, outer = radii
        radius = np.sqrt(random.uniform(inner**2, outer**2, size))
        angle = np.pi * random.uniform(angles[0], angles[1], size)
        return np.column_stack((radius * np.cos(angle), radius * np.sin(angle))) + centre

    sizes = np.diff(np.round(np.array([0, 0.12, 0.5, 0.75, 1]) * n).astype(int))
    shapes = [
        ring(sizes[0], (0.0, 0.8), (0, 2), (0.0, 0.0)),
        ring(sizes[1], (1.3, 2.1), (0, 2), (0.0, 0.0)),
        ring(sizes[2], (1.2, 2.0), (0, 1), (4.6, -0.4)),
        ring(sizes[3], (1.2, 2.0), (1, 2), (6.2, 0.4)),
    ]
    mixed = random.permutation(n)
    return Points(np.concatenate(shapes)[mixed], np.repeat(np.arange(CLUSTERS), sizes)[mixed])
