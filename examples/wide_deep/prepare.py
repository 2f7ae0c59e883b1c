"""From what the command line names to MultiSlot files to train on."""

import dataclasses
import os
import pathlib
from typing import Any

import folder
import tensorflow as tf
from errors import InputError
from options import Options
from summary import summarize

from lodestar.data import (
    DataError,
    SlotSpec,
    convert_csv,
    describe_error,
    generate_click_log,
    slots_path,
    split_samples,
)

_GENERATED_FILES = 12
_EVALUATED_FILES = 2  # the last ones in time


@dataclasses.dataclass(frozen=True)
class Data:
    """Examples to train on and to evaluate on.

    Attributes:
        slots_file: Slot file of all files.
        train_files: MultiSlot files.
        eval_files: MultiSlot files.
        train_examples: Number of lines in `train_files`.
        eval_examples: Number of lines in `eval_files`.
        mean: Of the squashed dense values of `train_files`.
        variance: As `mean`.
        best_auc: The AUC of the true probabilities of `eval_files`, where they
            are known.
        ordered: Whether the lines are in the order of time.
    """

    slots_file: str
    train_files: list[str]
    eval_files: list[str]
    train_examples: int
    eval_examples: int
    mean: list[float]
    variance: list[float]
    best_auc: float | None
    ordered: bool

    @property
    def slots(self) -> SlotSpec:
        """What an example holds."""
        return SlotSpec.from_yaml(self.slots_file)


def prepare(options: Options) -> Data:
    """Generates, converts or splits, once: later runs find it in the output.

    Raises:
        InputError: A file, the label or the output folder cannot be used;
            nothing is left behind.
    """
    try:
        return _prepare(options, options.output / "data")
    except (tf.errors.OpError, OSError, ValueError) as error:
        raise InputError(describe_error(error)) from error


def _prepare(options: Options, path: pathlib.Path) -> Data:
    source = _source(options)
    found = folder.read_json(path / "data.json")
    if found is None:
        if path.exists():
            raise InputError(
                f"{path}: there is such a folder, but it holds no data of this "
                "program; name another --output"
            )
        with folder.new_folder(path) as partial:
            print(f"Preparing data in {path} ...", flush=True)
            data = _make(options, partial)
            folder.write_json(
                partial / "data.json",
                {"source": source, "data": dataclasses.asdict(data)},
            )
    else:
        try:
            found_source, data = found["source"], Data(**found["data"])
        except (KeyError, TypeError) as error:
            raise InputError(
                f"{path / 'data.json'}: was not written by this program; name "
                "another --output"
            ) from error
        if found_source != source:
            raise InputError(
                f"{path}: was made of other data or with another --seed, "
                "--label, --slots or --eval-fraction; name another --output"
            )
    return dataclasses.replace(
        data,
        slots_file=str(path / data.slots_file),
        # A file outside the folder has an absolute path, which stays.
        train_files=[str(path / name) for name in data.train_files],
        eval_files=[str(path / name) for name in data.eval_files],
    )


def _source(options: Options) -> dict[str, Any]:
    """What the prepared data depends on, to know whether it still fits."""
    if not options.data:
        return {"examples": options.examples, "seed": options.seed}

    def stamp(path: pathlib.Path | None):
        if path is None:
            return None
        status = os.stat(path)
        return [str(path.absolute()), status.st_size, status.st_mtime_ns]

    return {
        "data": [stamp(path) for path in options.data],
        "eval_data": [stamp(path) for path in options.eval_data or ()],
        "label": options.label,
        "slots": stamp(options.slots),
        "eval_fraction": options.eval_fraction,
        "seed": options.seed,
    }


