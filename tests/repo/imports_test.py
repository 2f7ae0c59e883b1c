"""Checks which modules of the Python package import each other."""

import ast
import collections
import graphlib

import checkout

# Modules and a folder that every folder may import, with their own imports.
_BASE = {
    "_arguments": ("_checks",),
    "_bases": (),
    "_checks": (),
    "_commands": ("_formats", "_startup", "version"),
    "_errors": (),
    "_files": ("_errors", "_typing"),
    "_formats": (),
    "_library": (
        "_commands",
        "_errors",
        "_op_wrappers",
        "_private",
        "_startup",
    ),
    "_op_wrappers": (),
    "_optional": (),
    "_private": ("_bases",),
    "_reprs": (),
    "_resource": ("_library", "_private", "_servers"),
    "_servers": ("_library", "_private"),
    "_startup": (),
    "_strict_yaml": (),
    "_text_proto": (),
    "_typing": (),
    "_input_bytes": ("_errors", "_input_paths", "_typing"),
    "_input_paths": ("_errors", "_files"),
    "_command_line": ("_commands", "_errors"),
    "version": (),
}
# Folders of the package, and modules outside folders, from bottom to top, with
# their allowed imports besides the base. Subfolders are listed separately.
_PACKAGES = {
    "metrics": (),
    "ops": (),
    "ragged": ("ops",),
    "sequence": ("ops", "ragged"),
    "lookup": ("ops",),
    "embedding": ("ops",),
    "optimizers": ("embedding", "ops"),
    "sysconfig": (),
    "string_ids": ("embedding", "ops"),
    "layers": ("embedding", "lookup", "ops", "ragged", "sequence"),
    "warm_start": ("embedding", "layers"),
    "schema": (),
    "data": ("schema", "ops", "ragged"),
    "hugectr": ("data", "schema", "ragged"),
    "paddle": ("data", "schema", "ops", "ragged"),
    "data.arrow": ("data", "schema", "hugectr", "ops", "paddle"),
    "data.files": (*("data", "data.arrow", "schema", "hugectr", "paddle"),),
    "data.open_dataset": ("data", "data.arrow", "schema", "data.files"),
    "data.open_writer": ("data", "schema", "data.files"),
    "_data_tool": (
        *("data", "data.arrow", "data.files", "schema"),
        *("hugectr", "metrics", "paddle"),
    ),
    "train": (
        *("callbacks", "data", "data.open_dataset", "schema"),
        *("embedding", "optimizers", "snapshot"),
    ),
    "paddle.train_from_dataset": ("train",),
    "testing": (),
    "snapshot": (
        "schema",
        "embedding",
        "layers",
        "lookup",
        "ops",
        "optimizers",
    ),
    "callbacks": ("embedding", "layers", "snapshot"),
    "export.plain": ("embedding", "lookup", "ops"),
    "export": (
        *("data", "schema", "embedding", "export.plain", "layers"),
        *("lookup", "ops", "ragged", "snapshot"),
    ),
    "serving": (
        "schema",
        "embedding",
        "export",
        "ops",
        "snapshot",
    ),
}
# A folder's public modules, which may import all of it.
_FRONTS = ("__init__", "__main__")
# Additional imports of public modules.
_FRONT_IMPORTS = {"data": ("_data_tool",)}


def _modules():
    """Returns {name: path} of the package's modules."""
    modules = {}
    for path in checkout.files(".py", under="python/lodestar"):
        parts = path.relative_to(checkout.ROOT / "python").with_suffix("").parts
        modules[".".join(p for p in parts if p != "__init__")] = path
    return modules


def _imports(path, modules):
    """Yields the package's modules that a file imports, also in functions."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [n if n in modules else node.module for n in names]
        else:
            continue
        yield from (name for name in names if name in modules)


def _package(name, path):
    """Returns the folder of a module; "" is the package's own front."""
    parts = name.split(".")[1:]
    if path.stem == "__main__" or (
        path.stem != "__init__"
        and ".".join(parts) not in {**_BASE, **_PACKAGES}
    ):
        parts = parts[:-1]
    return ".".join(parts)


def _wrong(package, is_front, other):
    """Returns whether a module of `package` must not import from `other`."""
    if package in _BASE:
        return other not in (package, *_BASE[package])
    if is_front and (
        not package
        or other.startswith(f"{package}.")
        or other in _FRONT_IMPORTS.get(package, ())
    ):
        return False
    return other not in (package, *_BASE, *_PACKAGES[package])


def test_packages_import_only_allowed_ones():
    modules = _modules()
    wrong = collections.defaultdict(list)
    for name, path in modules.items():
        package = _package(name, path)
        assert package in ("", *_BASE, *_PACKAGES), name
        for found in _imports(path, modules):
            other = _package(found, modules[found])
            if _wrong(package, path.stem in _FRONTS, other):
                wrong[package, other].append(checkout.label(path))
    assert not wrong


def test_allowed_imports_exist():
    modules = _modules()
    used = collections.defaultdict(set)
    for name, path in modules.items():
        for found in _imports(path, modules):
            used[_package(name, path)].add(_package(found, modules[found]))
    assert not {
        package: unused
        for package, others in {**_BASE, **_PACKAGES}.items()
        if (unused := set(others) - used[package])
    }


def test_packages_have_no_import_cycle():
    for packages in (_BASE, _PACKAGES):
        tuple(graphlib.TopologicalSorter(packages).static_order())


def test_modules_have_no_import_cycle():
    modules = _modules()
    graph = {name: set(_imports(p, modules)) for name, p in modules.items()}
    tuple(graphlib.TopologicalSorter(graph).static_order())
