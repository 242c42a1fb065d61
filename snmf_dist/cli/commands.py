"""The command `snmf-dist`: its sub-commands, and how errors and warnings are shown.

Exit codes: 0 done, 1 not converged, 2 bad input, 3 failed.
"""

import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from snmf_dist.cli.demo import demo_
from snmf_dist.cli.fits import fit, plan_
from snmf_dist.cli.graphs import graph_, import_
from snmf_dist.cli.ops import doctor, smoke
from snmf_dist.cli.output import safe_output
from snmf_dist.cli.people import compare_, export_, predict_, report_
from snmf_dist.cli.planting import generate_
from snmf_dist.cli.scale import scale_
from snmf_dist.cli.stores import check, info
from snmf_dist.cli.studies import batch, choose_k_, study_
from snmf_dist.errors import Interrupted, NoRoom, ResultNotSaved, SnmfError, WorkLost, reason
from snmf_dist.keeping import ask_to_stop, kept_checkpoints

BAD_INPUT, FAILED = 2, 3  # exit codes, beside 1 of `fit`
PATIENCE = 25.0  # seconds that a run gets to write a last checkpoint
_asked: list[int] = []  # signals that runs were told of


class _Commands(click.Group):
    """Turns what the library raises and warns of into lines for the terminal, and exit codes."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run a command. Output that cannot be written is warned of; the exit code tells of the work alone."""
        with safe_output() as output:
            code = 0
            try:
                return super().main(*args, **kwargs)
            except SystemExit as end:
                code = end.code if isinstance(end.code, int) else 1
                output.flush()
                if output.lost is None:
                    raise
                click.echo(f"warning: standard output was not written: {reason(output.lost)}", err=True)
            raise SystemExit(code)

    def invoke(self, ctx: click.Context) -> Any:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, _on_signal)
        with _plain_warnings():
            try:
                return super().invoke(ctx)
            except (click.ClickException, click.exceptions.Exit, click.Abort):
                raise
            except (WorkLost, ResultNotSaved, NoRoom) as error:
                code, text = FAILED, str(error)
            except Interrupted as error:
                code, text = 128 + error.signal, str(error)
            except SnmfError as error:
                code, text = BAD_INPUT, str(error)
            except OSError as error:
                place = f"{error.filename}: " if error.filename else ""
                code, text = FAILED, f"{place}cannot be read or written ({reason(error)})"
            except KeyboardInterrupt:
                code, text = 128 + signal.SIGINT, "interrupted; no result was written"
            except Exception as error:
                traceback.print_exc()
                code = FAILED
                text = (
                    f"unexpected {type(error).__name__}; this is a bug in snmf_dist; please report it with the "
                    "traceback above"
                )
        click.echo(f"error: {text}", err=True)
        raise click.exceptions.Exit(code)


def _on_signal(number: int, frame: Any) -> None:
    """Let runs write a checkpoint and end, for a while; at a second signal, or if none can, end at once."""
    if not _asked and ask_to_stop(number):
        _asked.append(number)
        click.echo("ending after this iteration, with a checkpoint; interrupt again to end at once", err=True)
        timer = threading.Timer(PATIENCE, signal.raise_signal, [number])
        timer.daemon = True
        timer.start()
        return
    for folder in kept_checkpoints():
        click.echo(f"the same command continues from {folder}", err=True)
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    sys.exit(128 + number)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="snmf-dist")
def main() -> None:
    """Cluster graphs that do not fit: A ≈ LLᵀ, L ≥ 0, on Dask and Zarr.

    \b
    Try it:          snmf-dist demo
    Your own points: snmf-dist graph points.npy graph.zarr
    Your own graph:  snmf-dist import edges.csv graph.zarr --symmetrize max
    Then:            snmf-dist fit graph.zarr -k 20 --out result.zarr
                     snmf-dist info result.zarr
    To show it:      snmf-dist report result.zarr --out report.html
    How many?        snmf-dist choose-k graph.zarr -k 2:40 --out study
    Many runs:       snmf-dist batch grid.toml --out study
    Will it fit?     snmf-dist plan graph.zarr -k 20 --memory 4GiB
    Does it scale?   snmf-dist scale --rows 125k:2M -k 20 --out scaling
    Test data:       snmf-dist generate graph toy --rows 100k -k 20
    Does it work?    snmf-dist doctor; snmf-dist smoke

    Exit codes: 0 done; 1 not converged (the result is still written); 2 usage or bad input; 3 the work
    failed (disk full, workers lost); 130 or 143 interrupted.
    """


for command in (
    *(import_, graph_, plan_, fit, choose_k_, batch, study_, info, check),
    *(predict_, export_, compare_, report_, generate_, scale_, demo_, smoke, doctor),
):
    main.add_command(command)


@contextmanager
def _plain_warnings() -> Iterator[None]:
    """Show our warnings as a line each, without the place in the code."""

    def show(message: Warning | str, *rest: Any) -> None:
        click.echo(f"warning: {message}", err=True)

    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = show  # type: ignore[assignment]
        yield
