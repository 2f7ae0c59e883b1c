"""From what the command line names to files to train on."""

import dataclasses
import os
import pathlib
import warnings
from typing import Any

import folder
import tensorflow as tf
from errors import InputError
from inputs import CONVERTED, Inputs, find_inputs
from options import Options
from reader import Reader
from summary import summarize

from lodestar.data import (
    DataError,
    MultiSlotWriter,
    SlotSpec,
    Source,
    describe_error,
    generate_click_log,
    split_samples,
)

_GENERATED_FILES = 12
_EVALUATED_FILES = 2  # the last ones in time
# A part of a file has neither its number of samples nor, as its keys have been
# shifted, its slot sizes.
_OF_WHOLE_FILES = ("num_samples", "slot_size_array")


@dataclasses.dataclass(frozen=True)
class Data:
    """Examples to train on and to evaluate on.

    Attributes:
        slots_file: Slot file of all files.
        format: Of all files.
        options: Of the format's dataset.
        train_files: What to train on.
        eval_files: What to evaluate on.
        train_examples: Number of examples in `train_files`.
        eval_examples: Number of examples in `eval_files`.
        mean: Of the squashed dense values of `train_files`.
        variance: As `mean`.
        best_auc: The AUC of the true probabilities of `eval_files`, where they
            are known.
        ordered: Whether the examples are in the order of time.
    """

    slots_file: str
    format: str
    options: dict[str, Any]
    train_files: list[str]
    eval_files: list[str]
    train_examples: int
    eval_examples: int
    mean: list[float]
    variance: list[float]
    best_auc: float | None
    ordered: bool

    @property
    def reader(self) -> Reader:
        """What reads the files."""
        slots = SlotSpec.from_yaml(self.slots_file)
        return Reader(self.format, self.options, slots)


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
    inputs = find_inputs(options) if options.data else None
    source = _source(options, inputs)
    found = folder.read_json(path / "data.json")
    if found is None:
        if path.exists():
            raise InputError(
                f"{path}: there is such a folder, but it holds no data of this "
                "program; name another --output"
            )
        with folder.new_folder(path) as partial:
            print(f"Preparing data in {path} ...", flush=True)
            data = _make(options, inputs, partial)
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
                f"{path}: was made of other data or with other options, as "
                "--seed or --slots; name another --output"
            )
    return dataclasses.replace(
        data,
        slots_file=str(path / data.slots_file),
        # A file outside the folder has an absolute path, which stays.
        train_files=[str(path / name) for name in data.train_files],
        eval_files=[str(path / name) for name in data.eval_files],
    )


def _source(options: Options, inputs: Inputs | None) -> dict[str, Any]:
    """What the prepared data depends on, to know whether it still fits."""
    if inputs is None:
        return {"examples": options.examples, "seed": options.seed}
    return {
        **inputs.stamp(),
        "eval_fraction": options.eval_fraction,
        "seed": options.seed,
    }


def _make(options: Options, inputs: Inputs | None, path: pathlib.Path) -> Data:
    """Fills the folder; paths in the result are relative to it."""
    if inputs is None:
        return _generated(options, path)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        source = inputs.open()
    for warning in caught:
        print(f"Note: {warning.message}")
    source.spec.to_yaml(path / "slots.yaml")
    if inputs.format in CONVERTED:
        reader, files = _converted(source, path)
    else:
        reader = Reader(inputs.format, inputs.options, source.spec)
        files = source.paths
        # Now, so that errors name samples of these and not of parts of them.
        summarize(files, reader)
    train, held_out = files[: len(inputs.train)], files[len(inputs.train) :]
    if not held_out:
        reader, train, held_out = _split(
            options, path, reader, train, inputs.train
        )
    evaluation = ", ".join(map(str, options.eval_data or options.data))
    return _summarized(path, reader, train, held_out, evaluation)


def _generated(options: Options, path: pathlib.Path) -> Data:
    log = generate_click_log(
        path, options.examples, _GENERATED_FILES, seed=options.seed
    )
    names = [os.path.basename(name) for name in log.files]
    first = len(names) - _EVALUATED_FILES
    return _summarized(
        path,
        Reader("multislot", {}, SlotSpec.from_yaml(log.slots_file)),
        names[:first],
        names[first:],
        "the generated log",
        best_auc=log.best_auc(first),
        ordered=True,
    )


def _converted(source: Source, path: pathlib.Path) -> tuple[Reader, list[str]]:
    """MultiSlot files in `path` that hold what CSV files do."""
    names = []
    for file in source.paths:
        names.append(f"examples-{len(names)}.multislot")
        with MultiSlotWriter(path / names[-1], source.spec) as writer:
            for columns in source.batches(file):
                writer.write_batch(columns)
    return Reader("multislot", {}, source.spec), names


def _split(options, path, reader, files, originals):
    """Holds a random part of each file out; both parts lie in `path`.

    They are of the files' format, and what reads them is returned first.
    """
    train, held_out = [], []
    for index, (file, original) in enumerate(zip(files, originals)):
        train.append(f"train-{index}.{reader.format}")
        held_out.append(f"eval-{index}.{reader.format}")
        try:
            split_samples(
                path / file,
                path / train[-1],
                path / held_out[-1],
                fraction=options.eval_fraction,
                seed=options.seed + index,
                format=reader.format,
                slots=reader.slots,
                **reader.options,
            )
        except DataError as error:
            # A converted file means nothing to the user.
            text = str(error).replace(str(path / file), original)
            raise InputError(text) from error
        if file != original:  # converted for this only
            os.remove(path / file)
    left = {
        name: value
        for name, value in reader.options.items()
        if name not in _OF_WHOLE_FILES
    }
    return dataclasses.replace(reader, options=left), train, held_out


def _summarized(
    path, reader, train, held_out, evaluation, *, best_auc=None, ordered=False
) -> Data:
    """The result; errors call what is evaluated on by `evaluation`."""
    trained = summarize([path / name for name in train], reader)
    evaluated = summarize([path / name for name in held_out], reader)
    if evaluated.positives in (0, evaluated.examples):
        raise InputError(
            f"{evaluation}: all {evaluated.examples} labels to evaluate on are "
            f"{min(evaluated.positives, 1)}, wanted both 0 and 1"
        )
    return Data(
        slots_file="slots.yaml",
        format=reader.format,
        options=dict(reader.options),
        train_files=list(map(str, train)),
        eval_files=list(map(str, held_out)),
        train_examples=trained.examples,
        eval_examples=evaluated.examples,
        mean=trained.mean,
        variance=trained.variance,
        best_auc=best_auc,
        ordered=ordered,
    )
