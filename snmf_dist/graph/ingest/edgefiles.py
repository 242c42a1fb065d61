"""Edge lists in files: CSV, TSV and other delimited text, Parquet, and Arrow; read in batches.

A file has one edge a line: source, target and, if it has a third column, weight. Columns are taken by
the names ``source``, ``target``, ``weight`` if a header has them, else by position.
"""

import errno
import os
from collections.abc import Iterator, Sequence
from typing import Any

import fsspec
import numpy as np

from snmf_dist.arrowfiles import ARROW, ZstdFile, arrow_batches, is_text, open_arrow, to_large_text
from snmf_dist.errors import InputError, SnmfError
from snmf_dist.graph.ingest.edges import Edges
from snmf_dist.graph.ingest.textlines import SAMPLE_BYTES, CleanLines, choose_columns, detect_format

TEXT = (".csv", ".tsv", ".txt", ".edges", ".edgelist")
PARQUET = (".parquet", ".pq")
NOT_KONECT = (".zarr", ".h5ad", ".h5", ".hdf5", ".npy", ".npz", ".mtx", ".graph", ".metis", ".graphml", "")
ZSTD = ".zst"
COMPRESSED = (".gz", ".bz2", ZSTD, ".xz")
BATCH_BYTES = 1 << 23  # of text parsed at a time
BATCH_ROWS = 1 << 18  # of Parquet read at a time


def is_edge_file(path: str) -> bool:
    """Tell by its name whether `path` is an edge list; KONECT's have names such as ``out.moreno``."""
    if _stem(path).endswith(TEXT + PARQUET + ARROW):
        return True
    name, suffix = os.path.splitext(os.path.basename(path.rstrip("/")).lower())
    return name == "out" and suffix not in NOT_KONECT


def family(path: str) -> str:
    """The kind of an edge list by its name."""
    stem = _stem(path)
    return "Parquet" if stem.endswith(PARQUET) else "Arrow" if stem.endswith(ARROW) else "text"


def has_text_ids(
    path: str, *, columns: Sequence[str] | None = None, options: dict[str, Any] | None = None
) -> bool:
    """Tell whether the ids of an edge list are text, by its schema or by its first lines."""
    with _opened(path, options, text=False) as file:
        kind = family(path)
        if kind == "text":
            return detect_format(file.read(SAMPLE_BYTES), path, columns).text
        schema = open_arrow(file).schema if kind == "Arrow" else _open_parquet(file).schema_arrow
        return any(is_text(schema.field(name).type) for name in choose_columns(schema.names, columns, path)[:2])


def read_edges(
    path: str,
    *,
    columns: Sequence[str] | None = None,
    options: dict[str, Any] | None = None,
    text: bool = False,
) -> Iterator[Edges]:
    """Yield the edges of the file at `path` in batches, ids as they stand in the file.

    Parameters
    ----------
    text : bool, default False
        Read ids as text, into pyarrow arrays; else as whole numbers, into NumPy arrays.
    """
    batches = {"Parquet": _parquet, "Arrow": _arrow, "text": _text}[family(path)]
    with _opened(path, options, text=text) as file:
        for batch in batches(file, path, columns, text):
            yield _edges(batch, path, text=text)


class _opened:
    """Opens a file, and turns whatever is raised while it is read into an error that names it."""

    def __init__(self, path: str, options: dict[str, Any] | None, *, text: bool) -> None:
        self.path, self.text = path, text
        self._zstd = path.lower().endswith(ZSTD)
        self._open = fsspec.open(path, "rb", compression=None if self._zstd else "infer", **(options or {}))

    def __enter__(self) -> Any:
        try:
            file = self._open.__enter__()
            return ZstdFile(file) if self._zstd else file
        except (OSError, ImportError, ValueError) as error:
            self._explain(error)

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self._open.__exit__(kind, error, trace)
        if error is not None:
            self._explain(error)

    def _explain(self, error: BaseException) -> None:
        if not isinstance(error, OSError | EOFError | ImportError | ValueError):  # pyarrow's are ValueErrors
            raise error
        if isinstance(error, SnmfError) or getattr(error, "errno", None) == errno.ENOSPC:
            raise error
        raise InputError(
            f"{self.path}: cannot be read as an edge list ({error}); {_wanted(text=self.text)}"
        ) from error


