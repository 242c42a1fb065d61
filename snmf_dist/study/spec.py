"""What a study runs: graphs and settings become runs, each checked and named by a hash, before any work."""

import hashlib
import inspect
import itertools
import json
import numbers
import os
import warnings
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from snmf_dist.api import fit
from snmf_dist.arguments import check_fit, find_graph
from snmf_dist.errors import InputError
from snmf_dist.graph.store import GraphStore
from snmf_dist.result.scores import read_labels
from snmf_dist.solve.pipeline import INITS, SPECTRAL
from snmf_dist.solve.solvers import SOLVERS
from snmf_dist.validation import choice, known_names, whole_number

RUN_FORMAT = 1  # of `run_id`: another number gives every run another name
AXES = {"k": "ks", "seed": "seeds", "solver": "solvers", "init": "inits", "rho": "rhos"}  # setting: argument
NOT_OF_A_RUN = {"zarr_path", "out", "overwrite", "resume", "listeners", "time_limit", *AXES}
HOW = ("save_state", "memory_limit", "checkpoint_every")  # settings that do not change what a run finds
PLACES = ("graph_settings", "storage_options")  # settings that lead to the graphs

Graphs = Any  # a path or GraphStore, several of them, or a mapping of names to them


@dataclass(frozen=True)
class StudyGraph:
    """One graph of a study.

    Attributes
    ----------
    name : str
        What the table calls it: as the user does, or the name of its folder.
    store : GraphStore
        The graph store.
    labels : ndarray, (n,), or None
        Known labels to compare with.
    """

    name: str
    store: GraphStore
    labels: np.ndarray | None = None

    @cached_property
    def labels_id(self) -> int | None:
        """A checksum of which rows have a label in common; None without labels."""
        if self.labels is None:
            return None
        return zlib.crc32(np.unique(self.labels, return_inverse=True)[1].astype(np.int64).tobytes())


@dataclass(frozen=True)
class Run:
    """One run of a study: `settings` are those of `fit`, checked."""

    run_id: str
    graph: str
    settings: Mapping[str, Any]

    def __str__(self) -> str:
        named = ", ".join(f"{name}={self.settings[name]}" for name in ("k", "solver", "init", "rho", "seed"))
        return f"{self.run_id} ({self.graph}, {named})"


