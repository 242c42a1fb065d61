"""Rows without a past: what the scheduler remembers of the tasks that made them goes.

Dask keeps every task that a result was made by, so that it could compute the result again: thousands an hour in a
long run. Ours cannot be computed again anyway (see `cluster`): a lost worker sends the run back to its checkpoint.
So each worker puts the blocks it holds under new names, as data that no task has made. Nothing is copied.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from snmf_dist.engine import tasks
from snmf_dist.engine.serving import futures_of, keep_here
from snmf_dist.engine.tasks import ClusterRows, Layer, Result
from snmf_dist.engine.waiting import wait_for


def cut_lineage(client: Any, rows: Iterable[ClusterRows], homes: Sequence[str]) -> None:
    """Put rows under new names, where they are; they must have been computed.

    Parameters
    ----------
    client : distributed.Client
        The client of the cluster.
    rows : iterable of ClusterRows
        The rows; each is changed in place.
    homes : sequence of str
        The worker of each block.
    """
    rows = list({id(one): one for one in rows}.values())
    names = tuple(tasks.unique_name("kept") for _ in rows)
    blocks = zip(*(one.refs for one in rows), strict=True)
    work = tasks.row_tasks(
        tasks.unique_name(keep_here), keep_here, [(names, i, *some) for i, some in enumerate(blocks)], chunks=False
    )
    kept = Result(Layer(work, rows), list(work))  # holds the blocks until this process does
    tasks.begin(client, [kept], homes)
    wait_for(client, kept.futures)
    futures = [futures_of(client, tasks.chunk_keys(name, len(kept.keys))) for name in names]
    wait_for(client, [future for some in futures for future in some])
    for one, name, some in zip(rows, names, futures, strict=True):
        one.move_to(name, some)
