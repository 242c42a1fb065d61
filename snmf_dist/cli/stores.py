"""The commands that look at a store: `info` and `check`."""

import click

import snmf_dist
from snmf_dist import storage
from snmf_dist.cli.output import new_console, print_facts, print_solution
from snmf_dist.cli.progress import stages
from snmf_dist.result.checkpoints import SUFFIX, CheckpointFolder


@click.command()
@click.argument("path")
def info(path: str) -> None:
    """Describe the graph store or result at PATH."""
    console = new_console()
    group = storage.open_group(storage.normal_path(path))
    if storage.kind_of(group) == "result":
        solution = snmf_dist.open_solution(path)
        print_solution(console, solution, None)
        provenance = {k: v for k, v in solution.provenance.items() if v != []}
        print_facts(console, {**solution.settings, **provenance})
    else:
        print_facts(console, snmf_dist.open_graph(path).info())


@click.command()
@click.argument("path")
@click.option("--quick", is_flag=True, help="Only sizes and the manifest; do not read all entries.")
def check(path: str, quick: bool) -> None:
    """Check that the graph store, result or checkpoint at PATH is whole and as it was written."""
    console = new_console()
    checkpoints = CheckpointFolder(storage.normal_path(path), "", {})
    if path.rstrip("/").endswith(SUFFIX) and checkpoints.is_there():
        checkpoints.validate()
        console.print(f"{path}: ok (every entry read)", markup=False)
        return
    group = storage.open_group(storage.normal_path(path))
    if storage.kind_of(group) == "result":
        solution = snmf_dist.open_solution(path)
        if not quick:
            solution.validate()
    else:
        with stages(console) as progress:
            snmf_dist.open_graph(path).validate(deep=not quick, progress=progress)
    console.print(f"{path}: ok ({'quick' if quick else 'every entry read'})", markup=False)
