"""Disturbs real runs on a real cluster, by kill -9 and SIGSTOP of its processes, and counts what comes of it.

    python -m tests.chaos --runs 63 --gaps 6 --json docs/results/chaos.json

Each run is a command of its own against `dask scheduler` and three `dask worker` processes on loopback; the same
command is given again when it was killed itself. The answer must have the bits of an undisturbed run: fits are
compared with one in this process, builds with one that no kill disturbed. A run is

- lost, if the command ends otherwise than with its result and exit code 0. Two ends are excused, once a kill: the
  client's by the kill that hit it, and an error of ours after the scheduler was killed;
- hung, if nothing new happens for five minutes;
- wrong, if its membership (or the fingerprint of the graph) differs in a bit.

The time lost to a kill is the time from it until the run is eight iterations further (more than are under way at a
time), less what eight iterations take in this run.
"""

import argparse
import hashlib
import json
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import psutil

import snmf_dist
from tests.benchmarks.measure import table, write_json
from tests.helpers import planted_graph

ROWS = 1200  # of the graph that is clustered
HUNG = 300.0
FURTHER = 8  # iterations after a kill until it counts as overcome; four are under way at a time
MINUTES = 120.0  # seconds of kills every five seconds
KINDS = ("one", "two", "every 5 s", "all workers", "phases", "client", "scheduler", "frozen", "build")
AT = "at 50, 300"
SOLVERS = {"admm": 1.0, "apg": 0.08, "hals": 0.5}  # and the share of the iterations they do: those of APG are long
RUN = """
import sys, json, signal, warnings, faulthandler, snmf_dist
from snmf_dist.engine.client import connect
warnings.simplefilter("ignore")
faulthandler.register(signal.SIGUSR1)
given = json.loads(sys.argv[1])
with connect(given.pop("address"), timeout=60):
    if "points" in given:
        snmf_dist.build_graph(given["points"], given["graph"], **given["build"])
    else:
        lines = snmf_dist.listeners.JsonLines(open(given.pop("lines"), "a"))
        snmf_dist.fit(given.pop("graph"), listeners=[lines], **given)
"""


@dataclass
class Cluster:
    """A scheduler and its workers, as processes."""

    workers: int = 3
    port: int = 0
    processes: dict[str, subprocess.Popen] = field(default_factory=dict)

    def start(self):
        self.port = random.Random(time.time_ns()).randrange(20_000, 30_000)
        base = [sys.executable, "-m", "dask"]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        listen = ["--host", "127.0.0.1", "--no-dashboard"]
        self.processes["scheduler"] = subprocess.Popen(
            [*base, "scheduler", "--port", str(self.port), *listen], **quiet
        )
        for i in range(self.workers):
            command = [*base, "worker", self.address, "--nthreads", "1", *listen]
            self.processes[f"worker {i}"] = subprocess.Popen(command, **quiet)
        return self

    @property
    def address(self):
        return f"tcp://127.0.0.1:{self.port}"

    def pids(self):
        """The worker processes themselves: children of the nannies."""
        found = []
        for name, process in self.processes.items():
            if name.startswith("worker"):
                with suppress(psutil.Error):
                    children = psutil.Process(process.pid).children(recursive=True)
                    found += [c.pid for c in children if "resource_tracker" not in " ".join(c.cmdline())]
        return found

    def stop(self):
        for process in self.processes.values():
            with suppress(psutil.Error):
                for child in psutil.Process(process.pid).children(recursive=True):
                    with suppress(psutil.Error):
                        child.kill()
            process.kill()
            process.wait()
        self.processes.clear()


@dataclass
class Story:
    """What happened in one run."""

    kind: str
    what: str
    seed: int
    kills: int = 0
    commands: int = 0
    seconds: float = 0.0
    again: int = 0
    gaps: list[float] = field(default_factory=list)
    outcome: str = ""

    def line(self):
        gaps = f"{max(self.gaps):5.1f}" if self.gaps else "    -"
        return (
            f"{self.kind:12} {self.what:6} {self.kills:5} {self.commands:8} {self.again:6} {gaps} "
            f"{self.seconds:7.1f}  {self.outcome}"
        )


def kill(pid, number=signal.SIGKILL):
    with suppress(psutil.Error, ProcessLookupError):
        psutil.Process(pid).send_signal(number)
        return 1
    return 0


