"""The commands for those who run a cluster: `smoke`, a small job with a known answer, and `doctor`."""

import tempfile
from contextlib import ExitStack
from functools import partial

import click
from rich.markup import escape

from snmf_dist import storage
from snmf_dist.cli.output import new_console, print_facts
from snmf_dist.engine.client import connect
from snmf_dist.ops.doctor import OK, WARNING, WRONG, examine
from snmf_dist.ops.smoke import LABEL_HASH, run_smoke

WRONG_ANSWER = 1  # exit code
_COLOURS = {OK: "green", WARNING: "yellow", WRONG: "red"}
_scheduler = click.option("--scheduler", metavar="ADDRESS", help="The Dask cluster, as tcp://host:8786.")
_store = click.option("--store", metavar="URL", help="A folder or URL that all processes can write to.")


@click.command()
@_scheduler
@_store
@click.option(
    "--kill/--no-kill",
    default=None,
    help="Kill a worker in the middle.  [default: if a nanny starts it again and nobody else uses the cluster]",
)
def smoke(scheduler: str | None, store: str | None, kill: bool | None) -> None:
    """Run a small job whose answer is known, and compare.

    Plants 4000 points, builds their graph, fits it, kills a worker on the way, and compares the partition with the
    planted one. Exit code 1 if it differs.

    \b
    Examples: snmf-dist smoke
              snmf-dist smoke --scheduler tcp://127.0.0.1:8786 --store /shared/smoke
    """
    console = new_console()
    with ExitStack() as stack:
        place = storage.normal_path(store or stack.enter_context(tempfile.TemporaryDirectory()))
        seen = run_smoke(place, kill=kill, connect=partial(connect, scheduler) if scheduler else None)
    facts = {
        "ran on": seen.place + (f", {seen.workers} workers" if seen.workers else ""),
        "store": place,
        "worker killed": seen.killed or f"none: {seen.spared}",
        **{f"note {i}": text for i, text in enumerate(seen.said, 1)},
        "seconds": f"{seen.seconds:.1f}",
        "label hash": f"{seen.hash}, as expected" if seen.ok else f"{seen.hash}, expected {LABEL_HASH}",
    }
    print_facts(console, facts)
    if not seen.ok:
        raise click.exceptions.Exit(WRONG_ANSWER)


@click.command()
@_scheduler
@_store
def doctor(scheduler: str | None, store: str | None) -> None:
    """Look at every process of a cluster: versions, paths, memory, BLAS threads, clocks, network, open ports.

    Exit code 1 if something is wrong. A frozen process is named within seconds; no request waits for more than a
    minute.

    \b
    Examples: snmf-dist doctor --store /shared
              snmf-dist doctor --scheduler tcp://127.0.0.1:8786 --store s3://bucket/folder
    """
    console = new_console()
    place = None if store is None else storage.normal_path(store)
    with ExitStack() as stack:
        client = stack.enter_context(connect(scheduler)) if scheduler else None
        found = examine(client, store=place)
    for one in found:
        move = f"; {one.next_move}" if one.next_move else ""
        console.print(f"[{_COLOURS[one.state]}]{one.state:8}[/]{escape(f'{one.what}: {one.found}{move}')}")
    if any(one.state == WRONG for one in found):
        raise click.exceptions.Exit(WRONG_ANSWER)
