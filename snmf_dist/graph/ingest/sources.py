"""Where an imported graph comes from: every kind of source becomes batches of edges.

A `Source` is read in batches of bounded size. SciPy matrices, ``.npz`` and Matrix Market are in memory and
only sliced; edge lists, AnnData and graph stores never are in memory as a whole.
"""

import os
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import zarr
from scipy import sparse

from snmf_dist import storage
from snmf_dist.errors import InputError, NotOurStore, SnmfError, StoreNotFound
from snmf_dist.graph.ingest.edgefiles import Edges, is_edge_file, read_edges
from snmf_dist.graph.store import KIND, GraphStore, open_graph

BATCH = 1 << 18  # edges in a batch: 6 MB, a few times over while it is filed


@dataclass(frozen=True)
class Source:
    """A square matrix as batches of edges.

    Attributes
    ----------
    n, n_edges : int
        Its rows, and how many edges `batches` yields.
    batches : callable
        Yields `Edges`; may be called again.
    made : dict
        Where it came from, for people.
    store : GraphStore or None
        Set if the source is a graph store: its order, degrees and normalisation are kept.
    """

    n: int
    n_edges: int
    batches: Callable[[], Iterator[Edges]]
    made: dict[str, Any] = field(default_factory=dict)
    store: GraphStore | None = None


def open_source(
    source: Any,
    *,
    key: str | None = None,
    columns: Sequence[str] | None = None,
    n: int | None = None,
    first_id: int = 0,
    options: storage.Options = None,
) -> Source:
    """Look at `source` and return it as batches of edges; see `import_graph` for what it may be."""
    if isinstance(source, GraphStore):
        return _from_store(source)
    if sparse.issparse(source) or isinstance(source, np.ndarray):
        return _from_matrix(source, f"a {type(source).__name__} in memory")
    if not isinstance(source, str | os.PathLike):
        raise InputError(
            f"source is a {type(source).__name__}; expected a SciPy sparse matrix, a NumPy array, "
            "a graph store or a path"
        )
    path = storage.normal_path(source)
    if not storage.is_url(path) and not os.path.exists(path):
        raise StoreNotFound(f"{path}: no such file or directory; check the path")
    if path.lower().endswith(".npz"):
        return _from_npz(path)
    if path.lower().endswith((".mtx", ".mtx.gz", ".mtx.bz2")):
        return _from_matrix_market(path)
    if is_edge_file(path):
        return _from_edge_file(path, columns, n, first_id, options)
    if not storage.is_url(path) and not os.path.isdir(path):
        raise InputError(
            f"{path}: unknown kind of file; expected .npz, .mtx, .csv, .tsv, .txt, .edges, .parquet, "
            "a graph store or an AnnData Zarr store"
        )
    group = storage.open_group(path, options)
    if storage.kind_of(group) == KIND:
        return _from_store(open_graph(path, storage_options=options))
    if "obsp" in group:
        return _from_anndata(group, path, key)
    raise NotOurStore(f"{path}: neither a graph store nor an AnnData store with obsp")


def _from_matrix(matrix: Any, origin: str) -> Source:
    if len(matrix.shape) != 2 or matrix.shape[0] != matrix.shape[1]:
        shape = " × ".join(map(str, matrix.shape))
        raise InputError(f"{origin}: A is {shape}; expected a square matrix of similarities")
    if matrix.dtype.kind not in "biuf":
        raise InputError(f"{origin}: A has dtype {matrix.dtype}; expected real numbers")
    if isinstance(matrix, np.ma.MaskedArray):
        raise InputError(f"{origin}: is a masked array; fill or drop its masked entries first")
    if matrix.dtype.kind != "f" or matrix.dtype.itemsize < 4:
        matrix = matrix.astype(np.float64)  # small types would wrap when repeated entries add up
    A = sparse.csr_array(matrix)

    def batches() -> Iterator[Edges]:
        for rows in _row_ranges(A.indptr):
            entries = slice(A.indptr[rows.start], A.indptr[rows.stop])
            yield _expand(A.indptr, rows, A.indices[entries], A.data[entries])

    return Source(A.shape[0], A.nnz, batches, {"source": origin})


