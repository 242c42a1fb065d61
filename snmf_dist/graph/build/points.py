"""open_points(): a row-blocked view of the user's data, whatever holds it.

A `Points` is read by row ranges inside tasks, so it is small to send: a path, or an array of this process.
What cannot be read by row ranges is written to files first: see `snmf_dist.graph.build.spooling`.
"""

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import zarr
from scipy import sparse

from snmf_dist import storage
from snmf_dist.engine import machine
from snmf_dist.errors import DoesNotFit, InputError, SnmfError, StoreNotFound
from snmf_dist.graph.build.pointfiles import (
    BINARY,
    Hdf5Points,
    find_matrix,
    matrix_of_object,
    open_binary,
)
from snmf_dist.graph.build.tablefiles import TABLES, TableFile
from snmf_dist.graph.ingest.sparsegroups import is_annotated
from snmf_dist.hdf5 import is_hdf5
from snmf_dist.untrusted import ROW_BYTES, check_archive, load_sparse, native, refuse_code, safe_sparse

POINT_FILES = ".npy, .npz, .parquet, .arrow, .h5ad, .h5, .fbin or .u8bin"
NO_PATH = "points in memory"  # the source of points that have no path
PointRows = Any  # numpy.ndarray or scipy.sparse.csr_matrix, (rows, d)
ROUNDING = 1e-5  # difference of A_ij and A_ji, relative to the largest entry, that counts as rounding


class Points(Protocol):
    """n points of d numbers, read by row ranges."""

    @property
    def shape(self) -> tuple[int, int]:
        """(n, d)."""

    @property
    def dtype(self) -> np.dtype:
        """Type of the numbers as they are stored."""

    @property
    def is_sparse(self) -> bool:
        """Whether `read` gives CSR matrices."""

    def read(self, start: int, stop: int) -> PointRows:
        """Rows `start` to `stop`, as they are stored."""


@dataclass(frozen=True)
class ArrayPoints:
    """An array or CSR matrix of this process."""

    array: Any

    @property
    def shape(self) -> tuple[int, int]:
        """(n, d)."""
        return self.array.shape

    @property
    def dtype(self) -> np.dtype:
        """Type of the numbers."""
        return self.array.dtype

    @property
    def is_sparse(self) -> bool:
        """Whether it is a CSR matrix."""
        return sparse.issparse(self.array)

    def read(self, start: int, stop: int) -> PointRows:
        """Rows `start` to `stop`."""
        return native(self.array[start:stop])


@dataclass(frozen=True)
class LoadedPoints(ArrayPoints):
    """What was read from a file as a whole."""

    path: str
    how: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class FilePoints:
    """A 2-D ``.npy`` file, or a folder with the ``.npy`` files of a CSR matrix; mapped, not loaded."""

    path: str
    shape: tuple[int, int]
    dtype: np.dtype
    is_sparse: bool = False

    def read(self, start: int, stop: int) -> PointRows:
        """Rows `start` to `stop`."""
        if not self.is_sparse:
            return native(np.load(self.path, mmap_mode="r", allow_pickle=False)[start:stop])
        data, indices, indptr = (
            np.load(os.path.join(self.path, f"{name}.npy"), mmap_mode="r", allow_pickle=False)
            for name in CSR_FILES
        )
        cut = slice(int(indptr[start]), int(indptr[stop]))
        parts = (np.asarray(data[cut]), np.asarray(indices[cut]), indptr[start : stop + 1] - cut.start)
        return sparse.csr_matrix(parts, shape=(stop - start, self.shape[1]))


CSR_FILES = ("data", "indices", "indptr")


@dataclass(frozen=True)
class ZarrPoints:
    """A 2-D Zarr array at a path or URL."""

    path: str
    options: storage.Options
    shape: tuple[int, int]
    dtype: np.dtype
    is_sparse: bool = False
    key: str | None = None

    @property
    def how(self) -> dict[str, Any]:
        """What `open_points` must be told to open them again."""
        return {} if self.key is None else {"key": self.key}

    def read(self, start: int, stop: int) -> PointRows:
        """Rows `start` to `stop`."""
        inner = self.path if self.key is None else f"{self.path.rstrip('/')}/{self.key}"
        try:
            return native(np.asarray(_zarr_array(inner, self.options)[start:stop]))
        except (RuntimeError, ValueError) as error:  # what codecs raise
            if isinstance(error, SnmfError):
                raise
            raise InputError(
                f"{inner}: rows {start}:{stop} cannot be read ({type(error).__name__}: {error}); write the points "
                "again, or restore them from a copy"
            ) from error


def open_points(
    source: Any,
    *,
    columns: Sequence[str] | None = None,
    key: str | None = None,
    options: storage.Options = None,
    least: int = 2,
) -> Any:
    """Check `source`, and return it in a form that `spool` can make `Points` of.

    Returns a `Points`, a Dask array, or a `TableFile`; shapes and kinds are checked, no row is read. What has a
    `path` may have `how`: the keyword arguments that open it again.
    """
    if isinstance(source, str | os.PathLike):
        path = storage.normal_path(source)
        try:
            source = _open_path(path, columns, key, options)
            _check_shape(source, least)
        except SnmfError:
            raise
        except Exception as error:  # NumPy, pyarrow and zip files each raise their own
            move = f"; {storage.next_move(error)}" if isinstance(error, ImportError) else ""
            raise InputError(
                f"{path}: cannot be read as points ({type(error).__name__}: {error}){move}"
            ) from error
    elif is_annotated(source):
        name, found = matrix_of_object(source, key)
        array = _canonical(found) if sparse.issparse(found) else np.asarray(found)
        source = LoadedPoints(array, NO_PATH, {"key": name})
    elif sparse.issparse(source):
        source = ArrayPoints(_canonical(source))
    elif isinstance(source, np.ma.MaskedArray):
        raise InputError("points is a masked array; fill or drop its masked entries first")
    elif isinstance(source, np.ndarray):
        source = ArrayPoints(source)
    elif not (hasattr(source, "dask") and hasattr(source, "chunks")):
        raise InputError(
            f"points is a {type(source).__name__}; expected a NumPy, Dask or SciPy CSR array, an AnnData, or "
            f"a path to a Zarr array or AnnData, {POINT_FILES}"
        )
    _check_shape(source, least)
    return source


