"""Solution: what `fit` returns and `open_solution` reads back."""

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from snmf_dist import storage
from snmf_dist.card import card
from snmf_dist.ids import Ids
from snmf_dist.locks import only_writer
from snmf_dist.report.solution_page import write_report
from snmf_dist.result import placing
from snmf_dist.result.compare import Comparison, compare_results
from snmf_dist.result.export import export
from snmf_dist.result.files import ResultParts, check_membership, read_result, write_result
from snmf_dist.result.newnodes import NewNodes, read_new_nodes
from snmf_dist.result.records import IterationRecord, Sample, Status
from snmf_dist.result.summary import summary


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
    ids : Ids or None
        Your own id of each row: ``ids[3]`` belongs to ``labels[3]``. None if the graph has none.
    sample : Sample or None
        Up to 20,000 rows in a plane of the leading eigenvectors, for the map of a report. None if the start was
        not made from eigenvectors, or if the run was interrupted and continued.
    """

    labels: np.ndarray
    membership: Any
    status: Status
    history: list[IterationRecord]
    settings: Mapping[str, Any]
    provenance: Mapping[str, Any]
    spectral_labels: np.ndarray | None = field(default=None, repr=False)
    state: Any = field(default=None, repr=False)
    ids: Ids | None = field(default=None, repr=False)
    sample: Sample | None = field(default=None, repr=False)

    def __repr__(self) -> str:
        return (
            f"Solution(n={len(self.labels)}, k={self.k}, status={self.status.name}, "
            f"n_iter={self.n_iter}, captured={self.captured:.6g})"
        )

    def _repr_html_(self) -> str:
        return card("Solution", lambda: summary(self))

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

        It is estimated from above: each eigenvalue is its Ritz value plus what its residual leaves room for. Only
        an eigenvector that the start missed altogether could make it too low.
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
        """Differences of neighbouring eigenvalues, λ_j − λ_{j+1} for each j; a large one speaks for k = j."""
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
        rows = (self.membership, *(self.state or ()))
        check_membership(rows, self.labels, specks_are_joined=self.settings.get("specks") == "join")
        if self.ids is not None:
            self.ids.check()

    def predict(self, new: Any, **settings: Any) -> np.ndarray:
        """Labels of new points, or of new nodes, (m,) int32. It takes the parameters of `place`."""
        return self.place(new, **settings).labels

    def transform(self, new: Any, **settings: Any) -> np.ndarray:
        """Memberships of new points, or of new nodes, (m, K). It takes the parameters of `place`."""
        return self.place(new, **settings).membership

    def place(self, new: Any, *, storage_options: storage.Options = None, **settings: Any) -> placing.Placed:
        """Say where new rows belong: label, strength, membership, and whether a row is novel.

        The neighbours of a new point among the fitted ones give its row a of A, and its membership is
        argmin ‖a − lLᵀ‖² over l ≥ 0. A copy of a fitted point gets the row of that point.

        Parameters
        ----------
        new : path, array or CSR matrix
            New points, (m, d), if the graph was built from points. For an imported graph a sparse (m, n) matrix:
            the weights of the edges of m new nodes to the n rows of the input; `new_nodes` makes it from edges.
        points : path, array or CSR matrix, optional
            The points that the graph was built from, if they are not where they were then. Others are refused.
        graph : GraphStore or path, optional
            The graph, if it is not where it was.
        block_rows : int, optional
            New rows in a block; it changes no bit.
        storage_options : mapping, optional
            Passed to fsspec for URLs.

        Examples
        --------
        >>> import snmf_dist, tempfile
        >>> X = np.random.default_rng(0).standard_normal((300, 2)) + np.repeat([[0], [9]], 150, axis=0)
        >>> graph = snmf_dist.build_graph(X, tempfile.mkdtemp() + "/graph.zarr")
        >>> solution = snmf_dist.fit(graph, 2)
        >>> found = solution.place(np.array([[0.1, 0.2], [50.0, 50.0]]), points=X)
        >>> bool(found.labels[0] == solution.labels[0]), found.novel
        (True, array([False,  True]))
        """
        found = placing.place(self.membership, self.provenance, new, options=storage_options, **settings)
        return placing.gather(found)

    def new_nodes(
        self,
        edges: Any,
        *,
        columns: Sequence[str] | None = None,
        first_id: int = 0,
        storage_options: storage.Options = None,
    ) -> NewNodes:
        """Read edges from new nodes to the nodes of an imported graph, as `place` and `predict` take them.

        Parameters
        ----------
        edges : path or table
            An edge list as `import_graph` reads it, or a table of pandas, polars or pyarrow: the new node, the
            known one by the id that it has in the graph and, if there is a third column, the weight.
        columns : sequence of str, optional
            Names of these columns.
        first_id : int, default 0
            Id of the first row, if the graph has no ids: as it was given to `import_graph`.
        storage_options : mapping, optional
            Passed to fsspec for URLs.

        Returns
        -------
        NewNodes
            ``names``, (m,), and ``edges``, sparse (m, n), which is held in memory.

        Examples
        --------
        >>> import pyarrow, scipy.sparse, snmf_dist, tempfile
        >>> pairs = scipy.sparse.block_diag([[[0, 1], [1, 0]], [[0, 2], [2, 0]]])
        >>> names = ["ann", "bob", "cem", "dan"]
        >>> graph = snmf_dist.import_graph(pairs, tempfile.mkdtemp() + "/pairs.zarr", ids=names)
        >>> solution = snmf_dist.fit(graph, 2)
        >>> new = solution.new_nodes(pyarrow.table({"new": ["eva", "fay"], "known": ["ann", "dan"]}))
        >>> new.names, solution.predict(new.edges) == solution.labels[[0, 3]]
        (array(['eva', 'fay'], dtype=object), array([ True,  True]))
        """
        given: Any = {"columns": columns, "first_id": first_id, "options": storage_options}
        return read_new_nodes(edges, self.ids, len(self.labels), **given)

    def compare(self, other: "Solution | str | os.PathLike[str]") -> Comparison:
        """Compare with another result, or the path of one: contingency table, ARI, NMI, and rows that moved.

        Rows are matched by their ids if both results have ids; those that only one has are left out. Else both
        must have the same rows in the same order.
        """
        return compare_results(self, _opened(other))

    def export(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write id, label, strength, second label and memberships for other programs, a block of rows at a time.

        Parameters
        ----------
        path : str or path-like
            ``.csv`` or ``.parquet``: a table. ``.gexf`` or ``.graphml``: the graph, too, whose store must still be
            there. ``.zarr``: an AnnData store, into which ``obs["snmf"]``, ``obsm["X_snmf"]`` and
            ``uns["snmf"]`` are written and nothing else is touched; a new one if nothing is there.
        overwrite : bool, default False
            Replace the file.
        """
        export(self, path, overwrite=overwrite)

    def report(self, path: str | os.PathLike[str], **settings: Any) -> None:
        """Write a page to look at: one HTML file of at most 500 kB that needs nothing else, and no script.

        The graph and the membership are read once. Needs matplotlib (the extra ``report``).

        Parameters
        ----------
        path : str or path-like
            The file, ``.html``.
        points : path, array or CSR matrix, optional
            Coordinates for the map, (n, 2); of more columns two principal components are shown. By default the
            map shows the plane in which the leading eigenvectors spread most.
        features : path, array, CSR matrix or data frame, optional
            Features of the rows, (n, d): those that stand out are named for each cluster. Of images, (n, h, w),
            the mean of each cluster is shown.
        feature_names : sequence of str, optional
            Names of the columns of `features`.
        ids : sequence, optional
            Ids of the rows, if the result has none or others are to be shown.
        compare : Solution or path, optional
            Another result, to be shown beside this one, as `compare` takes it.
        graph : GraphStore or path, optional
            The graph, if it is not where it was.
        overwrite : bool, default False
            Replace the file.
        options : mapping, optional
            Passed to fsspec for URLs.

        Examples
        --------
        >>> import scipy.sparse, snmf_dist, tempfile
        >>> folder = tempfile.mkdtemp()
        >>> pairs = scipy.sparse.block_diag([[[0, 1], [1, 0]], [[0, 2], [2, 0]]])
        >>> solution = snmf_dist.fit(snmf_dist.import_graph(pairs, folder + "/pairs.zarr"), 2)
        >>> solution.report(folder + "/report.html", ids=["a", "b", "c", "d"])
        """
        write_report(path, self, **settings | {"compare": _opened(settings.get("compare"))})

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
        parts = ResultParts(**vars(self))._replace(state=self.state if save_state else None)
        write_result(path, parts, overwrite=overwrite, options=options)


def _opened(other: Any) -> Any:
    return open_solution(other) if isinstance(other, str | os.PathLike) else other


def open_solution(path: str | os.PathLike[str], *, storage_options: storage.Options = None) -> Solution:
    """Read a saved solution; its membership is read when used.

    Parameters
    ----------
    path : str or path-like
        A local path, or a URL that fsspec opens.
    storage_options : mapping, optional
        Passed to fsspec for a URL.

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
