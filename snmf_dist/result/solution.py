"""Solution: what `fit` returns and `open_solution` reads back."""

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from snmf_dist import storage
from snmf_dist.errors import StoreCorrupt
from snmf_dist.locks import only_writer
from snmf_dist.result.files import ResultParts, read_result, write_result
from snmf_dist.result.records import IterationRecord, Status
from snmf_dist.solve.kernels import row_labels


@dataclass(frozen=True, eq=False)
class Solution:
    """A clustering A ≈ LLᵀ.

    Attributes
    ----------
    labels : ndarray of int32, shape (n,)
        Cluster of each row in the input's own order; −1 for rows that no cluster touches.
    membership : dask.array.Array, shape (n, K)
        L in the input's own order, computed or read when used; divide a row by its sum for shares.
    status : Status
        How the run ended; ``status.value`` is a sentence.
    history : list of IterationRecord
        One for each iteration of this fit that led to the state; a resumed run continues the count.
    settings : mapping
        The settings of the run.
    provenance : mapping
        The graph, the versions and the place of the run, the leading eigenvalues, and a summary of all runs.
    spectral_labels : ndarray of int32, shape (n,), or None
        Plain spectral clustering, which ``init="kmeans"`` began at: to compare with.
    state : named tuple or None
        The solver's last X, Y, L, Lam, Gam (or L, Z), row-blocked and in the graph store's row order. None if the
        solution was saved without it: by `fit` with ``out`` and not ``save_state``, or read back by
        `open_solution`.
    """

    labels: np.ndarray
    membership: Any
    status: Status
    history: list[IterationRecord]
    settings: Mapping[str, Any]
    provenance: Mapping[str, Any]
    spectral_labels: np.ndarray | None = field(default=None, repr=False)
    state: Any = field(default=None, repr=False)

    def __repr__(self) -> str:
        return (
            f"Solution(n={len(self.labels)}, k={self.k}, status={self.status.name}, "
            f"n_iter={self.n_iter}, captured={self.captured:.6g})"
        )

    @property
    def k(self) -> int:
        """Number of clusters asked for, K."""
        return int(self.membership.shape[1])

    @property
    def captured(self) -> float:
        """c = 2 tr(LᵀAL) − ‖LᵀL‖², the part of ‖A‖² that LLᵀ explains: higher is better."""
        return self.history[-1].captured

    @property
    def bound(self) -> float:
        """Σλ² over the K leading eigenvalues, which no L can capture more than; NaN after a random start.

        An estimate from above: of each eigenvalue, what its residual leaves room for. Only an eigenvector that the
        start missed altogether could make it too low.
        """
        facts = self.provenance
        values = facts.get("upper_eigenvalues") or facts.get("eigenvalues") or [math.nan]
        return float(np.sum(np.square(np.maximum(values, 0))))

    @property
    def objective(self) -> float:
        """‖A − LLᵀ‖²."""
        return self.history[-1].objective

    @property
    def kkt(self) -> float:
        """Relative distance to the optimality conditions."""
        return self.history[-1].kkt

    @property
    def n_iter(self) -> int:
        """Iterations done."""
        return self.history[-1].iteration

    @property
    def n_products(self) -> int:
        """Products with A done: for start, iterations and objective, of all runs."""
        return int(self.provenance.get("products", self.history[-1].products))

    @property
    def runs(self) -> list[dict[str, Any]]:
        """Status, iterations, products and captured energy of each of the `n_init` runs."""
        return list(self.provenance.get("runs", []))

    @property
    def eigengap(self) -> np.ndarray:
        """Differences of neighbouring eigenvalues, the j-th after the j-th: a large one there speaks for k = j."""
        values = [*(self.provenance.get("eigenvalues") or []), self.provenance.get("next_eigenvalue")]
        return -np.diff([value for value in values if value is not None])

    @property
    def sizes(self) -> np.ndarray:
        """Rows in each cluster, (K,)."""
        return np.bincount(self.labels[self.labels >= 0], minlength=self.k)

    @property
    def n_unassigned(self) -> int:
        """Rows with label −1."""
        return int(np.count_nonzero(self.labels < 0))

    def validate(self) -> None:
        """Read the whole membership, block by block, and check it against its checksums and the labels.

        Raises
        ------
        StoreCorrupt
            What was read is not what was written.
        """
        found = [
            rows.map_blocks(row_labels, chunks=(rows.chunks[0], (1,)), dtype=np.int32).compute().ravel()
            for rows in (self.membership, *(self.state or ()))
        ]
        if not np.array_equal(found[0], self.labels):
            raise StoreCorrupt("the labels are not those of the membership; fit again with overwrite=True")

    def save(
        self,
        path: str | os.PathLike[str],
        *,
        save_state: bool = False,
        overwrite: bool = False,
        storage_options: storage.Options = None,
    ) -> None:
        """Write the solution as a Zarr store; read it again with `open_solution`.

        Parameters
        ----------
        path : str or path-like
            A local path or a URL; on a cluster, one that all workers see.
        save_state : bool, default False
            Write the solver's state too, so that `fit` can resume it exactly.
        overwrite : bool, default False
            Replace the result at `path`. It stays whole until the new one is.
        storage_options : mapping, optional
            Passed to fsspec for a URL.
        """
        path = storage.normal_path(path)
        with only_writer(path):
            self.write(path, save_state=save_state, overwrite=overwrite, options=storage_options)

    def write(self, path: str, *, save_state: bool, overwrite: bool, options: storage.Options) -> None:
        """Write the solution where this process is the only writer already."""
        parts = ResultParts(
            membership=self.membership,
            labels=self.labels,
            history=self.history,
            status=self.status,
            settings=self.settings,
            provenance=self.provenance,
            spectral_labels=self.spectral_labels,
            state=self.state if save_state else None,
        )
        write_result(path, parts, overwrite=overwrite, options=options)


def open_solution(path: str | os.PathLike[str], *, storage_options: storage.Options = None) -> Solution:
    """Read a saved solution; its membership is read when used.

    Examples
    --------
    >>> import scipy.sparse, snmf_dist, tempfile
    >>> folder = tempfile.mkdtemp()
    >>> pairs = scipy.sparse.block_diag([[[0, 1], [1, 0]], [[0, 2], [2, 0]]])
    >>> _ = snmf_dist.import_graph(pairs, folder + "/pairs.zarr")
    >>> _ = snmf_dist.fit(folder + "/pairs.zarr", 2, out=folder + "/result.zarr")
    >>> snmf_dist.open_solution(folder + "/result.zarr").sizes
    array([2, 2])
    """
    parts = read_result(storage.normal_path(path), options=storage_options)
    return Solution(**parts._asdict())
