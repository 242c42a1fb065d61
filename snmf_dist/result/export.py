"""A result in the formats of other programs; the suffix of the path names the format."""

import os
from collections.abc import Callable
from typing import Any

from snmf_dist import storage
from snmf_dist.errors import InputError, StoreExists
from snmf_dist.graph.store import open_graph
from snmf_dist.result.annotated import write_annotated
from snmf_dist.result.networks import write_network
from snmf_dist.result.tables import SUFFIXES, write_table

NETWORKS = (".gexf", ".graphml")


def export(solution: Any, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
    """Write a solution for other programs; `Solution.export` describes the parameters."""
    place = storage.normal_path(path)
    if storage.is_url(place):
        raise InputError(f"{place}: exports go to local paths; write it here and copy it")
    if place.endswith(".zarr"):
        write_annotated(place, solution)
        return
    check_new_file(place, (*SUFFIXES, *NETWORKS, ".zarr"), overwrite=overwrite)
    if place.endswith(SUFFIXES):
        write_whole(place, lambda part: write_table(part, solution))
    else:
        graph = open_graph(solution.provenance["graph"])
        write_whole(place, lambda part: write_network(part, solution, graph))


def check_new_file(path: str, suffixes: tuple[str, ...], *, overwrite: bool) -> None:
    """Refuse a file of another kind, one that is there, and one in a folder that is not."""
    if not path.endswith(suffixes):
        raise InputError(f"{path}: its suffix names no format; expected one of {', '.join(suffixes)}")
    if os.path.exists(path) and not overwrite:
        raise StoreExists(f"{path}: already exists; choose another path, or pass overwrite=True (--overwrite)")
    if not os.path.isdir(os.path.dirname(path)):
        raise InputError(f"{os.path.dirname(path)}: no such directory; make it first")


def write_whole(path: str, write: Callable[[str], None]) -> None:
    """Let `write` write beside `path`, and move the file there when it is whole."""
    folder, name = os.path.split(path)
    part = os.path.join(folder, f".partial-{os.getpid()}-{name}")
    try:
        with storage.naming_full_disk(path, "write it again"):
            write(part)
            os.replace(part, path)
    finally:
        if os.path.exists(part):
            os.remove(part)
