"""Writing a graph store, in the layout that `layout` describes."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import zarr
from scipy import sparse

from snmf_dist import storage, verified
from snmf_dist.graph.store.layout import CSR_ENCODING, GRAPH
from snmf_dist.ids import Ids, write_ids


class BlockRecord(NamedTuple):
    """What a writer knows of a block it wrote: entries, their checksum, and how it hangs together.

    `diagonal` counts the entries whose column is a row of the block too, `halo` the distinct other columns:
    the rows that a product with the block needs from elsewhere.
    """

    nnz: int
    checksum: int
    diagonal: int
    halo: int
    zero_degree: int
    self_loops: int


class GraphWriter:
    """Writes a graph store block by block; blocks may be written in any order and place.

    Parameters
    ----------
    path : str
        Where to write. What is there is lost, so callers write under `storage.replacing`.
    bounds : ndarray of int64, shape (P+1,)
        Bounds of the row blocks.
    dtype : numpy.dtype
        Type of the stored entries.
    resume : bool, default False
        Keep the blocks that an earlier writer left there.
    """

    def __init__(
        self,
        path: str,
        bounds: np.ndarray,
        dtype: np.dtype,
        options: storage.Options = None,
        *,
        resume: bool = False,
    ) -> None:
        self.bounds = np.asarray(bounds, dtype=np.int64)
        self.n = int(self.bounds[-1])
        self.dtype = dtype
        self._group = (
            storage.open_group(path, options, mode="r+")
            if resume
            else storage.create_group(path, GRAPH, options=options)
        )

    def write_block(self, i: int, A: sparse.csr_matrix) -> BlockRecord:
        """Write rows ``bounds[i]:bounds[i+1]``, (rows, n); duplicates summed, zeros dropped."""
        A = A.astype(self.dtype)
        A.sum_duplicates()
        A.eliminate_zeros()
        indices = A.indices.astype(np.int32 if self.n <= np.iinfo(np.int32).max else np.int64)
        indptr = A.indptr.astype(np.int64)
        block = self._group.create_group(f"blocks/{i}", overwrite=True)
        for name, values in (("data", A.data), ("indices", indices), ("indptr", indptr)):
            storage.write_vector(block, name, values)
        block.attrs.update({**CSR_ENCODING, "shape": [A.shape[0], self.n]})

        low, high = self.bounds[i], self.bounds[i + 1]
        rows = np.repeat(np.arange(low, high), np.diff(indptr))
        outside = indices[(indices < low) | (indices >= high)]
        halo = np.zeros(self.n, dtype=bool)
        halo[outside] = True
        return BlockRecord(
            nnz=A.nnz,
            checksum=storage.checksum(A.data, indices, indptr),
            diagonal=A.nnz - len(outside),
            halo=int(np.count_nonzero(halo)),
            zero_degree=int(np.count_nonzero(np.diff(indptr) == 0)),
            self_loops=int(np.count_nonzero(rows == indices)),
        )

    def finish(
        self,
        records: list[BlockRecord],
        *,
        degree: np.ndarray,
        normalize: str,
        made: Mapping[str, Any],
        order: np.ndarray | None = None,
        component: np.ndarray | None = None,
        anchor: np.ndarray | None = None,
        tau: float = 0.0,
        keep: Callable[[zarr.Group], Mapping[str, Any]] | None = None,
        ids: Ids | None = None,
    ) -> None:
        """Write what is not in blocks, and last the attribute block that says ``complete``.

        `keep` writes arrays of its own into the group, and returns what the manifest says of them as ``search``.
        """
        rows = np.arange(self.n, dtype=np.int64)
        order = rows if order is None else order
        checksums = {
            "row_bounds": storage.write_vector(self._group, "row_bounds", self.bounds),
            "order": storage.write_vector(self._group, "order", order),
            "degree": storage.write_vector(self._group, "degree", degree),
        }
        vectors = {"order": order, "degree": degree}
        for name, values in (("component", component), ("anchor", anchor)):
            if values is not None and values.any():
                vectors[name] = values.astype(np.int32 if self.n <= np.iinfo(np.int32).max else np.int64)
                checksums[name] = storage.write_vector(self._group, name, vectors[name])
        storage.finish_group(
            self._group,
            GRAPH,
            {
                "n": self.n,
                "nnz": sum(record.nnz for record in records),
                "dtype": str(self.dtype),
                "normalize": normalize,
                "tau": float(tau),
                "reordered": not np.array_equal(order, rows),
                "zero_degree": sum(record.zero_degree for record in records),
                "self_loops": sum(record.self_loops for record in records),
                "checksums": checksums,
                "chunk_checksums": {
                    name: verified.chunk_checksums(self._group, name, values) for name, values in vectors.items()
                },
                "blocks": [list(record[:4]) for record in records],
                "made": dict(made),
                **({} if keep is None else {"search": dict(keep(self._group))}),
                **({} if ids is None else {"ids": write_ids(self._group, ids)}),
            },
        )
