"""configure.sh finds a CUDA toolkit, or reports why it found no toolkit.

It runs in its own folder, where Python, Bazel and nvcc are scripts. PATH has
only these and the tools that it calls.
"""

import shutil
import subprocess

import checkout
import pytest

_TOOLS = (
    "basename bash cat chmod dirname env grep id mkdir mktemp paste "
    "readlink rm sed tail timeout"
)
# Creates a .venv with itself as interpreter, like Python.
_PYTHON = """
case "$*" in
  *sys.executable*) echo "$0 3.11" ;;
  "-m venv .venv")
    mkdir -p .venv/bin .venv/lib/python3.11/site-packages
    cat "$0" >.venv/bin/python3
    chmod +x .venv/bin/python3 ;;
esac
"""
_BAZEL = 'echo "bazel 6.5.0"'
# Like the real nvcc, it supports unlisted architectures and needs a compiler.
_NVCC = """
case "$*" in
  --version) echo "Cuda compilation tools, release 13.0, V{version}" ;;
  --list-gpu-code) echo sm_80; echo sm_90 ;;
  *compute_80,*|*compute_90,*|*compute_90a,*) ;;
  *compute_*) echo "nvcc fatal   : Unsupported gpu architecture" >&2; exit 1 ;;
  --dryrun*) g++ -dumpversion >&2 || exit; echo "#\\$ TOP=${{0%/*}}/.. " >&2 ;;
esac
"""
_PARTS = {
    "nvvm/bin/cicc": "nvidia-nvvm",
    "bin/ptxas": "nvidia-cuda-nvcc",
    "include/crt/host_config.h": "nvidia-cuda-crt",
    "include/cuda_runtime.h": "nvidia-cuda-runtime",
    "lib/libcudart_static.a": "nvidia-cuda-runtime",
    "include/cccl/cub/cub.cuh": "nvidia-cuda-cccl",
}
_PIP = ".venv/lib/python3.11/site-packages/nvidia"


