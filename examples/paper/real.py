"""What Tables 2 and 3 share: random subsets of the classes of a real data set, AC, NMI and seconds for each k."""

import argparse
from collections.abc import Sequence

import numpy as np
from methods import METHODS, SNMF, UNFINISHED
from published import ACCURACY, SECONDS
from published import METHODS as PAPERS
from runs import Case, Ledger, command_line, made_with, markdown, run_cases, show

KS = (2, 4, 6, 8, 10, 12, 14, 20)
MARKS = "osv^D<>Pxh"


def make_table(
    arguments: Sequence[str] | None, *, about: str, set: str, file: str, quick: dict[str, Sequence]
) -> str:
    """Run the rows that are missing, and write the table as CSV, Markdown and PNG; returns the Markdown.

    Parameters
    ----------
    arguments : sequence of str, optional
        Of the command line; by default those of the process.
    about : str
        The text of ``--help``.
    set, file : str
        The data set, and the name of the table's files.
    quick : dict
        What ``--quick`` means: the ``ks`` to run, and the methods it ``skips``.
    """
    parser = command_line(about, f"paper-{file}", starts=5)
    parser.add_argument("--subsets", type=int, default=20, help="random subsets of the classes for each k < 20")
    parser.add_argument("--ks", nargs="+", type=int, default=None, help=f"numbers of classes ({KS})")
    given = parser.parse_args(arguments)
    skipped = quick["skips"] if given.quick else ()
    given.methods = given.methods or [name for name in METHODS if name not in skipped]
    given.ks = given.ks or (quick["ks"] if given.quick else KS)
    if given.quick:
        given.subsets, given.starts = min(given.subsets, 2), min(given.starts, 1)
    ledger = Ledger(given.out)
    cases = [Case(set, k, subset) for k in given.ks for subset in range(1 if k == max(KS) else given.subsets)]
    run_cases(cases, given, ledger)
    ledger.write_csv()
    page = make_page(ledger, set, given)
    (given.out / f"{file}.md").write_text(page)
    draw_by_k({set: ledger}, given.out / f"{file}.png")
    print(page)
    return page


def make_page(ledger: Ledger, set: str, given: argparse.Namespace) -> str:
    """The tables of a run beside the paper's figures, and what is to be said of each row."""
    parts = []
    for name, title, published in (
        ("AC", "AC, mean, %", ACCURACY[set]),
        ("NMI", "NMI, mean, %", {}),
        ("cpu", "Seconds of the processor, mean, the graph apart", SECONDS[set]),
    ):
        lines = []
        for k in given.ks:
            cells = [_cell(ledger, name, set, k, method, published) for method in given.methods]
            lines.append([f"k={k} ({_extent(ledger, set, k)})", *cells])
        parts += [f"{title} (in brackets the paper's):\n", markdown(["", *given.methods], lines)]
    parts += [_ratios(ledger, set, given.ks), _behind(ledger, set, given), _notes(ledger, set, given)]
    return "\n".join([*parts, made_with(given.threads)])


def _extent(ledger: Ledger, set: str, k: int) -> str:
    """How many subsets and runs a row has."""
    keys = [key for key in ledger.rows if key[:2] == (set, k)]
    subsets, starts = len({key[2] for key in keys}), len({key[3] for key in keys})
    return f"{subsets} × {starts}"


def _cell(ledger: Ledger, name: str, set: str, k: int, method: str, published: dict) -> str:
    paper = dict(zip(PAPERS, published.get(k, ()), strict=False)).get(method)
    beside = "" if paper is None else f" ({paper:.2f})"
    least = "> " if name == "cpu" and _unfinished(ledger, set, k, method) else ""
    return least + show(ledger.mean(name, set=set, k=k, method=method)) + beside


def _unfinished(ledger: Ledger, set: str, k: int, method: str) -> bool:
    """Whether a run was given up, so that the mean of the seconds is too low."""
    return UNFINISHED in ledger.figures("note", set=set, k=k, method=method)