class Lines:
    """What a run has told of so far, and when."""

    def __init__(self, path):
        self.path = path
        self.newest, self.again, self.ended = 0, 0, False
        self.marks = [(time.monotonic(), 0)]  # when the newest iteration became which
        self._read, self._seen = 0, set()

    def look(self):
        """Read what is new; whether the run has come further."""
        with suppress(FileNotFoundError), self.path.open("rb") as file:
            file.seek(self._read)
            text = file.read()
            whole = text[: text.rfind(b"\n") + 1]
            self._read += len(whole)
            for line in whole.splitlines():
                with suppress(ValueError):  # a line torn by a kill
                    self._hear(json.loads(line))
        before = self.marks[-1][1]
        if self.newest > before:
            self.marks.append((time.monotonic(), self.newest))
        return self.newest > before

    def _hear(self, event):
        if event["event"] == "iteration":
            self.again += event["iteration"] in self._seen
            self._seen.add(event["iteration"])
            self.newest = max(self.newest, event["iteration"])
        self.ended |= event["event"] == "end" and event["status"] is not None

    def lost_after(self, moment):
        """The time lost to a kill at this moment."""
        at = max((newest for when, newest in self.marks if when <= moment), default=0)
        later = [when for when, newest in self.marks if newest >= at + FURTHER]
        if not later or len(self.marks) < 3:
            return None
        paces = [(t1 - t0) / (i1 - i0) for (t0, i0), (t1, i1) in zip(self.marks[1:], self.marks[2:], strict=False)]
        return max(later[0] - moment - FURTHER * statistics.median(paces), 0.0)


class Disturber:
    """Decides at each look whether to kill something: at given iterations, in given phases, or by the clock."""

    def __init__(self, kind, cluster, chance, out, last, at=()):
        self.kind, self.cluster, self.chance, self.out = kind, cluster, chance, out
        count = {"one": 1, "two": 2, "client": 2, "scheduler": 1, "frozen": 1, "all workers": 1}.get(kind, 0)
        self.at = list(at) or sorted(chance.randrange(last - 1) for _ in range(count))  # 0: while A is read
        self.phases = ["load", "iterations", "checkpoint", "save"] if kind == "phases" else []
        self.left, self.between = {"every 5 s": (10**6, (5.0, 5.0)), "build": (3, (0.5, 3.0))}.get(kind, (0, None))
        self.next = self.until = None
        self.excused = []  # ends that the command may now have

    def act(self, child, lines):
        """Kill, if it is time to: how many processes were hit."""
        if not self._is_time(lines, time.monotonic()) or not (pids := self.cluster.pids()):
            return 0
        if self.kind == "client":
            self.excused.append(-signal.SIGKILL)
            return kill(child.pid)
        if self.kind == "scheduler":
            return self._scheduler(child)
        if self.kind == "all workers":
            return sum(kill(pid) for pid in pids)
        return kill(self.chance.choice(pids), signal.SIGSTOP if self.kind == "frozen" else signal.SIGKILL)

    def _is_time(self, lines, now):
        if self.at:
            if not lines.path.exists() or lines.newest < self.at[0]:
                return False
            del self.at[0]
            return True
        begun = {
            "load": lines.path.exists(),
            "iterations": lines.newest > 0,
            "checkpoint": Path(f"{self.out}.checkpoint").exists(),
            "save": lines.ended,
        }
        for phase in self.phases:
            if begun[phase]:
                self.phases.remove(phase)
                return True
        if not self.left:
            return False
        if self.next is None:
            self.next, self.until = now + self.chance.uniform(*self.between), now + MINUTES
        if now < self.next or (self.kind == "every 5 s" and now > self.until):
            return False
        self.left, self.next = self.left - 1, now + self.chance.uniform(*self.between)
        return True

    def _scheduler(self, child):
        """Kill it, wait for the end of the command, and start all of the cluster again."""
        self.excused.append(1)
        hits = kill(self.cluster.processes["scheduler"].pid)
        with suppress(subprocess.TimeoutExpired):
            child.wait(timeout=HUNG)
            self.cluster.stop()
            self.cluster.start()
        return hits


