"""The arguments of `fit` and `plan_fit`: checked, and opened if they are paths."""

import inspect
import os
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

from snmf_dist import storage
from snmf_dist.errors import InputError, ResultWarning
from snmf_dist.graph.build import build_graph, is_points, is_similarity_matrix
from snmf_dist.graph.store import GraphStore, open_graph
from snmf_dist.ids import PIECE
from snmf_dist.result.foldin import take_rows
from snmf_dist.result.solution import Solution, open_solution
from snmf_dist.solve.parts import SPECKS, count_parts
from snmf_dist.solve.pipeline import INITS, SPECTRAL, STOPS
from snmf_dist.solve.solvers import SOLVERS
from snmf_dist.validation import choice, known_names, positive_number, whole_number

RHO_TIMES = 10  # distance of ρ from the ends of the range of a dtype, so that 1/ρ is finite


def find_graph(
    source: str | os.PathLike[str] | GraphStore,
    settings: Mapping[str, Any] | None = None,
    options: storage.Options = None,
) -> GraphStore:
    """Open a graph store, or build the graph of points beside them; `settings` are those of `build_graph`."""
    if isinstance(source, GraphStore):
        return source
    if not isinstance(source, str | os.PathLike):
        raise InputError(
            f"fit was given a {type(source).__name__}; expected the path of a graph store or of points: write it "
            "with import_graph or build_graph first"
        )
    path = storage.normal_path(source)
    if not is_points(path, options):
        if settings is not None:
            raise InputError(f"{path}: holds a graph, not points; leave graph_settings out")
        return open_graph(path, storage_options=options)
    _check_graph_settings(settings or {})
    out = f"{path.removesuffix('/')}.graph.zarr"
    if is_similarity_matrix(path):
        raise InputError(
            f"{path}: holds a square, symmetric, nonnegative matrix: similarities, or points? Expected a graph "
            f"store, or points. If it holds similarities, write a graph store with import_graph({path!r}, out) "
            f"(snmf-dist import); if each row is a point, with build_graph({path!r}, out) (snmf-dist graph); then "
            "fit that store"
        )
    return build_graph(path, out, reuse=True, storage_options=options, **(settings or {}))


def _check_graph_settings(settings: Mapping[str, Any]) -> None:
    """Refuse settings that `build_graph` does not have, or that `fit` gives itself."""
    if not isinstance(settings, Mapping):
        raise InputError(
            f"graph_settings is a {type(settings).__name__}; expected a mapping of settings of build_graph, as "
            '{"metric": "cosine"}'
        )
    parameters = inspect.signature(build_graph).parameters.values()
    valid = {parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY}
    known_names("graph_settings", settings, valid - {"reuse", "storage_options"})


def check_fit(graph: GraphStore, **given: Any) -> dict[str, Any]:
    """Check the settings of `fit` against the graph, and fill in defaults; a given start becomes its name."""
    given["k"] = whole_number("k", given["k"], 1, graph.n, why=f", the rows of {graph.path}")
    for name in ("max_iter", "evaluate_every", "n_init"):
        given[name] = whole_number(name, given[name], 1)
    given["seed"] = whole_number("seed", given["seed"], 0, 2**63 - 1)
    if given["block_rows"] is not None:
        given["block_rows"] = whole_number("block_rows", given["block_rows"], 1)
    choice("solver", given["solver"], tuple(SOLVERS))
    choice("stop", given["stop"], tuple(STOPS))
    choice("specks", given["specks"], SPECKS)
    if given["specks"] == "join" and graph.components != 1 and graph.anchor is None:
        raise InputError(
            f"specks is 'join', but {graph.path} does not say where its small parts would be joined: "
            + (
                "too many rows are in them; build the graph with connect=True or more neighbors"
                if graph.recall is not None
                else "an imported graph knows no distances; use 'drop' or 'own'"
            )
        )
    if not (isinstance(given["rho"], str) and given["rho"] == "auto"):
        given["rho"] = positive_number("rho", given["rho"], or_else='"auto"')
        low, high = RHO_TIMES * float(np.finfo(graph.dtype).tiny), float(np.finfo(graph.dtype).max) / RHO_TIMES
        if not low <= given["rho"] <= high:
            raise InputError(
                f"rho is {given['rho']:g}; expected {low:.0e} to {high:.0e} for a {graph.dtype} graph, whose "
                "arithmetic knows no smaller and no larger numbers"
            )
    given["tol"] = positive_number("tol", STOPS[given["stop"]] if given["tol"] is None else given["tol"])
    if not (isinstance(given["init"], str) and given["init"] in INITS):
        given["init"] = name_start(given["init"], n_init=given["n_init"])
    given["basis_columns"] = _basis_columns(graph, given)
    finest = 10 * float(np.finfo(graph.dtype).eps)
    if given["tol"] < finest:
        warnings.warn(
            f"tol is {given['tol']:g}, finer than the rounding of a {graph.dtype} graph lets a run settle (about "
            f"{finest:.0e}); loosen tol"
            + (", or import the graph with dtype='float64'" if graph.dtype == np.float32 else ""),
            ResultWarning,
            stacklevel=3,
        )
    return given


