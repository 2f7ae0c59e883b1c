"""The site builds without warnings, is complete, and loads from no other host."""

import html.parser
import pathlib
import re
import subprocess
import sys
import urllib.parse

import pytest

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_BUILD = _ROOT / "tools/site/build.py"
sys.path.insert(0, str(_BUILD.parent))

from public_api import public_names  # noqa: E402


class _Page(html.parser.HTMLParser):
    """The anchors, links and loaded resources of a page."""

    def __init__(self, path):
        super().__init__()
        self.ids, self.links, self.loaded = set(), [], []
        self.text = path.read_text()
        self.feed(self.text)

    def handle_starttag(self, tag, attrs):
        for name, value in attrs:
            if name == "id" or (name == "name" and tag == "a"):
                self.ids.add(value)
            elif name == "href" and tag == "a":
                self.links.append(value)
            elif name in ("src", "href", "srcset", "data"):
                self.loaded.append(value)


def _build(output):
    return subprocess.run(
        [sys.executable, str(_BUILD), "--output", str(output)],
        capture_output=True,
        text=True,
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    result = _build(folder)
    assert result.returncode == 0, result.stdout + result.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site):
    return {
        path.resolve(): _Page(path)
        for path in site.rglob("*.html")
        if path.name != "404.html"  # its links start at the root of a host
    }


def test_every_public_name_is_in_the_reference(site, pages):
    names = public_names()
    assert len(names) >= 16
    missing = []
    for module, members in names.items():
        page = pages[(site / f"reference/{module}.html").resolve()]
        paths = [module, *(f"{module}.{name}" for name in members)]
        missing += [path for path in paths if path not in page.ids]
    assert not missing


def _order(page):
    """Returns the names that a page of the reference documents, in order."""
    return re.findall(r'<h\d id="(lodestar[^"]*)"', page.text)


def test_the_reference_begins_with_the_layers(site, pages):
    home = pages[(site / "index.html").resolve()]
    modules = [link for link in home.links if link.startswith("reference/")]
    assert modules[:2] == [
        "reference/lodestar.layers.html",
        "reference/lodestar.html",
    ]
    for module, first in (
        ("lodestar.layers", "EmbeddingCollection"),
        ("lodestar", "EmbeddingVariable"),
        ("lodestar.data", "open_dataset"),
        ("lodestar.train", "fit"),
    ):
        page = pages[(site / f"reference/{module}.html").resolve()]
        assert _order(page)[:2] == [module, f"{module}.{first}"]


def test_the_reference_has_no_methods_that_only_keras_calls(site, pages):
    folder = (site / "reference").resolve()
    hooks = r"\.(_\w*[^_]|on_\w+_(begin|end)|compute_\w+|\w+_own_variables)$"
    assert not [
        name
        for path, page in pages.items()
        if path.parent == folder
        for name in _order(page)
        if re.search(hooks, name)
    ]


def test_no_link_and_no_anchor_is_dead(pages):
    dead = []
    for path, page in pages.items():
        for link in page.links + page.loaded:
            parts = urllib.parse.urlsplit(link)
            if parts.scheme:
                continue
            name = urllib.parse.unquote(parts.path)
            target = (path.parent / name).resolve() if name else path
            anchor = urllib.parse.unquote(parts.fragment)
            if not target.exists() or (
                anchor and anchor not in pages[target].ids
            ):
                dead.append(f"{path.name}: {link}")
    assert not dead


def test_nothing_is_loaded_from_another_host(site, pages):
    loaded = [link for page in pages.values() for link in page.loaded]
    assert loaded
    assert not [link for link in loaded if re.match(r"(\w+:)?//", link)]
    assert not [
        path.name
        for path in site.rglob("*.css")
        if re.search(r"(url\(|@import)\s*[\"']?(https?:)?//", path.read_text())
    ]
    # The theme would load Mermaid from another host.
    assert not [path for path, page in pages.items() if "mermaid" in page.text]


def test_no_markdown_is_left_in_the_html(pages):
    left = r"<p>(&gt;&gt;&gt;|```|\||[-*] |#+ )|<blockquote>"
    assert not [
        path.name for path, page in pages.items() if re.search(left, page.text)
    ]


def test_other_folders_are_not_overwritten(tmp_path):
    (tmp_path / "letter.txt").write_text("dear reader")
    result = _build(tmp_path)
    assert result.returncode == 2
    assert f"{tmp_path} exists and is not a site" in result.stderr
    assert (tmp_path / "letter.txt").exists()
