"""Edges in any order to row blocks of a symmetric W, through files: no process holds all edges.

Each edge (i, j, w) is filed twice: as it stands under the block of row i, and turned round under the block
of row j. A block then sees every entry of its rows beside its mirror image, and so checks or makes symmetry
on its own.
"""

import contextlib
import os
from collections import Counter

import numpy as np
from scipy import sparse

from snmf_dist.errors import InputError, WorkLost
from snmf_dist.graph.ingest.edgefiles import Edges

RECORD = np.dtype([("row", "<i8"), ("column", "<i8"), ("weight", "<f8")])
ASYMMETRY = 1e-5  # relative difference of A_ij and A_ji that counts as rounding of float32 sources


class EdgeBuckets:
    """Files of edges by row block, and the rows of W made from them.

    Parameters
    ----------
    folder : str
        An empty folder for the files, about 48 bytes an edge.
    bounds : ndarray of int64, shape (P+1,)
        The row blocks.
    symmetrize : {None, "max", "mean"}
        How to make W symmetric; None refuses if it is not.
    drop_loops : bool
        Leave out the diagonal.
    """

    def __init__(self, folder: str, bounds: np.ndarray, *, symmetrize: str | None, drop_loops: bool) -> None:
        self.folder = folder
        self.bounds = bounds
        self.symmetrize = symmetrize
        self.drop_loops = drop_loops
        self.dropped_loops = 0
        self._filed: Counter[str] = Counter()

    def add(self, edges: Edges) -> None:
        """Check a batch of edges and file each under both of its ends."""
        self._check(edges)
        self._file("own", edges.rows, edges.columns, edges.weights)
        self._file("turned", edges.columns, edges.rows, edges.weights)

    def merge(self, i: int) -> np.ndarray:
        """Make the rows of W of block `i` from its edges, and return their degrees, (rows,)."""
        own, turned = self._matrix("own", i), self._matrix("turned", i)
        if self.symmetrize is None:
            self._check_symmetric(own, turned, i)
        W = own.maximum(turned) if self.symmetrize == "max" else own * 0.5 + turned * 0.5
        if self.drop_loops:
            rows = np.repeat(np.arange(self.bounds[i], self.bounds[i + 1]), np.diff(W.indptr))
            loops = rows == W.indices
            self.dropped_loops += int(np.count_nonzero(W.data[loops]))
            W.data[loops] = 0
        W.eliminate_zeros()
        sparse.save_npz(self._path("merged", i), W, compressed=False)
        for kind in ("own", "turned"):
            with contextlib.suppress(FileNotFoundError):
                os.remove(self._path(kind, i))
        with np.errstate(over="ignore"):  # an endless degree is refused by the caller, by row
            return np.asarray(W.sum(axis=1)).ravel()

    def block(self, i: int) -> sparse.csr_matrix:
        """Read the merged rows of W of block `i`, (rows, n)."""
        return sparse.csr_matrix(sparse.load_npz(self._path("merged", i) + ".npz"))

    def pattern(self, i: int) -> tuple[np.ndarray, np.ndarray]:
        """Where the merged rows of W of block `i` have entries: indptr and indices."""
        with np.load(self._path("merged", i) + ".npz") as file:
            return file["indptr"], file["indices"]

    def reorder(self, rank: np.ndarray) -> None:
        """Move row and column i of the merged W to ``rank[i]``, through files again."""
        blocks = range(len(self.bounds) - 1)
        for i in blocks:
            W = self.block(i)
            rows = np.repeat(rank[self.bounds[i] : self.bounds[i + 1]], np.diff(W.indptr))
            self._file("moved", rows, rank[W.indices], W.data)
            os.remove(self._path("merged", i) + ".npz")
        for i in blocks:
            sparse.save_npz(self._path("merged", i), self._matrix("moved", i), compressed=False)
            with contextlib.suppress(FileNotFoundError):
                os.remove(self._path("moved", i))

    def _file(self, kind: str, rows: np.ndarray, columns: np.ndarray, weights: np.ndarray) -> None:
        blocks = np.searchsorted(self.bounds, rows, side="right") - 1
        by_block = np.argsort(blocks, kind="stable")
        cuts = np.searchsorted(blocks[by_block], np.arange(len(self.bounds)))
        records = np.empty(len(rows), dtype=RECORD)
        records["row"], records["column"], records["weight"] = rows, columns, weights
        records = records[by_block]
        for i in map(int, np.flatnonzero(np.diff(cuts))):
            part = records[cuts[i] : cuts[i + 1]]
            with open(self._path(kind, i), "ab") as file:
                file.write(part.tobytes())  # tofile would not say that the disk is full
            self._filed[self._path(kind, i)] += len(part)

    def _matrix(self, kind: str, i: int) -> sparse.csr_matrix:
        path = self._path(kind, i)
        records = np.fromfile(path, dtype=RECORD) if os.path.exists(path) else np.empty(0, RECORD)
        if len(records) != self._filed[path]:
            raise WorkLost(
                f"{path}: holds {len(records)} of {self._filed[path]} edges; is the disk full? Import again"
            )
        shape = (int(self.bounds[i + 1] - self.bounds[i]), int(self.bounds[-1]))
        where = (records["row"] - self.bounds[i], records["column"])
        return sparse.csr_matrix((records["weight"], where), shape=shape)  # adds up duplicates

    def _path(self, kind: str, i: int) -> str:
        return os.path.join(self.folder, f"{kind}-{i}")

    def _check(self, edges: Edges) -> None:
        n = self.bounds[-1]
        for ends in (edges.rows, edges.columns):
            outside = (ends < 0) | (ends >= n)
            if outside.any():
                raise InputError(f"A has an entry in row or column {ends[np.argmax(outside)]}, outside 0:{n}")
        bad = ~np.isfinite(edges.weights) | (edges.weights < 0)
        if bad.any():
            e = int(np.argmax(bad))
            raise InputError(
                f"A[{edges.rows[e]}, {edges.columns[e]}] = {edges.weights[e]}; expected finite numbers "
                "≥ 0: similarities, not distances. Drop or repair such entries first"
            )

    def _check_symmetric(self, own: sparse.csr_matrix, turned: sparse.csr_matrix, i: int) -> None:
        off = abs(own - turned) > ASYMMETRY * own.maximum(turned)
        if not off.nnz:
            return
        row, column = (int(where[0]) for where in off.nonzero())
        first = int(self.bounds[i])
        raise InputError(
            f"A is not symmetric: A[{first + row}, {column}] = {own[row, column]:g} but "
            f"A[{column}, {first + row}] = {turned[row, column]:g} ({off.nnz} such entries in rows "
            f"{first}:{self.bounds[i + 1]}); pass symmetrize='max' to keep an edge listed in either "
            "direction, or symmetrize='mean' to average the two (--symmetrize)"
        )
