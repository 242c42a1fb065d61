"""What we use of other packages that their documentation does not promise: the list, the reason, a watch on it.

- ``numba.core.cgutils`` and ``context.make_array``: the intrinsics of `solve.kernels.simd` and `entrywise` write
  LLVM; numba has no public way to keep sums in registers. Where they fail, `plain` takes over.
- ``Dispatcher.stats.cache_path``: where numba keeps what it compiled (`solve.kernels.fused`); only shown to users.
- pynndescent's own kernels: ``enable_caching()`` on five of them halves its compile time; each is optional.
- ``distributed.client.FutureCancelledError`` and its plural: how Dask says that a result is lost.
- ``Worker.data``, the results that a worker holds (`engine.serving`): reading it from an actor's thread.

All else is public: Dask's tasks are `dask.task_spec`, arrays `dask.array.Array`, submission ``Client.get``, the
servers of rows are actors, and the wish for a worker is ``dask.annotate``.
"""

import ast
import importlib
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "snmf_dist"
FOREIGN = ("dask", "distributed", "numba", "llvmlite", "zarr", "pynndescent", "sklearn", "scipy", "fsspec")
WRITE_LLVM = {"simd.py", "entrywise.py"}  # alone in using numba.core


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("numba.core.cgutils", "unpack_tuple"),
        ("numba.core.cgutils", "for_range_slice"),
        ("numba.core.cgutils", "alloca_once"),
        ("distributed.client", "FutureCancelledError"),
        ("distributed.client", "FuturesCancelledError"),
        ("pynndescent.utils", "deheap_sort"),
    ],
)
def test_what_is_not_promised_is_still_there(module, name):
    assert hasattr(importlib.import_module(module), name)


def test_a_worker_shows_its_results_by_key(client):
    def look(dask_worker, key):
        return key in dask_worker.data and int(dask_worker.data[key])

    future = client.submit(int, 5, key=("watched", 0, 0))
    future.result()
    assert 5 in client.run(look, key=("watched", 0, 0)).values()


def test_no_private_module_or_name_of_another_package_is_imported():
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] in FOREIGN:
                names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
                private = [name for name in names if any(part.startswith("_") for part in name.split("."))]
                assert not private, f"{path.name} imports {private[0]}"
                if node.module.startswith("numba.core"):
                    assert path.name in WRITE_LLVM, f"{path.name} imports {node.module}"
