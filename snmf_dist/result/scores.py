"""How labels agree with labels known from elsewhere. Rows with label −1 count as wrong."""

from typing import NamedTuple

import numpy as np
from scipy.optimize import linear_sum_assignment

from snmf_dist.errors import InputError


class Scores(NamedTuple):
    """Agreement of two labelings, each 1 at best."""

    accuracy: float
    nmi: float
    ari: float
    purity: float


def score(labels: np.ndarray, truth: np.ndarray) -> Scores:
    """Compare labels found with labels known.

    Parameters
    ----------
    labels : array of int, shape (n,)
        As in `Solution.labels`.
    truth : array, shape (n,)
        Known classes: numbers or text.

    Returns
    -------
    Scores
        ``accuracy``: share of rows whose cluster is matched with their class, under the best one-to-one
        matching (Kuhn–Munkres; the paper's AC). ``nmi``: normalised mutual information. ``ari``:
        adjusted Rand index. ``purity``: share of rows of their cluster's most frequent class.

    Examples
    --------
    >>> score(np.array([0, 0, 1, 1]), np.array(["b", "b", "a", "a"])).accuracy
    1.0
    """
    from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

    labels, truth = np.asarray(labels), np.asarray(truth)
    if labels.shape != truth.shape or labels.ndim != 1:
        raise InputError(
            f"there are {labels.shape} labels and {truth.shape} known ones; expected one for each row"
        )
    _, classes = np.unique(truth, return_inverse=True)
    table = np.zeros((labels.max(initial=0) + 1, classes.max(initial=0) + 1), dtype=np.int64)
    found = labels >= 0
    np.add.at(table, (labels[found], classes[found]), 1)
    matched = table[linear_sum_assignment(table, maximize=True)].sum()
    return Scores(
        accuracy=float(matched / len(labels)),
        nmi=float(normalized_mutual_info_score(classes, labels)),
        ari=float(adjusted_rand_score(classes, labels)),
        purity=float(table.max(axis=1).sum() / len(labels)),
    )
