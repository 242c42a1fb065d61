"""deploy/check.py on all targets: what this machine can run gives one and the same hash."""

import subprocess
import sys
from pathlib import Path

import pytest

from snmf_dist.ops.smoke import LABEL_HASH

CHECK = Path(__file__).resolve().parents[1] / "deploy" / "check.py"


@pytest.mark.study
@pytest.mark.timeout(3600)
def test_every_target_ran_with_the_same_hash_or_says_why_not():
    done = subprocess.run([sys.executable, CHECK], capture_output=True, text=True, timeout=3500)
    print(done.stdout)
    assert done.returncode == 0, done.stdout
    rows = {line.split()[0]: line for line in done.stdout.splitlines()}
    assert list(rows) == ["local", "tls", "slurm", "container", "s3", "kubernetes"]
    for name, line in rows.items():
        state = line[11:24].strip()
        assert state in ("RAN", "SCHEMA ONLY", "NOT RUN")
        assert (LABEL_HASH in line) == (state == "RAN"), line
        assert name != "kubernetes" or state != "RAN"
