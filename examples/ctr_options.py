"""The command line of ctr_distributed."""

import shlex
import types

import click
import ctr_cluster

from lodestar import _command_line

_DATA = ("files", "schema", "first_day", "last_day")
_ADDRESSES = "HOST:PORT,..."


def _option(flag, help, type=None, default=None, metavar="N"):
    return click.Option(
        [flag], type=type, default=default, metavar=metavar, help=help
    )


def _at_least(least):
    return click.IntRange(least)


def _check(**params):
    given = [name for name in _DATA if params[name] is not None]
    if given and len(given) < len(_DATA):
        flags = [f"--{name.replace('_', '-')}" for name in _DATA]
        raise click.UsageError(f"Give all of {', '.join(flags)}, or none.")
    if params["loopback"]:
        if params["role"]:
            raise click.UsageError("--loopback starts processes of all roles.")
        return
    try:
        ctr_cluster.find_task(types.SimpleNamespace(**params))
    except ValueError as error:
        raise click.UsageError(str(error)) from error


_COMMAND = _command_line.Command(
    "ctr_distributed",
    [
        _option(
            "--files",
            "MultiSlot files: a path with codes for the day, e.g. "
            "log/%Y%m%d/part-*.",
            metavar="PATTERN",
        ),
        _option(
            "--schema",
            "Schema file of --files.",
            _command_line.path,
            None,
            "FILE",
        ),
        _option("--first-day", "First day, e.g. 2026-01-31.", metavar="DAY"),
        _option(
            "--last-day",
            "The held-out day, after the training days.",
            metavar="DAY",
        ),
        _option(
            "--pipe-command",
            "Command that preprocesses each file, e.g. 'python clean.py'.",
            shlex.split,
            metavar="COMMAND",
        ),
        _option(
            "--reader-threads",
            "Threads that read files in each process; a single process also "
            "trains with them.",
            _at_least(1),
            2,
        ),
        _option("--days", "Days of the generated log.", _at_least(2), 4),
        _option(
            "--examples",
            "Examples of a generated day.",
            _at_least(1000),
            40_000,
        ),
        _option("--embedding-dim", "Embedding dimension.", _at_least(1), 16),
        _option(
            "--padding-id",
            "Id that means no id; negative: none.",
            int,
            0,
        ),
        _option("--batch-size", "Examples per step.", _at_least(1), 512),
        _option(
            "--learning-rate",
            "Learning rate of Adagrad.",
            _command_line.positive,
            0.02,
            "X",
        ),
        # NumPy's maximum seed.
        _option(
            "--seed", "Seed of initial values.", click.IntRange(0, 2**32 - 1), 0
        ),
        _option(
            "--print-period",
            "Steps between two progress lines.",
            _at_least(1),
            50,
        ),
        _option(
            "--save-every",
            "Days between two saved models; the last one is always saved. 0 "
            "saves after a day if that takes at most 2 % of the time trained "
            "since the last model was saved.",
            _at_least(0),
            1,
        ),
        _option(
            "--output",
            "Folder for models and the export, shared by all processes.",
            _command_line.path,
            "ctr_distributed_output",
            "DIR",
        ),
        # TF_CONFIG can replace these options.
        click.Option(
            ["--role"],
            type=click.Choice(["PSERVER", "TRAINER"]),
            help="Role of this process; trainer 0 runs the training.",
        ),
        _option(
            "--endpoints",
            "All parameter servers.",
            _command_line.comma_separated(),
            metavar=_ADDRESSES,
        ),
        _option(
            "--current_endpoint",
            "Endpoint of this PSERVER.",
            metavar="HOST:PORT",
        ),
        _option("--trainers", "Number of trainers.", _at_least(1)),
        _option(
            "--trainer_id",
            "Index of this TRAINER, from 0.",
            _at_least(0),
        ),
        _option(
            "--trainer_endpoints",
            "All trainers.  [default: the host of the endpoints, with the "
            "ports after the last one]",
            _command_line.comma_separated(),
            metavar=_ADDRESSES,
        ),
        click.Option(
            ["--loopback/--no-loopback"],
            help="Start 2 parameter servers and 2 trainers on this machine, then "
            "one process alone, and compare them.",
        ),
    ],
    help="Trains a click model, one pass over the files of each day, by threads "
    "of one process or by a cluster of parameter servers and trainers. The same "
    "command resumes with the days after the latest model in the output folder. "
    "Without --files it generates a click log. TF_CONFIG may define the cluster "
    "in place of the options.",
    callback=_check,
)


def parse(arguments: list[str] | None = None) -> types.SimpleNamespace:
    """Parses the command line; ends the process where it is not valid.

    Returns:
        The options; `task` is this process's place in a cluster, or None.
    """
    params = _command_line.parse(_COMMAND, arguments).params
    options = types.SimpleNamespace(**params)
    if options.padding_id < 0:
        options.padding_id = None
    # Processes may have other working directories.
    options.output = options.output.absolute()
    options.task = None if options.loopback else ctr_cluster.find_task(options)
    return options
