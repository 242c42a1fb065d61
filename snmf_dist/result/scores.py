"""How labels agree with labels known from elsewhere. Rows with label −1 count as wrong."""

from typing import NamedTuple

import numpy as np

from snmf_dist.errors import InputError, SnmfError, StoreNotFound
from snmf_dist.ids import Ids, make_ids
from snmf_dist.untrusted import check_archive

LABEL_TABLES = (".csv", ".tsv", ".parquet")


def read_labels(path: str, *, n: int, ids: Ids | None = None) -> np.ndarray:
    """Read `n` known labels: ``.npy``, ``.npz`` with an array ``y``, or text with a label a line.

    Or ``.csv``, ``.tsv`` or ``.parquet`` with columns ``id`` and ``label``, in any order; `ids` are those of the
    rows, or None if they are the row numbers.
    """
    try:
        if _names_ids(path) or (ids is not None and path.endswith(LABEL_TABLES)):
            labels = _labels_by_id(path, make_ids(np.arange(n)) if ids is None else ids)
        elif path.endswith(".npz"):
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


def _names_ids(path: str) -> bool:
    """Tell whether a file is a table whose header has ``id`` and ``label``."""
    if not path.endswith(LABEL_TABLES[:2]):
        return path.endswith(LABEL_TABLES)
    with open(path, encoding="utf-8-sig") as file:
        names = file.readline().replace('"', "").replace("\t", ",").strip().split(",")
    return {"id", "label"} <= set(names)


def _labels_by_id(path: str, ids: Ids) -> np.ndarray:
    """The column ``label`` of a table, in the order of the rows that its column ``id`` names."""
    from pyarrow import csv, parquet, string

    if path.endswith(".parquet"):
        table = parquet.read_table(path)
    else:
        options = csv.ParseOptions(delimiter="\t" if path.endswith(".tsv") else ",")
        kinds = csv.ConvertOptions(column_types={"id": string()} if ids.kind == "text" else None)
        with open(path, "rb") as file:
            table = csv.read_csv(file, parse_options=options, convert_options=kinds)
    if not {"id", "label"} <= set(table.column_names):
        raise InputError(f"{path}: has columns {table.column_names}; expected id and label")
    rows = ids.find(table.column("id").combine_chunks())
    missing = np.setdiff1d(np.arange(len(ids)), rows)
    if len(missing):
        raise InputError(f"{path}: has no label for {ids[int(missing[0])]!r} ({len(missing)} such ids); add them")
    known = rows >= 0
    if np.count_nonzero(known) > len(ids):
        raise InputError(f"{path}: has an id more than once; expected one label for each")
    labels = table.column("label").to_numpy()[known]
    return np.asarray(labels[np.argsort(rows[known])])


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
        Labels found, as in `Solution.labels`.
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
