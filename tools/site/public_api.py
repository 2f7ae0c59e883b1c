"""The names that users may use, read from the sources of the package."""

import ast
import pathlib
import re

_PACKAGE = pathlib.Path(__file__).resolve().parents[2] / "python/lodestar"
# A heading or a link, which stay as they are, or a name.
_NAME = re.compile(
    r"^#.*|\[[^][]*\](?:\([^)]*\)|\[[^]]*\])"
    r"|(?<!`)`(lodestar(?:\.[A-Za-z]\w*)+)(?:\([^`\n]*\))?`(?!`)",
    re.M,
)


def public_names() -> dict[str, list[str]]:
    """Returns the names that each public module offers, without importing any."""
    modules = _all_of(_PACKAGE / "__init__.py")
    names = {"lodestar": []}
    for name in modules:
        if (_PACKAGE / name / "__init__.py").exists():
            names[f"lodestar.{name}"] = _all_of(_PACKAGE / name / "__init__.py")
        elif (_PACKAGE / f"{name}.py").exists():
            names[f"lodestar.{name}"] = _all_of(_PACKAGE / f"{name}.py")
        elif name != "__version__":
            names["lodestar"].append(name)
    return names


def _all_of(path: pathlib.Path) -> list[str]:
    """What `__all__` of a module says; without one, its functions and classes."""
    body = ast.parse(path.read_text()).body
    for node in body:
        if (
            isinstance(node, ast.Assign)
            and ast.unparse(node.targets) == "__all__"
        ):
            return ast.literal_eval(node.value)
    return [
        node.name
        for node in body
        if isinstance(node, ast.ClassDef | ast.FunctionDef)
        and not node.name.startswith("_")
    ]


def linked_names(text: str) -> str:
    """Returns Markdown in which public names in backquotes are cross-references.

    One that the reference does not have becomes a warning of MkDocs.
    """
    return _NAME.sub(
        lambda found: f"[{found[0]}][{found[1]}]" if found[1] else found[0],
        text,
    )
