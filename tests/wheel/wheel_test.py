"""The wheel's content, and its use in an environment without a checkout."""

import base64
import concurrent.futures
import csv
import email
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile

import build_wheel
import click
import notebook
import numpy as np
import packaging.requirements
import packaging.specifiers
import pytest

# Declared to be for another release; only the wheel builder reads it.
_OTHER = "2.9"
_TRAIN = """
model = next(v for v in list(globals().values()) if isinstance(v, keras.Model))
rows = [[7, 2**62], [-5]]
examples, batch = [], {i.name: tf.ragged.constant(rows, tf.int64) for i in model.inputs}
for row in rows:
    ids = tf.train.Feature(int64_list=tf.train.Int64List(value=row))
    features = tf.train.Features(feature=dict.fromkeys(batch, ids))
    examples.append(tf.train.Example(features=features).SerializeToString())
scores = model(batch if len(batch) > 1 else next(iter(batch.values())))
lodestar.export.save(model, "served", "examples")
lodestar.snapshot.save(model, "snapshots")
np.savez("wanted.npz", examples=np.array(examples, object), scores=scores)
print(lodestar.__file__)
print(lodestar._library.path)
"""
_SERVE = """
import numpy as np
import tensorflow as tf
import lodestar

wanted = np.load("wanted.npz", allow_pickle=True)
served = tf.saved_model.load("served")
serve = served.signatures["serving_default"]
(scores,) = serve(examples=tf.constant(wanted["examples"])).values()
np.testing.assert_allclose(scores, wanted["scores"], rtol=1e-6)
print("served", lodestar.__file__)
"""
_READER = """
#include "tf_ops/kernels/embedding/op_table.h"

int64_t CountRows(tensorflow::OpKernelContext* ctx) {
  const lodestar::OpTable table(ctx, 0);
  if (!table.ok()) return -1;
  lodestar::EmbeddingStats stats;
  lodestar::InspectedIds ids;
  lodestar::EmbeddingRows rows;
  table.Check(table->ReadStats(&stats, table.on()));
  table.Check(table->Inspect({}, &ids, table.on()));
  table.Check(table->Export(true, &rows, table.on()));
  return table->rounding(table->step(), true).enabled + rows.ids.size() +
         table->initializer().value().key;
}
"""


@pytest.fixture(scope="session")
def libraries(tmp_path_factory):
    """Returns the built library, and one that declares another release."""
    own = build_wheel.own_library()
    other = tmp_path_factory.mktemp("other") / own.name
    content, count = re.subn(
        rb"(LODESTAR_BUILT_FOR_TENSORFLOW=)[\d.]+",
        lambda found: (found[1] + _OTHER.encode()).ljust(len(found[0]), b"\0"),
        own.read_bytes(),
    )
    assert count == 1
    other.write_bytes(content)
    return [own, other]


@pytest.fixture(scope="session")
def wheel(libraries, tmp_path_factory):
    return build_wheel.build_wheel(libraries, tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="session")
def python(wheel, tmp_path_factory):
    """Returns the interpreter of an environment with only the wheel and Click."""
    folder = tmp_path_factory.mktemp("environment")
    subprocess.run(
        [sys.executable, "-m", "venv", "--without-pip", folder], check=True
    )
    python = folder / "bin" / "python"
    options = ["--no-deps", "--no-index", "--disable-pip-version-check", "-q"]
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "--python", python, "install"),
            *options,
            wheel,
        ],
        check=True,
        env=_environment(),
    )
    (packages,) = folder.glob("lib/python3*/site-packages")
    shutil.copytree(pathlib.Path(click.__file__).parent, packages / "click")
    return python


@pytest.fixture(scope="session")
def with_tensorflow(python):
    """Returns the same with TensorFlow and other packages, but no checkout.

    A line of a .pth file is a folder, whose own .pth files are not read.
    """
    (packages,) = python.parents[1].glob("lib/python3*/site-packages")
    others = sysconfig.get_path("purelib")
    (packages / "others.pth").write_text(f"{others}\n")
    return python


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("work")


