"""The command line of the servers of a cluster."""

import click

from lodestar._commands.parsing import Command, group, option

TRAIN = group(
    "train",
    "Run a parameter server or a worker of a cluster.",
    [
        Command(
            "server",
            help="Run a parameter server or a worker until SIGTERM or Ctrl-C. "
            "TF_CONFIG defines which one; the options override it.",
            params=[
                option(
                    "--cluster",
                    'All tasks: {"ps": ["HOST:PORT", ...], '
                    '"worker": ["HOST:PORT", ...]}.',
                    metavar="JSON",
                ),
                option(
                    "--job", "Job of this task: ps or worker.", metavar="JOB"
                ),
                option(
                    "--task",
                    "Index of this task in its job, from 0.",
                    click.IntRange(min=0),
                    "N",
                ),
            ],
        )
    ],
)
