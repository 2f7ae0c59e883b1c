"""The CUDA toolkit, where there is one, as the repository @local_config_cuda.

configure.sh finds it: LODESTAR_CUDA_HOME is its root, empty for none, and
LODESTAR_CUDA_ARCHS are the GPUs to build for, such as "80,90".
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
        fail("%s holds no CUDA toolkit: run ./configure.sh again" % home)
    ctx.symlink(home + "/include", "include")
    ctx.symlink(libraries[0], "libcudart_static.a")
    ctx.file("BUILD", _BUILD_WITH_CUDA)
    archs = ctx.os.environ["LODESTAR_CUDA_ARCHS"].split(",")
    codes = ["arch=compute_%s,code=sm_%s" % (arch, arch) for arch in archs]

    # The driver compiles PTX for GPUs that are newer than all of them.
    codes.append("arch=compute_%s,code=compute_%s" % (archs[-1], archs[-1]))
    nvcc = home + "/bin/nvcc"

    # Half the size of what it does by default; releases before 12.4 have no mode.
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
