"""Adds pages outside docs/ to the site, and adapts links.

Pages are written for the repository, so their links name its files. On the
site, a link to a page leads to that page, a link to a module to its page of the
reference, and a link to another file becomes text. Public names in backquotes
link to the reference.
"""

import fnmatch
import pathlib
import posixpath
import re
from collections.abc import Callable

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from public_api import linked_names, public_names

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Pages outside docs/, and their paths on the site.
_ELSEWHERE = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security.md",
    "benchmarks/README.md": "benchmarks.md",
}
_PLACES = {place: path for path, place in _ELSEWHERE.items()}
# The reference begins with these names of a module, in this order.
_FIRST = (
    # lodestar.layers
    "EmbeddingCollection",
    "DynamicEmbedding",
    # lodestar
    "EmbeddingVariable",
    "Feature",
    "MinCount",
    "MaxRows",
    "MaxAge",
    "EmbeddingRows",
    # lodestar.optimizers
    "Adagrad",
    "Adam",
    # lodestar.data
    "open_dataset",
    "Schema",
    "Column",
    # lodestar.train
    "fit",
    "evaluate",
    "predict",
    # lodestar.callbacks
    "Snapshot",
    # lodestar.snapshot, lodestar.export
    "save",
    "restore",
    # lodestar.sequence
    "pool",
    "pad",
    "unpad",
)
# A module of the package, whose page is in the reference.
_MODULE = re.compile(r"python/(lodestar(?:/\w+)?)(?:/__init__)?\.py")
_FENCED = re.compile(r"(^ *```.*?^ *```$)", re.M | re.S)
_LINK = re.compile(r"(!?)\[((?:[^][]|\[[^][]*\])*)\]\(([^()\s]+)\)")


def _reference(module: str, names: list[str]) -> str:
    first = [name for name in _FIRST if name in names]
    rest = [name for name in names if name not in first]
    listed = "".join(f"\n        - {name}" for name in first + rest)
    return (
        f"---\ntitle: {module}\n---\n::: {module}\n    options:\n"
        f"      heading_level: 1\n      members:{listed}\n"
    )


def _expand(nav: object, left: list[str]) -> list:
    """Replaces patterns in a navigation by pages, which it takes from `left`."""
    if isinstance(nav, list):
        return [entry for inner in nav for entry in _expand(inner, left)]
    if isinstance(nav, dict):
        [(title, inner)] = nav.items()
        found = _expand(inner, left)
        one = isinstance(inner, str) and len(found) == 1
        return [{title: found[0] if one else found}] if found else []
    found = fnmatch.filter(left, nav)
    left[:] = [uri for uri in left if uri not in found]
    return found


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages outside docs/, and completes the navigation."""
    for path, place in _ELSEWHERE.items():
        if (ROOT / path).exists():
            text = (ROOT / path).read_text()
            files.append(File.generated(config, place, content=text))
    for module, names in public_names().items():
        page = File.generated(
            config,
            f"reference/{module}.md",
            content=_reference(module, names),
        )
        files.append(page)
    style = (ROOT / "tools/site/site.css").read_text()
    files.append(File.generated(config, "site.css", content=style))
    uris = sorted(file.src_uri for file in files.documentation_pages())
    config.nav = _expand(config.nav, uris)
    return files


def _outside_code(text: str, change: Callable[[str], str]) -> str:
    """Applies `change` to `text` outside fenced blocks."""
    parts = _FENCED.split(text)
    parts[::2] = map(change, parts[::2])
    return "".join(parts)


def on_page_markdown(
    markdown: str, page: Page, config: MkDocsConfig, files: Files
) -> str:
    """Rewrites the links of a page for the site."""
    place = page.file.src_uri
    path = _PLACES.get(place, f"docs/{place}")

    def link(found: re.Match) -> str:
        image, text, target = found.groups()
        target, _, anchor = target.partition("#")
        if not target or ":" in target:
            return found[0]
        named = posixpath.normpath(
            posixpath.join(posixpath.dirname(path), target)
        )
        uri = _ELSEWHERE.get(named, named.removeprefix("docs/"))
        if module := _MODULE.fullmatch(named):
            uri = f"reference/{module[1].replace('/', '.')}.md"
        if files.get_file_from_path(uri):
            relative = posixpath.relpath(uri, posixpath.dirname(place) or ".")
            end = f"#{anchor}" if anchor else ""
            return f"{image}[{text}]({relative}{end})"
        if (ROOT / named).exists():
            return text
        return found[0]  # MkDocs reports it as dead

    return _outside_code(
        markdown, lambda text: linked_names(_LINK.sub(link, text))
    )
