"""Finds the public names in the sources of the package."""

import ast
import pathlib
import re

_PACKAGE = pathlib.Path(__file__).resolve().parents[2] / "python/lodestar"
# A heading or a link, which are not changed, or a name.
_NAME = re.compile(
    r"^#.*|\[[^][]*\](?:\([^)]*\)|\[[^]]*\])"
    r"|(?<!`)`(lodestar(?:\.[A-Za-z]\w*)+)(?:\([^`\n]*\))?`(?!`)",
    re.M,
)


def public_names() -> dict[str, list[str]]:
    """Returns the public names of each module, without importing any."""
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
    """Returns `__all__` of a module; without it, its functions and classes."""
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
    """Replaces public names in backquotes by links to the reference.

    MkDocs warns about a name that the reference does not have.
    """
    return _NAME.sub(
        lambda found: f"[{found[0]}][{found[1]}]" if found[1] else found[0],
        text,
    )