def _environment():
    kept = {"HOME", "LANG", "PATH", "TMPDIR", "LD_LIBRARY_PATH"}
    return {
        **{name: os.environ[name] for name in kept & set(os.environ)},
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }


def _run(command, folder):
    return subprocess.run(
        command,
        cwd=folder,
        env=_environment(),
        capture_output=True,
        text=True,
    )


def _output(command, folder):
    done = _run(command, folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_without_keras_one_line_names_the_package(python, folder):
    command = python.with_name("lodestar")
    assert _output([command, "--version"], folder).startswith("Lodestar ")
    assert "validate" in _output([command, "data", "--help"], folder)
    done = _run([command, "data", "validate", "none.txt"], folder)
    assert done.returncode == 1
    assert done.stderr == (
        "lodestar: Keras is not installed. Install it with `pip install "
        "'keras>=3.15'`.\n"
    )


@pytest.fixture(scope="session")
def trained(with_tensorflow, folder):
    """Returns the output of the README's example and an export."""
    readme = (build_wheel.ROOT / "README.md").read_text()
    # The examples below need pandas, which is not a dependency.
    _, code = next(iter(notebook.blocks(readme)))
    assert "model.fit(" in code
    imports = "import keras, lodestar, numpy as np, tensorflow as tf\n"
    command = [with_tensorflow, "-c", imports + code + _TRAIN]
    return _output(command, folder).splitlines()


def test_the_example_of_the_readme_runs_on_the_installed_package(
    trained, python
):
    *_, package, library = map(pathlib.Path, trained)
    assert package.is_relative_to(python.parents[1])
    release = build_wheel.by_release([library])
    assert library == package.parent.joinpath(
        "_ops", f"tf{next(iter(release))}", library.name
    )
    assert _OTHER not in release


@pytest.mark.usefixtures("trained")
def test_another_process_serves_the_export(with_tensorflow, folder):
    served = _output([with_tensorflow, "-c", _SERVE], folder)
    assert served.startswith(f"served {with_tensorflow.parents[1]}")


@pytest.mark.usefixtures("trained")
def test_the_command_line(with_tensorflow, folder):
    def output(arguments):
        command = with_tensorflow.with_name("lodestar")
        return _output([command, *arguments.split()], folder)

    commands = [
        "data --help",
        "data generate log --samples 50",
        "snapshot list snapshots",
    ]
    with concurrent.futures.ThreadPoolExecutor() as pool:
        told, generated, listed = pool.map(output, commands)
    assert "convert" in told
    assert "log: 50 samples in " in generated
    assert re.search(r"\n1 +full ", listed)


def test_a_custom_op_links_with_the_installed_package(with_tensorflow, folder):
    code = (
        "import lodestar.sysconfig as s, sys\n"
        "print(*getattr(s, f'get_{sys.argv[1]}_flags')())"
    )
    (folder / "reader.cc").write_text(_READER)
    compile_flags, link_flags = (
        _output([with_tensorflow, "-c", code, kind], folder).split()
        for kind in ("compile", "link")
    )
    include = with_tensorflow.parents[1].glob("lib/*/*/lodestar/include")
    assert compile_flags == [f"-I{path}" for path in include]
    # Without TensorFlow's headers, and with all functions defined.
    command = ["g++", "-std=c++17", "-shared", "-fPIC", "-Wl,--no-undefined"]
    _output(
        [*command, *compile_flags, "reader.cc", "-o", "reader.so", *link_flags],
        folder,
    )


def test_the_metadata(wheel, libraries):
    with zipfile.ZipFile(wheel) as file:
        names = file.namelist()
        (info,) = {n.split("/")[0] for n in names if ".dist-info/" in n}
        metadata = email.message_from_bytes(file.read(f"{info}/METADATA"))
        tags = email.message_from_bytes(file.read(f"{info}/WHEEL"))
        licence = file.read(f"{info}/licenses/LICENSE").decode()
    package = build_wheel.ROOT / "python" / "lodestar"
    source = (package / "version.py").read_text()
    version = re.search('__version__ = "(.*)"', source)[1]
    assert info == f"tf_lodestar-{version}.dist-info"
    assert metadata["License-Expression"] == "Apache-2.0"
    assert "Apache License" in licence and "END OF TERMS" in licence
    assert f"{info}/licenses/NOTICE" in names
    assert metadata["Requires-Python"] == ">=3.11"
    extras = {"tensorflow", "tensorflow-cpu", "docs"}
    assert set(metadata.get_all("Provides-Extra")) == extras
    needed = metadata.get_all("Requires-Dist")
    assert "keras<4,>=3.15" in needed
    always = {re.match(r"[\w-]+", n)[0] for n in needed if "extra" not in n}
    assert always == {"click", "keras", "numpy", "pyarrow", "pyyaml", "rich"}
    # Each has a range, and TensorFlow is never installed implicitly.
    assert all(re.search("[<>]=?", line) for line in needed)
    assert all("extra ==" in line for line in needed if "tensorflow" in line)
    releases = build_wheel.by_release(libraries)
    offered = packaging.specifiers.SpecifierSet(build_wheel.offered(releases))
    for package in ("tensorflow", "tensorflow-cpu"):
        (line,) = (n for n in needed if f'extra == "{package}"' in n)
        found = packaging.requirements.Requirement(line)
        assert found.name == package and found.specifier == offered
    assert metadata.get_payload().startswith("# Lodestar")
    assert tags["Root-Is-Purelib"] == "false"
    assert wheel.stem.endswith(tags["Tag"])
    assert tags["Tag"].startswith("py3-none-manylinux_2_")


@pytest.mark.parametrize(
    ("releases", "wanted"),
    [
        (["2.20"], ">=2.20,<2.21"),
        (["2.21", "2.9", "2.20"], ">=2.9,<2.22,"),
        (["2.20", "2.18"], ">=2.18,<2.21,!=2.19.*"),
    ],
)
def test_extras_match_the_libraries(releases, wanted):
    assert build_wheel.offered(releases).startswith(wanted)
    allowed = packaging.specifiers.SpecifierSet(build_wheel.offered(releases))
    for minor in range(30):
        release = f"2.{minor}"
        assert (f"{release}.1" in allowed) == (release in releases)


def test_an_older_wheel_of_the_checkout_goes(
    wheel, tmp_path, monkeypatch, capsys
):
    def build(*arguments):
        monkeypatch.setattr(sys, "argv", ["build_wheel", *arguments])
        build_wheel.main()
        return capsys.readouterr().out.partition(": ")[0]

    def copy(paths, output):
        assert paths == [build_wheel.own_library()]
        return pathlib.Path(shutil.copy(wheel, output))

    monkeypatch.setattr(build_wheel, "build_wheel", copy)
    monkeypatch.setenv("BUILD_WORKSPACE_DIRECTORY", str(tmp_path))
    kept = [tmp_path / "dist" / "other-1-py3-none-any.whl", tmp_path / "mine"]
    old = tmp_path / "dist" / "tf_lodestar-0.0.1-py3-none-linux_x86_64.whl"
    kept[1].mkdir()
    kept.append(kept[1] / old.name)
    old.parent.mkdir()
    for path in (old, kept[0], kept[2]):
        path.touch()
    wheel = pathlib.Path(build())
    assert set(old.parent.iterdir()) == {wheel, kept[0]}
    build("--output", str(kept[1]))
    assert kept[2].exists() and (kept[1] / wheel.name).exists()


def test_content(wheel, libraries):
    with zipfile.ZipFile(wheel) as file:
        sizes = {entry.filename: entry.file_size for entry in file.infolist()}
        (record,) = (name for name in sizes if name.endswith("/RECORD"))
        rows = {
            name: digest
            for name, digest, _ in csv.reader(
                file.read(record).decode().split()
            )
        }
        assert set(rows) == set(sizes)
        for name, digest in rows.items():
            if name != record:
                found = hashlib.sha256(file.read(name)).digest()
                text = base64.urlsafe_b64encode(found).decode().rstrip("=")
                assert digest == f"sha256={text}", name
    assert {"lodestar/py.typed", "lodestar/_gen_ops.pyi"} <= set(sizes)
    package = build_wheel.ROOT / "python"
    sources = {
        str(path.relative_to(package))
        for path in (package / "lodestar").rglob("*.py")
    }
    assert {name for name in sizes if name.endswith(".py")} == sources
    headers = {name for name in sizes if name.endswith(".h")}
    assert headers == {
        f"lodestar/include/{name}" for name in build_wheel.installed_headers()
    }
    objects = [name for name in sizes if ".so" in name]
    assert sorted(objects) == sorted(
        f"lodestar/_ops/tf{release}/_lodestar_ops.so"
        for release in build_wheel.by_release(libraries)
    )
    assert all(sizes[name] < libraries[0].stat().st_size for name in objects)
    assert wheel.stat().st_size <= build_wheel.MOST_BYTES


def test_the_tag_is_that_of_the_symbols(wheel, folder):
    shown = _run(
        [sys.executable, "-m", "auditwheel", "show", "--json", wheel], folder
    )
    report = json.loads(shown.stdout)
    assert wheel.stem.endswith(report["sym_tag"])
    newest = max(
        tuple(map(int, version.removeprefix("GLIBC_").split(".")))
        for versions in report["versioned_symbols"].values()
        for version in versions
        if re.fullmatch(r"GLIBC_[\d.]+", version)
    )
    found = re.search(r"manylinux_(\d+)_(\d+)_x86_64", wheel.stem)
    assert newest <= tuple(map(int, found.groups()))


def test_the_same_libraries_give_the_same_bytes(wheel, libraries, tmp_path):
    again = build_wheel.build_wheel(libraries[::-1], tmp_path / "new" / "dist")
    assert again.name == wheel.name
    assert again.read_bytes() == wheel.read_bytes()


def test_two_libraries_of_one_release_are_refused(libraries):
    with pytest.raises(
        build_wheel.WheelError, match=r"are both for TensorFlow"
    ):
        build_wheel.by_release([*libraries, libraries[0]])


def test_other_libraries_are_refused(tmp_path):
    tensorflow = tmp_path / "libtensorflow_framework.so.2"
    tensorflow.write_bytes(b"\x7fELF")
    with pytest.raises(build_wheel.WheelError, match="is not Lodestar's"):
        build_wheel.build_wheel([tensorflow], tmp_path)
    with pytest.raises(build_wheel.WheelError, match="No such file"):
        build_wheel.build_wheel([tmp_path / "none.so"], tmp_path)


def test_a_library_that_was_cut_is_refused(libraries, tmp_path):
    cut = tmp_path / "cut.so"
    content = libraries[0].read_bytes()
    # The rest is missing after the marker that names the releases.
    cut.write_bytes(content[: build_wheel._MARKER.search(content).end()])
    with pytest.raises(
        build_wheel.WheelError, match="cut.so is not a complete"
    ):
        build_wheel.build_wheel([cut], tmp_path)


def test_a_library_with_unknown_dependencies_is_refused():
    core = pathlib.Path(np.__file__).parent / "_core"
    (library,) = core.glob("_multiarray_umath*.so")
    with pytest.raises(build_wheel.WheelError, match="needs libscipy_openblas"):
        build_wheel.policy_of([library])


def test_without_strip_there_is_no_wheel(libraries, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(build_wheel.WheelError, match="strip is not installed"):
        build_wheel.build_wheel(libraries[:1], tmp_path / "dist")


def test_a_wheel_that_is_too_large_is_refused(libraries, tmp_path):
    with pytest.raises(
        build_wheel.WheelError, match="must have at most 1,000 bytes"
    ):
        build_wheel.build_wheel(libraries[:1], tmp_path, 1000)
    assert not list(tmp_path.iterdir())
