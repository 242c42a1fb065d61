"""deploy/container by podman: the small job in containers, and what a killed run left."""

import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from snmf_dist.ops.smoke import LABEL_HASH
from tests.helpers import wait_until

RUN = Path(__file__).resolve().parents[1] / "deploy" / "container" / "run.py"
SCRIPT = runpy.run_path(str(RUN))


pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]


@pytest.fixture(autouse=True)
def image():
    """A reason to skip; the image is not built here, since that takes minutes and packages of Debian."""
    if missing := SCRIPT["why_not"]():
        pytest.skip(missing)
    if not SCRIPT["has_image"](SCRIPT["IMAGE"]):
        pytest.skip("there is no image (python deploy/container/run.py build)")


def of(process):
    """The names of the containers and the network namespace of a run."""
    return {name for name in SCRIPT["all_names"]() if name.split("-")[2] == str(process.pid)}


def test_the_same_job_runs_and_what_a_killed_run_left_is_found_and_removed():
    command = [sys.executable, RUN, "smoke"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as killed:
        name = f"{SCRIPT['BEGINS']}{killed.pid}"
        wait_until(lambda: f"{name}-client" in of(killed))
        killed.kill()
    assert of(killed) >= {name, f"{name}-scheduler", f"{name}-worker-0", f"{name}-worker-1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as again:
        out, errors = again.communicate(timeout=900)
    assert re.search(rf"a killed run left .*{name}-scheduler.*; they are removed", errors)
    assert f"{LABEL_HASH}, as expected" in out
    assert "worker killed           tcp://127.0.0.1" in out
    assert of(killed) | of(again) == set()
