"""Macros for the BUILD files of this repository."""

load("@local_config_cuda//:cuda.bzl", "CUDA_GENCODE", "NVCC")
load("@local_config_tf//:tf.bzl", "TF_COPTS", "TF_VERSION")

# No contraction to fused multiply-add, so that every path has the same bits.
_COPTS = [
    "-std=c++17",
    "-O3",
    "-ffp-contract=off",
    "-Wall",
    "-Wextra",
    "-Wno-sign-compare",
    "-fvisibility=hidden",
] + select({
    "@bazel_tools//src/conditions:linux_x86_64": ["-march=x86-64-v2"],
    "//conditions:default": [],
})

_VISIBILITY = ["//:__subpackages__"]

def _files(name, suffix, files):
    """Returns `files`, by default the file `name` + `suffix` if it exists."""
    if files != None:
        return files
    return native.glob([name + suffix], allow_empty = True)

def _folder():
    return native.package_name().rpartition("/")[2]

def lodestar_core_library(deps = []):
    """A folder of tf_ops/core: C++17 and the standard library only.

    Args:
      deps: The folders of tf_ops/core that it includes.
    """
    headers = native.glob(["*.h"])
    native.cc_library(
        name = _folder(),
        srcs = native.glob(["*.cc"], allow_empty = True),
        hdrs = headers,
        # A square root that sets errno is a function call and cannot be
        # vectorized.
        copts = _COPTS + ["-fno-math-errno"],
        # Avoids a shared object per library, which nothing links.
        linkstatic = True,
        deps = ["//tf_ops/core/" + dep for dep in deps],
        visibility = _VISIBILITY,
    )

    # For nvcc.
    native.filegroup(
        name = "headers",
        srcs = headers + ["//tf_ops/core/" + dep + ":headers" for dep in deps],
        visibility = _VISIBILITY,
    )

def _cuda_object(name, src, hdrs):
    object_file = name + ".pic.o"
    native.genrule(
        name = name,
        srcs = [src] + hdrs,
        outs = [object_file],
        cmd = " ".join([
            NVCC,
            " ".join(CUDA_GENCODE),
            "-c -x cu -std=c++17 -O3 --fmad=false -I.",
            # nvcc reports assignments to a Status as discarded values.
            "--diag-suppress=2810",
            "-Xcompiler -fPIC,-fvisibility=hidden",
            "-o $@ $(location %s)" % src,
        ]),
    )
    return object_file

def lodestar_cuda_library(
        name,
        srcs,
        hdrs,
        core,
        emulated_srcs):
    """CUDA kernels and their launchers, without TensorFlow.

    Empty without nvcc; otherwise defines LODESTAR_CUDA for its dependents.
    name + "_emulated", for tests, runs on the CPU (tests/cuda/emulation).

    Args:
      name: Target name.
      srcs: *.cu.cc files.
      hdrs: Headers, which may include cuda_runtime.h.
      core: The folders of tf_ops/core that they include.
      emulated_srcs: Sources of the emulation.
    """
    deps = ["//tf_ops/core/" + folder for folder in core]
    native.cc_library(
        name = name + "_emulated",
        testonly = True,
        srcs = emulated_srcs,
        hdrs = hdrs,
        copts = _COPTS + [
            "-Wno-maybe-uninitialized",
            "-Wno-unknown-pragmas",
            "-fno-math-errno",
        ],
        defines = ["LODESTAR_CUDA=1", "LODESTAR_EMULATED_CUDA=1"],
        linkstatic = True,
        deps = deps + ["//tests/cuda/emulation:cuda_runtime"],
        visibility = _VISIBILITY,
    )
    if not NVCC:
        native.cc_library(name = name, visibility = _VISIBILITY)
        return
    headers = hdrs + [dep + ":headers" for dep in deps]
    native.cc_library(
        name = name,
        srcs = [
            _cuda_object(src[:-len(".cu.cc")] + "_cuda", src, headers)
            for src in srcs
        ],
        hdrs = hdrs,
        defines = ["LODESTAR_CUDA=1"],
        deps = deps + ["@local_config_cuda//:cudart"],
        visibility = _VISIBILITY,
    )

