"""The report of a study: its runs as a table, how they compare, and what went wrong."""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from snmf_dist import storage
from snmf_dist.report import html, run_figures
from snmf_dist.report.drawing import png_address
from snmf_dist.report.html import Html, section
from snmf_dist.report.words import count, duration, share, size
from snmf_dist.result.export import check_new_file, write_whole

LISTED_RUNS = 300  # runs at most
PICTURES = {"captured_share": "captured share", "modularity": "modularity", "ac": "accuracy", "seconds": "seconds"}
MEASURED: dict[str, tuple[str, Callable[[Any], str]]] = {
    "rank": ("Rank", str),
    "captured_share": ("Captured", share),
    "modularity": ("Modularity", "{:.3f}".format),
    "ac": ("AC", "{:.3f}".format),
    "nmi": ("NMI", "{:.3f}".format),
    "n_iter": ("Iterations", count),
    "seconds": ("Time", duration),
    "peak_bytes": ("Memory", size),
}


def write_study_report(path: str | os.PathLike[str], study: Any, *, overwrite: bool = False) -> None:
    """Write the report of a study; `Study.report` describes the parameters."""
    place = storage.normal_path(path)
    check_new_file(place, (".html", ".htm"), overwrite=overwrite)
    rows = study.rows
    parts = [_head(study, rows), _choice(study), _figures(rows), _runs(rows), _errors(rows), _settings(study)]
    text = html.page(f"Study {os.path.basename(study.path)}", *(part for part in parts if part))

    def write(part: str) -> None:
        with open(part, "w", encoding="utf-8") as file:
            file.write(text)

    write_whole(place, write)


def _head(study: Any, rows: Sequence[Mapping[str, Any]]) -> Html:
    done = [row for row in rows if row["state"] == "done"]
    best = max((row for row in done if row["captured_share"] is not None), key=_captured, default=None)
    text = study.summary()
    lead = f"{text[0].upper()}{text[1:]}."
    if study.reason is not None:
        lead = study.reason
    elif best is not None:
        lead += (
            f" The run that captures most of its bound is {best['run_id']} (k = {best['param_k']}, "
            f"{share(best['captured_share'])})."
        )
    cards = {
        "Runs": count(len(rows)),
        "Done": count(len(done)),
        "Failed": count(sum(row["state"] == "failed" for row in rows)),
        "Graphs": count(len({row["graph"] for row in rows})),
        "Values of k": count(len({row["param_k"] for row in rows})),
        "Time in all": duration(sum(row["seconds"] or 0 for row in done)),
    }
    tiles = "".join(f"<div><dt>{name}</dt><dd>{html.text_of(value)}</dd></div>" for name, value in cards.items())
    return Html(
        f"<header><h1>Study {html.text_of(os.path.basename(study.path))}</h1>"
        f"{html.paragraph(study.path, 'sub')}{html.paragraph(lead, 'verdict')}"
        f'<dl class="cards">{tiles}</dl></header>'
    )


def _captured(row: Mapping[str, Any]) -> float:
    return float(row["captured_share"])


def _choice(study: Any) -> Html | str:
    """The picture of what `choose_k` measured at each K."""
    picture = study.picture
    if picture is None:
        return ""
    try:
        address = png_address(picture)
    except (OSError, SyntaxError, ValueError):  # what Pillow raises for a damaged PNG
        return section("Choice of K", html.paragraph("The picture cannot be read; choose-k draws it again."))
    alt = html.text_of(f"Quality, stability, eigenvalues and splits of clusters at each K. {study.reason or ''}")
    image = Html(f'<img src="{address}" alt="{alt}" style="max-width:100%">')
    return section("Choice of K", html.figure(image), note="What was measured at each number of clusters.")


def _figures(rows: Sequence[Mapping[str, Any]]) -> Html | str:
    shown = [name for name in PICTURES if any(row.get(name) is not None for row in rows)]
    sections = [
        section(PICTURES[name].capitalize(), html.figure(run_figures.draw_runs(rows, name, PICTURES[name])))
        for name in shown
    ]
    return html.side_by_side(*sections) if sections else ""


def _runs(rows: Sequence[Mapping[str, Any]]) -> Html:
    """The table, the best of each graph and k first."""
    shown = [name for name in MEASURED if any(row.get(name) is not None for row in rows)]
    varied = [
        name
        for name in rows[0]
        if name.startswith("param_") and (name == "param_k" or len({str(row[name]) for row in rows}) > 1)
    ]
    several = ["Graph"] if len({row["graph"] for row in rows}) > 1 else []
    head = ["Run", *several, *(name.removeprefix("param_") for name in varied), "Status"]
    head += [MEASURED[name][0] for name in shown]
    ordered = sorted(rows, key=lambda row: (str(row["graph"]), row["param_k"], row["rank"] or len(rows)))
    left = {0, len(several), 1 + len(several) + len(varied)}
    body = []
    for row in ordered[:LISTED_RUNS]:
        line = [
            row["run_id"],
            *([row["graph"]] if several else []),
            *(row[name] for name in varied),
            row["status"] or row["state"],
        ]
        line += ["–" if row[name] is None else MEASURED[name][1](row[name]) for name in shown]
        body.append(line)
    note = "Rank 1 captures most among the runs of a graph and k."
    if len(rows) > LISTED_RUNS:
        note += f" The first {LISTED_RUNS} of {count(len(rows))} runs are listed; the others are in runs.parquet."
    return section("Runs", html.table(head, body, words=left, caption="Runs"), note=note)


def _errors(rows: Sequence[Mapping[str, Any]]) -> Html | str:
    failed: dict[str, list[str]] = {}
    for row in rows:
        if row["state"] == "failed":
            failed.setdefault(str(row["error"]), []).append(row["run_id"])
    if not failed:
        return ""
    items = "".join(
        f"<li>{html.text_of(text)} ({html.text_of(', '.join(runs[:5]))}{', …' if len(runs) > 5 else ''})</li>"
        for text, runs in failed.items()
    )
    return Html(f'<section><div class="warnings"><h2>Runs that failed</h2><ul>{items}</ul></div></section>')


def _plain(value: Any) -> str:
    return "default" if value is None else str(value)


def _settings(study: Any) -> Html:
    runs = study.spec["runs"]
    names = sorted({name for run in runs for name in run["settings"]})
    values = {name: sorted({_plain(run["settings"].get(name)) for run in runs}) for name in names}
    pairs = {name: ", ".join(found[:12]) + (", …" if len(found) > 12 else "") for name, found in values.items()}
    versions = study.spec.get("versions") or {}
    parts = [html.facts(pairs)]
    if isinstance(versions, Mapping) and versions:
        parts += [Html("<h3>Versions</h3>"), html.facts(versions)]
    return section("Settings", *parts)
