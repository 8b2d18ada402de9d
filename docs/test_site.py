"""The built site and a report in a real browser: `make test-docs`.

Needs the system's Chromium; without one this fails and says so, it does not skip.
"""

import functools
import html.parser
import http.server
import os
import re
import shutil
import threading
from pathlib import Path

import numpy as np
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import sync_playwright

import ggpm

SITE = Path(__file__).parent / "_build" / "html"
PAGES = [
    "index", "start", "outputs/angles", "outputs/compositions", "guides", "examples", "gallery/index", "plots", "api",
    "inside", "messages", "comparison", "cookbook", "scaling", "report", "reference/ggpm.GGPRegressor",
    "gallery/wind_direction",
]  # fmt: skip
WIDTHS = (375, 1400)
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]


@pytest.fixture(scope="session")
def browser():
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if path is None:
        pytest.fail("no browser was found: install the system's chromium package (Debian: apt-get install chromium).")
    with sync_playwright() as playwright:
        yield playwright.chromium.launch(executable_path=path, args=FLAGS)


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Files of a folder, without a line on every request."""

    def log_message(self, format, *args):
        pass


@pytest.fixture(scope="session")
def address():
    """The site as a static host serves it."""
    if not (SITE / "index.html").exists():
        pytest.fail("the site is not built: make docs")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(SITE)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()


@pytest.fixture(scope="session")
def report(tmp_path_factory):
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 6, (90, 2))
    y = rng.poisson(np.exp(1 + np.sin(X[:, 0])))
    model = ggpm.GGPRegressor("poisson", optimizer=None).fit(X[:60], y[:60])
    return ggpm.report(model, X[60:], y[60:], tmp_path_factory.mktemp("report") / "report.html").as_uri()


class Watched:
    """A page that remembers errors on its console and requests that leave it."""

    def __init__(self, browser, width, home, dark=False):
        self.page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme="dark" if dark else "light")
        self.errors, self.left = [], []
        self.page.on("console", lambda m: self.errors.append(m.text) if m.type == "error" else None)
        self.page.on("pageerror", lambda e: self.errors.append(str(e)))
        self.page.on("request", lambda r: None if r.url.startswith((home, "data:")) else self.left.append(r.url))

    def open(self, url):
        self.page.goto(url, wait_until="networkidle")
        return self.page

    def fits(self):
        """Whether nothing is wider than the window."""
        return self.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth + 1")


def violations(page):
    """What axe-core objects to: contrast, keyboard order, names and alternative texts among it."""
    found = Axe().run(page, options={"runOnly": ["wcag2a", "wcag2aa"]}).response["violations"]
    return {v["id"]: [node["html"][:160] for node in v["nodes"][:3]] for v in found}


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", PAGES)
def test_pages(browser, address, name, width):
    watched = Watched(browser, width, address)
    page = watched.open(f"{address}/{name}.html")
    assert not watched.errors and not watched.left and watched.fits()
    assert page.locator("h1").count() >= 1
    assert page.evaluate("[...document.images].every(i => i.complete && i.naturalWidth > 0 && i.alt !== null)")
    # thumbnails stand beside the title that they lead to, and are decoration to those who cannot see them
    own = "article img:not(.sphx-glr-thumbcontainer img)"
    assert page.evaluate(f"[...document.querySelectorAll('{own}')].every(i => i.alt.trim().length > 0)")
    assert not violations(page)
    page.close()


@pytest.mark.parametrize("name", ["index", "inside", "cookbook"])
def test_dark_pages(browser, address, name):
    page = Watched(browser, WIDTHS[-1], address, dark=True).open(f"{address}/{name}.html")
    background = page.evaluate("getComputedStyle(document.body).backgroundColor.match(/[0-9]+/g).map(Number)")
    assert max(background[:3]) < 80
    assert not violations(page)
    page.close()


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", WIDTHS)
def test_report(browser, report, width, dark):
    watched = Watched(browser, width, report, dark)
    page = watched.open(report)
    assert not watched.errors and not watched.left and watched.fits()
    assert not violations(page)
    page.click("text=Trust")
    assert page.url.endswith("#trust")
    page.close()


class Links(html.parser.HTMLParser):
    """Where the links of a page lead, but for those of its head and foot, and the places that it has."""

    def __init__(self):
        super().__init__()
        self.targets, self.places, self.words, self.depth = [], set(), [], 0

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.places.add(attributes.get("id"))
        self.depth += tag == "article"
        if tag == "a" and self.depth and attributes.get("href"):
            self.targets.append(attributes["href"])

    def handle_endtag(self, tag):
        self.depth -= tag == "article"

    def handle_data(self, data):
        if self.depth:
            self.words.append(data)


@functools.cache
def read(name):
    links = Links()
    links.feed((SITE / name).read_text("utf-8"))
    return links


def clicks_to(goal, start="index.html", most=3):
    """Fewest clicks on links within the text of pages, from page to page and from place to place; None if too many."""
    seen, now = {start}, [start]
    for clicks in range(most + 1):
        if goal in now:
            return clicks
        following = []
        for address in now:
            page = address.partition("#")[0]
            for target in read(page).targets:
                if target.startswith(("http:", "https:", "mailto:")):
                    continue
                path, _, place = target.partition("#")
                found = os.path.normpath(os.path.join(os.path.dirname(page), path)) if path else page
                for reached in {found, f"{found}#{place}" if place else found}:
                    if found.endswith(".html") and reached not in seen and (SITE / found).exists():
                        seen.add(reached)
                        following.append(reached)
        now = following
    return None


# what a newcomer asks, where the answer stands, and the words that it has
ASKED = {
    "how to model compositions with zeros": ("outputs/compositions.html#zeros", "zeros="),
    "how to get a 90 % arc": ("outputs/angles.html#reading-predictions", "interval(0.9)"),
    "how to compare two kernels": ("cookbook.html#choosing-kernels", "compare"),
    "how to compare two models": ("comparison.html", "compare"),
    "how to fit 300,000 rows": ("scaling.html", "300,000"),
    'what "did not converge" means': ("messages.html#did-not-converge", "converge"),
}


@pytest.mark.parametrize("question", ASKED)
def test_three_clicks(question):
    """From the landing page by links in the text alone: no menu, no search."""
    goal, words = ASKED[question]
    page, _, place = goal.partition("#")
    assert not place or place in read(page).places, f"{page} has no place {place}"
    assert words in " ".join("".join(read(page).words).split())
    clicks = clicks_to(goal)
    assert clicks is not None and 1 <= clicks <= 3


def test_the_landing_page_leads_there_in_a_browser(browser, address):
    """The same five, each with one click on the words that the landing page has for it."""
    watched = Watched(browser, 1400, address)
    for link, words in (
        ("Compositions: zeros", "zeros="),
        ("Angles: reading predictions", "interval(0.9)"),
        ("Comparison", "compare"),
        ("Many rows", "300,000"),
        ("My warning says …", "converge"),
    ):
        page = watched.open(f"{address}/index.html")
        page.click(f"article a:has-text('{link}')")
        page.wait_for_load_state("networkidle")
        assert words in page.inner_text("article"), link
    assert not watched.errors and not watched.left


def test_pages_of_the_reference_show_examples_that_use_them():
    """Families and plots that examples use have their thumbnails at the end of their pages."""
    for name in ("GGPRegressor", "families.Dirichlet", "plotting.plot_ternary", "kernels.On", "compare"):
        assert any("gallery/" in target for target in read(f"reference/ggpm.{name}.html").targets), name


def test_no_example_prints_a_warning_or_a_path_of_the_machine_that_built_it():
    root = str(Path(__file__).parents[1])
    for page in (SITE / "gallery").rglob("*.html"):
        text = page.read_text("utf-8")
        assert not re.search(r"\w+Warning: ", text) and root not in text, page.name


def test_every_page_can_be_reached():
    """From the landing page by the menus and the text, however many clicks; the search page is behind its field."""
    seen, now = set(), ["index.html"]
    while now:
        page = now.pop()
        seen.add(page)
        for target in re.findall(r'href="([^"#:]+\.html)', (SITE / page).read_text("utf-8")):
            found = os.path.normpath(os.path.join(os.path.dirname(page), target))
            if found not in seen and (SITE / found).exists():
                now.append(found)
                seen.add(found)
    every = {path.relative_to(SITE).as_posix() for path in SITE.rglob("*.html")}
    hidden = {page for page in every - seen if not page.startswith(("_", "search", "genindex", "py-modindex"))}
    assert not {page for page in hidden if "sg_execution_times" not in page}


def test_search(browser, address):
    watched = Watched(browser, 1400, address)
    page = watched.open(f"{address}/search.html?q=dirichlet")
    page.wait_for_selector("#search-results li", timeout=20_000)
    assert page.locator("#search-results li").count() > 3 and not watched.errors and not watched.left


def test_it_works_from_a_file(browser):
    watched = Watched(browser, 1400, SITE.as_uri())
    page = watched.open((SITE / "index.html").as_uri())
    page.click("article a:has-text('five minutes')")
    page.wait_for_load_state("networkidle")
    assert "Five minutes" in page.inner_text("h1") and not watched.left
