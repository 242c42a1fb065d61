"""scaling.html and scaling.png: what a scaling study found, to look at."""

import io
from collections.abc import Mapping, Sequence
from typing import Any

from snmf_dist.report import html
from snmf_dist.report.drawing import to_svg
from snmf_dist.report.html import Html, section
from snmf_dist.report.words import count, duration, share, size
from snmf_dist.scaling.efficiency import LINKS, efficiency_rows
from snmf_dist.scaling.model import MeasuredRun, an_iteration, medians
from snmf_dist.scaling.pictures import draw_scaling, name_of

TRIED = ("Rows", "Entries a row", "K", "Workers", "Time", "Spread", "Predicted", "Error", "Error of memory")
POWERS = ("Of", "Entries a row", "K", "Workers", "Power of the rows", "95 % interval")
COEFFICIENTS = ("Of", "Times", "Coefficient", "95 % interval")
PLACE_NAMES = {"process": "In one process", "workers": "On workers"}


def draw_page(study: Any) -> tuple[bytes, bytes]:
    """The page and the picture of a study that has runs which are done."""
    runs, model = study.measured, study.model
    figure = draw_scaling(runs, model)
    image = io.BytesIO()
    figure.savefig(image, format="png", dpi=110, facecolor="white")
    alt = "Six panels: time of an iteration and of a run, speed-up, where the time goes, memory, quality"
    parts = [
        _head(study, runs, model),
        section("Growth", html.figure(to_svg(figure, alt), _caption())),
        _measured_efficiency(runs),
        _foretold_efficiency(runs, model),
        *(_tables(PLACE_NAMES[name], place) for name, place in model["places"].items()),
        _runs(runs),
    ]
    return html.page("Scaling study", *parts).encode(), image.getvalue()


def _head(study: Any, runs: Sequence[MeasuredRun], model: Mapping[str, Any]) -> Html:
    sizes, machine = sorted({run["n"] for run in runs}), model["machine"]
    repeats = min(place["repeats"] for place in model["places"].values())
    notes = []
    if len(sizes) < 5 or repeats < 5:
        notes.append(
            f"These are {len(sizes)} sizes and at least {repeats} equal runs of each; five of both are "
            "the least from which to conclude."
        )
    if any(run["workers"] > run["cores"] for run in runs):
        notes.append(
            "More workers than cores measure the engine, not speed-up; they are left out of the time model."
        )
    cards = {
        "Runs done": f"{count(len(runs))} of {count(len(study.spec['runs']))}",
        "Rows": f"{count(sizes[0])} to {count(sizes[-1])}",
        "Longest run": duration(max(run["wall"] for run in runs)),
        "Machine": f"{machine['cores']} cores of {machine['processor']}, {size(machine['memory'])}",
        "Begun": model["created"],
    }
    return Html(f"<h1>Scaling study</h1>{''.join(map(html.paragraph, notes))}{html.facts(cards)}")


def _caption() -> str:
    return (
        "Dots are medians of equal runs, bars their whole spread. Diamonds: what the model predicted for the "
        "largest size, which it was not fitted to. The engine is the rest of the iterations: messages, "
        "scheduling, and waiting for the slowest worker. Sweep and halo are means over the workers."
    )


