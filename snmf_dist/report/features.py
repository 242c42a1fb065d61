"""What the rows of each cluster have in common: features that stand out, or the mean of their images."""

import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from snmf_dist import storage
from snmf_dist.errors import InputError
from snmf_dist.graph.build.points import open_points
from snmf_dist.report.reading import table_blocks

TOP = 6


class Profile(NamedTuple):
    """What stands out in each cluster.

    Attributes
    ----------
    top : list of list of str
        Names of the features that are most above their mean in each cluster; empty for images.
    images : ndarray, shape (K, h, w), or None
        Mean image of each cluster, from 0 to 1.
    """

    top: list[list[str]]
    images: np.ndarray | None


def read_profile(
    features: Any,
    labels: np.ndarray,
    K: int,
    *,
    names: Sequence[str] | None = None,
    options: storage.Options = None,
) -> Profile:
    """One pass over the features, a block of rows at a time.

    Parameters
    ----------
    features : array, CSR matrix, data frame or path
        (n, d) numbers, or (n, h, w) images.
    labels : ndarray of int, shape (n,)
        Cluster of each row.
    K : int
        Number of clusters.
    names : sequence of str, optional
        Name of each column; those of a data frame by default, else their numbers.
    options : mapping, optional
        Passed to fsspec for URLs.
    """
    if hasattr(features, "columns") and hasattr(features, "to_numpy"):
        names = [str(name) for name in features.columns] if names is None else names
        features = features.to_numpy()
    features, shape = _as_table(features)
    table = open_points(features, options=options)
    n, d = table.shape
    if n != len(labels):
        raise InputError(f"features has {n} rows; expected {len(labels)}, one for each row of the result")
    if names is None:
        names = getattr(table, "names", None) or [f"feature {j}" for j in range(d)]
    if len(names) != d:
        raise InputError(f"there are {len(names)} feature names; expected {d}, one for each column of features")
    sums, squares = np.zeros((K + 1, d)), np.zeros(d)
    done = 0
    for block in table_blocks(table):
        block = block.astype(np.float64)
        own = labels[done : done + block.shape[0]]
        done += block.shape[0]
        member = sparse.csr_matrix(
            (np.ones(len(own)), (np.where(own < 0, K, own), np.arange(len(own)))), (K + 1, len(own))
        )
        part = member @ block
        sums += part.toarray() if sparse.issparse(part) else part
        square = block.multiply(block) if sparse.issparse(block) else block * block
        squares += np.asarray(square.sum(axis=0)).ravel()
    whole = np.isfinite(sums).all(axis=0)
    if not whole.all():
        name = names[int(np.argmin(whole))]
        raise InputError(f"features: column {name!r} holds NaN or infinity; fill such cells, or leave it out")
    sizes = np.bincount(labels[labels >= 0], minlength=K)[:, None]
    mean = np.divide(sums[:K], sizes, out=np.zeros((K, d)), where=sizes > 0)
    if shape is not None:
        high = float(mean.max()) or 1.0
        return Profile([[] for _ in range(K)], np.clip(mean / high, 0, 1).reshape(K, *shape))
    overall = sums.sum(axis=0) / n
    spread = np.sqrt(np.maximum(squares / n - overall**2, 0))
    above = np.divide(mean - overall, spread, out=np.zeros((K, d)), where=spread > 0)
    tops = np.argsort(-above, axis=1, kind="stable")[:, :TOP]
    return Profile([[str(names[j]) for j in top if above[k, j] > 0] for k, top in enumerate(tops)], None)


def _as_table(features: Any) -> tuple[Any, tuple[int, int] | None]:
    """Features with two axes, and the shape of an image if they had three."""
    if isinstance(features, str | os.PathLike) and str(features).endswith(".npy"):
        try:
            features = np.load(features, mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError) as error:
            raise InputError(f"{features}: cannot be read as features ({error})") from None
    shape: tuple[int, ...] = getattr(features, "shape", ())
    if len(shape) == 3:
        return features.reshape(len(features), -1), (int(shape[1]), int(shape[2]))
    return features, None
