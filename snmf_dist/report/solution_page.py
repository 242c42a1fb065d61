"""The report of one result: what it found, how good that is, and how to make it again."""

import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from snmf_dist import storage
from snmf_dist.errors import SnmfError
from snmf_dist.graph.store import GraphStore
from snmf_dist.report import graph_figures, html, run_figures
from snmf_dist.report.aggregates import EdgeSums, read_edges, read_members
from snmf_dist.report.cluster_table import cluster_section
from snmf_dist.report.comparison import comparison_section
from snmf_dist.report.features import read_profile
from snmf_dist.report.html import Html, section
from snmf_dist.report.reading import central_ids, places_of
from snmf_dist.report.run_facts import audit_section, cost_section, settings_section
from snmf_dist.report.words import count, share, verdict
from snmf_dist.result.advice import advice_on
from snmf_dist.result.export import check_new_file, write_whole
from snmf_dist.result.placing import graph_of


class Look(NamedTuple):
    """The graph of a result, what was read of it, and why not, if it was not."""

    graph: GraphStore | None
    edges: EdgeSums | None
    missing: str = ""


def write_report(
    path: str | os.PathLike[str],
    solution: Any,
    *,
    points: Any = None,
    features: Any = None,
    feature_names: Sequence[str] | None = None,
    ids: Any = None,
    compare: Any = None,
    graph: GraphStore | str | os.PathLike[str] | None = None,
    overwrite: bool = False,
    options: storage.Options = None,
) -> None:
    """Write the report of a solution; `Solution.report` describes the parameters."""
    place = storage.normal_path(path)
    check_new_file(place, (".html", ".htm"), overwrite=overwrite)
    members = read_members(solution)
    look = _look(solution, graph, options)
    profile = None
    if features is not None:
        profile = read_profile(features, solution.labels, solution.k, names=feature_names, options=options)
    modularity = solution.history[-1].modularity if look.edges is None else look.edges.modularity
    parts = [_head(solution, look, modularity)]
    nodes = central_ids(solution, members, ids)
    parts.append(cluster_section(solution, members, nodes, look.edges, profile))
    parts += _graph_figures(look)
    parts.append(_sureness(members))
    parts.append(_run_figures(solution))
    parts.append(_map(solution, points, options))
    parts.append(audit_section(look.graph, look.edges, look.missing))
    parts.append(cost_section(solution))
    if compare is not None:
        parts.append(comparison_section(solution, compare))
    parts.append(settings_section(solution, look.graph))
    text = html.page(f"{solution.k} clusters of {_name(solution)}", *parts)
    write_whole(place, lambda part: _write(part, text))


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def _name(solution: Any) -> str:
    return os.path.basename(str(solution.provenance.get("graph", "a graph")).rstrip("/"))


def _look(solution: Any, graph: Any, options: storage.Options) -> Look:
    """Open the graph of the result and read it; a graph that is gone costs the report its figures, no more."""
    try:
        store = graph_of(solution.provenance, options, graph)
        return Look(store, read_edges(solution.labels, solution.k, store))
    except SnmfError as error:
        if graph is not None:
            raise
        return Look(None, None, str(error))


def _head(solution: Any, look: Look, modularity: float) -> Html:
    """The verdict, the numbers behind it, and the warnings."""
    found, n = solution.sizes, len(solution.labels)
    converged = solution.status.converged
    value = solution.status.value
    status = (
        f'<p class="status"><span class="badge {"good" if converged else "bad"}">{solution.status.name}</span> '
        f"<span>{html.text_of(value[0].upper() + value[1:])}.</span></p>"
    )
    cards = {
        "Rows": count(n),
        "Clusters": count(int(np.count_nonzero(found))),
        "Captured": share(solution.captured / solution.bound) if solution.bound > 0 else "–",
        "Modularity": f"{modularity:.3f}" if np.isfinite(modularity) else "–",
        "Largest cluster": share(found.max() / n),
        "In no cluster": count(solution.n_unassigned),
    }
    tiles = "".join(f"<div><dt>{name}</dt><dd>{html.text_of(text)}</dd></div>" for name, text in cards.items())
    texts = [text for _, text in advice_on(solution)]
    if look.missing:
        texts.append(f"the figures of the graph are left out: {look.missing}")
    notes = "<p>There is nothing to warn of.</p>"
    if texts:
        items = "".join(f"<li>{html.text_of(text[0].upper() + text[1:])}.</li>" for text in texts)
        notes = f'<div class="warnings"><h2>What to know, and what to do</h2><ul>{items}</ul></div>'
    when = str(solution.provenance.get("finished", "")).replace("T", " ").removesuffix("+00:00")
    sub = html.paragraph(f"{solution.provenance.get('graph', '')}{f' · {when} UTC' if when else ''}", "sub")
    return Html(
        f"<header><h1>{solution.k} clusters of {html.text_of(_name(solution))}</h1>{sub}"
        f"{html.paragraph(verdict(solution, modularity), 'verdict')}{status}"
        f'<dl class="cards">{tiles}</dl>{notes}</header>'
    )


def _graph_figures(look: Look) -> list[Html]:
    if look.edges is None:
        return []
    return [
        html.side_by_side(
            section(
                "The graph, by cluster",
                html.figure(graph_figures.draw_density(look.edges)),
                note="Entries of A with the rows of a cluster together, on a logarithmic scale. Strong squares on "
                "the diagonal are clusters that hang together.",
            ),
            section(
                "Weight between clusters",
                html.figure(graph_figures.draw_quotient(look.edges)),
                note="Of the weight of all edges of a cluster (line), the share in per cent that leads to each "
                "cluster (column).",
            ),
        )
    ]


def _sureness(members: Any) -> Html:
    return section(
        "How sure the memberships are",
        html.figure(run_figures.draw_sureness(members)),
        note="Each row of L has a membership in every cluster. 1 means that a row is in its own cluster alone. By "
        "cluster: the median, the middle half, and the range of 90 % of the rows.",
    )


def _run_figures(solution: Any) -> Html:
    values = [*(solution.provenance.get("eigenvalues") or []), solution.provenance.get("next_eigenvalue")]
    values = [value for value in values if value is not None]
    parts = []
    if len(values) > 1:
        best = int((-np.diff(values)).argmax()) + 1
        text = f"A large gap after number j speaks for j clusters. The largest here is after {best}"
        text += "; k is that." if best == solution.k else f"; k is {solution.k}."
        figure = html.figure(run_figures.draw_eigenvalues(values, solution.k))
        parts.append(section("Eigenvalues", figure, note=text))
    text = "How far an iteration moved the memberships, and what share of the energy they then captured."
    if len(solution.history) < 2:
        parts.append(
            section(
                "Convergence", note=f"There was one iteration; its change was {solution.history[0].change:.2g}."
            )
        )
    else:
        figure = html.figure(run_figures.draw_convergence(solution.history, solution.bound))
        parts.append(section("Convergence", figure, note=text))
    return html.side_by_side(*parts)


def _map(solution: Any, points: Any, options: storage.Options) -> Html:
    sample, axes = places_of(solution, points, options)
    shown = len(sample.rows)
    of = "All" if shown == len(solution.labels) else f"A sample of {count(shown)} of the"
    note = f"{of} {count(len(solution.labels))} rows in the plane of {axes}, coloured by cluster."
    note += " A number for which there is no room is left out."
    if not axes.startswith("the coordinates"):
        note += " Clusters that lie upon each other here may be apart in other dimensions."
    drawn = graph_figures.draw_map(sample, solution.labels[sample.rows], solution.k, axes)
    return section("Map", html.figure(drawn), note=note)
