"""generate(): points or edges with known clusters in files, block by block, on threads or workers."""

import json
import math
import os
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import zarr

from snmf_dist import storage
from snmf_dist.engine.client import check_workers, current_client, run_tasks
from snmf_dist.errors import InputError, StoreExists, StoreNotFound
from snmf_dist.graph.store import StageProgress, silent
from snmf_dist.locks import only_writer
from snmf_dist.planted.blockmodel import BLOCK_NODES, BlockModel
from snmf_dist.planted.mixture import CurvedMixture
from snmf_dist.validation import choice, known_names, positive_number, synchronous, whole_number

POINTS, EDGES, TRUTH, NOTE = "points.zarr", "edges", "truth.npy", "made.json"
PLANTED_DEFAULTS: dict[str, dict[str, Any]] = {
    "points": {"dimensions": 32, "separation": 4.0, "intrinsic": None, "curvature": 0.5, "noise": 0.3},
    "graph": {"degree": 30.0, "exponent": 3.0, "mixing": 0.2, "shuffle": True},
}


class Planted(NamedTuple):
    """Where generated data are.

    Attributes
    ----------
    data : str
        Points for `build_graph`, or edges for `import_graph`.
    truth : str
        A ``.npy`` file with the cluster of each row, (n,) int32.
    settings : dict
        What they were made with.
    """

    data: str
    truth: str
    settings: dict[str, Any]


def generate(
    kind: str,
    out: str | os.PathLike[str],
    n: int,
    k: int,
    *,
    seed: int = 0,
    sizes: Sequence[float] | None = None,
    overwrite: bool = False,
    progress: StageProgress | None = None,
    **settings: Any,
) -> Planted:
    """Write points or a graph of any size with known clusters.

    Each block is made from the seed and its number alone, on the workers of the current `distributed.Client` or
    on threads. So the files are the same for any number of workers, and no process holds all rows.

    Parameters
    ----------
    kind : {"points", "graph"}
        Points of curved clusters that may overlap, or edges of a degree-corrected block model.
    out : str or path-like
        A folder to make, which all workers see. It gets ``points.zarr`` or ``edges/`` (Parquet files that
        `import_graph` takes together, with ``symmetrize="max"``), ``truth.npy`` and ``made.json``.
    n : int
        Number of rows: of points, or of nodes.
    k : int
        Number of clusters.
    seed : int, default 0
        Seed of the random number generators.
    sizes : sequence of float, optional
        Relative sizes of the clusters; by default all are equal.
    overwrite : bool, default False
        Replace what an earlier call made at `out`.
    progress : callable, optional
        Called as ``progress(stage, done, total)``.
    **settings
        Settings of points:

        - ``dimensions``, default 32: how many numbers a point has.
        - ``separation``, default 4: the distance of the two nearest centres, in standard deviations of a
          coordinate within a cluster.
        - ``intrinsic``, default 5, or half of the dimensions if that is less: how many directions a cluster
          extends in.
        - ``curvature``, default 0.5: how much a cluster bends; 0 makes flat ones.
        - ``noise``, default 0.3: the share of the variance within a cluster that is the same in all directions.

        Settings of graphs:

        - ``degree``, default 30: the mean number of edges of a node.
        - ``exponent``, default 3: γ of the power law of degrees, above 2; infinity makes equal expected degrees.
        - ``mixing``, default 0.2: the share of edges that lead to another cluster.
        - ``shuffle``, default True: whether nodes are numbered at random.

    Returns
    -------
    Planted
        The paths of the data and of the true clusters, and all settings.

    Examples
    --------
    >>> import numpy as np, snmf_dist, tempfile
    >>> made = snmf_dist.generate("graph", tempfile.mkdtemp() + "/toy", 400, 4, degree=20, mixing=0.1)
    >>> graph = snmf_dist.import_graph(made.data, tempfile.mkdtemp() + "/g.zarr", n=400, symmetrize="max")
    >>> solution = snmf_dist.fit(graph, 4)
    >>> snmf_dist.score(solution.labels, np.load(made.truth)).accuracy > 0.95
    True
    """
    synchronous(current_client())
    model = check_model(kind, n, k, seed=seed, sizes=sizes, settings=settings)
    path = storage.normal_path(out)
    _check_place(path, overwrite=overwrite)
    note = {"snmf_dist": "planted", "kind": kind, **asdict(model)}
    with storage.naming_full_disk(path, "generate the data again"), only_writer(path):
        parent, name = os.path.split(path)
        work = tempfile.mkdtemp(prefix=f".{name}.", suffix=storage.PARTIAL, dir=parent)
        try:
            client = current_client()
            if client is not None:
                check_workers(client, work)
            if isinstance(model, CurvedMixture):
                _write_points(model, work, progress or silent)
            else:
                _write_graph(model, work, progress or silent)
            with open(os.path.join(work, NOTE), "w", encoding="utf-8") as file:
                json.dump(note, file, indent=1)
            os.chmod(work, 0o755)  # mkdtemp's are private
            if os.path.lexists(path):
                _check_place(path, overwrite=overwrite)
                shutil.rmtree(path)
            os.rename(work, path)
        finally:
            shutil.rmtree(work, ignore_errors=True)
    data = POINTS if kind == "points" else EDGES
    return Planted(os.path.join(path, data), os.path.join(path, TRUTH), note)


