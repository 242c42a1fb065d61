"""The documentation holds together: tables match their JSON, links lead somewhere, Python code runs."""

import ast
import inspect
import json
import re
import runpy
import shlex
import warnings
from pathlib import Path

import click
import numpy as np
import pytest

import snmf_dist
from snmf_dist.cli import main
from snmf_dist.engine.plan import plan

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
RENDER = runpy.run_path(str(DOCS / "render.py"))
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "examples/paper/RESULTS.md")),
    *sorted(path for path in DOCS.rglob("*.md") if "_build" not in path.parts),
    *sorted((ROOT / "deploy").rglob("*.md")),
]
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")


def name(path):
    return str(path.relative_to(ROOT))


def code_of(path):
    return re.findall(r"```python\n(.*?)```", path.read_text(encoding="utf-8"), flags=re.DOTALL)


def anchors_of(path):
    """The anchors of a page's headings, as forges and MyST make them."""
    headings = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_a_page_has_the_figures_of_its_json(page):
    text = page.read_text(encoding="utf-8")
    assert RENDER["render"](text) == text, "run python docs/render.py"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_marker_of_a_page_is_understood(page):
    text = page.read_text(encoding="utf-8")
    markers = re.findall(r"^<!-- (?:table|about|notes) .*-->$", text, flags=re.MULTILINE)
    assert len(markers) == len(RENDER["PLACE"].findall(text))


def test_every_result_file_is_shown_somewhere():
    shown = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    assert all(f" {path.name} " in shown for path in (DOCS / "results").glob("*.json"))


def test_every_result_file_says_when_where_and_with_what_it_was_made():
    older = {"quality.json"}  # than this rule; its page says what is not recorded
    for path in sorted((DOCS / "results").glob("*.json")):
        found = json.loads(path.read_text(encoding="utf-8"))
        given = [found["command"], found["date"], found["machine"]["processor"], found["versions"]]
        assert all(given) or path.name in older, path.name


def test_deploy_names_images_by_the_version_of_the_package():
    files = [path for path in (ROOT / "deploy").rglob("*") if path.suffix in (".md", ".yaml")]
    named = re.findall(r"snmf-dist:(\d[\w.]*)", "".join(path.read_text(encoding="utf-8") for path in files))
    assert set(named) == {snmf_dist.__version__}


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 150


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_relative_links_lead_somewhere(page):
    for link in LINK.findall(page.read_text(encoding="utf-8")):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{name(page)}: {link}"
        if anchor:
            assert anchor in anchors_of(target), f"{name(page)}: {link}"


@pytest.mark.parametrize("page", [page for page in PAGES if code_of(page)], ids=name)
def test_the_python_code_of_a_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cliques = [(i, j) for g in range(20) for i in range(8 * g, 8 * g + 8) for j in range(i, 8 * g + 8)]
    (tmp_path / "edges.csv").write_text("source,target\n" + "".join(f"{i},{j}\n" for i, j in cliques))
    np.save(tmp_path / "embeddings.npy", np.random.default_rng(0).standard_normal((300, 8)))
    names = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # what small random graphs are warned of
        for block in code_of(page):
            exec(compile(block, name(page), "exec"), names)


def test_every_setting_of_fit_is_described():
    text = (DOCS / "settings.md").read_text(encoding="utf-8")
    settings = [p for p in inspect.signature(snmf_dist.fit).parameters if p not in ("zarr_path", "k")]
    assert [setting for setting in settings if f"| `{setting}` |" not in text] == []


def test_the_plan_that_is_shown_is_the_one_that_is_made():
    found = plan(1_000_000, 32_000_000, 20, memory=1e9, threads=3, halo=0.85, stored_rows=62_500).lines()
    assert "\n".join(f"    {line}".rstrip() for line in found) in (DOCS / "memory.md").read_text(encoding="utf-8")


def test_the_api_page_has_every_public_name():
    listed = re.findall(r"^   (\w+)$", (DOCS / "api.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert sorted(listed) == sorted(snmf_dist.__all__)


def test_no_sentence_of_a_docstring_runs_over_two_parameters():
    grouped = re.compile(r"^ {4,8}\*{0,2}\w+(?:, \*{0,2}\w+)+(?: : .*)?\n {8,12}(\S.*)$", flags=re.MULTILINE)
    for path in sorted((ROOT / "snmf_dist").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                for sentence in grouped.findall(ast.get_docstring(node, clean=False) or ""):
                    assert sentence.startswith("As "), f"{path.name}, {node.name}: {sentence}"


def command_lines():
    """Every line of the pages and of the texts of ``--help`` that begins with the command, and where it stands."""
    for page in PAGES:
        for line in re.findall(r"^ {4,}(?:\$ )?(snmf-dist .*)$", page.read_text(encoding="utf-8"), re.MULTILINE):
            yield f"{name(page)}: {line}"
    for known, one in main.commands.items():
        for line in re.findall(r"^ *(?:Examples?: +)?(snmf-dist .*)$", one.help or "", re.MULTILINE):
            yield f"{known} --help: {line}"


def test_every_command_line_has_all_that_its_command_asks_for_and_nothing_else(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = list(command_lines())
    assert len(found) > 30
    for line in found:
        command, *words = shlex.split(line.partition("snmf-dist ")[2], comments=True)
        for word in words:  # some options want a file that is there
            if re.fullmatch(r"[\w./-]+\.\w+", word) and not word.startswith(("/", "-")):
                (tmp_path / word).parent.mkdir(parents=True, exist_ok=True)
                (tmp_path / word).touch()
        try:
            main.commands[command].make_context(command, words)
        except click.ClickException as error:
            pytest.fail(f"{line}: {error.format_message()}")
