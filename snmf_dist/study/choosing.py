"""choose_k(): how many clusters a graph has, by a screening of every K and fits of the best few."""

import os
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from snmf_dist import storage
from snmf_dist.api import plan_fit
from snmf_dist.arguments import find_graph
from snmf_dist.engine import client as cluster
from snmf_dist.engine import machine
from snmf_dist.engine.plan import Plan
from snmf_dist.errors import InputError
from snmf_dist.fitting import loaded
from snmf_dist.graph.store import GraphStore
from snmf_dist.solve.parts import SPECKS
from snmf_dist.study.choice import KChoice, rank, suggest
from snmf_dist.study.consensus import Consensus, consensus
from snmf_dist.study.folder import LABELS, SCREENED, StudyFolder
from snmf_dist.study.heldout import held_out_scores
from snmf_dist.study.many import fit_many
from snmf_dist.study.picture import draw_choice
from snmf_dist.study.screening import screen
from snmf_dist.study.stability import Stability, stability
from snmf_dist.study.table import Row, parquet
from snmf_dist.study.view import Study
from snmf_dist.validation import choice, positive_number, synchronous, whole_number

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False)
class KStudy:
    """What `choose_k` found.

    Attributes
    ----------
    choice : KChoice
        ``k`` (None if no K stands out), ``runner_up``, ``best`` (all K, the best first) and ``reason``.
    rows : list of dict
        For each K: eigengap, separation, modularity, balanced_modularity, kept_share and agreement of the
        screening, and held_out if that was asked for; for those that were fitted also dispersion, ari, pac,
        captured_share and its lowest and highest.
    eigenvalues : ndarray
        The leading eigenvalues of A.
    labels : dict of int to ndarray of int32, (n,)
        A partition for each K in the input's own order: the consensus of the fits, or that of the screening where
        K was not fitted. −1 for rows in no cluster.
    consensus : dict of int to Consensus
        For each K that was fitted: mean membership, labels, and stability of rows and clusters.
    study : Study or None
        The fits; None if there were none.
    n_products : int
        Passes over A, of screening and fits.
    """

    choice: KChoice
    rows: list[dict[str, Any]]
    eigenvalues: np.ndarray = field(repr=False)
    labels: dict[int, np.ndarray] = field(repr=False)
    consensus: dict[int, Consensus] = field(repr=False)
    study: Study | None = field(repr=False)
    n_products: int

    @property
    def k(self) -> int | None:
        """The number of clusters suggested; None if no K stands out."""
        return self.choice.k

    @property
    def reason(self) -> str:
        """Why, in words."""
        return self.choice.reason

    def to_pandas(self) -> "pd.DataFrame":
        """Return the table as a data frame, a row a K; pandas must be installed."""
        import pandas as pd

        return pd.DataFrame(self.rows)

    def save_picture(self, path: str | os.PathLike[str]) -> None:
        """Draw all of it over one axis of K to an image file; needs matplotlib (the extra ``report``)."""
        draw_choice(path, self.rows, self.eigenvalues, self.labels, self.choice)


def choose_k(
    graph: str | os.PathLike[str] | GraphStore,
    ks: Iterable[int] = range(2, 41),
    *,
    seeds: int = 10,
    shortlist: int = 3,
    seed: int = 0,
    specks: str = "drop",
    held_out: float | None = None,
    out: str | os.PathLike[str] | None = None,
    memory_limit: int | str | None = None,
    progress: Callable[[Study], None] | None = None,
    storage_options: storage.Options = None,
) -> KStudy:
    """Suggest a number of clusters, with the reason, or say that none stands out.

    Every K is screened by k-means on one spectral basis; the best few are then fitted from several starts. See
    the page *Choosing K* of the documentation for what is measured.

    Parameters
    ----------
    graph : str, path-like or GraphStore
        As in `fit`.
    ks : iterable of int, default 2 to 40
        The numbers of clusters to compare; those above the number of rows are refused.
    seeds : int, default 10
        Fits for each K of the shortlist.
    shortlist : int, default 3
        Number of K that are fitted; 0 screens only.
    seed : int, default 0
        Seed of the screening, and of the first fit.
    specks : {"drop", "own", "join"}, default "drop"
        As in `fit`.
    held_out : float, optional
        Share of the pairs of rows, as 0.1, that are hidden to measure how well the clusters of each K predict
        them; by default this is not measured. It takes about as long as the screening again. Use it for graphs
        whose edges are drawn at random, as in block models; on neighbour graphs it rises with K.
    out : str or path-like, optional
        A folder for the fits, as `fit_many` keeps them, and beside them ``ks.parquet``, ``labels.parquet`` with a
        column K2, K3, … for each K, and ``choice.json``. The same call resumes. Without it the fits go to a
        temporary folder of this machine; give one that all workers see if they are on others.
    memory_limit : int or str, optional
        As in `fit`.
    progress : callable, optional
        As in `fit_many`.
    storage_options : mapping, optional
        Passed to fsspec for URLs.

    Returns
    -------
    KStudy
        The suggestion, the table, and a partition for each K.

    Examples
    --------
    >>> import scipy.sparse, snmf_dist, tempfile
    >>> path = tempfile.mkdtemp() + "/cliques.zarr"
    >>> _ = snmf_dist.import_graph(scipy.sparse.block_diag([np.ones((9, 9))] * 3), path)
    >>> snmf_dist.choose_k(path, range(2, 6), seeds=2).k
    3
    """
    store = find_graph(graph, None, storage_options)
    wanted = _check_ks(ks, store)
    seeds, shortlist = whole_number("seeds", seeds, 1), whole_number("shortlist", shortlist, 0)
    choice("specks", specks, SPECKS)
    seed = whole_number("seed", seed, 0, 2**63 - 1 - seeds)
    folder = None if out is None else StudyFolder(storage.normal_path(out), storage_options)
    if folder is not None:
        folder.check()
        _check_graph(store, folder)
    if held_out is not None and positive_number("held_out", held_out) >= 1:
        raise InputError(f"held_out is {held_out}; expected a share of the pairs of rows below 1, as 0.1")
    plan = _plan(store, max(wanted), memory_limit=memory_limit)
    fits: Any = {"seeds": range(seed, seed + seeds), "specks": specks, "memory_limit": memory_limit}
    fits["storage_options"] = storage_options
    if folder is not None and shortlist:
        fit_many(
            store, ks=max(wanted), out=folder.path, dry_run=True, **fits
        )  # refuses another study before any work
    common: Any = {"k": max(wanted), "block_rows": None, "specks": specks}
    with machine.one_blas_thread():
        with loaded(store, common, plan=plan) as facts:
            found = screen(facts, wanted, seed=seed)
        rows, products = [dict(row) for row in found.rows], found.products
        if held_out is not None:
            scores, passes = held_out_scores(store, wanted, common, plan=plan, share=held_out, seed=seed)
            rows = [{**row, "held_out": score} for row, score in zip(rows, scores, strict=True)]
            products += passes
    back = np.argsort(store.order) if store.reordered else slice(None)
    labels = {K: np.ascontiguousarray(found.labels[back, i]) for i, K in enumerate(wanted)}
    fitted = sorted(row["k"] for row in rank(rows, {})[:shortlist])
    temporary, study = None, None
    if fitted:
        place = None if folder is None else folder.path
        if place is None:
            temporary = tempfile.mkdtemp(prefix="snmf-dist-", dir=machine.temporary_folder())
            place = os.path.join(temporary, "study")
            unused = weakref.finalize(found, shutil.rmtree, temporary, ignore_errors=True)
        study = fit_many(store, ks=fitted, out=place, progress=progress, **fits)
        if temporary is not None:
            unused.detach()
            weakref.finalize(study, shutil.rmtree, temporary, ignore_errors=True)  # lives as long as the study
    fits_of = [run for run in (study.rows if study else []) if run["param_k"] in fitted]
    fits_of = [run for run in fits_of if seed <= run["param_seed"] < seed + seeds]  # the folder may have more
    agreed, stable = _gather(study, fits_of, rows, seed=seed)
    labels |= {K: one.labels for K, one in agreed.items()}
    products += sum(run["n_products"] or 0 for run in fits_of)
    result = KStudy(suggest(rows, stable), rows, found.values, labels, agreed, study, products)
    if folder is not None:
        _save(result, folder)
    return result


