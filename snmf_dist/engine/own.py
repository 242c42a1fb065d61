"""Worker processes of our own on this machine, for as long as they are needed."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from snmf_dist.engine import machine

LEAST = 1e9  # bytes of memory that a worker may use: more than cores or memory allow is for tiny data


@contextmanager
def own_workers(number: int) -> Iterator[Any]:
    """Start worker processes of one thread each, and give a client of theirs, which is then the current one.

    Parameters
    ----------
    number : int
        How many. Each may use its share of the memory that this process may, or a gigabyte if that is more.
    """
    from distributed import Client, LocalCluster

    share = int(max(machine.memory() / number, LEAST))
    with (
        LocalCluster(
            n_workers=number,
            threads_per_worker=1,
            memory_limit=share,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
        ) as cluster,
        Client(cluster) as client,
    ):
        yield client
