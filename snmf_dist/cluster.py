"""The Dask cluster, if there is one: connecting, and checks before work starts.

Alone in importing distributed. Without a client everything runs on Dask's threads in this process, and
`distributed` is never imported.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any

from snmf_dist.errors import ClusterError, WorkLost

TIMEOUT = 15.0
CHECKED = ("scipy", "zarr", "snmf-dist")  # besides what Dask itself tells of a worker


def current_client() -> Any | None:
    """Return the current `distributed.Client`, or None."""
    distributed = sys.modules.get("distributed")
    if distributed is None:
        return None
    try:
        client = distributed.Client.current()
    except ValueError:
        return None
    return client if client.status == "running" else None


@contextmanager
def connect(address: str, *, timeout: float | None = None) -> Iterator[Any]:
    """Connect to the scheduler at `address` for the body; its work then runs there.

    Parameters
    ----------
    address : str
        As ``tcp://host:8786`` or ``tls://host:8786``; TLS settings are Dask's own configuration.
    timeout : float, default `TIMEOUT`
        Seconds to wait for the scheduler, and then for a first worker.

    Raises
    ------
    ClusterError
        The scheduler does not answer, or has no workers.
    """
    import distributed

    timeout = TIMEOUT if timeout is None else timeout
    try:
        client = distributed.Client(address, timeout=timeout)
    except (OSError, TimeoutError, ValueError) as error:
        raise ClusterError(
            f"{address}: no Dask scheduler answers there ({type(error).__name__}); check the "
            "address, or start one with `dask scheduler`"
        ) from error
    with client:
        try:
            client.wait_for_workers(1, timeout=timeout)
        except TimeoutError:
            raise ClusterError(
                f"{address}: the scheduler has no workers; start some with `dask worker {address}`"
            ) from None
        yield client


def check_workers(client: Any, path: str) -> None:
    """Refuse a cluster whose workers run other versions than this process, or do not see `path`."""
    versions = client.get_versions()
    here = _dask_versions(versions["client"])
    for address, found in versions["workers"].items():
        _compare(address, here, _dask_versions(found))
    try:
        around = client.run(_look_around, path)
    except ModuleNotFoundError as error:
        raise ClusterError(
            f"{error.name} is not installed on the workers; install the same environment there"
        ) from error
    here = {name: version(name) for name in CHECKED}
    for address, found in around.items():
        _compare(address, here, found["versions"])
        if not found["sees"]:
            raise ClusterError(
                f"worker {address} does not see {path}; put it on storage that all workers share, "
                "or give a URL"
            )


@contextmanager
def explain_losses() -> Iterator[None]:
    """Turn Dask's error for work that kept killing workers into one a user can act on."""
    distributed = sys.modules.get("distributed")
    if distributed is None:
        yield
        return
    try:
        yield
    except distributed.KilledWorker as error:
        raise WorkLost(
            f"workers died again and again on the same work ({error.task}); most often they ran out "
            "of memory: give them more, or pass a smaller block_rows"
        ) from error


def _compare(address: str, here: dict[str, str], there: dict[str, str]) -> None:
    differ = [f"{name} {there[name]} (here {here[name]})" for name in here if there[name] != here[name]]
    if differ:
        raise ClusterError(
            f"worker {address} runs other versions than this process: {', '.join(differ)}; "
            "install the same environment on both"
        )


def _dask_versions(found: dict[str, Any]) -> dict[str, str]:
    packages = found["packages"]
    python = ".".join(packages["python"].split(".")[:2])  # patch releases share their byte code
    return {"python": python, **{name: packages[name] for name in ("dask", "distributed", "numpy")}}


def _look_around(path: str) -> dict[str, Any]:
    """Run on a worker: its versions, and whether it sees `path`."""
    versions = {name: version(name) for name in CHECKED}
    return {"versions": versions, "sees": "://" in path or os.path.exists(path)}
