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

def lodestar_core_library(name, srcs = None, hdrs = None, deps = []):
    """A library of tf_ops/core: C++17 and the standard library only.

    Args:
      name: Target name.
      srcs: C++ sources; default: `name`.cc, if it exists.
      hdrs: C++ headers; default: `name`.h.
      deps: Libraries.
    """
    native.cc_library(
        name = name,
        srcs = _files(name, ".cc", srcs),
        hdrs = _files(name, ".h", hdrs),
        # A square root that sets errno is a function call and cannot be
        # vectorized.
        copts = _COPTS + ["-fno-math-errno"],
        # Avoids a shared object per library, which nothing links.
        linkstatic = True,
        deps = deps,
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
        device_hdrs = [],
        deps = [],
        emulated_srcs = None):
    """CUDA kernels and their launchers, without TensorFlow.

    Empty without nvcc; otherwise defines LODESTAR_CUDA for its dependents.

    Args:
      name: Target name.
      srcs: *.cu.cc files.
      hdrs: Headers for host code, which may include cuda_runtime.h.
      device_hdrs: Other headers that srcs include.
      deps: Libraries of hdrs.
      emulated_srcs: Sources of name + "_emulated", for tests, which runs on the
        CPU (tests/cuda/emulation). By default there is no such target.
    """
    if emulated_srcs != None:
        native.cc_library(
            name = name + "_emulated",
            testonly = True,
            srcs = emulated_srcs + device_hdrs,
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
    native.cc_library(
        name = name,
        srcs = [
            _cuda_object(src[:-len(".cu.cc")] + "_cuda", src, hdrs + device_hdrs)
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

def lodestar_kernels_test(name, srcs, kernels, deps = []):
    """A lodestar_cuda_test, and emulated_`name` with emulated kernels.

    Args:
      name: Target name.
      srcs: C++ sources and headers, no CUDA sources. The program must support
        --few, which reduces its work for the emulation.
      kernels: The lodestar_cuda_library under test, as //folder:name.
      deps: Libraries.
    """
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

def lodestar_cc_test(name, srcs = [], deps = [], **kwargs):
    """GoogleTests of tf_ops/core: `name`.cc, if it exists, and srcs.

    Args:
      name: Target name.
      srcs: Other C++ sources and headers. Tests of small headers share a target,
        so that it is linked once.
      deps: Libraries.
      **kwargs: Arguments of cc_test.
    """
    _cc_test(
        name,
        native.glob([name + ".cc"], allow_empty = True) + srcs,
        deps + ["@local_config_gtest//:gtest_main"],
        **kwargs
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