def disturbed(story, disturber, command, done, lines):
    """One run under disturbance; what it came to is written into its story."""
    began = moved = time.monotonic()
    kills = []
    while not story.outcome:
        story.commands += 1
        with tempfile.TemporaryFile() as errors:  # a pipe would fill up
            child = subprocess.Popen(command(), stdout=subprocess.DEVNULL, stderr=errors)
            try:
                while child.poll() is None:
                    time.sleep(0.05)
                    if lines.look():
                        moved = time.monotonic()
                    hits, now = disturber.act(child, lines), time.monotonic()
                    if hits:
                        story.kills += hits
                        kills.append(now)
                    if now - max([moved, *kills[-1:]] if disturber.kind == "build" else [moved]) > HUNG:
                        child.send_signal(signal.SIGUSR1)  # it says where it stands
                        time.sleep(2.0)
                        child.kill()
                        story.outcome = "HUNG"
            finally:
                child.kill()
                child.wait()
            errors.seek(0)
            said = errors.read().decode(errors="replace").strip().splitlines()
        if story.outcome:
            print("\n".join(said), file=sys.stderr)
        story.outcome = story.outcome or judge(child.returncode, said, done, disturber.excused)
    lines.look()
    story.again, story.seconds = lines.again, time.monotonic() - began
    story.gaps = [gap for gap in map(lines.lost_after, kills) if gap is not None]


def judge(code, said, done, excused):
    """How a command ended; nothing if it is to be given again."""
    if code == 0:
        return done() or "LOST: exit code 0 without a result"
    ours = code < 0 or any(line.startswith("snmf_dist.errors.") for line in said)
    if code in excused and ours:
        excused.remove(code)
        return ""
    print("\n".join(said), file=sys.stderr)
    return f"LOST: {said[-1] if said else code}"


def fingerprint(path):
    """The bits of a result or of a graph."""
    if (path / "membership").exists():
        return hashlib.sha256(np.asarray(snmf_dist.open_solution(path).membership).tobytes()).hexdigest()
    return snmf_dist.open_graph(path).fingerprint


class Study:
    """The undisturbed answers, and the disturbed runs to compare with them."""

    def __init__(self, folder, iterations, blocks, cluster):
        W, _ = planted_graph(ROWS, 6, seed=3, inside=0.06, between=0.004)
        self.folder, self.cluster, rows = folder, cluster, ROWS // blocks
        self.graph = snmf_dist.import_graph(W, folder / "g.zarr", block_rows=rows)
        self.points = folder / "points.npy"
        rng = np.random.default_rng(0)
        centres = 6 * rng.normal(size=(10, 8))
        np.save(self.points, rng.normal(size=(40_000, 8)) + centres[rng.integers(10, size=40_000)])
        self.build = {"memory_limit": "900MB", "resume": True}
        self.iterations, self.settings = iterations, {"k": 6, "stop": "paper", "tol": 1e-14, "block_rows": rows}
        self.expected = {}

    def run(self, kind, what, seed, init="random", at=(), **more):
        """Disturb a run, and judge what comes out."""
        out, lines = self.folder / f"{seed}.zarr", Lines(self.folder / f"{seed}.jsonl")
        if kind == "build":
            given = {"points": str(self.points), "build": self.build}
            where = {"graph": str(out)}
        else:
            most = round(SOLVERS[what] * self.iterations * (3 if kind == "every 5 s" else 1))
            given = {"solver": what, "init": init, "max_iter": most, **self.settings, **more}
            where = {"graph": self.graph.path, "lines": str(lines.path), "out": str(out)}
        expected = self._expected(kind == "build", given)

        def command():
            return self._command({**given, **where})

        def done():
            with suppress(snmf_dist.errors.SnmfError):
                return "same bits" if fingerprint(out) == expected else "WRONG"
            return ""

        story = Story(kind, what, seed)
        disturber = Disturber(kind, self.cluster, random.Random(seed), out, given.get("max_iter"), at)
        disturbed(story, disturber, command, done, lines)
        shutil.rmtree(out, ignore_errors=True)
        return story

    def _command(self, given):
        return [sys.executable, "-c", RUN, json.dumps({"address": self.cluster.address, **given})]

    def _expected(self, build, given):
        """The bits of the answer without any disturbance."""
        key = json.dumps(given, sort_keys=True)
        if key not in self.expected and build:
            graph = self.folder / "undisturbed.zarr"
            subprocess.run(self._command({**given, "graph": str(graph)}), check=True, stderr=subprocess.DEVNULL)
            self.expected[key] = fingerprint(graph)
        elif key not in self.expected:
            membership = snmf_dist.fit(self.graph, listeners=[], **given).membership
            self.expected[key] = hashlib.sha256(np.asarray(membership).tobytes()).hexdigest()
        return self.expected[key]


