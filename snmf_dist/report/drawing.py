"""How figures look: matplotlib draws, and the style sheet of the page colours, for light, dark and print."""

import base64
import io
import re
import zlib
from html import escape
from typing import Any

import numpy as np

from snmf_dist.errors import InputError

# Colours that people with the usual colour blindnesses tell apart (Okabe and Ito 2008, the yellow darkened), and
# that stand out from white and from near black.
COLORS = ("#0072b2", "#e08a00", "#009e73", "#cc6f9f", "#56a9e0", "#d55e00", "#8a6fd1", "#a89400")
MARKERS = ("o", "^", "s")  # of the first eight clusters, the next and so on
INK, MUTED, LINE = "#010101", "#020202", "#030303"  # stand for colours of the style sheet
STYLED = {INK: "var(--ink)", MUTED: "var(--muted)", LINE: "var(--line)"}
PIXELS = 100  # an inch
SHADES = 48  # colours of a raster


def color_of(k: int) -> str:
    """Colour of cluster `k`."""
    return COLORS[k % len(COLORS)]


def new_figure(width: float, height: float, **panels: Any) -> tuple[Any, Any]:
    """A figure of so many inches, and its panels as `matplotlib.figure.Figure.subplots` returns them."""
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure  # without pyplot: no display, no global state
    except ImportError:
        raise InputError("reports need matplotlib; install snmf-dist[report]") from None
    with mpl.rc_context(_settings()):
        figure = Figure(figsize=(width, height), layout="constrained")
        found = figure.subplots(**panels)
        for panel in np.ravel(found):
            panel.spines[["top", "right"]].set_visible(False)
            panel.set_axisbelow(True)
    return figure, found


def _settings(**more: Any) -> Any:
    colors = dict.fromkeys(
        ("text.color", "axes.labelcolor", "xtick.labelcolor", "ytick.labelcolor", "axes.titlecolor"), INK
    )
    lines = dict.fromkeys(("axes.edgecolor", "xtick.color", "ytick.color"), MUTED)
    quiet = {"axes.facecolor": "none", "figure.facecolor": "none", "savefig.facecolor": "none"}
    sizes = {"font.size": 9, "axes.titlesize": 9, "axes.titlelocation": "left", "axes.linewidth": 0.6}
    ticks = {f"{axis}tick.major.{name}": value for axis in "xy" for name, value in (("width", 0.6), ("size", 3))}
    other = {"grid.color": LINE, "grid.linewidth": 0.6, "legend.frameon": False, "legend.fontsize": 8}
    return {
        **colors,
        **lines,
        **quiet,
        **sizes,
        **ticks,
        **other,
        "svg.fonttype": "none",
        "axes.unicode_minus": True,
    }


def to_svg(figure: Any, alt: str) -> str:
    """A figure as an SVG element with the font and the colours of the page."""
    import matplotlib as mpl

    file = io.StringIO()
    salt = f"{zlib.crc32(alt.encode()):x}"  # figures of one page need different names for their parts
    with mpl.rc_context(_settings(**{"svg.hashsalt": salt})):
        figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None}, dpi=PIXELS)
    text = file.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r"<!--.*?-->", "", text)
    text = re.sub(r"font: ([0-9.]+px) [^;\"]*", r"font-size: \1", text)
    text = re.sub(r'<g id="[^"]*"', "<g", text)  # nothing refers to groups
    for number, name in enumerate(re.findall(r' id="([^"]*)"', text)):  # matplotlib's own change with each run
        text = text.replace(f'"{name}"', f'"f{salt}-{number}"').replace(f"#{name}", f"#f{salt}-{number}")
    for stand_in, color in STYLED.items():
        text = text.replace(stand_in, color)
    text = re.sub(r"<[^>]*>", lambda tag: re.sub(r"\d+\.\d{3,}", _shorter, tag[0]), text)
    text = re.sub(r"data:image/png;base64,([^\"]*)", lambda png: png_address(base64.b64decode(png[1])), text)
    text = re.sub(r"\s*\n\s*", "\n", text)
    box = re.search(r'viewBox="([^"]*)"', text)
    assert box is not None, "matplotlib writes one"
    width = round(float(figure.get_figwidth()) * PIXELS)
    head = f'<svg viewBox="{box[1]}" role="img" aria-label="{escape(alt)}" style="max-width:{width}px"'
    head += ' xmlns:xlink="http://www.w3.org/1999/xlink">'
    return head + text[text.index(">") + 1 :]


def _shorter(number: re.Match[str]) -> str:
    return f"{float(number[0]):.2f}"


def png_address(image: bytes) -> str:
    """A PNG as an address that is part of the page; with a palette, which takes a third of the bytes."""
    from PIL import Image  # comes with matplotlib

    file = io.BytesIO()
    pixels = Image.open(io.BytesIO(image)).convert("RGBA")
    values = np.asarray(pixels)
    colors, which = np.unique(np.ascontiguousarray(values).view(np.uint32).ravel(), return_inverse=True)
    if len(colors) <= 256:  # all of them
        found = Image.fromarray(which.reshape(values.shape[:2]).astype(np.uint8), mode="P")
        palette = colors.astype(np.uint32).view(np.uint8).reshape(-1, 4)
        found.putpalette(palette.tobytes(), "RGBA")
    else:
        found = pixels.quantize(SHADES, method=Image.Quantize.FASTOCTREE)
    found.save(file, format="png", optimize=True)
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()


def to_png(pixels: np.ndarray) -> str:
    """A grey image, (h, w) from 0 to 1, as the address of a PNG that is part of the page."""
    from matplotlib.image import imsave

    file = io.BytesIO()
    imsave(file, pixels, cmap="gray", vmin=0, vmax=1, format="png")
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()
