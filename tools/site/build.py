"""Builds the site into site/ of the checkout: bazel run //docs:site."""

import argparse
import logging
import os
import pathlib

from mkdocs.commands.build import build
from mkdocs.config import load_config
from mkdocs.exceptions import Abort

ROOT = pathlib.Path(__file__).resolve().parents[2]
# In every site, and rarely elsewhere.
_MARK = "search/search_index.json"


def main() -> None:
    """Builds the site; warnings are errors."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--output",
        type=pathlib.Path,
        default=ROOT / "site",
        help="output folder, emptied first (default: %(default)s)",
    )
    output = parser.parse_args().output
    # The user's working directory, not Bazel's.
    start = os.environ.get("BUILD_WORKING_DIRECTORY", os.getcwd())
    output = start / output
    if os.path.exists(output) and not os.path.exists(output / _MARK):
        if not os.path.isdir(output) or os.listdir(output):
            parser.error(f"{output} exists and is not a site of this program")
    logging.basicConfig(
        level=logging.WARNING, format="%(levelname)s: %(message)s"
    )
    os.chdir(ROOT)
    config = load_config("mkdocs.yml", strict=True, site_dir=str(output))
    try:
        build(config)
    except Abort as error:
        raise SystemExit(str(error)) from None
    print(f"{output}/index.html")


if __name__ == "__main__":
    main()
