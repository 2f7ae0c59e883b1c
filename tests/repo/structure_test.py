"""Checks the includes of each C++ folder, and the sizes of folders."""

import ast
import collections
import re
import subprocess

import checkout

# Folders of kernels with the folders of this list that they include.
_KERNELS = {
    "base": (),
    "embedding": ("base", "steps"),
    "lookup": ("base", "records"),
    "device": ("base", "embedding", "lookup"),
    "records": ("base",),
    "sequence": ("base",),
    "serving": ("base", "embedding", "lookup"),
    "snapshot": ("base", "embedding"),
    "steps": ("base",),
}
# Folders of core that kernels include besides the one of the same name.
_OF_CORE = {
    "device": ("base", "collection", "rows"),
    "embedding": ("base", "collection", "device", "rows", "steps", "table"),
    "lookup": ("base", "records"),
    "sequence": ("base", "device"),
    "serving": ("base", "embedding", "table"),
    "snapshot": ("base", "rows", "table"),
    "steps": ("base", "rows"),
}
# The folder of core with GPU code, which tests/cuda tests.
_ON_GPU = "device"
_MOST_FILES = 30
# Headers of core that a test of another name covers.
_TESTED_BY = {
    "embedding/embedding_run": "embedding/embedding_store_test",
    "embedding/shared_rows": "embedding/embedding_shared_rows_test",
    "lookup/decimal_hash": "lookup/bucket_hash_test",
    "lookup/integer_map": "lookup/id_maps_test",
    "lookup/string_map": "lookup/id_maps_test",
    "records/sample_fields": "records/norm_format_test",
    "rows/initial_value": "rows/row_initializer_test",
    "rows/row_marks": "rows/row_store_test",
    "rows/slot_shape": "rows/sparse_optimizer_test",
    "snapshot/restored_records": "snapshot/snapshot_restore_test",
    "table/snapshot_source": "snapshot/embedding_snapshot_test",
}


def _includes(path):
    """Returns the project headers that a file includes."""
    return re.findall(
        r'^#include "((?:tf_ops|tests|benchmarks)/[\w./]+)"',
        path.read_text(),
        re.M,
    )


def _included_folders(layer):
    """Returns {folder: {(layer, folder) that it includes: the files}}."""
    folders = collections.defaultdict(lambda: collections.defaultdict(list))
    for path in checkout.files(".h", ".cc", under=f"tf_ops/{layer}"):
        folder = checkout.label(path).split("/")[2]
        for header in _includes(path):
            other = tuple(header.split("/")[1:3])
            if other != (layer, folder):
                folders[folder][other].append(checkout.label(path))
    return folders


def _built_with(folder):
    """Returns the folders of core that the BUILD file of one names."""
    text = (checkout.ROOT / "tf_ops/core" / folder / "BUILD").read_text()
    named = re.search(r"(?:deps|core) = (\[[^\]]*\])", text)
    return set(ast.literal_eval(named.group(1)) if named else ())


# Bazel refuses cycles.
def test_build_files_of_core_name_the_included_folders():
    found = _included_folders("core")
    for folder in _folders("tf_ops/core"):
        assert {other for _, other in found[folder]} == _built_with(folder), (
            folder
        )


def _folders(folder):
    return {
        path.parent.name for path in checkout.ROOT.glob(f"{folder}/*/BUILD")
    }


def test_folders_of_kernels_include_only_lower_ones():
    for folder, others in _included_folders("kernels").items():
        core = {folder, *_OF_CORE.get(folder, ("base",))}
        for (layer, other), files in others.items():
            known = _KERNELS[folder] if layer == "kernels" else core
            assert other in known, (folder, layer, other, files)


def test_folders_of_ops_do_not_include_each_other():
    for folder, others in _included_folders("ops").items():
        assert set(others) <= {("ops", "shape_fns.h")}, (folder, others)


def test_folders_are_the_same_in_all_layers():
    core = _folders("tf_ops/core")
    assert _folders("tests/core") == {*core, "testing"} - {_ON_GPU}
    assert _folders("tf_ops/kernels") == set(_KERNELS)
    assert _folders("tf_ops/ops") <= core


def test_folders_of_kernels_have_no_include_cycle():
    order = sorted(_KERNELS, key=_depth)
    for folder, others in _KERNELS.items():
        for other in others:
            assert order.index(other) < order.index(folder), (folder, other)


def _depth(folder):
    return 1 + max(map(_depth, _KERNELS[folder]), default=0)


def _headers_of_core():
    """Returns {"folder/name": its header} of all folders except _ON_GPU."""
    return {
        f"{path.parent.name}/{path.stem}": checkout.label(path)
        for path in checkout.files(".h", under="tf_ops/core")
        if _ON_GPU not in path.parts
    }


def test_headers_of_core_have_a_test():
    tests = checkout.ROOT / "tests" / "core"
    headers = _headers_of_core()
    assert not set(_TESTED_BY) - set(headers)
    for name, header in headers.items():
        test = tests / f"{_TESTED_BY.get(name, name + '_test')}.cc"
        assert test.exists(), header
        if name not in _TESTED_BY:
            assert header in _includes(test), test


def test_headers_of_core_compile_by_themselves():
    # A file's first include cannot rely on an earlier one.
    first = {
        re.search(r'^#include ["<]([^">]+)', path.read_text(), re.M).group(1)
        for path in checkout.files(".cc", under="tf_ops/core")
        + checkout.files(".cc", under="tests/core")
    }
    for header in set(_headers_of_core().values()) - first:
        compiler = ("g++", "-std=c++17", "-fsyntax-only", "-I.", "-xc++")
        subprocess.run([*compiler, header], cwd=checkout.ROOT, check=True)


_TYPE = re.compile(
    r"^(?:struct|class)\s+(?:alignas\([^\n]*?\)\s+|LODESTAR_\w+(?:\([^)]*\))?\s+)?"
    r"(\w+)(?:\s+final)?\s*(?::[^:;]|\{)",
    re.MULTILINE,
)


def test_a_type_is_defined_in_one_header():
    # Two definitions of a name in one shared object violate the ODR.
    headers = collections.defaultdict(set)
    for path in checkout.files(".h", under="tf_ops"):
        for name in _TYPE.findall(path.read_text()):
            headers[name].add(checkout.label(path))
    assert not {name: h for name, h in headers.items() if len(h) > 1}


def test_folders_have_few_files():
    folders = collections.Counter(
        path.parent
        for path in checkout.files("")
        if path.parent.name != "corpus"
    )
    assert not {
        checkout.label(folder): count
        for folder, count in folders.items()
        if count > _MOST_FILES and folder != checkout.ROOT
    }


def test_paths_in_comments_exist():
    # Relative to the root; a path that begins with a layer does not exist.
    named = (
        r"((?:\b(?:tf_ops|python|tests|examples|benchmarks|build_defs|docs)"
        r"|(?<=[ (`])(?:core|kernels|ops))"
        r"/[\w./]+\.(?:h|cc?|py|md|bzl|sh|svg))\b"
    )
    assert not [
        f"{checkout.label(path)}: {name}"
        for path in checkout.files(".h", ".cc", ".c", ".py", ".bzl", "BUILD")
        for name in re.findall(named, path.read_text())
        if not (checkout.ROOT / name).exists()
    ]