def _measured_efficiency(runs: Sequence[MeasuredRun]) -> Html | str:
    """Strong and weak efficiency of an iteration, against one worker, wherever both were measured."""
    seconds = {
        (run["rows"], run["degree"], run["k"], run["workers"]): an_iteration(group)
        for group in medians([run for run in runs if run["workers"]])
        for run in group[:1]
    }
    cores = {run["workers"]: run["cores"] for run in runs}
    rows = []
    for (n, degree, k, w), here in sorted(seconds.items()):
        strong, weak = seconds.get((n, degree, k, 1)), seconds.get((n // w, degree, k, 1)) if n % w == 0 else None
        if w > 1 and (strong or weak):
            where = name_of(w, cores=cores[w])
            shown = [share(strong / here / w) if strong else "–", share(weak / here) if weak else "–"]
            rows.append((count(n), f"{degree:g}", k, where, duration(here), *shown))
    if not rows:
        return ""
    head = ("Rows", "Entries a row", "K", "Where", "An iteration", "Strong", "Weak")
    note = (
        "Strong: against the same graph on one worker. Weak: against a graph with as many rows a worker on one "
        "worker. Each is the time of an iteration there, per worker, over that here."
    )
    return section("Efficiency, measured", html.table(head, rows, words=(3,), caption="Efficiency"), note=note)


def _foretold_efficiency(runs: Sequence[MeasuredRun], model: Mapping[str, Any]) -> Html | str:
    place = model["places"].get("workers")
    if place is None:
        return ""
    names = [f"{kind}, {link}" for link in LINKS for kind in ("strong", "weak")]
    rows = [
        (
            row["workers"],
            duration(row["engine"]) if row["runs"] else "–",
            f"{row['tasks']:.0f}" if row["runs"] else "–",
            duration(row["engine_foretold"]),
            *(share(row[name]) for name in names),
        )
        for row in efficiency_rows(runs, place)
    ]
    head = (
        "Workers",
        "Engine, measured",
        "Tasks, measured",
        "Engine, predicted",
        *(f"Predicted: {n}" for n in names),
    )
    note = (
        "What the engine adds to an iteration, and the efficiency that the cost model predicts for the largest "
        "graph (strong) and for one that is as many times larger as there are workers (weak), each on its own "
        "core. Only the columns that say so were measured. Links slower than the measured ones are reckoned with "
        "as bytes over speed."
    )
    return section("Efficiency, predicted", html.table(head, rows, caption="Efficiency, predicted"), note=note)


def _tables(title: str, place: Mapping[str, Any]) -> Html:
    held = [
        (
            count(one["n"]),
            f"{one['degree']:g}",
            one["k"],
            one["workers"],
            duration(one["seconds"]["median"]),
            f"{duration(one['seconds']['low'])} to {duration(one['seconds']['high'])}",
            duration(one["seconds"]["foretold"]),
            _signed(one["seconds"]["error"]),
            _signed(one["memory"]["error"]),
        )
        for one in place["held_out"]
    ]
    head = ("Rows", "Entries a row", "K", "Workers", "Time", "Spread", "Predicted", "Error", "Error of memory")
    tried = (
        html.table(head, held, caption="Held-out size")
        if held
        else html.paragraph("Too few sizes to hold one out.")
    )
    slopes = [
        (
            one["of"],
            f"{one['degree']:g}",
            one["k"],
            one["workers"],
            f"{one['exponent']:.2f}",
            f"{one['low']:.2f} to {one['high']:.2f}",
        )
        for one in place["exponents"]
    ]
    powers = html.table(POWERS, slopes, words=(0,), caption="Exponents")
    terms = [
        (
            name,
            one["term"],
            f"{one['value']:.3g}" if one["told_apart"] else "not told apart",
            f"{one['low']:.3g} to {one['high']:.3g}",
        )
        for name, listed in place["terms"].items()
        for one in listed
    ]
    numbers = html.table(COEFFICIENTS, terms, words=(0, 1), caption="Coefficients")
    parts = ["<h3>The largest size, predicted by the others</h3>", tried, "<h3>Growth with the rows</h3>", powers]
    parts += ["<h3>The cost model</h3>", numbers]
    note = "Seconds and bytes; an iteration for sweep, halo, engine and traffic, an evaluation for evaluation."
    return section(title, *(Html(part) for part in parts), note=note)


def _signed(value: float) -> str:
    return f"{value:+.1%}"


def _runs(runs: Sequence[MeasuredRun]) -> Html:
    rows = [
        (
            count(run["n"]),
            count(run["nnz"]),
            run["k"],
            name_of(run["workers"], cores=run["cores"]),
            duration(run["wall"]),
            run["iterations"],
            size(run["peak_bytes"]),
            size(run["planned_bytes"]),
            f"{run['nmi']:.3f}",
            share(sum(row["seconds"] for row in run["phases"]) / run["wall"]),
        )
        for run in runs
    ]
    head = ("Rows", "Entries", "K", "Where", "Time", "Iterations", "Memory", "Planned", "NMI", "In phases")
    return section("Runs", html.table(head, rows, words=(3,), caption="Runs"))