def _program(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/usr/bin/env bash\n{text}\n")
    path.chmod(0o755)


def _toolkit(root, version="13.0.88", nvcc=_NVCC):
    """Creates a toolkit; returns its root."""
    for part in (*_PARTS, "bin/nvcc.profile"):
        (root / part).parent.mkdir(parents=True, exist_ok=True)
        (root / part).touch()
    _program(root / "bin" / "nvcc", nvcc.format(version=version))
    return root


class _Clone:
    """A checkout on a machine with a GPU, but without CUDA."""

    def __init__(self, folder):
        self.root = folder / "clone"
        self.default_toolkit = folder / "usr_local_cuda"
        self.gpu = folder / "dev_nvidia0"
        self.gpu.touch()
        self.bin = folder / "bin"
        self.bin.mkdir(parents=True)
        self.root.mkdir()
        for name in ("requirements.txt", "constraints.txt"):
            shutil.copy(checkout.ROOT / name, self.root)
        script = (checkout.ROOT / "configure.sh").read_text()
        for path, stand_in in (
            ("/usr/local/cuda", self.default_toolkit),
            ("/dev/nvidia", folder / "dev_nvidia"),
        ):
            assert path in script
            script = script.replace(path, str(stand_in))
        (self.root / "configure.sh").write_text(script)
        for name in _TOOLS.split():
            (self.bin / name).symlink_to(shutil.which(name))
        _program(self.bin / "g++", "echo 12.2.0")
        _program(self.bin / "python3", _PYTHON)
        _program(self.bin / "bazel", _BAZEL)
        # Nothing may be installed on the machine that runs the test.
        _program(self.bin / "apt-get", "exit 1")

    def run(self, *options, **environment):
        """Runs configure.sh."""
        return subprocess.run(
            [self.bin / "bash", "configure.sh", *options],
            cwd=self.root,
            env={"PATH": str(self.bin), "HOME": str(self.root), **environment},
            capture_output=True,
            text=True,
        )

    def cuda(self, *options, **environment):
        """Returns the line about CUDA, the root and the archs that Bazel gets."""
        result = self.run(*options, **environment)
        assert result.returncode == 0, result.stdout + result.stderr
        (line,) = [
            line.removeprefix("configure: CUDA: ")
            for line in result.stdout.splitlines()
            if "CUDA" in line
        ]
        settings = dict(
            line.removeprefix("build --repo_env=").split("=")
            for line in (self.root / ".lodestar.bazelrc")
            .read_text()
            .split("\n")
            if "--repo_env" in line
        )
        home, archs = (
            settings["LODESTAR_CUDA_" + name] for name in ("HOME", "ARCHS")
        )
        return line, home, archs

    def error(self, *options, **environment):
        """Returns the status and the message, if nothing was installed."""
        result = self.run(*options, **environment)
        assert not (self.root / ".lodestar.bazelrc").exists()
        assert not (self.root / ".venv" / "bin").exists()
        return result.returncode, result.stderr


@pytest.fixture
def clone(tmp_path):
    return _Clone(tmp_path)


def test_cuda_home_precedes_path_and_the_default_folder(clone, tmp_path):
    _toolkit(clone.default_toolkit, "13.0.1")
    on_path = _toolkit(tmp_path / "on_path", "13.0.2")
    home = _toolkit(tmp_path / "home", "13.0.3")
    path = f"{on_path}/bin:{clone.bin}"
    line, found, archs = clone.cuda(CUDA_HOME=str(home), PATH=path)
    assert line == (
        f"nvcc 13.0.3 ({home}/bin/nvcc), machine code for sm_80 sm_90, "
        "PTX of compute_90"
    )
    assert (found, archs) == (str(home), "80,90")
    assert clone.cuda(PATH=path)[1] == str(on_path)
    assert clone.cuda()[1] == str(clone.default_toolkit)


def test_a_toolkit_of_pip_is_tried_last(clone):
    assert clone.cuda()[1] == ""
    root = _toolkit(clone.root / _PIP / "cu13")
    assert clone.cuda("--cuda=on")[1] == str(root)
    _toolkit(clone.default_toolkit)
    assert clone.cuda()[1] == str(clone.default_toolkit)


def test_a_toolkit_lost_with_its_venv_must_be_installed_again(clone):
    clone.cuda()
    _toolkit(clone.root / _PIP / "cu13")
    other = ("--tensorflow-version", "2.20.0")
    result = clone.run(*other)
    assert result.returncode == 1
    assert "has been replaced. Use --cuda install." in result.stderr
    root = _toolkit(clone.root / _PIP / "cu13")
    assert clone.cuda(*other)[1] == str(root)


def test_a_toolkit_is_installed_on_request(clone, tmp_path):
    (clone.bin / "cp").symlink_to(shutil.which("cp"))
    toolkit = _toolkit(tmp_path / "toolkit")
    install = f"mkdir -p {_PIP} && cp -r {toolkit} {_PIP}/cu13"
    _program(
        clone.bin / "python3",
        f"{_PYTHON}\n[[ $* != *nvidia-cuda-nvcc==* ]] || {{ {install}; }}",
    )
    clone.gpu.unlink()
    root = clone.root / _PIP / "cu13"
    assert clone.cuda("--cuda=install")[1] == str(root)
    # It is found the next time, and replaced with its .venv.
    assert clone.cuda("--cuda", "on")[1] == str(root)
    other = ("--cuda=install", "--tensorflow-version", "2.20.0")
    result = clone.run(*other)
    assert result.returncode == 0, result.stderr
    assert "Installing pip's toolkit" in result.stdout
    assert (root / "bin" / "nvcc").exists()


def test_a_toolkit_that_cannot_be_installed_is_an_error(clone):
    result = clone.run("--cuda=install")
    assert result.returncode == 1
    assert "--cuda install, but no nvcc in" in result.stderr


def test_packages_of_cuda_12_have_no_nvcc(clone):
    ptxas = clone.root / _PIP / "cuda_nvcc" / "bin" / "ptxas"
    ptxas.parent.mkdir(parents=True)
    ptxas.touch()
    assert clone.error("--cuda=on") == (
        1,
        "configure.sh: --cuda on, but pip's nvidia-cuda-nvcc-cu12 has no nvcc "
        "program (docs/install.md)\n",
    )


def test_a_wrapper_on_path_leads_to_its_toolkit(clone, tmp_path):
    root = _toolkit(tmp_path / "toolkit")
    _program(clone.bin / "nvcc", f'exec {root}/bin/nvcc "$@"')
    line, found, _ = clone.cuda()
    assert found == str(root)
    assert f"({clone.bin}/nvcc)" in line


@pytest.mark.parametrize("part", _PARTS)
def test_missing_parts_of_a_toolkit_are_named(clone, part):
    root = _toolkit(clone.default_toolkit)
    (root / part).unlink()
    name = part.split("/", 1)[1].removeprefix("bin/").removeprefix("cccl/")
    lacks = f"{root} lacks {name} (pip: {_PARTS[part]})"
    # Also on PATH; it is listed once.
    path = f"{root}/bin:{clone.bin}"
    assert clone.error("--cuda=on", PATH=path) == (
        1,
        f"configure.sh: --cuda on, but {lacks} (docs/install.md)\n",
    )
    assert clone.cuda() == (f"CPU kernels only: {lacks}", "", "")


def test_the_next_toolkit_replaces_a_broken_one(clone, tmp_path):
    _toolkit(clone.default_toolkit)
    line, found, _ = clone.cuda(CUDA_HOME=str(tmp_path / "none"))
    assert found == str(clone.default_toolkit)
    assert line.endswith(f"; {tmp_path}/none/bin/nvcc does not run")


def test_without_nvcc_there_are_cpu_kernels_only(clone):
    line, *found = clone.cuda()
    assert line == (
        "CPU kernels only: no nvcc in $CUDA_HOME, on PATH, in "
        f"{clone.default_toolkit} or from pip in .venv"
    )
    assert found == ["", ""]


def test_cuda_on_without_nvcc_is_an_error_before_a_compiler_is_installed(clone):
    (clone.bin / "g++").unlink()
    status, message = clone.error("--cuda=on")
    assert status == 1
    assert message.startswith("configure.sh: --cuda on, but no nvcc in")


def test_a_toolkit_is_found_before_the_compiler_that_it_needs(clone):
    (clone.bin / "g++").unlink()
    _toolkit(clone.default_toolkit)
    result = clone.run()
    assert "configure: CUDA: nvcc 13.0.88" in result.stdout
    assert (
        "apt-get update failed" in result.stderr or "as root" in result.stderr
    )


_NO_GPU = (
    "CPU kernels only: this machine has no NVIDIA GPU; --cuda on builds CUDA "
    "kernels for another machine"
)


def test_without_a_gpu_cuda_needs_an_option(clone):
    clone.gpu.unlink()
    root = _toolkit(clone.default_toolkit)
    for asked in ((), ("--cuda=auto",)):
        assert clone.cuda(*asked) == (_NO_GPU, "", "")
    for asked in (("--cuda=on",), ("--cuda-archs=80",)):
        assert clone.cuda(*asked)[1] == str(root)
    assert clone.cuda(LODESTAR_CUDA="on")[1] == str(root)
    assert clone.cuda("--cuda=auto", LODESTAR_CUDA="on") == (_NO_GPU, "", "")


@pytest.mark.parametrize(
    ("answer", "here"),
    [
        ("echo 'GPU 0: NVIDIA H100 (UUID: GPU-1)'", True),
        ("echo 'No devices found.'", False),
        (
            'echo "NVIDIA-SMI couldn\'t find libnvidia-ml.so" >&2; exit 12',
            False,
        ),
    ],
)
def test_nvidia_smi_finds_a_gpu_without_a_device_file(clone, answer, here):
    clone.gpu.unlink()
    _program(clone.bin / "nvidia-smi", f'[[ "$*" == -L ]] || exit 1\n{answer}')
    root = _toolkit(clone.default_toolkit)
    line, found, _ = clone.cuda()
    assert found == (str(root) if here else "")
    assert (line == _NO_GPU) is not here


def test_the_environment_controls_cuda(clone):
    _toolkit(clone.default_toolkit)
    assert clone.cuda(LODESTAR_CUDA="off") == ("off", "", "")
    assert clone.cuda("--cuda=auto", LODESTAR_CUDA="off")[1]


def test_an_unknown_choice_of_cuda_is_an_error(clone):
    wanted = "must be auto, on, install or off, got 'yes'.\n"
    assert clone.error("--cuda=yes") == (2, f"configure.sh: --cuda {wanted}")
    assert clone.error(LODESTAR_CUDA="yes") == (
        2,
        f"configure.sh: $LODESTAR_CUDA {wanted}",
    )


def test_cuda_off_looks_for_nothing(clone):
    _toolkit(clone.default_toolkit)
    assert clone.cuda("--cuda=off") == ("off", "", "")


@pytest.mark.parametrize(
    ("asked", "code", "ptx"),
    [
        ("90,80", "sm_90 sm_80", "80"),
        ("80,90a", "sm_80 sm_90a", "90a"),
        ("90", "sm_90", "90"),
    ],
)
def test_requested_archs_are_used(clone, asked, code, ptx):
    _toolkit(clone.default_toolkit)
    line, _, archs = clone.cuda(f"--cuda-archs={asked}")
    assert archs == asked
    assert line.endswith(f"machine code for {code}, PTX of compute_{ptx}")


@pytest.mark.parametrize(
    ("asked", "wrong"),
    [
        ("80,sm_90", "sm_90"),
        ("80,,90", ""),
        ("80,", ""),
        ("9", "9"),
        ("80 90", "80 90"),
        ("90A", "90A"),
    ],
)
def test_an_arch_must_be_a_number(clone, asked, wrong):
    assert clone.error(f"--cuda-archs={asked}") == (
        2,
        "configure.sh: --cuda-archs must be numbers such as 80,90 or 90a, got "
        f"'{wrong}'.\n",
    )


def test_an_arch_that_nvcc_does_not_know_is_an_error(clone):
    root = _toolkit(clone.default_toolkit)
    assert clone.error("--cuda-archs=80,100") == (
        2,
        f"configure.sh: nvcc 13.0.88 ({root}/bin/nvcc) does not support '100' "
        "of --cuda-archs; it supports sm_80 sm_90.\n",
    )


def test_a_default_arch_that_nvcc_does_not_know_is_omitted(clone):
    old = _NVCC.replace("*compute_90,*|", "")
    _toolkit(clone.default_toolkit, "11.2.1", old)
    line, _, archs = clone.cuda()
    assert archs == "80"
    assert line.endswith("machine code for sm_80, PTX of compute_80")


def test_an_nvcc_without_the_default_archs_is_not_used(clone):
    older = _NVCC.replace("*compute_80,*|*compute_90,*|", "")
    root = _toolkit(clone.default_toolkit, "10.2.89", older)
    assert clone.cuda() == (
        f"CPU kernels only: {root}/bin/nvcc is 10.2.89, which supports none of "
        "80,90",
        "",
        "",
    )