def _check_ks(ks: Iterable[int], store: GraphStore) -> list[int]:
    """The numbers of clusters, in order."""
    if isinstance(ks, str) or not isinstance(ks, Iterable):
        raise InputError(f"ks is {ks!r}; expected numbers of clusters to compare, as range(2, 41)")
    wanted = sorted({whole_number("ks", K, 1, store.n, why=f", the rows of {store.path}") for K in ks})
    if not wanted:
        raise InputError("ks is empty; expected numbers of clusters to compare, as range(2, 41)")
    return wanted


def _check_graph(store: GraphStore, folder: StudyFolder) -> None:
    """Refuse the study of another graph: the tables that are written beside the fits are of one."""
    for name, known in (folder.read_spec().get("graphs", {}) if folder.exists() else {}).items():
        if known["fingerprint"] != store.fingerprint:
            raise InputError(
                f"{folder.path}: is a study of the graph {name} ({known['path']}), which is not {store.path}; "
                "give another out"
            )


def _plan(store: GraphStore, k: int, *, memory_limit: int | str | None) -> Plan:
    """How the graph is read: as a fit at the largest K would run."""
    client = synchronous(cluster.current_client())
    if client is not None:
        cluster.check_workers(client, store.path, store.options)
    return plan_fit(store, k, memory_limit=memory_limit)


def _gather(
    study: Study | None, fits: Sequence[Row], rows: Sequence[dict[str, Any]], *, seed: int
) -> tuple[dict[int, Consensus], dict[int, Stability]]:
    """Consensus and stability of the fits of each K; their numbers go into the rows."""
    common: dict[int, Consensus] = {}
    stable: dict[int, Stability] = {}
    done_of = [run for run in fits if run["state"] == "done"]
    for K in sorted({run["param_k"] for run in done_of}):
        assert study is not None, "what is fitted is in a study"
        done = sorted((run for run in done_of if run["param_k"] == K), key=lambda run: -run["captured"])
        solutions = [study.solution(run["run_id"]) for run in done]
        common[K] = consensus(solutions)
        stable[K] = stability(np.stack([one.labels for one in solutions], axis=1), seed=seed)
        shares = [run["captured_share"] for run in done if run["captured_share"] is not None] or [np.nan]
        row = next(row for row in rows if row["k"] == K)
        row |= stable[K]._asdict()
        row |= {"captured_share": float(np.mean(shares)), "lowest": min(shares), "highest": max(shares)}
    return common, stable


def _save(found: KStudy, folder: StudyFolder) -> None:
    """Write the table, the labels and the choice beside the fits."""
    folder.prepare()
    import pyarrow
    import pyarrow.parquet

    names = list(dict.fromkeys(name for row in found.rows for name in row))
    folder.write(SCREENED, parquet([{name: row.get(name) for name in names} for row in found.rows]))
    table = pyarrow.table({f"K{K}": labels for K, labels in found.labels.items()})
    buffer = pyarrow.BufferOutputStream()
    pyarrow.parquet.write_table(table, buffer, write_page_checksum=True)
    folder.write(LABELS, buffer.getvalue().to_pybytes())
    folder.write_choice(found.choice._asdict())