def is_points(path: str, options: storage.Options = None) -> bool:
    """Tell whether points are at `path`, and not a store of ours or nothing."""
    if path.endswith((".npy", ".npz", *TABLES, *BINARY)) or is_hdf5(path):
        return storage.exists(path, options)
    try:
        _zarr_array(path, options)
    except InputError:
        return _is_annotated(path, options)
    return True


def _is_annotated(path: str, options: storage.Options) -> bool:
    """Tell whether a Zarr group at `path` has ``obsm``, as AnnData has."""
    try:
        return "obsm" in storage.open_group(path, options)
    except SnmfError:
        return False


def is_similarity_matrix(path: str) -> bool:
    """Tell whether a local ``.npz`` file holds a sparse matrix that is square, symmetric and nonnegative."""
    if storage.is_url(path) or not path.endswith(".npz"):
        return False
    try:
        check_archive(path)
        with np.load(path, allow_pickle=False) as file:
            if "format" not in file.files or len(set(file["shape"].tolist())) != 1:
                return False
        A = _canonical(load_sparse(path))
    except DoesNotFit:
        raise
    except Exception:
        return False  # `open_points` says what is wrong with the file
    if A.nnz == 0 or A.dtype.kind not in "biuf" or not np.all(A.data >= 0):
        return False
    A = A.astype(np.float64)
    difference = abs(A - A.T)
    return bool(difference.max() <= ROUNDING * A.max())


def _open_path(path: str, columns: Sequence[str] | None, key: str | None, options: storage.Options) -> Any:
    if not storage.is_url(path) and not os.path.exists(path):
        raise StoreNotFound(f"{path}: no such file or directory; check the path")
    if storage.is_url(path) and path.endswith((".npy", ".npz")):
        raise InputError(f"{path}: .npy and .npz are read from local paths only; copy it, or write it as Zarr")
    if path.endswith(".npy"):
        array = np.load(path, mmap_mode="r", allow_pickle=False)
        return FilePoints(path, array.shape, array.dtype)
    if path.endswith(".npz"):
        return LoadedPoints(_load_npz(path), path)
    if path.endswith(TABLES):
        return TableFile(path, tuple(columns) if columns else None, options)
    if path.endswith(BINARY):
        return open_binary(path)
    if is_hdf5(path) or _is_annotated(path, options):
        found = find_matrix(path, key, options)
        if found.sparse is not None:
            return LoadedPoints(_canonical(found.sparse), path, {"key": found.name})
        if is_hdf5(path):
            return Hdf5Points(path, found.name, found.shape, found.dtype)
        return ZarrPoints(path, options, found.shape, found.dtype, key=found.name)
    array = _zarr_array(path, options)
    return ZarrPoints(path, options, array.shape, array.dtype)


def _zarr_array(path: str, options: storage.Options) -> Any:
    try:
        array = zarr.open_array(path, mode="r", storage_options=storage.plain(options))
    except Exception as error:  # FileNotFoundError, ValueError, and whatever a torn zarr.json makes zarr raise
        raise InputError(
            f"{path}: not a Zarr array ({type(error).__name__}); expected a 2-D Zarr array, {POINT_FILES}; "
            "edges are read by import_graph (snmf-dist import)"
        ) from None
    return refuse_code(array, path)


def _load_npz(path: str) -> Any:
    check_archive(path)
    with np.load(path, allow_pickle=False) as file:
        if "format" not in file.files:
            if "X" not in file.files:
                raise InputError(
                    f"{path}: holds {file.files}; expected a SciPy sparse matrix, or an array named X; edges are "
                    "read by import_graph"
                )
            return file["X"]
    return _canonical(load_sparse(path))


def _canonical(matrix: Any) -> sparse.csr_matrix:
    """CSR with each entry once: pynndescent believes what it is given."""
    X = sparse.csr_matrix(native(safe_sparse(matrix, "points")))
    if not X.has_canonical_format:
        X = X.copy()
        X.sum_duplicates()
    return X


def _check_shape(points: Any, least: int) -> None:
    where = getattr(points, "path", "points")
    if len(points.shape) != 2:
        raise InputError(f"{where}: has shape {points.shape}; expected (n, d), a row for each point")
    n, d = points.shape
    if math.isnan(n) or math.isnan(d):
        raise InputError("points is a Dask array of unknown shape; call compute_chunk_sizes() on it first")
    if points.dtype.kind not in "biuf":
        raise InputError(f"{where}: has dtype {points.dtype}; expected real numbers")
    size = ROW_BYTES * (n if getattr(points, "is_sparse", False) else max(n, d))
    if size > machine.memory():
        raise DoesNotFit(
            f"{where}: has shape ({n}, {d}), of which a few numbers for each row and each column alone take "
            f"{size / 1e9:.0f} GB, more than this machine has; build the graph on a larger one"
        )
    if n < least or d < 1:
        raise InputError(f"{where}: has {n} points of {d} numbers; expected at least {least} of 1 number")
