"""Imports point one way: points -> graph -> solver -> result -> faces. And the package is light to import."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "snmf_dist"

# From the ground up; a module imports only what stands on an earlier line, or before it on its own.
LAYERS = [
    "errors result.records",
    "validation",
    "storage verified locks",
    "engine.reduce engine.buffers engine.halo engine.machine engine.disk engine.plan engine.rows engine.tasks",
    "untrusted",
    "engine.local engine.loading",
    "engine.waiting engine.client engine.serving engine.calls engine.servers engine.lineage engine.cluster",
    "graph.store.checks graph.store.layout graph.store.components",
    "graph.store.reader graph.store.writer graph.store",
    "graph.ingest.edgefiles graph.ingest.sources graph.ingest.buckets graph.ingest.order",
    "graph.ingest.regularize",
    "graph.ingest.importing graph.ingest",
    "graph.build.similarity graph.build.neighbors graph.build.points graph.build.partition",
    "graph.build.scratch graph.build.settings",
    "graph.build.stages graph.build.audit graph.build.prepare graph.build.building graph.build",
    "solve.kernels.simd solve.kernels.entrywise solve.kernels.stacked solve.kernels.rowwise",
    "solve.kernels.plain solve.kernels.fused solve.kernels",
    "result.files result.checkpoints result.solution result.scores",
    "solve.products solve.basis solve.modularity solve.kmeans solve.parts solve.start",
    "solve.stopping solve.progress",
    "result.report result.advice listeners",
    "solve.admm solve.pair solve.apg solve.hals solve.solvers solve.loop solve.pipeline",
    "keeping fitting arguments api",
    "estimator",
    "__init__",
    "cli.progress cli.output cli.graphs cli.fits cli.stores cli.demo cli.commands cli",
    "__main__",
]
WRITES_LLVM = {"solve.kernels.simd", "solve.kernels.entrywise"}
ORDER = " ".join(LAYERS).split()
PLAIN = {
    "errors",
    "validation",
    "engine.halo",
    "engine.reduce",
    "engine.buffers",
    "engine.plan",
    "engine.rows",
    "engine.local",
    "engine.loading",
    "engine.disk",
    "result.records",
    "graph.store.checks",
    "graph.store.layout",
    "graph.build.similarity",
    "solve.kernels",
    "solve.kernels.plain",
    "solve.kernels.rowwise",
    "solve.kernels.stacked",
    "solve.admm",
    "solve.apg",
    "solve.hals",
    "solve.loop",
}


def modules():
    """Every module by its name; a package that re-exports goes by the package's name, and stands after its own."""
    for path in sorted(PACKAGE.rglob("*.py")):
        name = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
        tree = ast.parse(path.read_text(encoding="utf-8"))
        if name == "__init__" or not name.endswith(".__init__"):
            yield name, tree
        elif any(imports(tree)):
            yield name.removesuffix(".__init__"), tree


def imports(tree):
    """Every module a tree imports, anywhere in it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def ours(name, known):
    """The module of ours that an imported name stands for, if any."""
    if name == "snmf_dist":
        return "__init__"
    parts = name.removeprefix("snmf_dist.").split(".") if name.startswith("snmf_dist.") else []
    options = [".".join(parts[:i]) for i in range(len(parts), 0, -1)]
    return next((option for option in options if option in known), None)


def test_every_module_has_its_place():
    assert sorted(name for name, _ in modules()) == sorted(ORDER)


def test_imports_point_one_way():
    for name, tree in modules():
        for imported in imports(tree):
            found = ours(imported, set(ORDER))
            if found is not None and found != name:
                assert ORDER.index(found) < ORDER.index(name), f"{name} imports {found}"


def test_graph_and_solve_do_not_know_each_other():
    for name, tree in modules():
        found = {ours(imported, set(ORDER)) or "" for imported in imports(tree)}
        if name.startswith("graph."):
            assert not any(other.startswith(("solve.", "result.")) for other in found), name
        if name.startswith("solve."):
            assert not any(other.startswith("graph.") for other in found), name


@pytest.mark.parametrize(
    ("library", "home"),
    [
        ("dask", {"engine.tasks", "engine.machine"}),
        ("distributed", {"engine.waiting", "engine.client", "engine.serving", "engine.machine"}),
        ("numba", {"graph.build.neighbors", "solve.kernels.fused", *WRITES_LLVM}),
        ("llvmlite", WRITES_LLVM),
        ("pynndescent", {"graph.build.neighbors"}),
        ("matplotlib", {"result.report"}),
    ],
)
def test_a_library_has_one_home(library, home):
    users = {name for name, tree in modules() if any(f"{i}.".startswith(f"{library}.") for i in imports(tree))}
    assert users == home


def test_plain_modules_know_only_numpy_scipy_and_the_standard_library():
    allowed = {*sys.stdlib_module_names, "numpy", "scipy", "snmf_dist"}
    for name, tree in modules():
        if name in PLAIN:
            assert {i.split(".")[0] for i in imports(tree)} <= allowed, name


def python(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_importing_the_package_loads_nothing_heavy():
    heavy = {"numba", "pynndescent", "dask_ml", "matplotlib", "sklearn", "distributed", "pyarrow", "pandas"}
    code = "import sys, dask.array; before = set(sys.modules); import snmf_dist; "
    assert python(code + f"print(sorted({heavy} & (set(sys.modules) - before)))") == "[]"
