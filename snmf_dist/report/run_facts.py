"""What is known of the graph, of the cost of the run, and of how to make it again."""

import platform
from typing import Any

from snmf_dist.graph.store import GraphStore
from snmf_dist.report import graph_figures, html
from snmf_dist.report.aggregates import EdgeSums
from snmf_dist.report.html import Html, section
from snmf_dist.report.words import count, duration, fit_command, graph_command, share, size

PHASES = {
    "reading": "Reading the graph, compiling kernels",
    "start": "Start (eigenvectors, k-means)",
    "iterations": "Iterations",
}


def audit_section(graph: GraphStore | None, edges: EdgeSums | None, missing: str) -> Html:
    """What the graph is like, and how well it was built."""
    if graph is None or edges is None:
        return section("The graph", html.paragraph(f"It could not be read: {missing}."))
    block = graph.block
    made, sizes = block["made"], block["made"].get("component_sizes") or []
    found: dict[str, Any] = {
        "Rows": count(graph.n),
        "Entries of A": count(graph.nnz),
        "Entries a row, mean": f"{graph.nnz / graph.n:.1f}",
        "Normalisation": {"ncut": Html("D<sup>−½</sup> W D<sup>−½</sup>"), "none": "none, A = W"}[graph.normalize],
    }
    if graph.tau:
        found["Added to each degree (tau)"] = f"{graph.tau:.4g}"
    found["Connected components"] = "not counted" if graph.components is None else count(graph.components)
    if graph.components != 1 and sizes:
        found["Rows of the largest component"] = f"{count(sizes[0])} ({share(sizes[0] / graph.n)})"
    found["Rows without edges"] = count(block["zero_degree"])
    if graph.recall is not None:
        found["Recall of true neighbours"] = "exact" if made.get("exact") else share(graph.recall)
        found["Neighbours q, scale neighbour p"] = f"{made['neighbors']}, {made['scale_neighbor']}"
        found["Metric"] = made["metric"]
    for name, label in {
        "zero_scale_rows": "Rows among copies of themselves",
        "joined": "Edges that join components",
    }.items():
        if made.get(name):
            found[label] = count(made[name])
    coupled = graph.coupling()
    found["Row blocks"] = count(coupled["blocks"])
    found["Entries in diagonal blocks"] = share(coupled["diagonal"])
    found["Rows from other blocks, mean"] = f"{coupled['halo']:.2f} block sizes"
    return section(
        "The graph",
        html.facts(found),
        html.figure(graph_figures.draw_degrees(edges)),
        note="How the graph was found, and how its degrees spread.",
    )


def cost_section(solution: Any) -> Html:
    """Memory planned and used, and time by phase."""
    given = solution.provenance
    total = float(given.get("seconds") or 0)
    facts = {
        "Time in all": duration(total),
        "Memory planned, a process": size(given.get("planned_bytes")),
        "Memory at its height, this process": size(given.get("peak_bytes")),
        "Way": f"{given.get('way', '–')}, {given.get('place', '–')}",
        "Products with A": count(solution.n_products),
        "Iterations": count(solution.n_iter),
    }
    phases = given.get("phases") or {}
    rows = []
    for name, seconds in phases.items():
        part = seconds / total if total else 0.0
        bar = (
            f'<span class="track" aria-hidden="true"><span class="bar" style="width:{round(56 * min(part, 1))}px">'
        )
        rows.append(
            [
                PHASES.get(name, name),
                duration(seconds),
                Html(f"{bar}</span></span><span class=num>{html.text_of(share(part))}</span>"),
            ]
        )
    parts = [html.table(["Phase", "Time", "Share"], rows, words={0}, caption="Time by phase")] if rows else []
    return section("Memory and time", html.facts(facts), *parts)


def settings_section(solution: Any, graph: GraphStore | None) -> Html:
    """Settings, versions, fingerprints, and the command that makes the result again."""
    given = solution.provenance
    lines = [fit_command(solution)]
    if graph is not None and (built := graph_command(graph.block["made"], graph.path)):
        lines.insert(0, built)
    versions = {name: str(value) for name, value in (given.get("versions") or {}).items()}
    settings = {name: "default" if value is None else value for name, value in solution.settings.items()}
    marks = {"Graph": given.get("graph", "–"), "Fingerprint of the graph": given.get("fingerprint", "–")}
    if graph is not None and "points" in graph.block["made"]:
        marks["Checksum of the points"] = graph.block["made"]["points"]
    return section(
        "To make it again",
        html.code("\n".join(lines)),
        html.facts(marks),
        Html("<h3>Settings</h3>"),
        html.facts(settings),
        Html("<h3>Versions</h3>"),
        html.facts(versions),
        Html(f"<footer>Written by snmf-dist on Python {platform.python_version()}.</footer>"),
    )
