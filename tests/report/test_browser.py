"""The page in a browser: no request, no error, nothing that axe-core finds fault with.

The browser is a chromium of the machine, or one of ``playwright install chromium``. Where there is none, these
tests are skipped.
"""

import shutil
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

import snmf_dist
from tests.helpers import data_file

pytest.importorskip("matplotlib", reason="reports need matplotlib; install snmf-dist[report]")
sync_api = pytest.importorskip("playwright.sync_api", reason="it drives the browser; install snmf-dist[test]")
pytest.importorskip("axe_playwright_python", reason="it has the script of axe-core; install snmf-dist[test]")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
FLAGS += ["--disable-component-update", "--disable-sync"]
PATIENCE = 300_000  # milliseconds that a busy machine may take


@pytest.fixture(scope="module")
def browser():
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    with sync_api.sync_playwright() as driver:
        if found is None and not Path(driver.chromium.executable_path).exists():
            pytest.skip("no chromium or google-chrome is installed")
        opened = driver.chromium.launch(executable_path=found, args=FLAGS, timeout=PATIENCE)
        yield opened
        opened.close()


def look(browser, path, *, width, scheme):
    """Open a page: what it asked for, what its console said, its width, and how many images are broken."""
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    context.set_default_timeout(PATIENCE)
    page = context.new_page()
    asked, said = [], []
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.goto(path.as_uri())
    wide = page.evaluate("document.documentElement.scrollWidth")
    broken = page.evaluate("[...document.images].filter(i => !i.naturalWidth).length")
    context.close()
    return asked, said, wide, broken


def find_faults(browser, path, *, width, scheme):
    """What axe-core finds fault with; the page's own policy lets no script in."""
    script = files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8")
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme, bypass_csp=True)
    context.set_default_timeout(PATIENCE)
    page = context.new_page()
    page.goto(path.as_uri())
    page.evaluate(script)
    found = page.evaluate("axe.run().then(r => r.violations.map(v => [v.id, v.nodes.map(n => n.html)]))")
    context.close()
    return [(name, nodes[:3]) for name, nodes in found]


def check(browser, path):
    """Look at a page wide and narrow, light and dark."""
    assert path.stat().st_size <= 500_000
    for width, scheme in ((1200, "light"), (1200, "dark"), (375, "light"), (375, "dark")):
        asked, said, wide, broken = look(browser, path, width=width, scheme=scheme)
        assert asked == [path.as_uri()]
        assert not said
        assert wide <= width
        assert not broken
        faults = find_faults(browser, path, width=width, scheme=scheme)
        assert not faults, (width, scheme, faults)


def test_the_report_of_a_result(browser, graph, tmp_path):
    solution = snmf_dist.fit(graph, 3)
    values = np.abs(np.random.default_rng(0).standard_normal((90, 6)))
    with pytest.warns(snmf_dist.errors.NotConverged):
        other = snmf_dist.fit(graph, 2, max_iter=1, stop="kkt")
    other.report(tmp_path / "page.html", features=values, compare=solution)
    check(browser, tmp_path / "page.html")


def test_the_report_of_a_study(browser, graph, tmp_path):
    snmf_dist.fit_many(graph.path, ks=[2, 3], seeds=2, out=tmp_path / "study").report(tmp_path / "page.html")
    check(browser, tmp_path / "page.html")


def test_the_report_of_the_demo(browser, tmp_path):
    from click.testing import CliRunner

    from snmf_dist.cli import main

    assert CliRunner().invoke(main, ["demo", "--out", str(tmp_path / "demo")]).exit_code == 0
    check(browser, tmp_path / "demo/report.html")


def test_the_report_of_reuters_with_its_terms(browser, tmp_path):
    file = data_file("reuters21578_top20.npz")
    X = sparse.load_npz(file)
    with np.load(file) as arrays:
        terms, ids = arrays["terms"].astype(str), [f"document {i}" for i in arrays["newid"]]
    graph = snmf_dist.build_graph(X, tmp_path / "g.zarr", metric="cosine", ids=ids)
    solution = snmf_dist.fit(graph, 20)
    solution.report(tmp_path / "page.html", features=X, feature_names=terms)
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "crude" in text
    assert "document " in text
    check(browser, tmp_path / "page.html")


@pytest.mark.study
@pytest.mark.timeout(3000)
def test_the_report_of_mnist_with_mean_images(browser, tmp_path):
    with np.load(data_file("mnist70k.npz")) as file:
        X = file["X"].astype(np.float32)
    graph = snmf_dist.build_graph(X, tmp_path / "g.zarr")
    snmf_dist.fit(graph, 10).report(tmp_path / "page.html", features=X.reshape(-1, 28, 28))
    check(browser, tmp_path / "page.html")


@pytest.mark.study
@pytest.mark.timeout(3000)
def test_the_report_of_two_million_rows(browser, tmp_path):
    n, k, random = 2_000_000, 16, np.random.default_rng(0)
    rows = np.repeat(np.arange(n), 5)
    columns = rows // (n // k) * (n // k) + random.integers(0, n // k, len(rows))
    rows, columns = np.append(rows, np.arange(n)), np.append(columns, random.integers(0, n, n))
    keep = rows != columns
    W = sparse.csr_matrix((np.ones(keep.sum(), np.float32), (rows[keep], columns[keep])), (n, n))
    solution = snmf_dist.fit(snmf_dist.import_graph(W.maximum(W.T), tmp_path / "g.zarr"), k)
    solution.report(tmp_path / "page.html")
    check(browser, tmp_path / "page.html")