# Folders of core with most of their code in sources. Their tests take longer to
# compile than to run. In other folders the tests contain the code under test,
# in headers, so they are compiled with the shipped options.
_ROOMS_OF_SOURCES = [
    "tests/core/embedding",
    "tests/core/rows",
    "tests/core/snapshot",
]

def _test_copts():
    return _COPTS + (["-O1"] if native.package_name() in _ROOMS_OF_SOURCES else [])

def _cc_test(name, srcs, deps, **kwargs):
    native.cc_test(
        name = name,
        srcs = srcs,
        copts = _test_copts(),
        linkopts = ["-lpthread"],
        linkstatic = True,
        deps = deps,
        **kwargs
    )

def lodestar_cuda_test(name, srcs, deps = [], **kwargs):
    """A program that tests CUDA kernels. No target is defined without nvcc.

    The test must pass on machines without a GPU.

    Args:
      name: Target name.
      srcs: C++ sources and headers, no CUDA sources.
      deps: Libraries.
      **kwargs: Arguments of cc_test.
    """
    if NVCC:
        _cc_test(name, srcs, deps, **kwargs)

def lodestar_kernels_test(name, kernels, deps):
    """A lodestar_cuda_test, and emulated_`name` with emulated kernels.

    Args:
      name: Target name. The program `name`.cc must support --few, which reduces
        its work for the emulation.
      kernels: The lodestar_cuda_library under test, as //folder:name.
      deps: Libraries.
    """
    srcs = [name + ".cc"] + native.glob(["*.h"])
    lodestar_cuda_test(name, srcs, deps + [kernels])
    _cc_test(
        "emulated_" + name,
        srcs,
        deps + [kernels + "_emulated"],
        args = ["--few"],
    )

def _one_unit(name, srcs):
    """Returns a source that includes `srcs`, to parse TensorFlow's headers once."""
    native.genrule(
        name = name + "_unit",
        srcs = srcs,
        outs = [name + ".unit.cc"],
        cmd = "for source in $(SRCS); do echo \"#include \\\"$$source\\\"\"; done > $@",
    )
    return name + ".unit.cc"

def lodestar_op_library(name, srcs = None, hdrs = None, deps = [], **kwargs):
    """Ops or kernels: may include TensorFlow; always linked into the shared object.

    Args:
      name: Target name.
      srcs: C++ sources, compiled as one unit; default: `name`.cc, if it exists.
      hdrs: C++ headers; default: `name`.h, if it exists.
      deps: Libraries.
      **kwargs: Arguments of cc_library.
    """
    sources = _files(name, ".cc", srcs)
    several = len(sources) > 1
    native.cc_library(
        name = name,
        srcs = [_one_unit(name, sources)] if several else sources,
        hdrs = _files(name, ".h", hdrs),
        textual_hdrs = sources if several else [],
        copts = _COPTS + TF_COPTS + [
            "-Wno-unused-parameter",
            "-Wno-attributes",
            # Older supported releases lack replacements of the deprecated
            # names.
            "-Wno-deprecated-declarations",
            "-DLODESTAR_TF_VERSION=\\\"%s\\\"" % TF_VERSION,
        ],
        deps = deps + ["@local_config_tf//:headers"],
        linkstatic = True,
        alwayslink = True,
        visibility = _VISIBILITY,
        **kwargs
    )

def _installed_headers_impl(ctx):
    headers = ctx.attr.of[CcInfo].compilation_context.headers.to_list()
    own = [header for header in headers if header.short_path.startswith("tf_ops/")]
    return [DefaultInfo(runfiles = ctx.runfiles(own))]

lodestar_installed_headers = rule(
    doc = "This project's headers that a library and its dependencies have.",
    implementation = _installed_headers_impl,
    attrs = {"of": attr.label(providers = [CcInfo])},
)

def lodestar_emulated_op_library(name, srcs, deps, hdrs = None):
    """GPU kernels with emulated CUDA, for tests.

    Args:
      name: Target name.
      srcs: C++ sources, compiled as one unit.
      deps: Libraries.
      hdrs: C++ headers.
    """
    lodestar_op_library(name, srcs, hdrs, deps, testonly = True)

