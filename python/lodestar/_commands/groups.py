"""The installed command and its groups, by module."""

import click

from lodestar._commands.data import DATA
from lodestar._commands.parsing import group
from lodestar._commands.snapshot import SNAPSHOT
from lodestar._commands.train import TRAIN
from lodestar.version import __version__

LODESTAR = click.version_option(
    __version__, prog_name="Lodestar", message="%(prog)s %(version)s"
)(
    group(
        "lodestar", "Sparse features for TensorFlow 2.", [DATA, SNAPSHOT, TRAIN]
    )
)
# The command of each `python -m` module.
GROUPS = {
    "lodestar": LODESTAR,
    "lodestar.data": DATA,
    "lodestar.snapshot": SNAPSHOT,
    "lodestar.train": TRAIN,
}