def summary(stories):
    """The tables of the documentation."""
    rows = []
    for kind in sorted({story.kind for story in stories}, key=[*KINDS, AT].index):
        some = [story for story in stories if story.kind == kind]
        gaps = [gap for story in some for gap in story.gaps]
        rows.append(
            {
                "kind": kind,
                "runs": len(some),
                "kills": sum(story.kills for story in some),
                "commands": sum(story.commands for story in some),
                "again": sum(story.again for story in some),
                "gap": {"median": statistics.median(gaps), "low": min(gaps), "high": max(gaps)} if gaps else None,
                "wrong": sum(story.outcome == "WRONG" for story in some),
                "hung": sum(story.outcome == "HUNG" for story in some),
                "lost": sum(story.outcome.startswith("LOST") for story in some),
            }
        )
    counts = ("runs", "kills", "commands", "again", "wrong", "hung", "lost")
    rows.append({"kind": "all", **{key: sum(row[key] for row in rows) for key in counts}, "gap": None})
    titles = {"again": "iterations again", "gap": ("seconds lost a kill", ".1f")}
    columns = {key: titles.get(key, key) for key in ("kind", *counts[:4], "gap", *counts[4:])}
    tables = {"kinds": table(columns, rows), "runs": table({k: k for k in vars(stories[0])}, map(vars, stories))}
    titles = {"first": "seconds lost at iteration 50", "second": "at iteration 300", "ratio": "ratio"}
    columns = {"runs": "runs", **{key: (title, ".2f") for key, title in titles.items()}}
    return {**tables, "gaps": table(columns, gaps_row(stories))}


def gaps_row(stories):
    """The time lost at iterations 50 and 300: a row, or none without such runs."""
    pairs = [story.gaps for story in stories if story.kind == AT and len(story.gaps) == 2]
    if not pairs:
        return []
    first, second = (
        {"median": statistics.median(gaps), "low": min(gaps), "high": max(gaps)}
        for gaps in zip(*pairs, strict=True)
    )
    ratio = second["median"] / first["median"]
    return [{"runs": len(pairs), "first": first, "second": second, "ratio": ratio}]


def stories_of(path):
    """The runs that are in a file already."""
    if path is None or not path.exists():
        return []
    return [Story(**row) for row in json.loads(path.read_text())["tables"]["runs"]["rows"]]


def write(path, stories, options):
    """Write the runs, and the tables of them."""
    gaps = sum(story.kind == AT for story in stories)
    runs = f"--runs {len(stories) - gaps} --gaps {gaps}"
    command = f"python -m tests.chaos {runs} --iterations {options.iterations} --blocks {options.blocks}"
    write_json(path, benchmark="chaos", command=command, tables=summary(stories))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--first", type=int, default=0, help="seed of the first run")
    parser.add_argument("--iterations", type=int, default=100)
    parser.add_argument("--blocks", type=int, default=6, help="row blocks of the graph; fewer cost less")
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=KINDS)
    parser.add_argument("--gaps", type=int, default=0, help="runs with a kill at iterations 50 and 300")
    parser.add_argument("--json", type=Path, help="write the runs here, and keep those that are there")
    parser.add_argument("--join", type=Path, nargs="+", default=[], help="add the runs of these files, too")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the cluster is stopped on the way out
    warnings.simplefilter("ignore", snmf_dist.errors.ResultWarning)
    print(f"{'kind':12} {'what':6} {'kills':>5} {'commands':>8} {'again':>6}   most seconds lost", flush=True)
    stories = [story for path in [options.json, *options.join] for story in stories_of(path)]
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        cluster = Cluster().start()
        stack.callback(cluster.stop)
        study = Study(Path(folder), options.iterations, options.blocks, cluster)
        for seed in range(options.first, options.first + options.runs + options.gaps):
            round_ = seed // len(options.kinds)
            kind, init = options.kinds[seed % len(options.kinds)], ("random", "kmeans")[round_ % 2]
            if seed >= options.first + options.runs:
                story = study.run(AT, "admm", seed, at=(50, 300), max_iter=340)
            else:
                what = "build" if kind == "build" else list(SOLVERS)[round_ % len(SOLVERS)]
                story = study.run(kind, what, seed, init)
            stories.append(story)
            print(story.line(), flush=True)
            if options.json:
                write(options.json, stories, options)
    if options.join and options.json:
        write(options.json, stories, options)
    for row in summary(stories).get("gaps", {"rows": []})["rows"]:
        print(f"median seconds lost: {row['first']['median']:.2f} at 50, {row['second']['median']:.2f} at 300")
    bad = [story for story in stories if story.outcome != "same bits"]
    print(f"{len(stories)} runs, {sum(s.kills for s in stories)} kills, {len(bad)} not as they should be")
    return len(bad)


if __name__ == "__main__":
    sys.exit(bool(main()))
