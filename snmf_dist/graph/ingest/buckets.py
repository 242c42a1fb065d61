"""Edges in any order to row blocks of a symmetric W, through files: no process holds all edges.

Each edge (i, j, w) is filed twice: as it stands under the block of row i, and turned round under the block
of row j. A block then sees every entry of its rows beside its mirror image, and so checks or makes symmetry
on its own. Filing some edges, merging a block and moving it are tasks of their own, in any order and process; what
they make depends on the order of the edges alone.
"""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy import sparse

from snmf_dist.errors import InputError
from snmf_dist.graph.ingest.edges import Edges
from snmf_dist.graph.ingest.runs import RunFiles, packed, unpacked, whole_file

ASYMMETRY = 1e-5  # relative difference of A_ij and A_ji that counts as rounding of float32 sources


class Merged(NamedTuple):
    """What is known of a merged block: the degrees of its rows, (rows,), and how many loops were dropped."""

    degree: np.ndarray
    dropped_loops: int


@dataclass(frozen=True)
class EdgeBuckets:
    """Files of edges by row block, and the rows of W made from them.

    Attributes
    ----------
    folder : str
        An empty folder for the files, about 16 bytes an edge, and as much again for weights other than 1.
    bounds : ndarray of int64, shape (P+1,)
        The row blocks.
    symmetrize : {None, "max", "mean"}
        How to make W symmetric; None refuses if it is not.
    drop_loops : bool
        Leave out the diagonal.
    """

    folder: str
    bounds: np.ndarray
    symmetrize: str | None
    drop_loops: bool

    @property
    def runs(self) -> RunFiles:
        """The files that the edges are in."""
        return RunFiles(self.folder, self.bounds)

    def file(self, name: str, batches: Iterable[Edges]) -> str:
        """Check some edges and file each under both of its ends, as a run of this name."""
        rows, columns, weights = (np.concatenate(parts) for parts in zip(*batches, strict=True))
        edges = Edges(rows, columns, weights)
        self._check(edges)
        self.runs.write(f"own-{name}", edges.rows, edges.columns, edges.weights)
        self.runs.write(f"turned-{name}", edges.columns, edges.rows, edges.weights)
        return name

    def merge(self, names: Sequence[str], i: int) -> Merged:
        """Make the rows of W of block `i` from its edges in the runs."""
        own, turned = (self._matrix([f"{kind}-{name}" for name in names], i) for kind in ("own", "turned"))
        if self.symmetrize is None:
            self._check_symmetric(own, turned, i)
        W = own.maximum(turned) if self.symmetrize == "max" else own * 0.5 + turned * 0.5
        dropped = 0
        if self.drop_loops:
            rows = np.repeat(np.arange(self.bounds[i], self.bounds[i + 1]), np.diff(W.indptr))
            loops = rows == W.indices
            dropped = int(np.count_nonzero(W.data[loops]))
            W.data[loops] = 0
        W.eliminate_zeros()
        with whole_file(self._path(i)) as file:
            for part in (W.indptr, W.indices, packed(W.data)):
                np.save(file, part)
        with np.errstate(over="ignore"):  # an endless degree is refused by the caller, by row
            return Merged(np.asarray(W.sum(axis=1)).ravel(), dropped)

    def remove_edges(self, names: Sequence[str]) -> None:
        """Remove the runs of edges, once all blocks are merged."""
        self.runs.remove(f"{kind}-{name}" for name in names for kind in ("own", "turned"))

    def block(self, i: int) -> sparse.csr_matrix:
        """Read the merged rows of W of block `i`, (rows, n)."""
        with open(self._path(i), "rb") as file:
            indptr, indices, data = (np.load(file, allow_pickle=False) for _ in range(3))
        shape = (len(indptr) - 1, int(self.bounds[-1]))
        return sparse.csr_matrix((unpacked(data, len(indices)), indices, indptr), shape=shape)

    def pattern(self, i: int) -> tuple[np.ndarray, np.ndarray]:
        """Where the merged rows of W of block `i` have entries: indptr and indices."""
        with open(self._path(i), "rb") as file:
            return np.load(file, allow_pickle=False), np.load(file, allow_pickle=False)

    def move(self, rank: str, i: int) -> str:
        """File the merged entries of block `i` where they go, row and column r to ``rank[r]``; the run's name.

        Parameters
        ----------
        rank : str
            The path of a ``.npy`` file.
        """
        W, where = self.block(i), np.load(rank, mmap_mode="r", allow_pickle=False)
        rows = np.repeat(where[self.bounds[i] : self.bounds[i + 1]], np.diff(W.indptr))
        self.runs.write(f"moved-{i}", rows, where[W.indices], W.data)
        return f"moved-{i}"

    def remove_blocks(self) -> None:
        """Remove the merged blocks, once all are moved."""
        for i in range(len(self.bounds) - 1):
            os.remove(self._path(i))

    def moved(self, names: Sequence[str], i: int) -> sparse.csr_matrix:
        """The rows of W of block `i` after all blocks were moved, (rows, n)."""
        return self._matrix(names, i)

    def _matrix(self, names: Iterable[str], i: int) -> sparse.csr_matrix:
        rows, columns, weights = self.runs.read(names, i)
        shape = (int(self.bounds[i + 1] - self.bounds[i]), int(self.bounds[-1]))
        return sparse.csr_matrix((weights, (rows, columns)), shape=shape)  # adds up duplicates

    def _path(self, i: int) -> str:
        return os.path.join(self.folder, f"merged-{i}")

    def _check(self, edges: Edges) -> None:
        n = self.bounds[-1]
        for ends in (edges.rows, edges.columns):
            if len(ends) and not (ends.min() >= 0 and ends.max() < n):
                outside = (ends < 0) | (ends >= n)
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
