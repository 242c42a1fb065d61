"""How labels agree with labels known from elsewhere. Rows with label −1 count as wrong."""

from typing import NamedTuple

import numpy as np

from snmf_dist.errors import InputError, SnmfError, StoreNotFound
from snmf_dist.untrusted import check_archive


def read_labels(path: str, *, n: int) -> np.ndarray:
    """Read `n` known labels: ``.npy``, ``.npz`` with an array ``y``, or text with a label a line."""
    try:
        if path.endswith(".npz"):
            check_archive(path)
            with np.load(path, allow_pickle=False) as file:
                if "y" not in file.files:
                    raise InputError(f"{path}: holds {file.files}; expected an array named y")
                labels = file["y"]
        elif path.endswith(".npy"):
            labels = np.load(path, allow_pickle=False)
        else:
            with open(path, encoding="utf-8") as text:
                labels = np.array([line.strip() for line in text if line.strip()])
    except FileNotFoundError:
        raise StoreNotFound(f"{path}: no such file; check the path of the labels") from None
    except SnmfError:
        raise
    except Exception as error:  # whatever NumPy and zipfile raise on a damaged file
        raise InputError(f"{path}: cannot be read as labels ({error})") from error
    if labels.shape != (n,):
        raise InputError(f"{path}: has {labels.shape} labels; expected ({n},), one for each row of the graph")
    return labels


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
    from scipy.optimize import linear_sum_assignment
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
