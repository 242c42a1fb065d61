"""One measurement of `engine`, in a process of its own, by the public API alone: any revision can be measured.

``python engine_probe.py GRAPH P K`` runs a fit of P blocks on two worker processes and prints, as JSON, the tasks,
the seconds of the processor of client and scheduler (both are in this process) and the wall time of an iteration;
``python engine_probe.py GRAPH 0 K`` the wall time of an iteration in this process, in memory.
"""

import json
import sys
import time
import warnings
from typing import Any

import snmf_dist

SETTINGS = {"init": "random", "rho": 0.3, "stop": "paper", "tol": 1e-6, "evaluate_every": 10_000}
SKIP, COUNTED = 6, 12  # iterations


class Probe(snmf_dist.Listener):
    """Takes the clocks, and the number of tasks, after each iteration."""

    sees_state = False

    def __init__(self, tasks: Any) -> None:
        self.tasks, self.seen = tasks, []

    def on_iteration(self, record: Any, state: Any) -> None:
        """Take them."""
        self.seen.append((self.tasks(), time.process_time(), time.perf_counter()))


def main() -> None:
    """Measure, and print."""
    path, P, k = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    graph = snmf_dist.open_graph(path)
    warnings.simplefilter("ignore")
    if not P:
        iterations, probe = SKIP + 10 * COUNTED, Probe(lambda: 0)
        snmf_dist.fit(graph, k, **SETTINGS, max_iter=iterations, listeners=[probe])
    else:
        from distributed import Client, LocalCluster
        from distributed.diagnostics.plugin import SchedulerPlugin

        class Count(SchedulerPlugin):
            name = "count"
            executed = 0

            def transition(self, key: Any, start: str, finish: str, *args: Any, **kwargs: Any) -> None:
                self.executed += (start, finish) == ("processing", "memory")

        iterations = SKIP + COUNTED
        with (
            LocalCluster(
                n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address="127.0.0.1:0"
            ) as cluster,
            Client(cluster),
        ):
            count = Count()
            cluster.scheduler.add_plugin(count)
            probe = Probe(lambda: count.executed)
            rows = -(-graph.n // P)
            snmf_dist.fit(graph, k, **SETTINGS, max_iter=iterations + 1, block_rows=rows, listeners=[probe])
    first, last = probe.seen[SKIP - 1], probe.seen[iterations - 1]
    tasks, cpu, wall = ((b - a) / (iterations - SKIP) for a, b in zip(first, last, strict=True))
    print("RESULT " + json.dumps({"tasks": tasks, "cpu": cpu, "wall": wall}))


if __name__ == "__main__":
    main()
