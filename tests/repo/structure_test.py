"""Checks the includes of each C++ folder, and the sizes of folders."""

import collections
import re
import subprocess

import build_files
import checkout

# Folders of C++ code with the folders of this list that they include.
_CORE = {
    "base": (),
    "memory": ("base",),
    "lookup": ("base", "memory"),
    "rows": ("base", "memory"),
    "table": ("base", "rows"),
    "embedding": ("base", "memory", "rows", "table"),
    "collection": ("base", "embedding", "rows"),
    "device": ("base", "collection", "lookup", "rows", "table"),
    "snapshot": ("base", "embedding", "lookup", "memory", "rows", "table"),
    "records": ("base",),
    "sequence": ("base",),
    "serving": ("base", "rows", "snapshot", "table"),
    "steps": ("base",),
}
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


def _included_folders(layer):
    """Returns {folder: {(layer, folder) that it includes: the files}}."""
    folders = collections.defaultdict(lambda: collections.defaultdict(list))
    for path in checkout.files(".h", ".cc", under=f"tf_ops/{layer}"):
        folder = checkout.label(path).split("/")[2]
        for header in build_files.includes(path):
            other = tuple(header.split("/")[1:3])
            if other != (layer, folder):
                folders[folder][other].append(checkout.label(path))
    return folders


def test_folders_of_core_include_only_lower_ones():
    found = _included_folders("core")
    assert set(found) | {"base"} == set(_CORE)
    assert not [
        (folder, other, files)
        for folder, others in found.items()
        for (layer, other), files in others.items()
        if other not in _CORE[folder]
    ]


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
    def folders(folder):
        found = (checkout.ROOT / folder).glob("*/BUILD")
        return {path.parent.name for path in found}

    assert folders("tf_ops/core") == set(_CORE)
    assert folders("tests/core") == {*_CORE, "testing"} - {_ON_GPU}
    assert folders("tf_ops/kernels") == set(_KERNELS)
    assert folders("tf_ops/ops") <= set(_CORE)


def test_folders_have_no_include_cycle():
    for folders in (_CORE, _KERNELS):
        order = (
            list(folders) if folders is _CORE else sorted(folders, key=_depth)
        )
        for folder, others in folders.items():
            for other in others:
                assert order.index(other) < order.index(folder), (folder, other)


def _depth(folder):
    return 1 + max(map(_depth, _KERNELS[folder]), default=0)


def test_targets_list_exactly_their_includes():
    targets = build_files.targets(
        "benchmarks", "tests/core", "tests/cuda", "tf_ops"
    )
    owners = {h: t.label for t in targets for h in t.headers}
    wrong = []
    for target in targets:
        if not target.files:
            continue  # only gathers other headers
        wanted = {owners[header] for header in target.included()}
        wrong += [f"{target.label} lacks {d}" for d in wanted - target.deps]
        wrong += [f"{target.label} has {d}" for d in target.deps - wanted]
    assert not wrong


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
            assert header in build_files.includes(test), test


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


def test_every_cpp_test_has_a_target():
    targets = build_files.targets("tests/core", "tests/cuda")
    held = {file for target in targets for file in target.files}
    assert (
        not {
            checkout.label(path)
            for path in checkout.files("_test.cc", under="tests")
        }
        - held
    )


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