def run_id(fingerprint: str, settings: Mapping[str, Any]) -> str:
    """Name a run by its graph and its settings, 16 hexadecimal digits.

    Examples
    --------
    >>> run_id("f00", {"k": 3, "seed": 0}) == run_id("f00", {"seed": 0, "k": 3})
    True
    """
    text = json.dumps([RUN_FORMAT, fingerprint, dict(settings)], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def open_graphs(graphs: Graphs, labels: Any, given: Mapping[str, Any]) -> list[StudyGraph]:
    """Open the graphs of a study, and the known labels of each.

    Parameters
    ----------
    graphs : path, GraphStore, sequence or mapping of these
        A mapping gives the names.
    labels : array, path, mapping or None
        Known labels of the only graph, or a mapping from the names of graphs.
    given : mapping
        `graph_settings` and `storage_options` of `fit`, if they were given.
    """
    if isinstance(graphs, str | os.PathLike | GraphStore):
        graphs = [graphs]
    if not isinstance(graphs, Mapping):
        if not isinstance(graphs, Iterable):
            raise InputError(
                f"graphs is a {type(graphs).__name__}; expected the path of a graph store, or several"
            )
        graphs = list(graphs)
        graphs = dict(zip(_names(graphs), graphs, strict=True))
    if not graphs:
        raise InputError("graphs is empty; expected the path of a graph store, or several")
    options = given.get("storage_options")
    stores = {str(name): find_graph(one, given.get("graph_settings"), options) for name, one in graphs.items()}
    known = _known_labels(labels, stores)
    return [StudyGraph(name, store, known.get(name)) for name, store in stores.items()]


def _names(graphs: Sequence[Any]) -> list[str]:
    """Names for graphs: their file names without ending, numbered where these repeat."""
    for one in graphs:
        if not isinstance(one, str | os.PathLike | GraphStore):
            raise InputError(f"graphs has a {type(one).__name__}; expected paths of graph stores")
    paths = [one.path if isinstance(one, GraphStore) else os.fspath(one) for one in graphs]
    plain = [os.path.basename(path.rstrip("/")).removesuffix(".zarr") for path in paths]
    return [name if plain.count(name) == 1 else f"{name}-{i}" for i, name in enumerate(plain)]


def _known_labels(labels: Any, stores: Mapping[str, GraphStore]) -> dict[str, np.ndarray]:
    if labels is None:
        return {}
    if not isinstance(labels, Mapping):
        if len(stores) > 1:
            raise InputError(
                f"labels are given for one graph, but there are {len(stores)}; expected a mapping from their "
                f"names ({', '.join(stores)})"
            )
        labels = {next(iter(stores)): labels}
    known_names("labels", labels, set(stores))
    found = {}
    for name, one in labels.items():
        n = stores[name].n
        array = read_labels(os.fspath(one), n=n) if isinstance(one, str | os.PathLike) else np.asarray(one)
        if array.shape != (n,):
            raise InputError(f"labels of {name} have shape {array.shape}; expected ({n},), one for each row")
        found[name] = array
    return found


def check_common(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Check the names of the settings that apply to all runs; those of the grid have arguments of their own."""
    for name in settings:
        if name in AXES:
            raise InputError(
                f"{name} is a setting of the grid; give {AXES[name]} instead, with one or more values"
            )
    valid = set(inspect.signature(fit).parameters) - NOT_OF_A_RUN
    known_names("fit_many", settings, valid)
    return dict(settings)


def expand(
    graphs: Sequence[StudyGraph],
    grid: Mapping[str, Any],
    runs: Iterable[Mapping[str, Any]],
    common: Mapping[str, Any],
    before: Iterable[Mapping[str, Any]] = (),
) -> list[Run]:
    """All runs, in the order of the grid, each once; a run that cannot be is refused by name.

    Runs on one graph that start from eigenvectors get `basis_columns` in common: the largest k of them. Those that
    the study had before keep theirs, so that a larger grid does not change them.

    Parameters
    ----------
    grid : mapping
        Values of each setting in `AXES`.
    runs : iterable of mapping
        Further runs, by their settings; ``graph`` names the graph where there are several.
    common : mapping
        Settings of all runs, as `check_common` returned them.
    before : iterable of mapping
        Runs that the study had before, as ``study.json`` has them.
    """
    values = {name: _values(name, given) for name, given in grid.items()}
    wanted = [
        (graph, dict(zip(values, one, strict=True)))
        for graph in graphs
        for one in itertools.product(*values.values())
    ]
    if not isinstance(runs, Iterable) or isinstance(runs, str | Mapping):
        raise InputError(f"runs is {runs!r}; expected a list of settings of fit, as [{{'k': 10, 'seed': 3}}]")
    wanted += [_listed(graphs, one) for one in runs]
    known = {_but_for_basis(one["graph"], one["settings"]): one["settings"].get("basis_columns") for one in before}
    given = [(graph, {**common, **settings}) for graph, settings in wanted]
    with _each_warning_once():
        runs_of = [(graph, settings, _checked(graph, settings)) for graph, settings in given]
    widest: dict[str, int] = {}
    for graph, settings, run in runs_of:
        if "basis_columns" not in settings and run.settings["init"] in SPECTRAL:
            widest[graph.name] = max(widest.get(graph.name, 0), run.settings["k"])
    found: dict[str, Run] = {}
    for graph, settings, run in runs_of:
        if "basis_columns" not in settings and run.settings["init"] in SPECTRAL:
            columns = known.get(_but_for_basis(graph.name, run.settings), widest[graph.name])
            with warnings.catch_warnings(action="ignore"):  # of settings that were warned of above
                run = _checked(graph, {**settings, "basis_columns": columns})
        found.setdefault(run.run_id, run)
    if not found:
        empty = [AXES[name] for name, given in values.items() if not given]
        raise InputError(f"there is nothing to run: {', '.join(empty) or 'ks'} is empty; give at least one value")
    return list(found.values())


@contextmanager
def _each_warning_once() -> Iterator[None]:
    """Many runs may have the same to warn of: say it once."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    for one in {str(warning.message): warning for warning in caught}.values():
        warnings.warn(one.message, one.category, stacklevel=5)


def _but_for_basis(graph: str, settings: Mapping[str, Any]) -> str:
    """What a run is, whatever basis it shares."""
    return json.dumps([graph, {**settings, "basis_columns": None}], sort_keys=True)


def _values(name: str, given: Any) -> list[Any]:
    """The values of a setting: one or several; `seeds` may also be how many there are."""
    if given is None:
        return []
    if name == "seed" and isinstance(given, numbers.Integral) and not isinstance(given, bool):
        return list(range(whole_number("seeds", given, 1)))
    if isinstance(given, str | numbers.Number):
        return [given]
    if not isinstance(given, Iterable) or isinstance(given, Mapping):
        raise InputError(f"{AXES[name]} is {given!r}; expected one value or several")
    return list(given)


def _listed(graphs: Sequence[StudyGraph], one: Mapping[str, Any]) -> tuple[StudyGraph, dict[str, Any]]:
    """Graph and settings of a run that was listed by itself."""
    if not isinstance(one, Mapping):
        raise InputError(f"a run is {one!r}; expected a mapping of settings of fit, as {{'k': 10, 'seed': 3}}")
    settings = dict(one)
    names = {graph.name: graph for graph in graphs}
    name = settings.pop("graph", next(iter(names)) if len(names) == 1 else None)
    if name not in names:
        raise InputError(f"a run has graph {name!r}; expected one of {', '.join(names)}")
    known_names("a run", settings, set(inspect.signature(check_settings).parameters) - {"store"})
    if "k" not in settings:
        raise InputError(f"a run has no k: {dict(one)!r}; give its number of clusters")
    return names[name], {"seed": 0, "solver": "admm", "init": "kmeans", "rho": "auto", **settings}


def _checked(graph: StudyGraph, given: Mapping[str, Any]) -> Run:
    """A run whose settings are checked against its graph."""
    parameters = inspect.signature(check_settings).parameters
    try:
        for name, choices in (("init", INITS), ("solver", tuple(SOLVERS))):
            if not isinstance(given[name], str):
                raise InputError(f"{name} is a {type(given[name]).__name__}; a study takes it by name")
            choice(name, given[name], choices)
        settings = check_settings(graph.store, **{name: v for name, v in given.items() if name in parameters})
    except InputError as error:
        named = ", ".join(f"{name}={given[name]}" for name in AXES if name in given)
        raise InputError(f"the run {named} on {graph.name}: {error}") from None
    return Run(run_id(graph.store.fingerprint, settings), graph.name, settings)


def check_settings(
    store: GraphStore,
    *,
    k: int,
    seed: int,
    solver: str,
    init: str,
    rho: float | str,
    stop: str = "auto",
    tol: float | None = None,
    max_iter: int = 1000,
    n_init: int = 1,
    basis_columns: int | None = None,
    specks: str = "drop",
    block_rows: int | None = None,
    evaluate_every: int = 10,
) -> dict[str, Any]:
    """The settings of a run as `fit` checks them and fills them in: all that its result depends on."""
    given = {name: value for name, value in locals().items() if name != "store"}
    return check_fit(store, **given)
