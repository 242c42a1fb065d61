"""What a build keeps so that new points can be placed: the scales of the rows, and how points are transformed.

The arrays are in the group ``search`` of a graph store, with their checksums in the manifest under ``search``;
stores of snmf-dist 0.1 and imported graphs have none.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import zarr

from snmf_dist import storage, verified
from snmf_dist.errors import InputError, StoreCorrupt
from snmf_dist.graph.store.reader import GraphStore

KEPT_ARRAYS = ("scales", "shift", "projection")


@dataclass(frozen=True)
class Kept:
    """How the points of a graph were read, and the scale of each.

    Attributes
    ----------
    scales : ndarray, shape (n,)
        σ of each row, in the order of the graph's rows.
    shift : ndarray, shape (d,) or (1,)
        Subtracted from each point.
    divisor : float
        Each point is divided by it.
    projection : ndarray, shape (pca, d), or None
        Principal components.
    """

    scales: np.ndarray
    shift: np.ndarray
    divisor: float
    projection: np.ndarray | None = None


def write_kept(group: zarr.Group, kept: Kept) -> dict[str, Any]:
    """Write the arrays into a graph store that is not finished; what its manifest says of them."""
    place, shapes, checksums = group.create_group("search", overwrite=True), {}, {}
    for name in KEPT_ARRAYS:
        values = getattr(kept, name)
        if values is not None:
            shapes[name] = list(values.shape)
            checksums[name] = storage.write_vector(place, name, np.asarray(values, dtype=np.float64).ravel())
    return {"divisor": float(kept.divisor), "shapes": shapes, "checksums": checksums}


def read_kept(store: GraphStore) -> Kept:
    """Read what the build of a graph kept, checked."""
    facts = store.block.get("search")
    if not isinstance(facts, dict):
        raise InputError(
            f"{store.path}: keeps no scales of its points, so new points cannot be placed; if it was imported, "
            "give edges of new nodes to known ones (solution.new_nodes); if an earlier version built it, build it "
            "again with build_graph(overwrite=True)"
        )
    group = storage.open_group(store.path, store.options)
    found: dict[str, np.ndarray] = {}
    for name, shape in facts["shapes"].items():
        size = (int(np.prod(shape)),)
        array = verified.find_array(group, f"search/{name}", store.path, shape=size, dtypes=[np.float64])
        whole = verified.read_whole(array, facts["checksums"][name], store.path, f"search/{name}")
        found[name] = whole.reshape(shape)
    if len(found["scales"]) != store.n:
        raise StoreCorrupt(f"{store.path}: has {len(found['scales'])} scales; expected {store.n}, one a row")
    return Kept(divisor=facts["divisor"], **found)
