"""Some rows in a plane of the leading eigenvectors: small enough to be kept with a result, for its map."""

import numpy as np

from snmf_dist.engine.rows import Graph, Rows
from snmf_dist.result.plane import principal_plane
from snmf_dist.result.records import Sample
from snmf_dist.solve.start import unit_rows

PLANE_ROWS = 20_000  # rows at most


def sample_plane(A: Graph, U: Rows, *, seed: int) -> Sample | None:
    """Some rows of A, the same ones whatever the blocks, in the plane in which their eigenvectors spread most.

    The second and third eigenvector alone would show little where they set a few rows apart from all others. So
    the rows of U, divided by their lengths, are projected on their two principal components.

    Parameters
    ----------
    U : rows, (n, K)
        The leading eigenvectors of A.

    Returns
    -------
    Sample or None
        None if there are fewer than two eigenvectors.
    """
    n, K = U.shape
    if K < 2:
        return None
    rows = np.arange(n)
    if n > PLANE_ROWS:
        rows = np.sort(np.random.default_rng(seed).choice(n, PLANE_ROWS, replace=False, shuffle=False))
    return Sample(rows, principal_plane(unit_rows(A.fetch(U, rows).astype(np.float64))))
