"""The command line of ctr_distributed."""

import argparse
import shlex

import ctr_cluster

from lodestar.command_line import Parser, at_least, names, path, positive

_DATA = ("files", "slots", "first_day", "last_day")


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Reads the command line; ends the process where it is wrong.

    Returns:
        The options; `task` is this process's place in a cluster, or None.
    """
    parser = Parser(
        prog="ctr_distributed",
        description="Trains a click model, one pass over the files of each day,"
        " by threads of one process or by a cluster of parameter servers and"
        " trainers. The same command goes on with the days after the latest"
        " model in the output folder. Without --files it generates a click log.",
    )

    def add(group, flag, type, help, default=None, metavar="N", **more):
        if default is not None:
            help += " (default: %(default)s)"
        group.add_argument(
            flag, type=type, help=help, default=default, metavar=metavar, **more
        )

    data = parser.add_argument_group("data")
    text = "MultiSlot files: a path with codes for the day, as log/%%Y%%m%%d/part-*"
    add(data, "--files", str, text, metavar="PATTERN")
    add(data, "--schema", path, "schema file of --files", metavar="FILE")
    add(data, "--first-day", str, "as 2026-01-31", metavar="DAY")
    text = "the day after those that are trained on: held out, to score"
    add(data, "--last-day", str, text, metavar="DAY")
    text = "command through which each file goes, as 'python clean.py'"
    add(data, "--pipe-command", shlex.split, text, metavar="COMMAND")
    text = (
        "threads of a process that read files; those of a process that is alone"
        " train, too"
    )
    add(data, "--reader-threads", at_least(1), text, 2)
    add(data, "--days", at_least(2), "of the generated log", 4)
    add(data, "--examples", at_least(1000), "of a generated day", 40_000)

    training = parser.add_argument_group("training")
    add(training, "--embedding-dim", at_least(1), "width of a row", 16)
    text = "id that stands for none; negative: each is an id"
    add(training, "--padding-id", int, text, 0)
    add(training, "--batch-size", at_least(1), "examples a step", 512)
    add(training, "--learning-rate", positive, "of Adagrad", 0.02, "X")
    # NumPy takes no larger seed.
    add(training, "--seed", at_least(0, 2**32 - 1), "of first values", 0)
    add(training, "--print-period", at_least(1), "steps between two lines", 50)
    text = "days between two models that are saved; the last one always is"
    add(training, "--save-every", at_least(1), text, 1)
    text = "folder for models and the export; all processes see it"
    add(parser, "--output", path, text, path("ctr_distributed_output"), "DIR")

    cluster = parser.add_argument_group(
        "cluster", "TF_CONFIG in place of these is as good"
    )
    text = "of this process; trainer 0 runs the training"
    cluster.add_argument("--role", choices=("PSERVER", "TRAINER"), help=text)
    addresses = "HOST:PORT,..."
    text = "all parameter servers"
    add(cluster, "--endpoints", names, text, metavar=addresses)
    text = "which of --endpoints this PSERVER is"
    add(cluster, "--current_endpoint", str, text, metavar="HOST:PORT")
    add(cluster, "--trainers", at_least(1), "how many")
    text = "which of them this TRAINER is, from 0"
    add(cluster, "--trainer_id", at_least(0), text)
    text = (
        "all trainers (default: on the host of the endpoints, the ports after"
        " that of the last)"
    )
    add(cluster, "--trainer_endpoints", names, text, metavar=addresses)
    text = (
        "start 2 parameter servers and 2 trainers on this machine, then one"
        " process alone, and compare them"
    )
    loopback = argparse.BooleanOptionalAction
    parser.add_argument("--loopback", action=loopback, help=text)

    options = parser.parse_args(arguments)
    given = [name for name in _DATA if getattr(options, name) is not None]
    if given and len(given) < len(_DATA):
        flags = [f"--{name.replace('_', '-')}" for name in _DATA]
        parser.error(f"give all of {', '.join(flags)}, or none")
    if options.padding_id < 0:
        options.padding_id = None
    # Processes may stand in other folders.
    options.output = options.output.absolute()
    options.task = None
    if options.loopback:
        if options.role:
            parser.error("--loopback starts processes of all roles")
    else:
        try:
            options.task = ctr_cluster.find_task(options)
        except ValueError as error:
            parser.error(str(error))
    return options
