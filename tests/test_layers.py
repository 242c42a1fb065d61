"""Imports point one way: points -> graph -> solver -> result -> faces. And the package is light to import."""

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "snmf_dist"

# From the ground up; a module imports only what stands on an earlier line, or before it on its own.
LAYERS = [
    "errors credentials result.records card",
    "validation",
    "storage verified locks arrowfiles ids",
    "engine.spent",
    "engine.reduce engine.buffers engine.halo engine.machine engine.disk engine.plan engine.rows engine.tasks",
    "untrusted hdf5 annotated_files engine.metrics",
    "engine.local engine.loading",
    "engine.asking engine.waiting engine.client engine.own",
    "engine.serving engine.calls engine.servers engine.lineage",
    "engine.cluster",
    "graph.store.checks graph.store.layout graph.store.facts graph.store.components",
    "graph.store.reader graph.store.writer graph.store.kept graph.store",
    "graph.ingest.edges graph.ingest.textlines graph.ingest.edgefiles graph.ingest.numbering",
    "graph.ingest.matrices graph.ingest.edgelists graph.ingest.parts graph.ingest.metis graph.ingest.objects",
    "graph.ingest.graphml graph.ingest.sparsegroups",
    "graph.ingest.sources graph.ingest.runs graph.ingest.buckets graph.ingest.order graph.ingest.filing",
    "graph.ingest.regularize",
    "graph.ingest.importing graph.ingest",
    "graph.build.similarity graph.build.neighbors graph.build.tablefiles graph.build.pointfiles",
    "graph.build.points graph.build.spooling graph.build.partition",
    "graph.build.rowids graph.build.scratch graph.build.settings",
    "graph.build.stages graph.build.audit graph.build.prepare graph.build.building graph.build.lookup graph.build",
    "planted.shuffling planted.mixture planted.blockmodel planted.generating planted",
    "solve.kernels.simd solve.kernels.entrywise solve.kernels.stacked solve.kernels.rowwise",
    "solve.kernels.compiled solve.kernels.weights solve.kernels.plain solve.kernels.fused solve.kernels",
    "result.scores result.plane result.foldin result.placing result.newnodes result.compare result.tables",
    "result.networks result.annotated",
    "result.export result.advice result.summary",
    "report.words report.html report.drawing report.aggregates report.reading report.features",
    "report.graph_figures report.run_figures report.cluster_table report.comparison report.run_facts",
    "report.solution_page report.study_page",
    "result.files result.checkpoints result.solution",
    "solve.products solve.coarse solve.basis solve.modularity solve.kmeans solve.parts solve.start",
    "solve.columns solve.stopping solve.problem solve.progress solve.sample",
    "result.scatter listeners",
    "solve.admm solve.pair solve.apg solve.hals solve.solvers solve.loop solve.pipeline solve.stack",
    "keeping gauges assembling fitting arguments api",
    "ops.facts ops.doctor ops.smoke",
    "study.spec study.folder study.table study.view study.queue study.stacks study.work study.many",
    "study.stability study.consensus study.choice study.screening study.heldout study.picture study.choosing",
    "scaling.grid scaling.making scaling.measure scaling.model scaling.efficiency scaling.cost",
    "scaling.pictures scaling.page scaling.view scaling.running",
    "estimator",
    "__init__",
    "cli.progress cli.output cli.planting cli.graphs cli.fits cli.stores cli.people cli.studies cli.demo cli.ops",
    "cli.scale",
    "cli.commands cli",
    "__main__",
]
COMPILED = {"solve.kernels.compiled", "solve.kernels.weights", "solve.kernels.fused"}
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


@cache
def modules():
    """Every module by its name; a package that re-exports goes by the package's name, and stands after its own."""
    return list(parsed())


def parsed():
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
        ("distributed", {"engine.waiting", "engine.client", "engine.own", "engine.serving", "engine.machine"}),
        ("numba", {"graph.build.neighbors", *COMPILED, *WRITES_LLVM}),
        ("llvmlite", WRITES_LLVM),
        ("pynndescent", {"graph.build.neighbors"}),
        ("matplotlib", {"result.scatter", "report.drawing", "study.picture"}),
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


def test_the_name_of_a_constant_a_class_or_a_type_is_used_once():
    homes = {}
    for name, tree in modules():
        for node in tree.body:
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            found = [one.id for one in targets if isinstance(one, ast.Name) and one.id[0].isupper()]
            for known in [node.name] if isinstance(node, ast.ClassDef) else found:
                homes.setdefault(known, []).append(name)
    assert {known: places for known, places in homes.items() if len(places) > 1} == {}


def names_of(tree):
    """Every name that a tree gives: of classes, functions, arguments and variables."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def test_a_name_says_what_a_thing_is():
    vague = {"workshop", "glance", "speck", "lease", "parcel", "lone", "worth", "told"}
    vague |= {"spares", "kept_in", "give_back"}  # each has a plainer word
    for name, tree in modules():
        assert not vague & {known.lower().strip("_") for known in names_of(tree)}, name


def python(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_importing_the_package_loads_nothing_heavy():
    heavy = {"numba", "pynndescent", "dask_ml", "matplotlib", "sklearn", "distributed", "pyarrow", "pandas"}
    code = "import sys, dask.array; before = set(sys.modules); import snmf_dist; "
    assert python(code + f"print(sorted({heavy} & (set(sys.modules) - before)))") == "[]"
