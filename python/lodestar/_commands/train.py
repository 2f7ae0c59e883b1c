"""The command line of the servers of a cluster."""

import click

from lodestar._commands.parsing import Command, group

TRAIN = group(
    "train",
    "Run a parameter server or a worker of a cluster.",
    [
        Command(
            "server",
            help="Run a parameter server or a worker until SIGTERM or Ctrl-C. "
            "TF_CONFIG defines which one; the options override it.",
            params=[
                click.Option(
                    ["--cluster"],
                    metavar="JSON",
                    help='All tasks: {"ps": ["HOST:PORT", ...], '
                    '"worker": ["HOST:PORT", ...]}.',
                ),
                click.Option(
                    ["--job"],
                    metavar="JOB",
                    help="Job of this task: ps or worker.",
                ),
                click.Option(
                    ["--task"],
                    type=click.IntRange(min=0),
                    metavar="N",
                    help="Index of this task in its job, from 0.",
                ),
            ],
        )
    ],
)
