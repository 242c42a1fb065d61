"""deploy/kubernetes against the schemas of Kubernetes and of the Dask operator; no API server has seen it."""

import copy
import runpy
from pathlib import Path

import pytest

DEPLOY = Path(__file__).resolve().parents[1] / "deploy"
CHECKS = runpy.run_path(str(DEPLOY / "kubernetes" / "schema.py"))
pytestmark = pytest.mark.skipif(bool(CHECKS["why_not"]()), reason=CHECKS["why_not"]())


@pytest.mark.parametrize("overlay", ["base", "volume", "s3"])
def test_manifests_match_the_schemas_of_kubernetes_and_the_operator(overlay):
    found = CHECKS["build"](overlay)
    assert {one["kind"] for one in found} >= {"DaskCluster", "DaskJob", "NetworkPolicy", "ConfigMap"}
    assert [problem for one in found for problem in CHECKS["problems"](one)] == []


def wrong(change):
    """A DaskCluster with one thing changed."""
    found = copy.deepcopy(next(one for one in CHECKS["build"]("base") if one["kind"] == "DaskCluster"))
    change(found["spec"]["worker"])
    return CHECKS["problems"](found)


def give(worker, **amounts):
    for kind in ("requests", "limits"):
        worker["spec"]["containers"][0]["resources"][kind].update(amounts)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda worker: worker.update(replicas="two"), "replicas"),
        (lambda worker: worker["spec"]["containers"][0].update(imagee="x"), "imagee"),
        (
            lambda worker: worker["spec"]["containers"][0]["securityContext"].update(readOnlyRootFilesystem="y"),
            "read",
        ),
        (lambda worker: worker["spec"]["containers"][0].pop("name"), "name"),
        (lambda worker: give(worker, memory="3Gi"), "memory-limit"),
        (lambda worker: give(worker, cpu="1"), "--nthreads"),
        (lambda worker: worker["spec"]["securityContext"].update(runAsNonRoot=False), "root"),
    ],
)
def test_a_wrong_manifest_is_rejected_with_its_reason(change, expected):
    found = wrong(change)
    assert any(expected in problem for problem in found), found


def test_overlays_reach_every_pod_that_works():
    for overlay, wanted in (("volume", "persistentVolumeClaim"), ("s3", "snmf-s3")):
        for one in CHECKS["build"](overlay):
            for name, pod in CHECKS["pods"](one):
                assert (wanted in str(pod)) == (not name.endswith("scheduler")), name
