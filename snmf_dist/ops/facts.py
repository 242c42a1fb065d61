"""What a process knows of itself, and what it can do in a folder or at a URL; run on workers by `doctor`."""

import os
import platform
import shutil
import time
import uuid
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import fsspec

from snmf_dist import storage
from snmf_dist.credentials import without_secrets
from snmf_dist.engine import machine

TRIAL = ".snmf-doctor-"  # begins the names of the files that `try_store` writes; the time in seconds follows
LEFT_AFTER = 3600.0  # seconds after which nobody works with such a file any more
PACKAGES = ("snmf-dist", "dask", "distributed", "numpy", "scipy", "numba", "zarr")


def process_facts() -> dict[str, Any]:
    """Versions, clock, BLAS threads and open ports of this process.

    Examples
    --------
    >>> sorted(process_facts())
    ['blas_threads', 'cores', 'host', 'listens', 'memory', 'time', 'versions']
    """
    return {
        "host": platform.node(),
        "versions": {"python": ".".join(platform.python_version_tuple()[:2]), **_packages()},
        "time": time.time(),
        "cores": machine.cores(),
        "memory": machine.memory(),
        "blas_threads": _blas_threads(),
        "listens": _listens(),
    }


def worker_facts(dask_worker: Any) -> dict[str, Any]:
    """`process_facts`, and what the worker was started with."""
    folder = dask_worker.local_directory
    return {
        **process_facts(),
        "limit": dask_worker.memory_manager.memory_limit,
        "threads": dask_worker.state.nthreads,
        "spill": folder,
        "spill_free": shutil.disk_usage(folder).free,
        "nanny": dask_worker.nanny is not None,
    }


def try_store(path: str, options: storage.Options = None) -> str:
    """Write, rename, list and remove a file below `path`; what went wrong, or nothing."""
    step, name = "see", f"{TRIAL}{time.time():.0f}-{uuid.uuid4().hex[:12]}"
    try:
        files, place = fsspec.core.url_to_fs(path, **(storage.plain(options) or {}))
        if not storage.is_url(path) and not os.path.isdir(path):
            return "does not see it"
        one, two = f"{place.rstrip('/')}/{name}", f"{place.rstrip('/')}/{name}.moved"
        step = "write there"
        try:
            files.pipe_file(one, b"1")
            step = "rename there"
            files.mv(one, two)
            step = "list it"
            files.invalidate_cache()
            if f"{name}.moved" not in {os.path.basename(str(found)) for found in files.ls(place, detail=False)}:
                return "does not find in it what it wrote there"
            step = "read there what it wrote"
            if files.cat_file(two) != b"1":
                return f"cannot {step}"
        finally:
            for left in (one, two):
                if files.exists(left):
                    files.rm(left)
    except Exception as error:
        return f"cannot {step} ({type(error).__name__}: {without_secrets(str(error), options)[:150]})"
    return ""


def remove_left_files(path: str, options: storage.Options = None) -> int:
    """Remove what `try_store` left below `path` in processes that were killed meanwhile; the number of files.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> open(f"{folder}/.snmf-doctor-1000000000-0123456789ab", "w").close()
    >>> remove_left_files(folder)
    1
    """
    files, place = fsspec.core.url_to_fs(path, **(storage.plain(options) or {}))
    left = [one for one in files.glob(f"{place.rstrip('/')}/{TRIAL}*") if time.time() - _made_at(one) > LEFT_AFTER]
    for one in left:
        files.rm(one)
    return len(left)


def _made_at(file: str) -> float:
    made = os.path.basename(file).removeprefix(TRIAL).partition("-")[0]
    return float(made) if made.isdigit() else 0.0


def _packages() -> dict[str, str]:
    found = {}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "missing"
    return found


def _blas_threads() -> int:
    from threadpoolctl import threadpool_info

    return max((one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"), default=1)


def _listens() -> list[str]:
    """Addresses that this process listens on, as host:port."""
    import psutil

    process = psutil.Process()
    sockets = getattr(process, "net_connections", None) or process.connections
    try:
        return sorted({f"{s.laddr.ip}:{s.laddr.port}" for s in sockets(kind="tcp") if s.status == "LISTEN"})
    except psutil.Error:
        return []