def _ratios(ledger: Ledger, set: str, ks: Sequence[int]) -> str:
    """How many times faster ADMM is than SymNMF and APG, for each k."""
    lines = []
    for k in ks:
        ours = ledger.mean("cpu", set=set, k=k, method="ADMM")
        cells = [f"k={k}"]
        for i, rival in ((2, "SymNMF"), (3, "APG")):
            paper = SECONDS[set][k][i] / SECONDS[set][k][4] if k in SECONDS[set] else float("nan")
            ratio = ledger.mean("cpu", set=set, k=k, method=rival) / ours
            least = "> " if _unfinished(ledger, set, k, rival) else ""
            cells.append(f"{least}{show(ratio, 1)} (paper {show(paper, 1)})")
        lines.append(cells)
    return "Times faster ADMM is than:\n\n" + markdown(["", "SymNMF", "APG"], lines)


def _behind(ledger: Ledger, set: str, given: argparse.Namespace) -> str:
    """Where the default is less accurate than an SNMF method on the runs that both have, and by how much."""
    lines = []
    for k in given.ks:
        found = {m: ledger.by_run("AC", set=set, k=k, method=m) for m in given.methods if m in SNMF}
        ours = found.pop("default", {})
        gaps = {m: [runs[key] - ours[key] for key in runs if key in ours] for m, runs in found.items()}
        means = {m: float(np.mean(gap)) for m, gap in gaps.items() if gap}
        lines += [f"k={k}: by {gap:.2f} below {m} ({len(gaps[m])} runs)" for m, gap in means.items() if gap > 0]
    return "The default's mean AC is below that of an SNMF method at: " + ("; ".join(lines) or "no k") + ".\n"


def _notes(ledger: Ledger, set: str, given: argparse.Namespace) -> str:
    """What the rows say of themselves, counted."""
    lines = []
    for method in given.methods:
        for k in given.ks:
            notes = [note for note in ledger.figures("note", set=set, k=k, method=method) if note]
            if notes:
                kinds = ", ".join(f"{notes.count(note)} × {note}" for note in dict.fromkeys(notes))
                lines.append(f"- {method}, k={k}: {kinds}")
    return "Notes:\n\n" + "\n".join(lines or ["- none"]) + "\n"


def draw_by_k(ledgers: dict[str, Ledger], path: object) -> None:
    """Draw AC and seconds against k for all methods, a row of panels a data set.

    The AC of a method is left out where runs were given up: its mean would be one over the smaller sets.
    """
    from matplotlib import colormaps
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 0.6 + 4.2 * len(ledgers)), layout="constrained")
    panels = figure.subplots(len(ledgers), 2, squeeze=False)
    styles = {}
    for i, name in enumerate(METHODS):  # ten dark colours, then ten light ones with other marks
        turn, at = divmod(i, 10)
        styles[name] = (
            colormaps["tab20"](2 * at + turn),
            "-" if name in SNMF else "--",
            MARKS[(at + 4 * turn) % 10],
        )
    for (set, ledger), row in zip(ledgers.items(), panels, strict=True):
        ks = sorted({key[1] for key in ledger.rows})
        for axes, name in zip(row, ("AC", "cpu"), strict=True):
            for method, (color, line, mark) in styles.items():
                values = [
                    float("nan")
                    if name == "AC" and _unfinished(ledger, set, k, method)
                    else ledger.mean(name, set=set, k=k, method=method)
                    for k in ks
                ]
                if np.isfinite(values).any():
                    axes.plot(ks, values, line, marker=mark, ms=5, color=color, lw=1.3, label=method)
            axes.set(
                xlabel="k",
                xticks=ks,
                title=f"{set}: " + ("mean AC, %" if name == "AC" else "mean seconds of the processor"),
            )
            axes.grid(alpha=0.3)
        row[1].set_yscale("log")
    drawn = {line.get_label(): line for axes in panels.ravel() for line in axes.get_lines()}
    order = [name for name in METHODS if name in drawn]
    figure.legend([drawn[name] for name in order], order, loc="outside right upper", frameon=False)
    figure.savefig(path, dpi=120)
