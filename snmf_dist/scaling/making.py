"""The graphs of a scaling study. Large ones are made in a process of their own: making one leaves memory behind.

``python -m snmf_dist.scaling.making '{"path": …}'`` is that process.
"""

import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import warnings
from typing import Any

from snmf_dist.errors import WorkLost
from snmf_dist.graph.ingest import import_graph
from snmf_dist.planted import generate

LARGE = 1e6  # entries of a graph that is made in a process of its own
DIES_WITH_PARENT = 1  # PR_SET_PDEATHSIG


def make_graph(
    path: str, truth: str, rows: int, k: int, seed: int, memory_limit: int | str | None, model: dict[str, Any]
) -> None:
    """Write a graph store with planted clusters to `path`, and the clusters to `truth`.

    Parameters
    ----------
    rows, k, seed
        As in `generate`.
    memory_limit : int, str or None
        As in `import_graph`.
    model : dict
        Settings of the block model.
    """
    edges = path.removesuffix(".zarr") + "-edges"
    importing: Any = {"n": rows, "symmetrize": "max", "reorder": False, "memory_limit": memory_limit}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        made = generate("graph", edges, rows, k, seed=seed, overwrite=True, **model)
        import_graph(made.data, path, overwrite=True, **importing)
    os.replace(made.truth, truth)
    shutil.rmtree(edges)


def make_apart(**settings: Any) -> None:
    """Do the same, in a process of its own if the graph is large."""
    if settings["rows"] * settings["model"]["degree"] < LARGE:
        make_graph(**settings)
        return
    command = [sys.executable, "-m", "snmf_dist.scaling.making", json.dumps(settings)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise WorkLost(
            f"{settings['path']}: the graph could not be made ({said[-1]}); give the same command again"
        )


if __name__ == "__main__":
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(DIES_WITH_PARENT, signal.SIGKILL)
    make_graph(**json.loads(sys.argv[1]))
