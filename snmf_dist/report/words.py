"""A result in words and numbers: the verdict, the command that makes it again, and how numbers are written."""

import math
import shlex
from typing import Any

import numpy as np

DEFAULTS = {
    "solver": "admm",
    "init": "kmeans",
    "rho": "auto",
    "stop": "auto",
    "max_iter": 1000,
    "n_init": 1,
    "specks": "drop",
    "seed": 0,
    "block_rows": None,
    "evaluate_every": 10,
}
POINTS_DEFAULTS = {
    "scale_neighbor": 7,
    "metric": "euclidean",
    "pca": None,
    "seed": 0,
    "replication": 1.6,
    "columns": None,
    "key": None,
}
TOLERANCES = {"auto": 1e-5, "kkt": 1e-4, "paper": 1e-5}


def count(value: float) -> str:
    """A whole number, with commas between thousands.

    Examples
    --------
    >>> count(1234567)
    '1,234,567'
    """
    return f"{int(value):,}"


def share(value: float, digits: int = 1) -> str:
    """A share in per cent; a dash where there is none.

    Examples
    --------
    >>> share(0.1234), share(0.99996), share(0.0001), share(float("nan"))
    ('12.3 %', '> 99.9 %', '< 0.1 %', '–')
    """
    if not math.isfinite(value):
        return "–"
    text = f"{100 * value:.{digits}f}"
    if text == f"{100:.{digits}f}" and value < 1:
        return f"> {100 - 10.0**-digits:.{digits}f} %"
    if value > 0 and not float(text):
        return f"< {10.0**-digits:.{digits}f} %"
    return f"{text} %"


def size(value: float | None) -> str:
    """Bytes for people.

    Examples
    --------
    >>> size(1_500_000), size(None)
    ('1.5 MB', '–')
    """
    if value is None:
        return "–"
    for unit in ("B", "kB", "MB", "GB"):
        if value < 999.5:
            return f"{value:.3g} {unit}"
        value /= 1000
    return f"{value:,.3g} TB"


def duration(seconds: float) -> str:
    """Seconds for people.

    Examples
    --------
    >>> duration(0.034), duration(75), duration(4000)
    ('34 ms', '1 min 15 s', '1 h 7 min')
    """
    if seconds < 1:
        return f"{1000 * seconds:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {round(whole % 3600 / 60)} min"


def verdict(solution: Any, modularity: float) -> str:
    """How the run ended, how many clusters there are, and how well they fit, in a sentence or two."""
    sizes, status = solution.sizes, solution.status
    found = int(np.count_nonzero(sizes))
    clusters = f"{found} cluster{'s' if found != 1 else ''}" + ("" if found == solution.k else f" of {solution.k}")
    ended = "converged" if status.converged else "did not converge"
    fit = []
    if solution.bound > 0:
        fit.append(f"capture {share(solution.captured / solution.bound)} of the energy that any {solution.k} can")
    if math.isfinite(modularity):
        fit.append(f"have modularity {modularity:.3f}")
    text = f"{clusters} of {count(len(solution.labels))} rows; the run {ended} after {solution.n_iter} iteration"
    text += "s." if solution.n_iter != 1 else "."
    return text + (f" The clusters {' and '.join(fit)}." if fit else "")


def fit_command(solution: Any) -> str:
    """The command line that makes the result again; what it cannot say is a comment."""
    settings = solution.settings
    parts = ["snmf-dist", "fit", str(solution.provenance.get("graph", "GRAPH")), "-k", str(solution.k)]
    notes = []
    for name, default in DEFAULTS.items():
        value = settings.get(name, default)
        if name == "init" and value not in ("kmeans", "spectral", "random"):
            notes.append(f"# the start was given as an {value}: --init PATH takes that of a saved result")
        elif value != default:
            parts += [f"--{name.replace('_', '-')}", str(value)]
    if settings.get("basis_columns") is not None:
        notes.append(f"# from Python, with basis_columns={settings['basis_columns']}")
    stop = settings.get("stop", "auto")
    if settings.get("tol", TOLERANCES.get(stop)) != TOLERANCES.get(stop):
        parts += ["--tol", f"{settings['tol']:g}"]
    return "\n".join([*notes, f"{shlex.join(parts)} --out result.zarr"])


def graph_command(made: Any, path: str) -> str | None:
    """The command line that makes the graph again; what it cannot say is a comment. None for older graphs."""
    if "asked" in made:
        return _import_command(made, path)
    source = made.get("source")
    if "neighbors" not in made or not isinstance(source, str):
        return None
    if source == "points in memory":
        return "# the graph was built from an array in memory: snmf_dist.build_graph(X, …)"
    parts = ["snmf-dist", "graph", source, path, "--neighbors", str(made["neighbors"])]
    for name, default in POINTS_DEFAULTS.items():
        value = made.get(name, default)
        if value != default:
            parts += [f"--{name.replace('_', '-')}", ",".join(value) if name == "columns" else str(value)]
    if "exact" in made:
        parts.append("--exact" if made["exact"] else "--approximate")
    return shlex.join(parts + (["--connect"] if made.get("connect") else []))


def _import_command(made: Any, path: str) -> str:
    asked = dict(made["asked"])
    source = asked.pop("path", None)
    if source is None:
        return f"# the graph was imported from {made.get('source', 'an object')}: snmf_dist.import_graph(…)"
    parts, notes = ["snmf-dist", "import", source, path], []
    for name, value in asked.items():
        if name == "reorder":
            parts.append("--no-reorder")
        elif (name, value) == ("ids", "given"):
            notes.append("# from Python, with ids=…, the names of the rows")
        else:
            text = ",".join(value) if name == "columns" else "none" if value is None else str(value)
            parts += [f"--{'nodes' if name == 'n' else name.replace('_', '-')}", text]
    return "\n".join([*notes, shlex.join(parts)])
