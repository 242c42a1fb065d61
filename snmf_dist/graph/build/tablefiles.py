"""Points in tables: Parquet and Arrow files, whose columns are numbers, or lists of equally many numbers."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import fsspec
import numpy as np

from snmf_dist import storage
from snmf_dist.arrowfiles import ARROW, arrow_batches, is_text, open_arrow
from snmf_dist.errors import InputError
from snmf_dist.graph.ingest.textlines import named_ends

PARQUET_SUFFIXES = (".parquet", ".pq")
TABLES = PARQUET_SUFFIXES + ARROW
TABLE_ROWS = 1 << 16  # in a batch


@contextmanager
def open_table(path: str, options: storage.Options) -> Iterator[Any]:
    """A reader with ``schema``, ``count()`` and ``batches(names)`` of the file at `path`."""
    with fsspec.open(path, "rb", **(storage.plain(options) or {})) as file:
        yield _Arrow(file) if path.endswith(ARROW) else _Parquet(file)


class _Parquet:
    """A Parquet file."""

    def __init__(self, file: Any) -> None:
        from pyarrow import parquet

        self._table = parquet.ParquetFile(file)
        self.schema = self._table.schema_arrow

    def count(self) -> int:
        """Number of rows."""
        return int(self._table.metadata.num_rows)

    def batches(self, names: Sequence[str]) -> Iterator[Any]:
        """Some columns, a batch of rows at a time."""
        yield from self._table.iter_batches(batch_size=TABLE_ROWS, columns=list(names))


class _Arrow:
    """An Arrow file, or a stream in a file."""

    def __init__(self, file: Any) -> None:
        self._file, self._reader = file, open_arrow(file)
        self.schema = self._reader.schema

    def count(self) -> int:
        """Number of rows; reads the file."""
        return sum(batch.num_rows for batch in self.batches(()))

    def batches(self, names: Sequence[str]) -> Iterator[Any]:
        """Some columns, a batch of rows at a time."""
        self._file.seek(0)
        for batch in arrow_batches(open_arrow(self._file)):
            part = batch.select(list(names)) if names else batch
            for start in range(0, batch.num_rows, TABLE_ROWS):
                yield part.slice(start, TABLE_ROWS)


@dataclass(frozen=True)
class TableFile:
    """Columns of numbers, or of lists of numbers, of a Parquet or Arrow file; read from the front only."""

    path: str
    columns: tuple[str, ...] | None
    options: storage.Options

    @property
    def how(self) -> dict[str, Any]:
        """What `open_points` must be told to open it again."""
        return {} if self.columns is None else {"columns": list(self.columns)}

    @cached_property
    def _facts(self) -> tuple[int, dict[str, int], np.dtype]:
        """Number of rows, the width of each column that is read, and the type of all numbers."""
        with open_table(self.path, self.options) as table:
            schema = table.schema
            missing = [name for name in self.columns or () if name not in schema.names]
            if missing:
                raise InputError(f"{self.path}: has no column {missing}; it has {schema.names}")
            if self.columns is None:
                self._refuse_edges(schema)
            names = self.columns or tuple(schema.names)
            first = next(table.batches(names), None)
            widths = {name: _width(schema.field(name).type, first, name) for name in names}
            kinds = [np.dtype(_element(schema.field(name).type).to_pandas_dtype()) for name in names]
            others = [name for name, kind in zip(names, kinds, strict=True) if kind.kind not in "biuf"]
            if others:
                raise InputError(
                    f"{self.path}: columns {others} hold no numbers; name those that do: columns= of build_graph "
                    "(snmf-dist graph --columns), and one of ids: ids= (--ids)"
                )
            return table.count(), widths, np.result_type(*kinds) if kinds else np.dtype(float)

    def _refuse_edges(self, schema: Any) -> None:
        """An edge list has columns of numbers too, and would be taken for points of two numbers."""
        ends = named_ends(schema.names)
        if ends is not None and all(_may_be_ids(schema.field(name).type) for name in ends):
            raise InputError(
                f"{self.path}: columns {list(ends)} look like the ends of edges, not like points; write a graph "
                f"store with import_graph({self.path!r}, out) (snmf-dist import) and fit that; if each row is a "
                "point, name its columns: columns= of build_graph (snmf-dist graph --columns)"
            )

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, numbers in a row)."""
        rows, widths, _ = self._facts
        return rows, sum(widths.values())

    @property
    def dtype(self) -> np.dtype:
        """The dtype the columns are read as."""
        return self._facts[2]

    @property
    def names(self) -> list[str]:
        """A name for each number of a row."""
        widths = self._facts[1]
        return [name if d == 1 else f"{name} {j}" for name, d in widths.items() for j in range(d)]

    def batches(self) -> Iterator[np.ndarray]:
        """Yield the rows in batches, (rows, d)."""
        widths = self._facts[1]
        with open_table(self.path, self.options) as table:
            for batch in table.batches(tuple(widths)):
                yield np.column_stack([self._numbers(batch.column(name), name) for name in widths])

    def _numbers(self, values: Any, name: str) -> np.ndarray:
        """A column as an array of its width."""
        width = self._facts[1][name]
        if not _is_list(values.type):
            if values.null_count:
                raise InputError(f"{self.path}: columns {[name]} have empty cells; fill or drop those rows")
            return np.asarray(values.to_numpy(zero_copy_only=False)).reshape(-1, 1)
        inner = values.flatten()
        lengths = np.asarray(values.value_lengths().fill_null(-1))
        if (lengths != width).any() or inner.null_count:
            row = int(np.argmax(lengths != width))
            raise InputError(
                f"{self.path}: column {name!r} has lists of other lengths than {width}, or empty places (row "
                f"{row} of a batch); expected {width} numbers in each row"
            )
        return np.asarray(inner.to_numpy(zero_copy_only=False)).reshape(-1, width)


def _may_be_ids(kind: Any) -> bool:
    """Whether a column may hold ids of nodes: whole numbers or text."""
    import pyarrow as pa

    return bool(pa.types.is_integer(kind)) or is_text(kind)


def _is_list(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _element(kind: Any) -> Any:
    return kind.value_type if _is_list(kind) else kind


def _width(kind: Any, first: Any, name: str) -> int:
    """Numbers that a column has in a row; lists of any length are as long as the first one."""
    import pyarrow as pa

    if pa.types.is_fixed_size_list(kind):
        return int(kind.list_size)
    if not _is_list(kind):
        return 1
    value = first.column(name)[0] if first is not None and first.num_rows else None
    return len(value) if value is not None and value.is_valid else 0
