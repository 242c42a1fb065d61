"""Table 1 of the paper: on six synthetic sets, how many of 100 random starts give perfect clusters.

Run ``python examples/paper/table1.py [out]``; ``--quick`` takes 5 starts. It goes on where it was if it was
killed, and writes rows.csv, table1.md and table1.png to the folder.
"""

from collections.abc import Sequence

import numpy as np
from methods import SNMF
from published import PERFECT
from runs import Case, Ledger, command_line, made_with, markdown, run_cases
from sets import SYNTHETIC, read_points

OF_TABLE = ("Spec", "SymNMF", "APG", "ADMM", "default", "HALS", "Spec, 10 k-means++", "Leiden", "k-means")
SPARED = ("HALS",)  # by --quick
PAPERS = ("Spec", "SymNMF", "APG", "ADMM")


def main(arguments: Sequence[str] | None = None) -> str:
    """Run the starts that are missing, and write the table; returns it."""
    parser = command_line(__doc__, "paper-table1", starts=100)
    parser.add_argument("--sets", nargs="+", type=int, default=range(1, 7), help="some of 1 to 6 (all)")
    given = parser.parse_args(arguments)
    given.methods = given.methods or [name for name in OF_TABLE if not (given.quick and name in SPARED)]
    if given.quick:
        given.starts = min(given.starts, 5)
    ledger = Ledger(given.out)
    names = [SYNTHETIC[i - 1] for i in given.sets]
    run_cases([Case(name, len(np.unique(read_points(name).y))) for name in names], given, ledger)
    ledger.write_csv()
    page = _page(ledger, names, given)
    (given.out / "table1.md").write_text(page)
    _draw(ledger, names, given)
    print(page)
    return page


def _perfect(ledger: Ledger, name: str, method: str, starts: int) -> tuple[int, int]:
    """Perfect clusterings, and runs."""
    found = [v for s in range(starts) for v in ledger.figures("AC", set=name, method=method, start=s)]
    return sum(value == 100 for value in found), len(found)


def _page(ledger: Ledger, names: list[str], given) -> str:
    perfect, seconds, worse = [], [], []
    for name in names:
        published = dict(zip(PAPERS, PERFECT[int(name[-1])], strict=True))
        counts = {method: _perfect(ledger, name, method, given.starts) for method in given.methods}
        cells = []
        for method, (good, runs) in counts.items():
            paper = f" (paper {published[method]})" if method in published else ""
            cells.append(f"{good} of {runs}{paper}" if runs else "not run: " + _why(ledger, name, method))
        perfect.append([name, *cells])
        means = [ledger.mean("cpu", set=name, method=method) for method in given.methods]
        seconds.append([name, *(f"{mean:.3f}" if np.isfinite(mean) else "–" for mean in means)])
        shares = {m: good / runs for m, (good, runs) in counts.items() if runs and m in SNMF}
        if "default" in shares and shares["default"] < max(shares.values()):
            worse.append(f"{name}: " + ", ".join(f"{m} {100 * share:.0f} %" for m, share in shares.items()))
    return "\n".join(
        [
            f"Perfect clusterings of {given.starts} starts (in brackets the paper's, of 100):\n",
            markdown(["set", *given.methods], perfect),
            "Seconds of the processor, mean, the graph apart:\n",
            markdown(["set", *given.methods], seconds),
            "The default is behind an SNMF method on: " + ("; ".join(worse) or "no set") + ".\n",
            made_with(given.threads),
        ]
    )


def _why(ledger: Ledger, name: str, method: str) -> str:
    return next(iter(ledger.figures("note", set=name, method=method)), "")


def _draw(ledger: Ledger, names: list[str], given) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4.2), layout="constrained")
    axes = figure.subplots()
    shown = [
        method for method in given.methods if any(_perfect(ledger, n, method, given.starts)[1] for n in names)
    ]
    width = 0.8 / max(len(shown), 1)
    for i, method in enumerate(shown):
        shares = [100 * g / max(r, 1) for g, r in (_perfect(ledger, n, method, given.starts) for n in names)]
        places = np.arange(len(names)) + (i - (len(shown) - 1) / 2) * width
        axes.bar(places, shares, width, label=method, color=f"C{i}")
    axes.set_xticks(range(len(names)), names)
    axes.set(ylabel="perfect clusterings, %", ylim=(0, 105), title=f"Table 1: {given.starts} starts")
    figure.legend(loc="outside right upper", frameon=False)
    figure.savefig(given.out / "table1.png", dpi=120)


if __name__ == "__main__":
    main()
