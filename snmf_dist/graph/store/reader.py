"""Reading a graph store, by row blocks; its files are described in `layout`."""

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import zarr
from scipy import sparse

from snmf_dist import storage, verified
from snmf_dist.card import card
from snmf_dist.errors import StoreCorrupt
from snmf_dist.graph.store.checks import entry_problems, manifest_problems, safe_pattern
from snmf_dist.graph.store.facts import coupling, describe, made
from snmf_dist.graph.store.layout import CSR_ENCODING, GRAPH, StageProgress, silent
from snmf_dist.ids import Ids, read_ids

GRAPH_REMEDY = "import or build the graph again with overwrite=True, or restore the store from a copy"


class GraphStore:
    """A similarity graph on disk, read by row blocks. Made by `open_graph`.

    Attributes
    ----------
    path : str
        Where the store is.
    n : int
        Number of rows of A.
    nnz : int
        Number of stored entries of A.
    bounds : ndarray of int64, shape (P+1,)
        Block ``i`` holds rows ``bounds[i]:bounds[i+1]``.
    dtype : numpy.dtype
        Type of the entries.
    components : int or None
        Number of connected components.
    tau : float
        What was added to each degree before A was normalised; 0 for none.
    """

    def __init__(self, path: str, options: storage.Options, group: zarr.Group, block: Mapping[str, Any]) -> None:
        self.path = path
        self.options = options
        self.block = block
        self._group = group
        self._chunked: dict[str, verified.ChunkedVector] = {}
        wrong = list(manifest_problems(block))
        if wrong:
            raise StoreCorrupt(f"{path}: its manifest is wrong: {'; '.join(wrong)}; {GRAPH_REMEDY}")
        self.n = int(block["n"])
        self.nnz = int(block["nnz"])
        self.dtype = np.dtype(block["dtype"])
        self.normalize: str = block["normalize"]
        self.tau = float(block.get("tau", 0.0))
        self.reordered: bool = block["reordered"]
        with self._explaining():
            self.bounds = self._vector("row_bounds", len(block["blocks"]) + 1, np.int64)
            if self.bounds[0] != 0 or self.bounds[-1] != self.n or (np.diff(self.bounds) <= 0).any():
                raise StoreCorrupt(f"{path}: row_bounds do not rise from 0 to {self.n}")

    def __repr__(self) -> str:
        return f"GraphStore({self.path!r}: n={self.n}, nnz={self.nnz}, blocks={self.n_blocks})"

    def _repr_html_(self) -> str:
        return card("Graph", partial(describe, self.block, self.bounds))

    def __reduce__(self) -> tuple[Any, ...]:
        return open_graph_again, (self.path, self.options, self.fingerprint)

    def reader(self, method: str) -> Callable[[int, int], Any]:
        """`read_rows`, `read_weights` or `read_component`, for tasks on other machines."""
        return Reader(method, self.path, self.options, self.fingerprint)

    @property
    def n_blocks(self) -> int:
        """Number of row blocks P."""
        return len(self.bounds) - 1

    @property
    def recall(self) -> float | None:
        """Measured share of the true nearest neighbours in the graph; None if it was not built from points."""
        found = self.block["made"].get("recall")
        return None if found is None else float(found)

    @property
    def components(self) -> int | None:
        """Number of connected components; None if the graph was imported by snmf-dist 0.1, which did not count."""
        found = self.block["made"].get("components")
        return None if found is None else int(found)

    @property
    def order(self) -> np.ndarray:
        """For each row of A its row number in the input, (n,) int64; read from disk at each call."""
        with self._explaining():
            order = self._vector("order", self.n, np.int64)
            seen = np.zeros(self.n, bool)
            if order.min() >= 0 and order.max() < self.n:
                seen[order] = True
            if not seen.all():
                raise StoreCorrupt(f"{self.path}: order is not a permutation of the rows")
        return order

    @property
    def degree(self) -> np.ndarray:
        """Row sums of W before normalisation, (n,) float64; read from disk at each call."""
        with self._explaining():
            return self._finite(self._vector("degree", self.n, np.float64))

    def read_degree(self, start: int, stop: int) -> np.ndarray:
        """Degrees of the rows `start` to `stop`; only the chunks that hold them are read."""
        return self._finite(self._range("degree", [np.float64], start, stop))

    @property
    def ids(self) -> Ids | None:
        """The user's own ids, in the order of the user's rows; None if they are the row numbers."""
        with self._explaining():
            return read_ids(self._group, self.block["ids"], self.path, n=self.n) if "ids" in self.block else None

    @property
    def component(self) -> np.ndarray | None:
        """Number of the connected component of each row of A, (n,); None if there is one, or none was stored."""
        return self._rows_of("component")

    @cached_property
    def component_sizes(self) -> np.ndarray | None:
        """Rows of each component, largest first; None if there is one, each row is one, or none was stored."""
        component = self.component
        sizes = None if component is None else np.bincount(component)
        return None if sizes is None or sizes[0] == 1 else sizes

    @property
    def anchor(self) -> np.ndarray | None:
        """For each row of a small component the row it would be joined to, −1 for other rows; None if unknown."""
        return self._rows_of("anchor")

    def read_component(self, start: int, stop: int) -> np.ndarray:
        """Numbers of the components of the rows `start` to `stop`, (rows, 1), if there are several."""
        return self._range("component", [np.int32, np.int64], start, stop)[:, None]

    def read_weights(self, start: int, stop: int) -> np.ndarray:
        """For the rows `start` to `stop` the factor r, with W = rAr, and the degree in W, (rows, 2) float64."""
        degree = self.read_degree(start, stop)
        root = np.sqrt(degree + self.tau) if self.normalize == "ncut" else np.ones_like(degree)
        return np.stack([root, degree], axis=1)

    @property
    def fingerprint(self) -> str:
        """A short text that changes when any entry, bound or order of the graph does."""
        parts = [self.n, str(self.dtype), self.block["checksums"], self.block["blocks"]]
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]

    def read_block(self, i: int) -> sparse.csr_matrix:
        """Read row block `i` and check it against the manifest.

        Returns
        -------
        scipy.sparse.csr_matrix
            Shape ``(bounds[i+1] - bounds[i], n)``, indices sorted.

        Raises
        ------
        StoreCorrupt
            What was read is not what was written.
        """
        if not 0 <= i < self.n_blocks:
            raise IndexError(f"there is no block {i} in {self.path}, which has {self.n_blocks}")
        rows = int(self.bounds[i + 1] - self.bounds[i])
        crc = self.block["blocks"][i][1]
        with self._explaining():
            data, indices, indptr = (
                verified.read_range(array, 0, array.shape[0], self.path, f"blocks/{i}/{array.basename}")
                for array in self._block_arrays(i)
            )
            where = f"{self.path}: block {i} (rows {self.bounds[i]}:{self.bounds[i + 1]})"
            if storage.checksum(data, indices, indptr) != crc:
                raise StoreCorrupt(f"{where} is not what was written: its checksum differs from the manifest's")
            if not safe_pattern(indptr, indices, self.n):
                raise StoreCorrupt(f"{where} has an entry outside A: an index is not within 0:{self.n}")
        A = sparse.csr_matrix((data, indices, indptr), shape=(rows, self.n), copy=False)
        A.has_canonical_format = True
        return A

    def read_rows(self, start: int, stop: int) -> sparse.csr_matrix:
        """Read rows `start` to `stop`, from as many blocks as they span."""
        if not 0 <= start < stop <= self.n:
            raise IndexError(f"rows {start}:{stop} are not rows of {self.path}, which has {self.n}")
        first = int(np.searchsorted(self.bounds, start, side="right")) - 1
        last = int(np.searchsorted(self.bounds, stop, side="left"))
        parts = []
        for i in range(first, last):
            low, high = int(self.bounds[i]), int(self.bounds[i + 1])
            A = self.read_block(i)
            whole = start <= low and high <= stop
            parts.append(A if whole else A[max(start - low, 0) : min(stop, high) - low])
        A = parts[0] if len(parts) == 1 else sparse.vstack(parts, format="csr")
        A.has_canonical_format = True
        return A

    def coupling(self) -> dict[str, float]:
        """How much the blocks depend on each other: the share of entries in diagonal blocks, and the mean halo."""
        return coupling(self.block, self.bounds)

    def info(self) -> dict[str, Any]:
        """Describe the store: sizes, how it was made, and what to know before clustering it."""
        return {
            "path": self.path,
            **describe(self.block, self.bounds),
            "fingerprint": self.fingerprint,
            **made(self.block),
        }

    def validate(self, *, deep: bool = False, progress: StageProgress | None = None) -> None:
        """Check the store, and raise `StoreCorrupt` with all that is wrong.

        Parameters
        ----------
        deep : bool, default False
            Read every block: checksums, order of indices, signs, symmetry. One pass over the data.
        progress : callable, optional
            Called as ``progress(stage, done, total)``.
        """
        found = list(self._manifest_problems())
        if deep and not found:
            found = list(entry_problems(self.read_block, self.bounds, progress or silent))
        if found:
            raise StoreCorrupt(
                f"{self.path}: {len(found)} problem(s): "
                + "; ".join(
                    text.removeprefix(f"{self.path}: ").removesuffix(f"; {GRAPH_REMEDY}") for text in found[:10]
                )
                + f"; {GRAPH_REMEDY}"
            )

    def _manifest_problems(self) -> Iterator[str]:
        """Say what is wrong with metadata documents and vectors; the manifest was checked at opening."""
        for i in range(self.n_blocks):
            try:
                self._block_arrays(i)
            except StoreCorrupt as error:
                yield str(error)
                continue
            shape = [int(self.bounds[i + 1] - self.bounds[i]), self.n]
            if verified.attributes(self._group, f"blocks/{i}") != {**CSR_ENCODING, "shape": shape}:
                yield f"blocks/{i}/zarr.json is not what was written: other programs may misread the block"
        for name in ("order", "degree", "component", "anchor", "ids"):
            try:
                found = getattr(self, name)
                if isinstance(found, Ids):
                    found.check()
            except StoreCorrupt as error:
                yield str(error)

    def _explaining(self) -> Any:
        return verified.explaining(self.path, GRAPH, self.block["checksum"], self.options, remedy=GRAPH_REMEDY)

    def _block_arrays(self, i: int) -> list[zarr.Array]:
        """The arrays of a block, if their metadata agrees with the manifest."""
        rows, nnz = int(self.bounds[i + 1] - self.bounds[i]), self.block["blocks"][i][0]
        wanted: dict[str, tuple[int, list[Any]]] = {
            "data": (nnz, [self.dtype]),
            "indices": (nnz, [np.int32, np.int64]),
            "indptr": (rows + 1, [np.int64]),
        }
        return [
            verified.find_array(self._group, f"blocks/{i}/{name}", self.path, shape=(size,), dtypes=dtypes)
            for name, (size, dtypes) in wanted.items()
        ]

    def _vector(self, name: str, size: int, dtype: Any) -> np.ndarray:
        array = verified.find_array(self._group, name, self.path, shape=(size,), dtypes=[dtype])
        return verified.read_whole(array, self.block["checksums"][name], self.path, name)

    def _rows_of(self, name: str) -> np.ndarray | None:
        known = name in self.block["checksums"]
        return self._range(name, [np.int32, np.int64], 0, self.n) if known else None

    def _range(self, name: str, dtypes: list[Any], start: int, stop: int) -> np.ndarray:
        """Entries of a vector, checked; of the others no more is read than shares a chunk with them."""
        with self._explaining():
            if name not in self._chunked:
                array = verified.find_array(self._group, name, self.path, shape=(self.n,), dtypes=dtypes)
                self._chunked[name] = verified.ChunkedVector(array, self.block, self.path, name)
            return self._chunked[name].read(start, stop)

    def _finite(self, degree: np.ndarray) -> np.ndarray:
        if not np.isfinite(degree).all() or (degree < 0).any():
            raise StoreCorrupt(f"{self.path}: degree has entries that are not finite numbers of 0 or more")
        return degree


