"""Check these manifests against the schemas of Kubernetes and of the Dask operator; no API server is asked.

    pip install kubernetes-validate jsonschema pyyaml; pip install --no-deps dask-kubernetes
    python deploy/kubernetes/schema.py

The operator's schemas say little of the pods in a DaskCluster, so each of these is also checked as a Pod. The
``--memory-limit`` and ``--nthreads`` of a worker are compared with what its pod may use.
"""

import copy
import json
import logging
from collections.abc import Iterator
from functools import cache
from importlib.metadata import PackageNotFoundError, files
from importlib.util import find_spec
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
UNITS = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30}


def why_not() -> str:
    """What is missing here to check; nothing if it can be done."""
    missing = [name for name in ("kubernetes_validate", "jsonschema", "yaml") if find_spec(name) is None]
    return f"not installed: {', '.join(missing)}" if missing else "" if definitions() else "no dask-kubernetes"


def definitions() -> dict[str, Path]:
    """The operator's resource definitions, by kind in lower case, from the package dask-kubernetes."""
    try:
        found = files("dask-kubernetes") or []
    except PackageNotFoundError:
        return {}
    return {Path(file).stem: Path(file.locate()) for file in found if "/crds/" in str(file)}


def build(overlay: str) -> list[dict[str, Any]]:
    """The manifests of `base` or an overlay, as kustomize would make them: it knows JSON patches only."""
    import yaml

    folder = HERE / overlay
    recipe = yaml.safe_load((folder / "kustomization.yaml").read_text(encoding="utf-8"))
    found: list[dict[str, Any]] = []
    for name in recipe["resources"]:
        if (folder / name).is_dir():
            found += build((folder / name).resolve().relative_to(HERE).as_posix())
        else:
            found += yaml.safe_load_all((folder / name).read_text(encoding="utf-8"))
    for change in recipe.get("patches", []):
        chosen = [one for one in found if one["kind"] == change["target"]["kind"]]
        if not chosen:
            raise ValueError(f"{overlay}: nothing of kind {change['target']['kind']} to patch")
        for one in chosen:
            for step in yaml.safe_load(change["patch"]):
                patch(one, step)
    return found


def patch(document: Any, step: dict[str, Any]) -> None:
    """Do one step of a JSON patch, ``add`` or ``replace``."""
    *way, last = step["path"].strip("/").split("/")
    for key in way:
        document = document[int(key)] if isinstance(document, list) else document[key]
    value = copy.deepcopy(step["value"])
    if isinstance(document, list):
        if (step["op"], last) != ("add", "-"):
            raise ValueError(f"{step}: of a list, only adding to its end is understood")
        document.append(value)
    elif step["op"] == "replace" and last not in document:
        raise ValueError(f"{step}: there is nothing to replace")
    else:
        document[last] = value


def problems(document: dict[str, Any]) -> list[str]:
    """What is wrong with a manifest, in words."""
    import jsonschema
    import kubernetes_validate

    logging.getLogger("kubernetes-validate").setLevel(logging.ERROR)
    name, found = f"{document['kind']} {document['metadata']['name']}", []
    definition = definitions().get(document["kind"].lower())
    if definition is None:
        found += [f"{name}: {text}" for text in core_problems(document, kubernetes_validate)]
    else:
        errors = jsonschema.Draft7Validator(schema_of(definition)).iter_errors(document)
        found += [f"{name}: {error.json_path}: {error.message[:200]}" for error in errors]
    for place, pod in pods(document):
        whole = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod"}, "spec": pod}
        found += [f"{name}, {place}: {text}" for text in core_problems(whole, kubernetes_validate)]
        found += [f"{name}, {place}: {text}" for text in rule_problems(pod)]
    return found


@cache
def schema_of(definition: Path) -> dict[str, Any]:
    """The schema in a resource definition."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return yaml.load(definition.read_text(encoding="utf-8"), loader)["spec"]["versions"][0]["schema"][
        "openAPIV3Schema"
    ]


def core_problems(document: dict[str, Any], validator: Any) -> list[str]:
    """What Kubernetes' own schema says, unknown fields included."""
    try:
        validator.validate(document, validator.latest_version(), strict=True)
    except Exception as error:  # of several kinds, by what is wrong
        return [f"{'/'.join(map(str, getattr(error, 'path', [])))}: {getattr(error, 'message', str(error))[:200]}"]
    return []


def pods(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The pod specs in a manifest of the operator, with their places."""
    spec = document.get("spec", {})
    if document["kind"] == "DaskJob":
        yield "job", spec["job"]["spec"]
        spec = spec["cluster"]["spec"]
    if document["kind"] in ("DaskCluster", "DaskJob"):
        yield "worker", spec["worker"]["spec"]
        yield "scheduler", spec["scheduler"]["spec"]


def rule_problems(pod: dict[str, Any]) -> Iterator[str]:
    """Rules of ours that no schema knows."""
    if pod.get("securityContext", {}).get("runAsNonRoot") is not True:
        yield "may run as root; set runAsNonRoot"
    for container in pod["containers"]:
        args, resources = container["args"], container.get("resources", {})
        limits = resources.get("limits", {})
        if resources.get("requests") != limits or set(limits) != {"cpu", "memory"}:
            yield "requests and limits of cpu and memory are not the same"
            continue
        if container.get("securityContext", {}).get("readOnlyRootFilesystem") is not True:
            yield "its root file system can be written to; set readOnlyRootFilesystem"
        if "--memory-limit" in args:
            given, most = size(args[args.index("--memory-limit") + 1]), size(limits["memory"])
            if not 0.8 * most <= given <= 0.95 * most:
                yield f"--memory-limit is {given / most:.0%} of the memory of its pod; expected 80 to 95 %"
        if "--nthreads" in args and args[args.index("--nthreads") + 1] != str(limits["cpu"]):
            yield f"--nthreads is not {limits['cpu']}, the cores of its pod"


def size(text: str) -> int:
    """Bytes of a size as Kubernetes or Dask writes it."""
    unit = max((unit for unit in UNITS if text.endswith(unit)), key=len)
    return round(float(text.removesuffix(unit)) * UNITS[unit])


def main() -> None:
    """Check base and overlays; the exit code is 1 if something is wrong."""
    if missing := why_not():
        raise SystemExit(missing)
    found = [text for overlay in ("base", "volume", "s3") for one in build(overlay) for text in problems(one)]
    print(json.dumps({"problems": found}, indent=2))
    raise SystemExit(bool(found))


if __name__ == "__main__":
    main()
