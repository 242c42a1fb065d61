"""Run a function in a process of its own, and say what it cost."""

import json
import os
import resource
import subprocess
import sys
import threading
import time
from typing import Any, NamedTuple


class Cost(NamedTuple):
    """Of a child process: what it returned, wall and CPU seconds, and its peak resident set in bytes."""

    result: Any
    wall: float
    cpu: float
    rss: float


def in_process(module: str, function: str, **arguments: Any) -> Cost:
    """Call ``module.function(**arguments)`` in a fresh Python; arguments and result travel as JSON."""
    code = (
        f"import json, sys; from {module} import {function} as f; "
        "print('RESULT ' + json.dumps(f(**json.loads(sys.argv[1]))))"
    )
    begin, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    child = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", code, json.dumps(arguments)], stdout=subprocess.PIPE, text=True
    )
    peak = [0.0]
    watch = threading.Thread(target=_watch, args=(child.pid, peak))
    watch.start()
    out, _ = child.communicate()
    watch.join()
    if child.returncode:
        raise RuntimeError(f"{function} failed with {child.returncode}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    line = next(line for line in out.splitlines() if line.startswith("RESULT "))
    return Cost(json.loads(line.removeprefix("RESULT ")), time.perf_counter() - begin, cpu, peak[0])


def _watch(pid: int, peak: list[float]) -> None:
    """The kernel's own high-water mark of the child, read until it is gone."""
    while os.path.exists(f"/proc/{pid}"):
        try:
            with open(f"/proc/{pid}/status", encoding="utf-8") as file:
                marks = [line.split()[1] for line in file if line.startswith("VmHWM")]
        except OSError:
            return
        if not marks:
            return
        peak[0] = max(peak[0], 1024.0 * float(marks[0]))
        time.sleep(0.05)
