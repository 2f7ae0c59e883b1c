"""The CUDA toolkit, if there is one, as the repository @local_config_cuda.

configure.sh sets LODESTAR_CUDA_HOME to its root, or to nothing if there is
none, and LODESTAR_CUDA_ARCHS to the GPUs to build for, such as "80,90".
"""

_BUILD_WITH_CUDA = """
package(default_visibility = ["//visibility:public"])

cc_library(
    name = "cudart",
    srcs = ["libcudart_static.a"],
    hdrs = glob(["include/**"]),
    includes = ["include"],
    linkopts = [
        "-ldl",
        "-lpthread",
        "-lrt",
    ],
)
"""

_BUILD_WITHOUT_CUDA = """
cc_library(
    name = "cudart",
    visibility = ["//visibility:public"],
)
"""

def _cuda_configure_impl(ctx):
    home = ctx.os.environ.get("LODESTAR_CUDA_HOME")
    if not home:
        ctx.file("BUILD", _BUILD_WITHOUT_CUDA)
        ctx.file("cuda.bzl", "NVCC = None\nCUDA_GENCODE = []\n")
        return
    libraries = [
        path
        for path in [
            ctx.path("%s/%s/libcudart_static.a" % (home, folder))
            for folder in ["lib64", "lib"]
        ]
        if path.exists
    ]
    if not libraries:
        fail("There is no CUDA toolkit in %s. Run ./configure.sh again." % home)
    ctx.symlink(home + "/include", "include")
    ctx.symlink(libraries[0], "libcudart_static.a")
    ctx.file("BUILD", _BUILD_WITH_CUDA)
    archs = ctx.os.environ["LODESTAR_CUDA_ARCHS"].split(",")
    codes = ["arch=compute_%s,code=sm_%s" % (arch, arch) for arch in archs]

    # Include PTX, which the driver compiles for newer GPUs.
    codes.append("arch=compute_%s,code=compute_%s" % (archs[-1], archs[-1]))
    nvcc = home + "/bin/nvcc"

    # Half the default size. Releases before 12.4 have no --compress-mode.
    help = ctx.execute([nvcc, "--help"]).stdout
    smallest = "--compress-mode=size" if "--compress-mode" in help else "-Xfatbin=-compress-all"
    ctx.file("cuda.bzl", "NVCC = %r\nCUDA_GENCODE = %r\n" % (
        nvcc,
        ["-gencode=" + code for code in codes] + [smallest],
    ))

cuda_configure = repository_rule(
    implementation = _cuda_configure_impl,
    environ = [
        "LODESTAR_CUDA_ARCHS",
        "LODESTAR_CUDA_HOME",
    ],
    local = True,
)