def open_graph(path: str | os.PathLike[str], *, storage_options: storage.Options = None) -> GraphStore:
    """Open a graph store for reading.

    Parameters
    ----------
    path : str or path-like
        A local path, or a URL that fsspec opens (``s3://…``, ``memory://…``).
    storage_options : mapping, optional
        Passed to fsspec for a URL.

    Examples
    --------
    >>> import scipy.sparse, snmf_dist, tempfile
    >>> out = tempfile.mkdtemp() + "/ring.zarr"
    >>> ring = scipy.sparse.diags_array([1.0] * 4, offsets=[-1, 1, 4, -4], shape=(5, 5))
    >>> _ = snmf_dist.import_graph(ring, out)
    >>> graph = snmf_dist.open_graph(out)
    >>> graph.n, graph.nnz
    (5, 10)
    """
    path = storage.normal_path(path)
    group = storage.open_group(path, storage_options)
    return GraphStore(path, storage_options, group, storage.read_block(group, path, GRAPH))


def open_graph_again(path: str, options: storage.Options, fingerprint: str) -> GraphStore:
    """Open a graph store in another process, and make sure that it is still the same graph."""
    store = open_graph(path, storage_options=options)
    if store.fingerprint != fingerprint:
        raise StoreCorrupt(f"{path}: the graph was replaced while it was in use; start again")
    return store


@dataclass(frozen=True)
class Reader:
    """A method of a graph store as a function of (start, stop) that travels to other processes.

    It carries the path, not the manifest, and opens the store where it is called: the scheduler need not see it.
    """

    method: str
    path: str
    options: storage.Options
    fingerprint: str

    def __call__(self, start: int, stop: int) -> Any:
        """Rows `start` to `stop`."""
        key = (self.path, self.fingerprint)
        if key not in _open:
            _open[key] = open_graph_again(self.path, self.options, self.fingerprint)
        return getattr(_open[key], self.method)(start, stop)


_open: dict[tuple[str, str], GraphStore] = {}  # of this process
