"""GoogleTest's sources (Debian's libgtest-dev) as @local_config_gtest."""

_SOURCES = "/usr/src/googletest/googletest"

_BUILD = """
cc_library(
    name = "gtest_main",
    testonly = True,
    srcs = [
        "src/gtest-all.cc",
        "src/gtest_main.cc",
    ],
    hdrs = glob([
        "include/**/*.h",
        "src/*.h",
    ]),
    copts = [
        "-std=c++17",
        "-O1",
        "-w",
    ],
    includes = ["include"],
    linkopts = ["-lpthread"],
    textual_hdrs = glob(
        ["src/*.cc"],
        exclude = [
            "src/gtest-all.cc",
            "src/gtest_main.cc",
        ],
    ),
    visibility = ["//visibility:public"],
    deps = [":root_headers"],
)

# gtest-all.cc includes "src/gtest.cc".
cc_library(
    name = "root_headers",
    hdrs = glob(["src/*.h"]),
    includes = ["."],
)
"""

def _gtest_configure_impl(ctx):
    if not ctx.path(_SOURCES).exists:
        fail("GoogleTest is not in %s. Run ./configure.sh, or install libgtest-dev." % _SOURCES)
    ctx.symlink(_SOURCES + "/include", "include")
    ctx.symlink(_SOURCES + "/src", "src")
    ctx.file("BUILD", _BUILD)

gtest_configure = repository_rule(
    implementation = _gtest_configure_impl,
    local = True,
)
