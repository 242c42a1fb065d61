"""Rows without a past: what the scheduler remembers of the tasks that made them goes.

Dask keeps every task that a result was made by, so that it could compute the result again: thousands an hour in a
long run. Ours cannot be computed again anyway (see `cluster`): a lost worker sends the run back to its checkpoint.
So each worker puts the blocks it holds under new names, as data that no task has made. Nothing is copied.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from snmf_dist.engine import tasks
from snmf_dist.engine.asking import limited
from snmf_dist.engine.serving import keep_here
from snmf_dist.engine.tasks import ClusterRows, Layer, Result
from snmf_dist.engine.waiting import wait_for
from snmf_dist.errors import RowsLost


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
    names = [tasks.unique_name("kept") for _ in rows]
    keys = list(zip(*(tasks.chunk_keys(name, len(homes)) for name in names), strict=True))  # those of each block
    published = [tasks.unique_name("published") for _ in homes]
    blocks = zip(*(one.refs for one in rows), strict=True)
    work = tasks.row_tasks(
        tasks.unique_name(keep_here),
        keep_here,
        [(name, wanted, *some) for name, wanted, some in zip(published, keys, blocks, strict=True)],
        chunks=False,
    )
    kept = Result(Layer(work, rows), list(work))
    tasks.begin(client, [kept], homes)
    try:
        wait_for(client, kept.futures, workers=homes)
        there = limited(client.get_dataset, published)  # from now on this process asks for the blocks itself
        wait_for(client, [future for block in there for future in block], workers=homes)
    except KeyError as error:
        raise RowsLost(f"rows were lost while their past was cut: {error}") from error
    finally:
        limited(lambda: [client.unpublish_dataset(name) for name in published])
    for one, name, futures in zip(rows, names, zip(*there, strict=True), strict=True):
        one.move_to(name, list(futures))