def _text(file: Any, path: str, columns: Sequence[str] | None, text: bool) -> Iterator[Any]:
    import pyarrow as pa
    from pyarrow import csv

    form = detect_format(file.read(SAMPLE_BYTES), path, columns)
    use = choose_columns(form.names, columns, path)
    kind = pa.string() if text else pa.int64()
    types = dict(zip(use, (kind, kind, pa.float64()), strict=False))
    file.seek(0)
    source = CleanLines(file, form) if form.comments or form.spaced or form.padded else file
    with csv.open_csv(
        source,
        read_options=csv.ReadOptions(block_size=BATCH_BYTES, skip_rows=form.skip, column_names=list(form.names)),
        parse_options=csv.ParseOptions(delimiter=form.delimiter),
        convert_options=csv.ConvertOptions(
            column_types=types, include_columns=list(use), null_values=[""], strings_can_be_null=True
        ),
    ) as reader:
        yield from reader


def _parquet(file: Any, path: str, columns: Sequence[str] | None, text: bool) -> Iterator[Any]:
    table = _open_parquet(file)
    use = choose_columns(table.schema_arrow.names, columns, path)
    for batch in table.iter_batches(batch_size=BATCH_ROWS, columns=list(use)):
        yield batch.select(list(use))


def _arrow(file: Any, path: str, columns: Sequence[str] | None, text: bool) -> Iterator[Any]:
    reader = open_arrow(file)
    use = list(choose_columns(reader.schema.names, columns, path))
    for batch in arrow_batches(reader):
        yield from _pieces(batch.select(use))


def _open_parquet(file: Any) -> Any:
    from pyarrow import parquet

    return parquet.ParquetFile(file)


def _pieces(batch: Any) -> Iterator[Any]:
    for start in range(0, batch.num_rows, BATCH_ROWS):
        yield batch.slice(start, BATCH_ROWS)


class EdgeTable:
    """A pyarrow table of this process whose columns are source, target and perhaps weight."""

    def __init__(self, table: Any, origin: str) -> None:
        self.table, self.origin = table, origin

    def read(self, *, text: bool) -> Iterator[Edges]:
        """The edges in batches."""
        try:
            for batch in self.table.to_batches(max_chunksize=BATCH_ROWS):
                yield _edges(batch, self.origin, text=text)
        except SnmfError:
            raise
        except ValueError as error:  # pyarrow's are ValueErrors
            raise InputError(f"{self.origin}: cannot be read as edges ({error}); {_wanted(text=text)}") from error


def _edges(batch: Any, path: str, *, text: bool) -> Edges:
    import pyarrow as pa

    kind = pa.large_string() if text else pa.int64()
    arrays = []
    for name, values, wanted in zip(batch.schema.names, batch.columns, (kind, kind, pa.float64()), strict=False):
        if values.null_count:
            raise InputError(f"{path}: column {name!r} has empty cells; fill or drop those lines")
        if is_text(values.type) and not pa.types.is_large_string(wanted):
            raise InputError(
                f"{path}: column {name!r} holds text; expected numbers (ids='text' takes ids as text)"
            )
        values = to_large_text(values) if pa.types.is_large_string(wanted) else values.cast(wanted)
        arrays.append(values if pa.types.is_large_string(wanted) else values.to_numpy(zero_copy_only=False))
    if len(arrays) == 2:
        arrays.append(np.ones(len(arrays[0])))
    return Edges(*arrays)


def _wanted(*, text: bool) -> str:
    kind = "text" if text else "whole numbers (or pass ids='text')"
    return f"expected a line an edge: source and target as {kind}, then optionally a weight"


def _stem(path: str) -> str:
    """`path` in lower case, without a suffix that only says how it is compressed."""
    stem, suffix = os.path.splitext(path.lower())
    return stem if suffix in COMPRESSED else path.lower()
