"""The macros that the BUILD files of this repository use."""

load("@local_config_cuda//:cuda.bzl", "CUDA_GENCODE", "NVCC")
load("@local_config_tf//:tf.bzl", "TF_COPTS", "TF_VERSION")

# No contraction to fused multiply-add: every path gives the same bits.
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
    """`files`; where that is None the file `name` + `suffix`, if there is one."""
    if files != None:
        return files
    return native.glob([name + suffix], allow_empty = True)

def lodestar_core_library(name, srcs = None, hdrs = None, deps = []):
    """A library of tf_ops/core: C++17 and the standard library only.

    Args:
      name: target name.
      srcs: C++ sources; default: `name`.cc, if there is one.
      hdrs: C++ headers; default: `name`.h.
      deps: libraries.
    """
    native.cc_library(
        name = name,
        srcs = _files(name, ".cc", srcs),
        hdrs = _files(name, ".h", hdrs),
        # A square root that sets errno would be a call, not a vector of them.
        copts = _COPTS + ["-fno-math-errno"],
        # Nothing of ours is linked with a shared object for each.
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
            # Of assignments to a Status, which nvcc takes for its being dropped.
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
    """CUDA kernels and what launches them, without TensorFlow.

    Where no nvcc was found it is empty; else LODESTAR_CUDA is defined for
    whatever depends on it.

    Args:
      name: target name.
      srcs: *.cu.cc files.
      hdrs: headers for host code, which may include cuda_runtime.h.
      device_hdrs: the other headers that srcs include.
      deps: libraries of hdrs.
      emulated_srcs: what name + "_emulated", for tests, is made of: the same on
        the CPU (tests/cuda/emulation). Default: there is none.
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
            defines = ["LODESTAR_CUDA=1"],
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

# Rooms of core whose code is in sources. Their tests take longer to compile than
# to run; those of other rooms hold code under test, of headers, as it ships.
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
    """A program that tests CUDA kernels; a target only where nvcc was found.

    It has to pass where there is no device.

    Args:
      name: target name.
      srcs: C++ sources and headers, no CUDA sources.
      deps: libraries.
      **kwargs: as those of cc_test.
    """
    if NVCC:
        _cc_test(name, srcs, deps, **kwargs)

def lodestar_kernels_test(name, srcs, kernels, deps = []):
    """The same, and emulated_`name`: of emulated kernels, everywhere.

    Args:
      name: target name.
      srcs: C++ sources and headers, no CUDA sources. A program of them does
        less with --few, for the emulation.
      kernels: the lodestar_cuda_library under test, as //folder:name.
      deps: libraries.
    """
    lodestar_cuda_test(name, srcs, deps + [kernels])
    _cc_test(
        "emulated_" + name,
        srcs,
        deps + [kernels + "_emulated"],
        args = ["--few"],
    )

def _one_unit(name, srcs):
    """A source that includes `srcs`: TensorFlow's headers are parsed once."""
    native.genrule(
        name = name + "_unit",
        srcs = srcs,
        outs = [name + ".unit.cc"],
        cmd = "for source in $(SRCS); do echo \"#include \\\"$$source\\\"\"; done > $@",
    )
    return name + ".unit.cc"

def lodestar_op_library(name, srcs = None, hdrs = None, deps = [], **kwargs):
    """Ops or kernels: may include TensorFlow, always linked into the shared object.

    Args:
      name: target name.
      srcs: C++ sources, compiled as one; default: `name`.cc, if there is one.
      hdrs: C++ headers; default: `name`.h, if there is one.
      deps: libraries.
      **kwargs: as those of cc_library.
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
            # Names that older supported releases have no successor for.
            "-Wno-deprecated-declarations",
            "-DLODESTAR_TF_VERSION=\\\"%s\\\"" % TF_VERSION,
        ],
        deps = deps + ["@local_config_tf//:headers"],
        linkstatic = True,
        alwayslink = True,
        visibility = _VISIBILITY,
        **kwargs
    )

def lodestar_emulated_op_library(name, srcs, hdrs, deps):
    """Kernels for a GPU over emulated CUDA, for tests.

    Args:
      name: target name.
      srcs: C++ sources, compiled as one.
      hdrs: C++ headers.
      deps: libraries.
    """
    lodestar_op_library(name, srcs, hdrs, deps, testonly = True)

def lodestar_cc_test(name, srcs = [], deps = [], **kwargs):
    """GoogleTests of tf_ops/core: `name`.cc, if there is one, and srcs.

    Args:
      name: target name.
      srcs: other C++ sources and headers. Tests of small headers share a target,
        which links once.
      deps: libraries.
      **kwargs: as those of cc_test.
    """
    _cc_test(
        name,
        native.glob([name + ".cc"], allow_empty = True) + srcs,
        deps + ["@local_config_gtest//:gtest_main"],
        **kwargs
    )

def lodestar_guards_test(name, broken, deps = [], pauses = False):
    """A GoogleTest, and for each guard of core that it fails with it broken.

    For each case, broken_CASE_test passes only if the case then fails.

    Args:
      name: target name; `name`.cc is the GoogleTest, which consults no guard.
      broken: for each guard of tf_ops/core/base/guards.h, without its k: the
        source of tf_ops/core that consults it, and the cases of the GoogleTest,
        by the CASE of their targets. The source's broken object is linked before
        the libraries, so the sound one that they hold is not.
      deps: libraries.
      pauses: build the sources in `broken`, sound or not, to call the PauseAt
        that the GoogleTest defines.
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
    """pytest files of a folder in one target, as each process imports TensorFlow.

    Args:
      name: target name.
      tests: the files; default: all of the folder, and of `folders`.
      folders: those below it, without a BUILD file, whose Python files it has.
      deps: libraries beside the package and the other Python files here.
      data: what the tests read.
      **kwargs: as those of py_test. A shard runs every n-th file.
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
