"""The row servers of a run, one for each worker, and which of them has which block."""

import contextlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from snmf_dist.engine.asking import limited
from snmf_dist.engine.serving import BlockPlaces, RowServer
from snmf_dist.engine.tasks import ClusterRows
from snmf_dist.engine.waiting import gather, wait_for, worker_addresses
from snmf_dist.errors import RowsLost


class Servers:
    """Starts the row servers of a run, and says where blocks are.

    Parameters
    ----------
    client : distributed.Client
        The client of the cluster.
    run : str
        The name of the run.
    prepare : callable, optional
        Called once on each worker before its server is ready.
    """

    def __init__(self, client: Any, run: str, prepare: Callable[[], Any] | None = None) -> None:
        self.client, self.run, self.prepare = client, run, prepare
        self.by_address: dict[str, Any] = {}
        self.futures: list[Any] = []
        self.known = set(worker_addresses(client))
        self._start(self.known)

    def could_spread(self, homes: Sequence[str]) -> bool:
        """Whether workers have joined since, and one of those that have the blocks has more than its share."""
        workers = set(worker_addresses(self.client))
        return bool(workers - self.known) and max(Counter(homes).values()) > -(-len(homes) // len(workers))

    def find(self, rows: ClusterRows) -> BlockPlaces:
        """Where each block of some rows is now."""
        holders = limited(self.client.who_has, rows.futures)
        addresses = []
        for i, key in enumerate(rows.keys):
            if not holders.get(key):
                raise RowsLost(f"block {i} is on no worker any more")
            addresses.append(min(holders[key]))
        self._start(dict.fromkeys(addresses))
        return BlockPlaces(tuple(addresses), dict(self.by_address))

    def close(self) -> None:
        """Let the servers go, and with them what the run keeps on the workers.

        They are cancelled, since others may still refer to them: a scheduler remembers its last messages.
        """
        with contextlib.suppress(Exception):  # of a cluster that is gone: there is nothing left to let go of
            limited(self.client.cancel, self.futures, force=True)
        self.by_address.clear()
        self.futures.clear()

    def _start(self, addresses: Iterable[str]) -> None:
        missing = [address for address in addresses if address not in self.by_address]
        futures = [
            self.client.submit(RowServer, self.run, self.prepare, actor=True, pure=False, workers=[address])
            for address in missing
        ]
        self.futures += futures
        try:
            wait_for(self.client, futures, workers=missing)
            self.by_address |= zip(missing, gather(self.client, futures, workers=missing), strict=True)
        except (RuntimeError, ValueError) as error:  # what Dask raises for an actor whose worker is gone
            gone = set(missing).difference(worker_addresses(self.client))
            if not gone:
                raise
            raise RowsLost(f"worker {gone.pop()} was lost before its work was done") from error
