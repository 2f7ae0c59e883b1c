"""Only _private.py may use private names of TensorFlow and Keras."""

import ast
import collections

import checkout

_MODULE = checkout.ROOT / "python" / "lodestar" / "_private.py"
_PRIVATE_PACKAGES = ("tensorflow.python", "tensorflow.compiler", "keras.src")
# Of named tuples, and of Python's own modules.
_PUBLIC = {"_asdict", "_replace", "_fields", "_make", "_exit", "_getframe"}


def _is_private(name):
    return name.startswith("_") and not name.startswith("__")


def _trees():
    return {
        path: ast.parse(path.read_text())
        for path in checkout.files(".py", under="python/lodestar")
        if path != _MODULE
    }


def _own_names(tree):
    """Yields the private names that a module defines itself."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, ast.Attribute | ast.Name):
            if isinstance(node.ctx, ast.Store):
                yield node.attr if isinstance(node, ast.Attribute) else node.id
        elif isinstance(node, ast.alias):
            yield node.asname or node.name
        elif isinstance(node, ast.Call):  # object.__setattr__(self, "_x", ...)
            if ast.unparse(node.func) == "object.__setattr__":
                yield getattr(node.args[1], "value", None)


def _internal(tree):
    """Yields line and name of private names that only _private.py may use."""
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        elif isinstance(node, ast.Attribute) and node.attr == "__internal__":
            names = [_PRIVATE_PACKAGES[0]]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            names = [node.value] if " " not in node.value else []
        for name in names:
            if name.startswith(_PRIVATE_PACKAGES):
                yield node.lineno, name


def test_only_one_module_imports_private_names():
    found = {
        (checkout.label(path), *use)
        for path, tree in _trees().items()
        for use in _internal(tree)
    }
    assert not found


def test_only_one_module_reads_private_attributes_of_others():
    trees = _trees()
    own = {name for tree in trees.values() for name in _own_names(tree)}
    found = collections.defaultdict(list)
    for path, tree in trees.items():
        for node in ast.walk(tree):
            name = None
            if isinstance(node, ast.Attribute):
                name = node.attr
            elif isinstance(node, ast.Call):
                if ast.unparse(node.func) in ("getattr", "hasattr", "setattr"):
                    name = getattr(node.args[1], "value", None)
            if (
                isinstance(name, str)
                and _is_private(name)
                and name not in own | _PUBLIC
            ):
                found[name].append(f"{checkout.label(path)}:{node.lineno}")
    # `lodestar._gen_ops` is our own op library.
    found.pop("_gen_ops", None)
    assert not found
