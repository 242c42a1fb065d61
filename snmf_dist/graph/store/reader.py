"""Reading a graph store, by row blocks; its files are described in `layout`."""

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import zarr
from scipy import sparse

from snmf_dist import storage
from snmf_dist.errors import StoreCorrupt
from snmf_dist.graph.store.checks import block_problems, symmetry_balance
from snmf_dist.graph.store.layout import KIND, Progress, silent


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
    recall : float or None
        Measured share of the true nearest neighbours that a built graph holds.
    components : int or None
        Number of connected components.
    tau : float
        What was added to each degree before A was normalised; 0 for none.
    """

    def __init__(
        self,
        path: str,
        options: storage.Options,
        group: zarr.Group,
        block: Mapping[str, Any],
    ) -> None:
        self.path = path
        self.options = options
        self.block = block
        self._group = group
        self.n = int(block["n"])
        self.nnz = int(block["nnz"])
        self.dtype = np.dtype(block["dtype"])
        self.normalize: str = block["normalize"]
        self.tau = float(block.get("tau", 0.0))
        self.reordered: bool = block["reordered"]
        self.bounds = self._vector("row_bounds")

    def __repr__(self) -> str:
        return f"GraphStore({self.path!r}: n={self.n}, nnz={self.nnz}, blocks={self.n_blocks})"

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
        """Row of A to the user's own row number, (n,) int64; read from disk at each call."""
        return self._vector("order")

    @property
    def degree(self) -> np.ndarray:
        """Row sums of W before normalisation, (n,) float64; read from disk at each call."""
        return self._vector("degree")

    def read_degree(self, start: int, stop: int) -> np.ndarray:
        """Degrees of the rows `start` to `stop`, without those of the others; `validate` checks them all."""
        degree: Any = self._group["degree"]
        return np.asarray(degree[start:stop])

    @property
    def component(self) -> np.ndarray | None:
        """Number of the connected component of each row of A, (n,); None if there is one, or none was stored."""
        return self._vector("component") if "component" in self.block["checksums"] else None

    def read_component(self, start: int, stop: int) -> np.ndarray:
        """Numbers of the components of the rows `start` to `stop`, (rows, 1), if there are several."""
        component: Any = self._group["component"]
        return np.asarray(component[start:stop])[:, None]

    def read_weights(self, start: int, stop: int) -> np.ndarray:
        """What turns rows of A back into rows of W = rAr, (rows, 2) float64: r, and the degree in W."""
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
        nnz, crc, *_ = self.block["blocks"][i]
        data, indices, indptr = (
            storage.read_array(self._group, f"blocks/{i}/{name}", self.path)
            for name in ("data", "indices", "indptr")
        )
        sizes = (len(data), len(indices), len(indptr))
        if sizes != (nnz, nnz, rows + 1) or storage.checksum(data, indices, indptr) != crc:
            raise StoreCorrupt(
                f"{self.path}: block {i} (rows {self.bounds[i]}:{self.bounds[i + 1]}) is not what was "
                "written: its checksum or size differs from the manifest; import the graph again "
                "with overwrite=True, or restore the store from a copy"
            )
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
        """How much the blocks depend on each other: the share of entries in diagonal blocks, and the mean halo.

        The halo is in block sizes. Both say how good the order of the rows is: 1 and 0 at best.
        """
        _, _, diagonal, halo = zip(*self.block["blocks"], strict=True)
        return {
            "diagonal": sum(diagonal) / self.nnz,
            "halo": float(np.mean(np.array(halo) / np.diff(self.bounds))),
            "blocks": self.n_blocks,
        }

    def info(self) -> dict[str, Any]:
        """Describe the store: sizes, how it was made, and what to know before clustering it."""
        b = self.block
        return {
            "path": self.path,
            "rows": self.n,
            "entries": self.nnz,
            "entries per row": round(self.nnz / self.n, 2),
            "dtype": str(self.dtype),
            "blocks": self.n_blocks,
            "rows a block": int(np.diff(self.bounds).max()),
            "normalize": self.normalize,
            "tau": round(self.tau, 6),
            "zero-degree rows": b["zero_degree"],
            "self-loops": b["self_loops"],
            "reordered": self.reordered,
            "in diagonal blocks": f"{self.coupling()['diagonal']:.1%} of entries",
            "halo": f"{self.coupling()['halo']:.2f} block sizes",
            "bytes in memory": self.nnz * (self.dtype.itemsize + 4) + 8 * self.n,
            "fingerprint": self.fingerprint,
            **{f"made: {key}": value for key, value in b["made"].items()},
        }

    def validate(self, *, deep: bool = False, progress: Progress | None = None) -> None:
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
            found = list(self._entry_problems(progress or silent))
        if found:
            raise StoreCorrupt(
                f"{self.path}: {len(found)} problem(s): "
                + "; ".join(found[:10])
                + "; write the store again, or restore it from a copy"
            )

    def _manifest_problems(self) -> Iterator[str]:
        bounds, blocks = self.bounds, self.block["blocks"]
        if bounds[0] != 0 or bounds[-1] != self.n or (np.diff(bounds) <= 0).any():
            yield f"row_bounds do not rise from 0 to {self.n}"
        if len(blocks) != self.n_blocks:
            yield f"the manifest lists {len(blocks)} blocks, row_bounds {self.n_blocks}"
            return
        if sum(nnz for nnz, *_ in blocks) != self.nnz:
            yield "the blocks' entries do not add up to nnz"
        for i, (nnz, *_) in enumerate(blocks):
            rows = int(bounds[i + 1] - bounds[i])
            for name, size in (("data", nnz), ("indices", nnz), ("indptr", rows + 1)):
                if storage.shape_of(self._group, f"blocks/{i}/{name}") != (size,):
                    yield f"blocks/{i}/{name} is missing or not of length {size}"
        try:
            order, degree = self.order, self.degree
        except StoreCorrupt as error:
            yield str(error)
            return
        if len(degree) != self.n or not np.isfinite(degree).all() or (degree < 0).any():
            yield "degree is not n finite, nonnegative numbers"
        if len(order) != self.n or not np.array_equal(np.sort(order), np.arange(self.n)):
            yield "order is not a permutation of the rows"

    def _entry_problems(self, progress: Progress) -> Iterator[str]:
        balance = 0
        whole = True
        for i in range(self.n_blocks):
            progress("check", i, self.n_blocks)
            try:
                A = self.read_block(i)
            except StoreCorrupt as error:
                whole = False
                yield str(error)
                continue
            yield from (f"block {i}: {text}" for text in block_problems(A))
            balance += symmetry_balance(A, first_row=int(self.bounds[i]))
        progress("check", self.n_blocks, self.n_blocks)
        if whole and balance % 2**64:
            yield "A is not symmetric"

    def _vector(self, name: str) -> np.ndarray:
        values = storage.read_array(self._group, name, self.path)
        if storage.checksum(values) != self.block["checksums"][name]:
            raise StoreCorrupt(
                f"{self.path}: {name} is not what was written (checksum differs); write the store again"
            )
        return values


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
    return GraphStore(path, storage_options, group, storage.read_block(group, path, KIND))


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
