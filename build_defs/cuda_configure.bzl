"""The CUDA toolkit, where there is one, as the repository @local_config_cuda.

LODESTAR_CUDA is "auto" (use nvcc if it is found), "on" (fail without it) or
"off"; configure.sh sets it.
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

def _toolkit(ctx):
    """The root of the toolkit, asked of nvcc itself (it may be a wrapper), or None."""
    nvcc = ctx.which("nvcc")
    if nvcc == None:
        default = ctx.path("/usr/local/cuda/bin/nvcc")
        nvcc = default if default.exists else None
    if nvcc == None:
        return None, None
    result = ctx.execute([nvcc, "--dryrun", "-x", "cu", "-c", "/dev/null", "-o", "/dev/null"])
    for line in result.stderr.split("\n"):
        if line.startswith("#$ TOP="):
            top = line[len("#$ TOP="):].strip()
            for library in ["lib64", "targets/x86_64-linux/lib", "lib"]:
                if ctx.path("%s/%s/libcudart_static.a" % (top, library)).exists:
                    return str(ctx.path(top).realpath), library
    return None, None

def _cuda_configure_impl(ctx):
    wanted = ctx.os.environ.get("LODESTAR_CUDA", "auto")
    if wanted not in ["auto", "on", "off"]:
        fail("LODESTAR_CUDA is '%s', wanted auto, on or off" % wanted)
    top, library = (None, None) if wanted == "off" else _toolkit(ctx)
    if wanted == "on" and top == None:
        fail("LODESTAR_CUDA=on, but no nvcc with libcudart_static.a was found on PATH or in /usr/local/cuda")
    if top != None:
        ctx.symlink(top + "/include", "include")
        ctx.symlink("%s/%s/libcudart_static.a" % (top, library), "libcudart_static.a")
        ctx.file("BUILD", _BUILD_WITH_CUDA)
    else:
        ctx.file("BUILD", _BUILD_WITHOUT_CUDA)
    ctx.file("cuda.bzl", "NVCC = %r\n" % (top + "/bin/nvcc" if top != None else ""))

cuda_configure = repository_rule(
    implementation = _cuda_configure_impl,
    environ = [
        "LODESTAR_CUDA",
        "PATH",
    ],
    local = True,
)
