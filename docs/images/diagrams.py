"""Draw walk.svg and iteration.svg of docs/architecture.md: ``python docs/images/diagrams.py``."""

from html import escape
from pathlib import Path

BLUE, GREEN, ORANGE, GREY = "#dbe7fb", "#dcf1e0", "#fdebcf", "#f1f1f1"


class Drawing:
    """Boxes, arrows and text on a white ground."""

    def __init__(self, width: int, height: int) -> None:
        self.size = width, height
        self.parts: list[str] = []

    def text(self, x: float, y: float, words: str, *, size: int = 13, anchor: str = "middle", bold: bool = False):
        """One line of text."""
        weight = ' font-weight="bold"' if bold else ""
        self.parts.append(
            f'<text x="{x}" y="{y}" font-size="{size}" text-anchor="{anchor}"{weight}>{escape(words)}</text>'
        )

    def box(self, x: float, y: float, w: float, h: float, color: str, *lines: str) -> None:
        """A box; its first line is bold."""
        self.parts.append(f'<rect x="{x}" y="{y}" width="{w}" height="{h}" rx="7" fill="{color}" stroke="#667"/>')
        top = y + h / 2 - 8.5 * (len(lines) - 1) + 4.5
        for i, line in enumerate(lines):
            self.text(x + w / 2, top + 17 * i, line, bold=i == 0, size=13 if i == 0 else 12)

    def arrow(
        self, x1: float, y1: float, x2: float, y2: float, *, dashed: bool = False, both: bool = False
    ) -> None:
        """A line with a head."""
        more = ' stroke-dasharray="5 4"' if dashed else ""
        self.parts.append(
            f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="#334" stroke-width="1.5" '
            f'marker-end="url(#head)"{more}/>'
        )

    def save(self, name: str) -> None:
        """Write the file beside this one."""
        w, h = self.size
        head = (
            '<defs><marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" '
            'orient="auto-start-reverse"><path d="M0 0L10 5L0 10z" fill="#334"/></marker></defs>'
        )
        body = "\n".join(self.parts)
        Path(__file__).with_name(name).write_text(
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {w} {h}" width="{w}" height="{h}" '
            f'font-family="DejaVu Sans, Arial, sans-serif" fill="#112">\n{head}\n'
            f'<rect width="{w}" height="{h}" fill="white"/>\n{body}\n</svg>\n',
            encoding="utf-8",
        )


def walk() -> None:
    """From points to labels."""
    d = Drawing(980, 330)
    top = [
        (BLUE, "points (n × d)", ".npy, Zarr, Parquet", "read by row blocks"),
        (BLUE, "neighbours", "cells that fit in memory", "graph/build"),
        (BLUE, "W, then A", "weights, symmetric,", "normalised"),
        (GREEN, "graph store", "CSR row blocks in Zarr", "graph/store"),
    ]
    for i, (color, *lines) in enumerate(top):
        d.box(15 + 245 * i, 20, 205, 84, color, *lines)
        if i:
            d.arrow(245 * i - 22, 62, 13 + 245 * i, 62)
    d.box(505, 128, 205, 50, BLUE, "a graph you have", "graph/ingest")
    d.arrow(712, 150, 790, 106)
    bottom = [
        (GREEN, "result", "labels, L in Zarr", "order of the input"),
        (ORANGE, "iterations", "X, Y, L, Λ, Γ (n × K)", "solve + engine"),
        (ORANGE, "start", "eigenvectors, k-means", "L (n × K)"),
        (ORANGE, "A in row blocks", "memory, disk or workers", "engine"),
    ]
    for i, (color, *lines) in enumerate(bottom):
        d.box(15 + 245 * i, 215, 205, 84, color, *lines)
        if i:
            d.arrow(13 + 245 * i, 257, 245 * i - 22, 257)
    d.arrow(853, 106, 853, 213)
    d.save("walk.svg")


def iteration() -> None:
    """One half iteration on two workers."""
    d = Drawing(980, 470)
    d.text(490, 24, "One half iteration of ADMM: X = (AY + ρL + Λ)(YᵀY + ρI)⁻¹", size=15, bold=True)
    d.box(330, 45, 320, 62, ORANGE, "one K × K task", "C Cᵀ = YᵀY + ρI (Cholesky)", "(one a half iteration)")
    for x, name, other in ((20, "1", "2"), (570, "2", "1")):
        block, server = (x + 15, x + 205) if name == "1" else (x + 205, x + 15)  # the servers face each other
        d.box(x, 140, 390, 215, GREY)
        d.text(x + 195, 160, f"worker {name}", bold=True)
        d.box(block, 172, 170, 62, GREEN, f"block {name}", "its rows of A, Y, L, Λ", "plain arrays")
        d.box(server, 172, 170, 62, BLUE, "row server", "a Dask actor:", f"rows of Y in block {name}")
        lines = (f"asks worker {other} for its halo rows of Y", "its rows of X", "its part of XᵀX")
        d.box(x + 15, 262, 360, 78, ORANGE, "sweep task", *lines)
        d.arrow(block + 85, 236, block + 85, 260)
    d.arrow(397, 205, 583, 300, dashed=True)
    d.arrow(583, 205, 397, 300, dashed=True)
    d.text(490, 196, "halo rows,", size=12)
    d.text(490, 211, "without a task", size=12)
    d.arrow(420, 109, 215, 138)
    d.arrow(560, 109, 765, 138)
    d.box(
        330,
        385,
        320,
        62,
        ORANGE,
        "tree of fixed shape",
        "adds the parts of XᵀX and the norms",
        "→ the K × K task of the next half",
    )
    d.arrow(215, 357, 328, 405)
    d.arrow(765, 357, 652, 405)
    d.save("iteration.svg")


if __name__ == "__main__":
    walk()
    iteration()
