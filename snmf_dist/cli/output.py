"""What the commands print: facts, a line each, and the summary of a solution."""

import math
from typing import Any

import click
from rich.console import Console
from rich.markup import escape

import snmf_dist


def new_console() -> Console:
    """Lines as they are: not wrapped at the width of a terminal, numbers not coloured."""
    return Console(soft_wrap=True, highlight=False)


def print_facts(console: Console, facts: dict[str, Any]) -> None:
    """Print a line for each fact: its name and its value."""
    for name, value in facts.items():
        console.print(f"[bold]{name:23}[/] {escape(str(value))}")


def print_solution(console: Console, solution: snmf_dist.Solution, truth: Any) -> None:
    """Print how a run ended, what it found, and, if the true labels are known, how well they were met."""
    facts: dict[str, Any] = {
        "status": f"{solution.status.name}: {solution.status.value}",
        "iterations": solution.n_iter,
        "products with A": solution.n_products,
        "captured energy": f"{solution.captured:.6g}"
        + ("" if math.isnan(solution.bound) else f" ({solution.captured / solution.bound:.4%} of the bound)"),
        "objective": f"{solution.objective:.6g}",
        "KKT distance": f"{solution.kkt:.2e}",
        "cluster sizes": " ".join(map(str, sorted(solution.sizes.tolist(), reverse=True))),
        "rows in no cluster": solution.n_unassigned,
    }
    if len(solution.runs) > 1:
        facts["runs, captured"] = " ".join(f"{run['captured']:.6g}" for run in solution.runs)
    if len(solution.eigengap):
        facts["largest eigengap"] = f"{solution.eigengap.max():.3g} after {solution.eigengap.argmax() + 1}"
    if truth is not None:
        facts |= _scores(solution.labels, truth)
        if solution.spectral_labels is not None:
            facts |= _scores(solution.spectral_labels, truth, "spectral clustering: ")
    print_facts(console, facts)


def _scores(labels: Any, truth: Any, who: str = "") -> dict[str, str]:
    return {who + name: f"{value:.4f}" for name, value in snmf_dist.score(labels, truth)._asdict().items()}


def number_or_auto(text: str, option: str) -> float | str:
    """The value of an option: "auto" or a number."""
    if text == "auto":
        return text
    try:
        return float(text)
    except ValueError:
        raise click.BadParameter(f"{text!r} is neither a number nor auto", param_hint=option) from None
