"""spool(): points that cannot be read by row ranges, written to files that can.

These are Dask arrays, tables and, on a cluster, arrays of this process. They go to ``.npy`` files in the folder of
the build, once.
"""

import os
from collections.abc import Iterator
from typing import Any

import numpy as np

from snmf_dist.errors import InputError
from snmf_dist.graph.build.pointfiles import BinaryPoints, Hdf5Points
from snmf_dist.graph.build.points import CSR_FILES, ArrayPoints, FilePoints, Points, ZarrPoints
from snmf_dist.graph.build.tablefiles import TableFile


def spool(points: Any, folder: str, *, shared: bool) -> Points:
    """Give points that can be read by row ranges from any task; write them to `folder` if need be.

    Parameters
    ----------
    points : object
        As `open_points` gives it.
    folder : str
        An existing folder that all workers see.
    shared : bool
        Whether other processes will read the points.
    """
    if isinstance(points, FilePoints | ZarrPoints | Hdf5Points | BinaryPoints) or (
        isinstance(points, ArrayPoints) and not shared
    ):
        return points
    path = os.path.join(folder, "points")
    n, d = points.shape
    if isinstance(points, ArrayPoints) and points.is_sparse:
        os.makedirs(path, exist_ok=True)
        for name in CSR_FILES:
            np.save(os.path.join(path, f"{name}.npy"), getattr(points.array, name))
        return FilePoints(path, (n, d), points.dtype, is_sparse=True)
    path += ".npy"
    header = {"descr": np.lib.format.dtype_to_descr(points.dtype), "fortran_order": False, "shape": (n, d)}
    rows = 0
    with open(path, "wb") as file:  # not a memory map: a full disk would kill the process without an error
        np.lib.format.write_array_header_1_0(file, header)
        for block in _blocks(points):
            file.write(np.ascontiguousarray(block, dtype=points.dtype).tobytes())
            rows += len(block)
    if rows != n:
        raise InputError(f"the points gave {rows} rows but promised {n}; compute them first")
    return FilePoints(path, (n, d), points.dtype)


def _blocks(points: Any) -> Iterator[np.ndarray]:
    if isinstance(points, ArrayPoints):
        yield points.array
    elif isinstance(points, TableFile):
        yield from points.batches()
    else:
        yield from (np.asarray(points.blocks[i].compute()) for i in range(points.numblocks[0]))