def check_model(
    kind: str, n: int, k: int, *, seed: int, sizes: Sequence[float] | None, settings: dict[str, Any]
) -> CurvedMixture | BlockModel:
    """Check the arguments of `generate`, and return what makes the blocks."""
    choice("kind", kind, ("points", "graph"))
    whole_number("n", n, 2)
    whole_number("k", k, 1, n)
    whole_number("seed", seed, 0)
    known_names(f"generate({kind!r})", settings, PLANTED_DEFAULTS[kind])
    given = {**PLANTED_DEFAULTS[kind], **settings}
    common: dict[str, Any] = {"n": int(n), "k": int(k), "seed": int(seed), "shares": _shares(k, sizes)}
    if kind == "points":
        return CurvedMixture(**common, **_check_points(given))
    model = BlockModel(**common, **_check_graph(given))
    empty = np.flatnonzero(np.diff(model.starts) == 0)
    if len(empty):
        raise InputError(f"sizes: cluster {empty[0]} gets none of {n} nodes; expected at least one for each")
    most = 1 - float(np.sum((np.diff(model.starts) / n) ** 2))
    if model.mixing > most:
        raise InputError(
            f"mixing is {model.mixing}; expected at most {most:.3g}; above that, edges ignore the clusters"
        )
    return model


def _shares(k: int, sizes: Sequence[float] | None) -> tuple[float, ...]:
    if sizes is None:
        return (1 / k,) * k
    values = [positive_number(f"sizes[{i}]", size) for i, size in enumerate(sizes)]
    if len(values) != k:
        raise InputError(f"sizes has {len(values)} numbers for k={k} clusters; expected one for each")
    total = math.fsum(values)
    return tuple(value / total for value in values)