def _make(options: Options, path: pathlib.Path) -> Data:
    """Fills the folder; paths in the result are relative to it."""
    if not options.data:
        return _generated(options, path)
    train, held_out = options.data, options.eval_data or []
    if options.label:
        slots, train, held_out = _converted(
            options.label, path, train, held_out
        )
    else:
        slots = SlotSpec.from_yaml(options.slots)
        _check(slots, options.slots)
        # Now, so that errors name lines of these and not of parts of them.
        summarize([*train, *held_out], slots)
        train = [file.absolute() for file in train]
        held_out = [file.absolute() for file in held_out]
    slots.to_yaml(path / "slots.yaml")
    if not held_out:
        train, held_out = _split(options, path, train)
    evaluation = ", ".join(map(str, options.eval_data or options.data))
    return _summarized(path, slots, train, held_out, evaluation)


def _generated(options: Options, path: pathlib.Path) -> Data:
    log = generate_click_log(
        path, options.examples, _GENERATED_FILES, seed=options.seed
    )
    names = [os.path.basename(name) for name in log.files]
    first = len(names) - _EVALUATED_FILES
    return _summarized(
        path,
        SlotSpec.from_yaml(log.slots_file),
        names[:first],
        names[first:],
        "the generated log",
        best_auc=log.best_auc(first),
        ordered=True,
    )


def _converted(label, path, train, held_out):
    """Slots of CSV files, and MultiSlot files in `path` for them."""
    slots, names = None, []
    for source in [*train, *held_out]:
        name = f"examples-{len(names)}.txt"
        # What the first file takes for numbers are numbers in the others.
        kinds = {}
        if slots is not None:
            kinds["numeric"] = slots.names("dense")
            kinds["categorical"] = slots.names("sparse")
        found = convert_csv(source, path / name, label=label, **kinds)
        if slots is not None and found != slots:
            raise InputError(
                f"{source}: the columns differ from those of {train[0]}"
            )
        slots = found
        os.remove(slots_path(path / name))
        names.append(name)
    return slots, names[: len(train)], names[len(train) :]


def _split(options, path, whole):
    """Holds a random part of each file out; both parts lie in `path`."""
    train, held_out = [], []
    for index, source in enumerate(whole):
        train.append(f"train-{index}.txt")
        held_out.append(f"eval-{index}.txt")
        try:
            split_samples(
                path / source,
                path / train[-1],
                path / held_out[-1],
                fraction=options.eval_fraction,
                seed=options.seed + index,
            )
        except DataError as error:
            # A converted file means nothing to the user.
            text = str(error).replace(
                str(path / source), str(options.data[index])
            )
            raise InputError(text) from error
        if options.label:  # converted for this only
            os.remove(path / source)
    return train, held_out


def _summarized(
    path, slots, train, held_out, evaluation, *, best_auc=None, ordered=False
) -> Data:
    """The result; errors call what is evaluated on by `evaluation`."""
    trained = summarize([path / name for name in train], slots)
    evaluated = summarize([path / name for name in held_out], slots)
    if evaluated.positives in (0, evaluated.examples):
        raise InputError(
            f"{evaluation}: all {evaluated.examples} labels to evaluate on are "
            f"{min(evaluated.positives, 1)}, wanted both 0 and 1"
        )
    return Data(
        slots_file="slots.yaml",
        train_files=list(map(str, train)),
        eval_files=list(map(str, held_out)),
        train_examples=trained.examples,
        eval_examples=evaluated.examples,
        mean=trained.mean,
        variance=trained.variance,
        best_auc=best_auc,
        ordered=ordered,
    )


def _check(slots: SlotSpec, path: pathlib.Path) -> None:
    if len(slots.labels) != 1 or not slots.labels[0].binary:
        raise InputError(
            f"{path}: wanted one label slot of 0 and 1, found "
            f"{[slot.name for slot in slots.labels]}"
        )
    for slot in slots.sparse:
        if slot.dtype != "uint64":
            raise InputError(
                f"{path}: sparse slot {slot.name!r} is of float, wanted ids"
            )
    if len(slots) == 1:
        raise InputError(f"{path}: no feature slot beside the label")
