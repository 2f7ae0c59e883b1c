"""The whole job: data, training, evaluation, export, serving, a table."""

# First: it quiets TensorFlow's start.
import lodestar

# isort: split
import folder
import keras
import model as models
import numpy as np
import report
import tensorflow as tf
from dense_tables import DenseTable
from errors import InputError
from options import Options
from prepare import Data, prepare
from serving import serve_in_new_process
from summary import vocabulary
from training import Checkpoints, compile_model, train

from examples import Examples
from lodestar.data import describe_error, exact_auc

_EVAL_BATCH_SIZE = 4096
# Of two ways to run the same arithmetic.
_TOLERANCE = 1e-5


def run(options: Options) -> int:
    """Does what the command line asks; returns the exit code.

    Raises:
        InputError: A file or folder cannot be used, or no longer.
    """
    # As with TensorFlow's other log: what matters is said by us.
    tf.get_logger().setLevel("ERROR")
    try:
        return _run(options)
    except lodestar.export.MismatchError as error:
        print(f"The exported model is not the model: {error}")
        return 1
    except (OSError, tf.errors.OpError) as error:
        raise InputError(describe_error(error)) from error


def _run(options: Options) -> int:
    keras.utils.set_random_seed(options.seed)
    data = prepare(options)
    _check_settings(options)
    training = Examples(
        data.train_files,
        data.reader,
        data.train_examples,
        options.batch_size,
        shuffle=not (data.ordered or options.keep_order),
        seed=options.seed,
    )
    evaluation = Examples(
        data.eval_files, data.reader, data.eval_examples, _EVAL_BATCH_SIZE
    )
    slots = data.reader.used
    deep, wide = models.dynamic_tables(slots, options.seed)
    model = models.wide_and_deep(
        slots,
        *models.dynamic_look_ups(slots, deep, wide),
        data.mean,
        data.variance,
    )
    compile_model(model, options.learning_rate)
    checkpoints = Checkpoints(model, options.output / "checkpoints")
    checkpoints.restore()
    steps = options.epochs * training.steps
    report.show_slots(data.reader.slots)
    _announce(checkpoints.steps, steps, options.batch_size)
    speed = train(
        model,
        training,
        options.epochs,
        checkpoints,
        options.checkpoint_steps,
    )

    labels, scores = _score(model, evaluation)
    exported = options.output / "saved_model"
    print(f"Exporting to {exported}, serving it in a new process ...")
    lodestar.export.saved_model(model, exported)
    features, _ = next(iter(evaluation.dataset()))
    lodestar.export.verify(model, exported, features, atol=_TOLERANCE)
    served = serve_in_new_process(
        exported, data.slots_file, data.format, data.options, data.eval_files
    )
    difference = float(np.max(np.abs(served - scores)))

    baseline = None
    if options.baseline:
        model = _baseline(options, data)
        train(model, training, options.epochs)
        baseline = exact_auc(*_score(model, evaluation))
    report.show(
        report.Results(
            steps=steps,
            examples_per_second=speed,
            auc=exact_auc(labels, scores),
            best_auc=data.best_auc,
            baseline_auc=baseline,
            accuracy=float(np.mean((scores > 0.5) == (labels > 0.5))),
            tables=[deep, wide],
            checkpoint_bytes=folder.size_on_disk(checkpoints.latest),
            saved_model_bytes=folder.size_on_disk(exported),
            served=len(served),
            difference=difference,
        )
    )
    if not difference < _TOLERANCE:
        print(
            f"The served scores differ by {difference:.1e}, wanted less than "
            f"{_TOLERANCE:.0e}."
        )
        return 1
    return 0


def _check_settings(options: Options) -> None:
    """Refuses to go on with settings that would make another model."""
    path = options.output / "settings.json"
    settings = {
        "batch_size": options.batch_size,
        "keep_order": options.keep_order,
        "learning_rate": options.learning_rate,
    }
    found = folder.read_json(path)
    if found is None:
        folder.write_json(path, settings)
    elif found != settings:
        raise InputError(
            f"{path}: training began with {found}, cannot go on with "
            f"{settings}; name another --output"
        )


def _announce(done: int, steps: int, batch_size: int) -> None:
    if done >= steps:
        print(f"Training is finished: {done} steps are done. Evaluating again.")
    elif done:
        print(f"Resuming from the checkpoint of step {done} of {steps}.")
    else:
        print(f"Training {steps} steps of {batch_size} examples.")


def _score(
    model: keras.Model, examples: Examples
) -> tuple[np.ndarray, np.ndarray]:
    """Labels and the model's probabilities, `[N]` each."""
    dataset = examples.dataset()
    labels = np.concatenate([label.numpy() for _, label in dataset])
    scores = model.predict(dataset, verbose=0)
    return labels.reshape(-1), scores.reshape(-1)


def _baseline(options: Options, data: Data) -> keras.Model:
    """The same model on tables that have to know every id beforehand."""
    print("Training the same model on keras.layers.Embedding.")
    keras.utils.set_random_seed(options.seed)
    slots = data.reader.used
    ids = vocabulary(data.train_files, data.reader)
    wide_ids = {name: ids[name] for name in models.wide_names(slots)}
    model = models.wide_and_deep(
        slots,
        DenseTable(ids, models.DEEP_DIM, "mean"),
        DenseTable(wide_ids, 1, "sum", "zeros"),
        data.mean,
        data.variance,
    )
    compile_model(model, options.learning_rate)
    return model