def _check_points(given: dict[str, Any]) -> dict[str, Any]:
    d = whole_number("dimensions", given["dimensions"], 2)
    q = min(5, d // 2) if given["intrinsic"] is None else given["intrinsic"]
    return {
        "dimensions": d,
        "separation": positive_number("separation", given["separation"]),
        "intrinsic": whole_number("intrinsic", q, 1, d // 2, why=", half of the dimensions"),
        "curvature": _between("curvature", given["curvature"], 0, 100),
        "noise": _between("noise", given["noise"], 0, 1),
    }


def _check_graph(given: dict[str, Any]) -> dict[str, Any]:
    exponent = given["exponent"]
    if not isinstance(exponent, int | float) or not exponent > 2:
        raise InputError(f"exponent is {exponent!r}; expected a number above 2, or infinity for equal degrees")
    return {
        "degree": positive_number("degree", given["degree"]),
        "exponent": float(exponent),
        "mixing": _between("mixing", given["mixing"], 0, 1),
        "shuffle": choice("shuffle", given["shuffle"], (True, False)),
    }


def _between(name: str, value: Any, low: float, high: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise InputError(f"{name} is {value!r}; expected a number from {low} to {high}")
    return float(value)


def _check_place(path: str, *, overwrite: bool) -> None:
    """Refuse a folder that cannot be made, or that would be lost."""
    if storage.is_url(path):
        raise InputError(f"{path}: is a URL; expected a local folder. Generate there, and copy it")
    if not os.path.isdir(os.path.dirname(path)):
        raise StoreNotFound(f"{os.path.dirname(path)}: no such directory; make it first")
    if not os.path.lexists(path):
        return
    try:
        with open(os.path.join(path, NOTE), encoding="utf-8") as file:
            ours = json.load(file).get("snmf_dist") == "planted"
    except (OSError, ValueError, AttributeError):
        ours = False
    if not ours:
        raise StoreExists(
            f"{path}: exists and was not made by generate; choose another path, or remove it yourself"
        )
    if not overwrite:
        raise StoreExists(f"{path}: already exists; choose another path, or pass overwrite=True (--overwrite)")


def _write_points(model: CurvedMixture, folder: str, progress: StageProgress) -> None:
    chunks = (min(model.block_rows, model.n), model.dimensions)
    zarr.create_array(  # random digits do not compress
        os.path.join(folder, POINTS),
        shape=(model.n, model.dimensions),
        chunks=chunks,
        dtype="float32",
        compressors=None,
    )
    _new_truth(folder, model.n)
    done = partial(_report, progress, "points", model.blocks)
    run_tasks(partial(_write_block_of_points, model, folder), range(model.blocks), done=done)


def _write_block_of_points(model: CurvedMixture, folder: str, b: int) -> None:
    X, y = model.block(b)
    start = b * model.block_rows
    array: Any = zarr.open_array(os.path.join(folder, POINTS), mode="r+")
    array[start : start + len(X)] = X
    _write_truth(folder, start, y)


def _write_graph(model: BlockModel, folder: str, progress: StageProgress) -> None:
    os.mkdir(os.path.join(folder, EDGES))
    _new_truth(folder, model.n)
    starts = range(0, model.n, BLOCK_NODES)
    done = partial(_report, progress, "clusters", len(starts))
    run_tasks(partial(_write_clusters, model, folder), starts, done=done)
    done = partial(_report, progress, "edges", model.blocks)
    run_tasks(partial(_write_edges, model, folder), range(model.blocks), done=done)


def _write_clusters(model: BlockModel, folder: str, start: int) -> None:
    _write_truth(folder, start, model.labels(start, min(start + BLOCK_NODES, model.n)))


def _write_edges(model: BlockModel, folder: str, b: int) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    small = np.int32 if model.n <= np.iinfo(np.int32).max else np.int64
    ends = [part.astype(small) for part in model.block(b)]
    path = os.path.join(folder, EDGES, f"part-{b:06}.parquet")
    table = pa.table(dict(zip(("source", "target"), ends, strict=True)))
    parquet.write_table(table, path, compression="none", use_dictionary=False)


def _new_truth(folder: str, n: int) -> None:
    """Make the file of true clusters, to be filled in by blocks."""
    np.lib.format.open_memmap(os.path.join(folder, TRUTH), mode="w+", dtype="<i4", shape=(n,))


def _write_truth(folder: str, start: int, y: np.ndarray) -> None:
    """Write the clusters of rows `start` and on: not through a memory map, which a full disk would kill."""
    with open(os.path.join(folder, TRUTH), "r+b") as file:
        np.lib.format.read_magic(file)
        np.lib.format.read_array_header_1_0(file)
        file.seek(start * 4, os.SEEK_CUR)
        file.write(y.astype("<i4").tobytes())


def _report(progress: StageProgress, stage: str, total: int, done: int) -> None:
    progress(stage, done, total)
