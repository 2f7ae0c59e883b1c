"""fit, evaluate, schedule and predict on two servers and two workers."""

import pytest
from processes import Interpreter, run_program


@pytest.fixture(scope="module")
def run():
    """Returns a function that runs programs, all in one process."""
    with Interpreter() as process:

        def run(name, *arguments, of="fit_programs"):
            process.run(f"import {of}; {of}.{name}(*{arguments!r})")

        yield run


FIT = """
one_step_a_round_is_model_fit
steps_of_all_workers_are_counted
data_is_read_once_an_epoch
callbacks_are_called_between_rounds
a_callback_stops_training
validation_is_every_nth_epoch
the_sum_of_gradients_is_pushed
a_push_that_is_run_again_moves_no_dense_weight
what_layers_keep_is_kept
rows_of_tables_are_trained_on_the_servers
what_cannot_be_trained_is_named
an_error_of_a_step_ends_all_and_is_raised
training_goes_on_without_a_killed_worker
training_waits_for_its_workers
tables_take_each_update_once
""".split()
SCHEDULE = """
steps_are_scheduled_once
rejected_steps_change_nothing
a_dense_gradient_is_checked_first
servers_equal_one_process
few_tensors_are_sent
""".split()


@pytest.mark.parametrize("name", FIT)
def test_fit(name, run):
    run(name)


@pytest.mark.parametrize("name", SCHEDULE)
def test_schedule(name, run):
    run(name, of="schedule_programs")


def test_predict(run):
    run("outputs_are_in_the_order_of_batches", of="predict_programs")


def test_an_element_of_unknown_rank(run):
    run("an_element_of_unknown_rank_is_named", of="going_on_programs")


def test_an_epoch_has_no_batch_left(run, tmp_path):
    run("an_epoch_has_no_batch_left", str(tmp_path), of="going_on_programs")


def test_keras_restores_where_it_was(run, tmp_path):
    run("keras_restores_where_it_was", str(tmp_path))


def test_a_lost_parameter_server_is_named(run, fork, tmp_path):
    # The last program, because it loses a server.
    run(
        "a_lost_parameter_server_is_named",
        str(tmp_path),
        of="going_on_programs",
    )
    name = "training_goes_on_from_a_snapshot"
    fork(
        *(run_program, "going_on_programs", name, str(tmp_path)), SERVERS="3"
    ).read()
