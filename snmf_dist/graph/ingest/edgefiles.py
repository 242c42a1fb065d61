"""Edge lists in files: CSV, TSV and other delimited text, and Parquet; read in batches.

A file has one edge a line: source, target and, if it has a third column, weight. Columns are taken by
the names ``source``, ``target``, ``weight`` if a header has them, else by position.
"""

import errno
import os
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import fsspec
import numpy as np

from snmf_dist.errors import InputError, SnmfError

TEXT = (".csv", ".tsv", ".txt", ".edges", ".edgelist")
PARQUET = (".parquet", ".pq")
COMPRESSED = (".gz", ".bz2", ".zst", ".xz")
NAMES = ("source", "target", "weight")
BATCH_BYTES = 1 << 22  # of text parsed at a time
BATCH_ROWS = 1 << 18  # of Parquet read at a time


class Edges(NamedTuple):
    """A batch of entries of A: ``A[rows[e], columns[e]] += weights[e]``."""

    rows: np.ndarray
    columns: np.ndarray
    weights: np.ndarray


def is_edge_file(path: str) -> bool:
    """Tell by its name whether `path` is an edge list."""
    return _stem(path).endswith(TEXT + PARQUET)


def read_edges(
    path: str, *, columns: Sequence[str] | None = None, options: dict[str, Any] | None = None
) -> Iterator[Edges]:
    """Yield the edges of the file at `path` in batches, ids as they stand in the file."""
    import pyarrow as pa

    batches = _parquet if _stem(path).endswith(PARQUET) else _text
    try:
        with fsspec.open(path, "rb", compression="infer", **(options or {})) as file:
            for batch in batches(file, path, columns):
                yield _edges(batch, path)
    except (pa.ArrowInvalid, OSError, EOFError, ImportError, ValueError) as error:
        if isinstance(error, SnmfError) or getattr(error, "errno", None) == errno.ENOSPC:
            raise
        raise InputError(
            f"{path}: cannot be read as an edge list ({error}); expected a line an edge: source and "
            "target as whole numbers, then optionally a weight"
        ) from error


def _text(file: Any, path: str, columns: Sequence[str] | None) -> Iterator[Any]:
    import pyarrow as pa
    from pyarrow import csv

    form = _detect_format(file, path)
    use = _choose(form.names, columns, path)
    types = dict(zip(use, (pa.int64(), pa.int64(), pa.float64()), strict=False))
    file.seek(0)
    with csv.open_csv(
        file,
        read_options=csv.ReadOptions(block_size=BATCH_BYTES, skip_rows=form.skip, column_names=list(form.names)),
        parse_options=csv.ParseOptions(delimiter=form.delimiter),
        convert_options=csv.ConvertOptions(column_types=types, include_columns=list(use), null_values=[""]),
    ) as reader:
        yield from reader


def _parquet(file: Any, path: str, columns: Sequence[str] | None) -> Iterator[Any]:
    from pyarrow import parquet

    table = parquet.ParquetFile(file)
    use = _choose(table.schema_arrow.names, columns, path)
    for batch in table.iter_batches(batch_size=BATCH_ROWS, columns=list(use)):
        yield batch.select(list(use))


class _TextFormat(NamedTuple):
    """The columns of a text file, what separates them, and the lines to skip before the first edge."""

    names: tuple[str, ...]
    delimiter: str
    skip: int


def _detect_format(file: Any, path: str) -> _TextFormat:
    """Find the delimiter, the header and the comment lines before it from the first lines."""
    start = file.read(1 << 20).decode("utf-8-sig", errors="replace")
    lines = re.split("\r\n|\n|\r", start)  # splitlines() knows more line ends than CSV does
    if start.startswith("%%MatrixMarket"):
        raise InputError(f"{path}: is a Matrix Market file; name it .mtx")
    skip = next((i for i, line in enumerate(lines) if line.strip() and line[0] not in "#%"), None)
    if skip is None:
        raise InputError(f"{path}: holds no edges; expected a line an edge")
    first = lines[skip]
    delimiter = next((d for d in "\t,; " if d in first), None)
    if delimiter is None:
        raise InputError(
            f"{path}: line {skip + 1} is {first[:40]!r}; expected source and target, with a tab, a "
            "comma, a semicolon or a space between them"
        )
    cells = [cell.strip().strip('"') for cell in first.split(delimiter)]
    if all(_is_number(cell) for cell in cells[:2]):
        return _TextFormat(tuple(f"column {i + 1}" for i in range(len(cells))), delimiter, skip)
    return _TextFormat(tuple(cells), delimiter, skip + 1)


def _choose(names: Sequence[str], columns: Sequence[str] | None, path: str) -> tuple[str, ...]:
    """The columns with source, target and weight: by name if they have theirs, else by position."""
    found = {name.lower(): name for name in names}
    if len(found) < len(names):
        raise InputError(f"{path}: has columns {list(names)}; expected each name once")
    if columns is not None:
        if not 2 <= len(set(columns)) == len(columns) <= 3 or not all(c.lower() in found for c in columns):
            raise InputError(
                f"{path}: has columns {list(names)}, not {list(columns)}; name source, target and, if there "
                "is one, weight"
            )
        return tuple(found[name.lower()] for name in columns)
    if all(name in found for name in NAMES[:2]):
        return tuple(found[name] for name in NAMES if name in found)
    moved = any(name in found and names.index(found[name]) != i for i, name in enumerate(NAMES))
    if moved or not 2 <= len(names) <= 3:
        raise InputError(
            f"{path}: has columns {list(names)}; say with columns=(…) which are source, target and weight"
        )
    return tuple(names)


def _edges(batch: Any, path: str) -> Edges:
    import pyarrow as pa

    types = (pa.int64(), pa.int64(), pa.float64())
    arrays = []
    for name, values, kind in zip(batch.schema.names, batch.columns, types, strict=False):
        if values.null_count:
            raise InputError(f"{path}: column {name!r} has empty cells; fill or drop those lines")
        if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
            raise InputError(f"{path}: column {name!r} holds text; number the nodes first")
        arrays.append(values.cast(kind).to_numpy(zero_copy_only=False))
    if len(arrays) == 2:
        arrays.append(np.ones(len(arrays[0])))
    return Edges(*arrays)


def _stem(path: str) -> str:
    """`path` in lower case, without a suffix that only says how it is compressed."""
    stem, suffix = os.path.splitext(path.lower())
    return stem if suffix in COMPRESSED else path.lower()


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
