"""The repository @local_config_tf: the installed TensorFlow wheel, and the
Python it is installed in as a toolchain.
"""

_PROBE = """
import os
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow as tf
print(tf.__version__)
print(tf.sysconfig.get_include())
print(tf.sysconfig.get_lib())
print(" ".join(f for f in tf.sysconfig.get_compile_flags() if not f.startswith("-I")))
"""

_BUILD = """
load("@bazel_tools//tools/python:toolchain.bzl", "py_runtime_pair")

package(default_visibility = ["//visibility:public"])

cc_library(
    name = "headers",
    hdrs = glob(
        [
            "include/**/*.h",
            "include/**/*.inc",
            "include/Eigen/**",
            "include/unsupported/**",
        ],
        allow_empty = True,
    ),
    includes = ["include"],
)

cc_import(
    name = "framework_import",
    shared_library = "libtensorflow_framework.so.2",
)

cc_library(
    name = "framework",
    deps = [":framework_import"],
)

cc_import(
    name = "cc_import",
    shared_library = "libtensorflow_cc.so.2",
)

# TensorFlow's C API, for programs that load the op library.
cc_library(
    name = "c_api",
    deps = [
        ":cc_import",
        ":framework",
        ":headers",
    ],
)

# The stub of a py_binary also uses this interpreter. By default it uses the
# `python` on PATH, which Debian does not have.
py_runtime(
    name = "python_runtime",
    interpreter_path = "%{python}",
    python_version = "PY3",
    stub_shebang = "#!%{python}",
)

py_runtime_pair(
    name = "python_runtimes",
    py3_runtime = ":python_runtime",
)

toolchain(
    name = "python_toolchain",
    toolchain = ":python_runtimes",
    toolchain_type = "@bazel_tools//tools/python:toolchain_type",
)
"""

def _tf_configure_impl(ctx):
    python = ctx.os.environ.get("PYTHON_BIN_PATH")
    if not python:
        fail("PYTHON_BIN_PATH is not set. Run ./configure.sh first.")
    result = ctx.execute([python, "-c", _PROBE])
    if result.return_code:
        fail("%s cannot import tensorflow. Run ./configure.sh.\n%s" % (python, result.stderr))
    version, include, lib, flags = result.stdout.strip().split("\n")[-4:]
    ctx.symlink(include, "include")
    for library in ["libtensorflow_cc.so.2", "libtensorflow_framework.so.2"]:
        ctx.symlink(lib + "/" + library, library)
    ctx.file("BUILD", _BUILD.replace("%{python}", python))
    ctx.file("tf.bzl", "TF_VERSION = %r\n\nTF_COPTS = %r\n" % (version, flags.split(" ")))

tf_configure = repository_rule(
    implementation = _tf_configure_impl,
    environ = [
        "PYTHON_BIN_PATH",
        # configure.sh changes this when it installs another TensorFlow.
        "LODESTAR_TF",
    ],
    local = True,
)
