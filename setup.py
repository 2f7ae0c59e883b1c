"""What pyproject.toml cannot say of the wheel; tools/build_wheel.py runs this."""

import pathlib

import setuptools
from setuptools.command.bdist_wheel import bdist_wheel

if not list(pathlib.Path("python/lodestar/_ops").glob("*/*.so")):
    raise SystemExit(
        "lodestar: pip cannot compile the library. In a checkout run "
        "`./configure.sh && .venv/bin/bazel run //:wheel`, and pip install "
        "what that writes into dist/."
    )


class _Distribution(setuptools.Distribution):
    def has_ext_modules(self) -> bool:
        return True  # so that it is installed with libraries


class _Wheel(bdist_wheel):
    def get_tag(self) -> tuple[str, str, str]:
        # The library does not depend on Python's headers.
        return "py3", "none", super().get_tag()[2]


setuptools.setup(distclass=_Distribution, cmdclass={"bdist_wheel": _Wheel})