def _from_npz(path: str) -> Source:
    """A matrix saved by scipy.sparse.save_npz, or arrays src, dst (and weight, n) of edges."""
    try:
        with np.load(path, allow_pickle=False) as file:
            names = set(file.files)
            arrays = {name: file[name] for name in ("src", "dst", "weight", "n") if name in names}
        if "format" in names:
            return _from_matrix(sparse.load_npz(path), os.path.basename(path))
    except (ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
        if isinstance(error, SnmfError):
            raise
        raise InputError(f"{path}: cannot be read as a .npz of plain arrays ({error})") from error
    if not {"src", "dst"} <= names:
        raise InputError(f"{path}: holds {sorted(names)}; expected scipy.sparse.save_npz's arrays, or src and dst")
    src, dst = arrays["src"], arrays["dst"]
    weight = arrays.get("weight", np.ones(len(src)))
    if src.dtype.kind not in "iu" or dst.dtype.kind not in "iu" or not len(src) == len(dst) == len(weight):
        raise InputError(f"{path}: expected src and dst as whole numbers, as many as weights")
    n = int(arrays.get("n", max(src.max(initial=-1), dst.max(initial=-1)) + 1))
    edges = Edges(src.astype(np.int64), dst.astype(np.int64), weight.astype(np.float64))
    return Source(n, len(src), lambda: iter([edges]), {"source": os.path.basename(path)})


def _from_matrix_market(path: str) -> Source:
    from scipy.io import mmread

    try:
        matrix = mmread(path)
    except ValueError as error:
        raise InputError(f"{path}: cannot be read as Matrix Market ({error})") from error
    return _from_matrix(matrix, os.path.basename(path))


def _from_edge_file(
    path: str,
    columns: Sequence[str] | None,
    n: int | None,
    first_id: int,
    options: storage.Options,
) -> Source:
    plain = storage.plain(options)
    n_edges, low, high = 0, first_id, first_id - 1
    for edges in read_edges(path, columns=columns, options=plain):
        n_edges += len(edges.rows)
        low = min(low, edges.rows.min(), edges.columns.min())
        high = max(high, edges.rows.max(), edges.columns.max())
    if low < first_id:
        raise InputError(f"{path}: has node id {low}; ids start at first_id={first_id}")
    found = int(high) - first_id + 1
    if n is None and found > 1000 + 100 * n_edges:
        raise InputError(
            f"{path}: node ids reach {high} but there are only {n_edges} edges; number the nodes "
            "from 0 without gaps, or pass n= if that many nodes are meant"
        )
    if n is not None and found > n:
        raise InputError(f"{path}: has node id {high}, but n={n} was given")

    def batches() -> Iterator[Edges]:
        for edges in read_edges(path, columns=columns, options=plain):
            yield Edges(edges.rows - first_id, edges.columns - first_id, edges.weights)

    return Source(n or found, n_edges, batches, {"source": os.path.basename(path)})


def _from_anndata(group: zarr.Group, path: str, key: str | None) -> Source:
    obsp: Any = group["obsp"]
    keys = sorted(obsp.keys())
    if key is None and len(keys) == 1:
        key = keys[0]
    if key not in keys:
        asked = f"no obsp/{key}" if key else "more than one graph, or none"
        raise InputError(f"{path}: {asked}; obsp has {keys}: pass key= (--key) with one of them")
    A: Any = obsp[key]
    encoding = A.attrs.get("encoding-type")
    if encoding not in ("csr_matrix", "csc_matrix"):
        raise InputError(f"{path}: obsp/{key} is {encoding!r}; expected csr_matrix or csc_matrix")
    shape = tuple(A.attrs["shape"])
    if shape[0] != shape[1]:
        raise InputError(f"{path}: obsp/{key} is {shape[0]} × {shape[1]}; expected a square matrix")
    for name in ("data", "indices", "indptr"):
        if A[name].nchunks_initialized < A[name].nchunks:
            raise InputError(f"{path}: obsp/{key}/{name} has lost chunks, which would read as zeros; restore it")
    indptr = np.asarray(A["indptr"][:], dtype=np.int64)

    def batches() -> Iterator[Edges]:
        for rows in _row_ranges(indptr):
            entries = slice(int(indptr[rows.start]), int(indptr[rows.stop]))
            edges = _expand(indptr, rows, A["indices"][entries], A["data"][entries])
            by_row = encoding == "csr_matrix"
            yield edges if by_row else Edges(edges.columns, edges.rows, edges.weights)

    origin = f"{os.path.basename(path.rstrip('/'))} obsp/{key}"
    return Source(shape[0], int(indptr[-1]), batches, {"source": origin})


def _from_store(store: GraphStore) -> Source:
    def batches() -> Iterator[Edges]:
        for i in range(store.n_blocks):
            A = store.read_block(i)
            rows = np.repeat(np.arange(store.bounds[i], store.bounds[i + 1]), np.diff(A.indptr))
            yield Edges(rows, A.indices.astype(np.int64), A.data.astype(np.float64))

    return Source(store.n, store.nnz, batches, dict(store.block["made"]), store)


def _row_ranges(indptr: np.ndarray) -> Iterator[slice]:
    """Cut the rows into ranges of about `BATCH` entries, a row at least."""
    start, n = 0, len(indptr) - 1
    while start < n:
        stop = int(np.searchsorted(indptr, indptr[start] + BATCH, side="right")) - 1
        stop = min(max(stop, start + 1), n)
        yield slice(start, stop)
        start = stop


def _expand(indptr: np.ndarray, rows: slice, indices: Any, data: Any) -> Edges:
    counts = np.diff(indptr[rows.start : rows.stop + 1])
    numbers = np.repeat(np.arange(rows.start, rows.stop), counts)
    return Edges(numbers, np.asarray(indices, dtype=np.int64), np.asarray(data, dtype=np.float64))
