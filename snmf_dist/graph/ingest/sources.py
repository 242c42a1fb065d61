"""Where an imported graph comes from: every kind of source becomes batches of edges.

A `Source` is read in batches of bounded size. SciPy matrices, ``.npz`` and Matrix Market are in memory and
only sliced; edge lists, AnnData and graph stores never are in memory as a whole.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import zarr
from scipy import sparse

from snmf_dist import storage
from snmf_dist.engine import machine
from snmf_dist.errors import DoesNotFit, InputError, NotOurStore, SnmfError, StoreNotFound
from snmf_dist.graph.ingest.edgefiles import Edges, is_edge_file, read_edges
from snmf_dist.graph.store import KIND, GraphStore, open_graph
from snmf_dist.untrusted import check_archive, check_nodes, load_sparse, native, refuse_code, safe_sparse

MARKET_BYTES = 32  # of memory that an entry of a Matrix Market file takes while it is read
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
    if sparse.issparse(matrix):
        check_nodes(matrix.shape[0], matrix.nnz, origin, given=True)
        matrix = safe_sparse(matrix, origin)
    if matrix.dtype.kind != "f" or matrix.dtype.itemsize not in (4, 8):
        matrix = matrix.astype(np.float64)  # small types would wrap when repeated entries add up
    A = sparse.csr_array(native(matrix))

    def batches() -> Iterator[Edges]:
        for rows in _row_ranges(A.indptr):
            entries = slice(A.indptr[rows.start], A.indptr[rows.stop])
            yield _expand(A.indptr, rows, A.indices[entries], A.data[entries])

    return Source(A.shape[0], A.nnz, batches, {"source": origin})


def _from_npz(path: str) -> Source:
    """A matrix saved by scipy.sparse.save_npz, or arrays src, dst (and weight, n) of edges."""
    try:
        check_archive(path)
        with np.load(path, allow_pickle=False) as file:
            names = set(file.files)
            if "format" in names:
                return _from_matrix(load_sparse(path), os.path.basename(path))
            arrays = {name: file[name] for name in ("src", "dst", "weight", "n") if name in names}
    except SnmfError:
        raise
    except Exception as error:  # whatever NumPy, SciPy, zipfile and zlib raise on a damaged file
        raise InputError(f"{path}: cannot be read as a .npz of plain arrays ({error})") from error
    if not {"src", "dst"} <= names:
        raise InputError(f"{path}: holds {sorted(names)}; expected scipy.sparse.save_npz's arrays, or src and dst")
    src, dst = arrays["src"], arrays["dst"]
    weight = arrays.get("weight", np.ones(src.shape))
    if src.dtype.kind not in "iu" or dst.dtype.kind not in "iu" or weight.dtype.kind not in "biuf":
        raise InputError(f"{path}: expected src and dst as whole numbers, and weight as numbers")
    if src.ndim != 1 or not src.shape == dst.shape == weight.shape:
        raise InputError(f"{path}: expected as many src and dst as weights, in vectors")
    count = arrays.get("n", np.array(max((int(ends.max()) for ends in (src, dst) if len(ends)), default=-1) + 1))
    if count.shape != () or count.dtype.kind not in "iuO":
        raise InputError(f"{path}: n is {str(count)[:40]}; expected a whole number")
    n = int(count)
    check_nodes(n, len(src), path, given="n" in arrays)
    edges = Edges(src.astype(np.int64), dst.astype(np.int64), weight.astype(np.float64))
    return Source(n, len(src), lambda: iter([edges]), {"source": os.path.basename(path)})


def _from_matrix_market(path: str) -> Source:
    from scipy.io import mminfo, mmread

    try:
        rows, _, entries, *_ = mminfo(path)
        check_nodes(rows, entries, path, given=True)
        packed = path.lower().endswith((".gz", ".bz2"))
        if not packed and entries > os.path.getsize(path):  # an entry takes two bytes at least
            raise InputError(f"{path}: claims {entries} entries, more than it has bytes; make it again")
        if entries * MARKET_BYTES > machine.memory():
            raise DoesNotFit(
                f"{path}: its {entries} entries do not fit into memory; write them as an edge list, which is read "
                "in pieces"
            )
        matrix = mmread(path)
    except SnmfError:
        raise
    except Exception as error:  # ValueError, OverflowError, those of gzip and bz2, ...
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
    if n is not None and found > n:
        raise InputError(f"{path}: has node id {high}, but n={n} was given")
    check_nodes(n or found, n_edges, path, given=n is not None)

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
    shape: Any = A.attrs.get("shape")
    if not isinstance(shape, list) or list(map(type, shape)) != [int, int]:
        raise InputError(f"{path}: obsp/{key} has shape {shape}; expected two numbers")
    if shape[0] != shape[1]:
        raise InputError(f"{path}: obsp/{key} is {shape[0]} × {shape[1]}; expected a square matrix")
    for name in ("data", "indices", "indptr"):
        array = A.get(name)
        if array is None or array.dtype.kind not in "biuf":
            raise InputError(f"{path}: obsp/{key}/{name} is missing or does not hold numbers; restore it")
        if refuse_code(array, path).nchunks_initialized < array.nchunks:
            raise InputError(f"{path}: obsp/{key}/{name} has lost chunks, which would read as zeros; restore it")
    check_nodes(shape[0], A["indices"].size, path, given=True)
    if A["indptr"].shape != (shape[0] + 1,) or A["data"].shape != A["indices"].shape:
        raise InputError(f"{path}: the arrays of obsp/{key} do not fit each other; restore it")
    indptr = np.asarray(A["indptr"][:], dtype=np.int64)
    if indptr[0] != 0 or indptr[-1] != A["indices"].size or (np.diff(indptr) < 0).any():
        raise InputError(f"{path}: obsp/{key}/indptr does not rise from 0 to the number of entries; restore it")

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