def lodestar_core_tests(deps = [], together = {}, others = {}, exclude = []):
    """GoogleTests of a folder of tf_ops/core, one target for each file.

    Args:
      deps: Libraries that all of them use, other than the folder.
      together: Maps names of targets to the tests that they consist of. Tests of
        small headers share a target, so that it is linked once.
      others: Maps names of targets to further arguments of cc_test.
      exclude: Tests that have other targets.
    """
    targets = dict(together)
    for file in native.glob(["*_test.cc"]):
        test = file[:-len(".cc")]
        if test not in exclude and not [t for ts in together.values() for t in ts if t == test]:
            targets[test] = [test]
    for name, tests in targets.items():
        arguments = dict(others.get(name, {}))
        own_deps = arguments.pop("deps", [])
        _cc_test(
            name,
            [test + ".cc" for test in tests] + native.glob(["*.h"], allow_empty = True),
            deps + own_deps + [
                "//tests/core/testing",
                "//tf_ops/core/" + _folder(),
                "@local_config_gtest//:gtest_main",
            ],
            **arguments
        )

def lodestar_guards_test(name, broken, deps = [], pauses = False):
    """A GoogleTest, and tests that it fails with a broken guard of core.

    broken_CASE_test passes only if CASE fails with its guard broken.

    Args:
      name: Target name. `name`.cc is the GoogleTest, which uses no guard.
      broken: Maps guards of tf_ops/core/base/guards.h, without their k, to the
        source of tf_ops/core that uses it, and a dict from the CASE of targets
        to cases of the GoogleTest. The source is compiled with the broken guard
        and linked before the libraries, which replaces their object.
      deps: Libraries.
      pauses: Whether the sources in `broken`, with and without broken guards,
        call the PauseAt that the GoogleTest defines.
    """
    cases = name + "_cases"
    defines = ["LODESTAR_PAUSES"] if pauses else []
    native.cc_library(
        name = cases,
        testonly = True,
        srcs = [name + ".cc"],
        copts = _test_copts(),
        linkstatic = True,
        alwayslink = True,
        local_defines = defines,
        deps = deps + ["@local_config_gtest//:gtest_main"],
    )
    _cc_test(
        name,
        [src for src, _ in broken.values()] if pauses else [],
        [":" + cases],
        local_defines = defines,
    )
    for guard, (guarded_src, tests) in broken.items():
        binary = "broken_%s" % guard
        native.cc_binary(
            name = binary,
            testonly = True,
            srcs = [guarded_src],
            copts = _COPTS,
            linkopts = ["-lpthread"],
            linkstatic = True,
            local_defines = ["LODESTAR_BROKEN_GUARD=k" + guard] + defines,
            deps = [":" + cases],
        )
        for test, case in tests.items():
            native.sh_test(
                name = "broken_%s_test" % test,
                size = "small",
                srcs = ["//build_defs:require_failure.sh"],
                args = [
                    "$(location :%s)" % binary,
                    case,
                ],
                data = [":" + binary],
            )

def lodestar_py_tests(name, tests = None, folders = [], deps = [], data = [], **kwargs):
    """The pytest files of a folder in one process, which imports TensorFlow once.

    Args:
      name: Target name.
      tests: The files; default: all of the folder and of `folders`.
      folders: Subfolders without a BUILD file to include.
      deps: Libraries other than the package and the Python files here.
      data: Files that the tests read.
      **kwargs: Arguments of py_test. A shard runs every n-th file.
    """
    here = ["*.py"] + [folder + "/*.py" for folder in folders]
    if tests == None:
        tests = native.glob([files[:-len(".py")] + "_test.py" for files in here])
    native.py_test(
        name = name,
        srcs = ["//build_defs:run_pytest.py"] + tests + native.glob(
            here,
            exclude = ["**/*_test.py", "conftest.py"],
            allow_empty = True,
        ),
        main = "//build_defs:run_pytest.py",
        args = ["$(location %s)" % test for test in tests],
        data = data,
        imports = ["."] + folders,
        deps = deps + [
            "//python/lodestar",
            "//tests/python:conftest",
        ],
        python_version = "PY3",
        **kwargs
    )
