"""The user's ids of points: given as a sequence, a column of the table of the points, or AnnData's own names."""

import os
from collections.abc import Sequence
from typing import Any

from snmf_dist import storage
from snmf_dist.annotated_files import child, named, obs_ids, open_annotated
from snmf_dist.errors import InputError, SnmfError
from snmf_dist.graph.build.tablefiles import TABLES, open_table
from snmf_dist.graph.ingest.sparsegroups import is_annotated
from snmf_dist.ids import Ids, make_ids

OTHERS = (".npy", ".npz", *TABLES)  # suffixes of what is no AnnData


def open_row_ids(
    points: Any, ids: Any, columns: Sequence[str] | None, options: storage.Options
) -> tuple[Ids | None, Sequence[str] | None]:
    """The ids of points, and the columns of a table that are left as numbers.

    Parameters
    ----------
    points, columns
        As in `build_graph`.
    ids : None, str, or sequence of str or int
        The name of a column of a Parquet or Arrow file, or one id for each row.
    """
    path = storage.normal_path(points) if isinstance(points, str | os.PathLike) else ""
    if ids is None and is_annotated(points):
        return named(points.obs_names, "AnnData obs"), columns
    if ids is None:
        return _names_of_cells(path, options), columns
    if not isinstance(ids, str):
        return make_ids(ids), columns
    if not path.endswith(TABLES):
        raise InputError(
            f"ids is {ids!r}, the name of a column, but the points are not in a Parquet or Arrow file; pass "
            "the ids"
        )
    if not storage.exists(path, options):
        return None, columns  # `open_points` says so
    try:
        with open_table(path, options) as table:
            names = table.schema.names
            if ids not in names:
                raise InputError(f"{path}: has no column {ids!r} for ids; it has {names}")
            found = make_ids(_column(table, ids), origin=f"{path}: column {ids!r}")
    except SnmfError:
        raise
    except (OSError, ValueError) as error:  # pyarrow's are ValueErrors
        raise InputError(f"{path}: cannot be read as a table ({error})") from error
    return found, columns or [name for name in names if name != ids]


def _column(table: Any, name: str) -> Any:
    import pyarrow as pa

    parts = [batch.column(name) for batch in table.batches([name])]
    return pa.chunked_array(parts, type=table.schema.field(name).type)


def _names_of_cells(path: str, options: storage.Options) -> Ids | None:
    """The names of the observations of AnnData at `path`, if it is that."""
    if not path or path.endswith(OTHERS) or not storage.exists(path, options):
        return None
    try:
        with open_annotated(path, options) as group:
            return obs_ids(group, path) if child(group, "obsm", path) is not None else None
    except SnmfError:  # `open_points` says what is wrong
        return None
