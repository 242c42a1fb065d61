"""The command ``snmf-dist``: parse, call the library, print."""

from snmf_dist.cli.commands import main

__all__ = ["main"]