def _basis_columns(graph: GraphStore, given: Mapping[str, Any]) -> int | None:
    """The columns of the basis that a start is cut from, None if it has a basis of its own or none at all.

    Where K clusters see fewer parts of the graph than as many clusters as columns would, or the parts are more
    than K, the leading eigenvectors are others, and K columns are what the start is made from.
    """
    k, columns = given["k"], given.get("basis_columns")
    if columns is None:
        return None
    columns = whole_number("basis_columns", columns, 1, graph.n, why=f", the rows of {graph.path}")
    if given["init"] not in SPECTRAL:
        return None
    if columns < k:
        raise InputError(f"basis_columns is {columns}; expected at least k, which is {k}")
    sizes = graph.component_sizes
    if sizes is None:
        return columns
    count, _ = count_parts(sizes, K=k, specks=given["specks"])
    of_all, _ = count_parts(sizes, K=columns, specks=given["specks"])
    return columns if count == of_all and count <= k else k


def name_start(init: Any, *, n_init: int) -> str:
    """The kind of the start that the user gave: "array" or "solution"."""
    if not isinstance(init, str | os.PathLike | Solution | np.ndarray):
        raise InputError(
            f"init is a {type(init).__name__}; expected one of {', '.join(INITS)}, an array (n, k), a Solution or "
            "the path of a saved one"
        )
    if n_init > 1:
        raise InputError(f"n_init is {n_init}, but init gives one start; leave n_init out, or init")
    return "array" if isinstance(init, np.ndarray) else "solution"


def open_start(
    graph: GraphStore, init: Any, settings: dict[str, Any], options: storage.Options
) -> Solution | np.ndarray | None:
    """The array or solution to begin at, checked against the graph; None if `settings["init"]` is a name."""
    if settings["init"] in INITS:
        return None
    if isinstance(init, str | os.PathLike):
        path = storage.normal_path(init)
        if isinstance(init, str) and not storage.exists(path, options):
            raise InputError(
                f"init is {init!r}; expected one of {', '.join(INITS)}, or the path of a saved result"
            )
        init = open_solution(path, storage_options=options)
    if isinstance(init, Solution) and init.provenance.get("fingerprint") != graph.fingerprint:
        mapped = _rows_by_ids(graph, init)
        init = init if mapped is None else mapped
    shape = init.membership.shape if isinstance(init, Solution) else init.shape
    if shape != (graph.n, settings["k"]):
        raise InputError(
            f"init has shape {shape}; expected {(graph.n, settings['k'])}, the rows of the graph by k"
        )
    if isinstance(init, np.ndarray):
        if not np.issubdtype(init.dtype, np.integer) and not np.issubdtype(init.dtype, np.floating):
            raise InputError(f"init has entries of type {init.dtype}; expected real numbers")
        with np.errstate(over="ignore"):
            init = init.astype(graph.dtype)
        if not np.isfinite(init).all() or (init < 0).any():
            raise InputError(f"init holds entries that are negative or not finite {graph.dtype} numbers")
        if not init.any():
            raise InputError("init is all zeros, which no solver leaves; give it some memberships")
    return init


def _rows_by_ids(graph: GraphStore, old: Solution) -> np.ndarray | None:
    """The memberships of a result at the rows with the same ids, zeros in new rows; None without ids."""
    ids = graph.ids
    if ids is None or old.ids is None or old.ids.kind != ids.kind:
        return None
    rows = old.ids.find(ids.to_arrow())
    known = np.flatnonzero(rows >= 0)
    if not len(known):
        raise InputError(
            f"none of the {len(ids)} ids of {graph.path} is among the {len(old.ids)} ids of the result that init "
            "gives; expected rows that both have, or another init"
        )
    L = np.zeros((len(rows), old.k), dtype=graph.dtype)
    for start in range(0, len(known), PIECE):
        some = known[start : start + PIECE]
        L[some] = take_rows(old.membership, rows[some])
    return L
