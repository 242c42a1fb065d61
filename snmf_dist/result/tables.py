"""Rows of a result as a table: a CSV or Parquet file, written a block at a time."""

from collections.abc import Iterator
from typing import Any, Self

import numpy as np

from snmf_dist.result.foldin import second_labels, strengths

BLOCK_MEMBERSHIPS = 1 << 21  # memberships in memory at a time
SUFFIXES = (".csv", ".parquet", ".pq")


def row_ids(solution: Any, start: int, stop: int) -> Any:
    """The user's names of rows `start` to `stop`: text, or their numbers in the input."""
    ids = getattr(solution, "ids", None)
    return np.arange(start, stop) if ids is None else ids[start:stop]


def block_rows(n: int, K: int) -> int:
    """Rows of a block of memberships."""
    return max(1, min(BLOCK_MEMBERSHIPS // K, n))


def blocks(solution: Any) -> Iterator[tuple[int, np.ndarray]]:
    """The membership in blocks of rows, each with the number of its first row."""
    n, K = solution.membership.shape
    rows = block_rows(n, K)
    for start in range(0, n, rows):
        part = solution.membership[start : start + rows]
        yield start, np.asarray(part.compute() if hasattr(part, "compute") else part)


def table_of(ids: Any, labels: np.ndarray, L: np.ndarray, **more: np.ndarray) -> Any:
    """Columns id, label, strength, second, those of `more`, and a membership for each cluster."""
    import pyarrow as pa

    columns = {"id": ids, "label": labels, "strength": strengths(L), "second": second_labels(L), **more}
    members = {f"membership_{k}": L[:, k] for k in range(L.shape[1])}
    return pa.table({name: pa.array(values) for name, values in {**columns, **members}.items()})


class TableWriter:
    """A ``.csv`` or ``.parquet`` file that takes tables with the same columns, one after the other."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._writer: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        if self._writer is not None:
            self._writer.close()

    def write(self, table: Any) -> None:
        """Append a table."""
        if self._writer is None:
            from pyarrow import csv, parquet

            kind = csv.CSVWriter if self.path.endswith(".csv") else parquet.ParquetWriter
            self._writer = kind(self.path, table.schema)
        self._writer.write_table(table)


def write_table(path: str, solution: Any) -> None:
    """Write id, label, strength, second label and memberships of all rows."""
    with TableWriter(path) as file:
        for start, L in blocks(solution):
            stop = start + len(L)
            file.write(table_of(row_ids(solution, start, stop), solution.labels[start:stop], L))
