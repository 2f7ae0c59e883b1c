"""Promises of optimizers for tables in this process and on two devices of it."""

import pytest
from optimizer_cases import (  # noqa: F401
    test_a_refused_gradient_leaves_those_that_wait,
    test_a_row_that_changes_meanwhile_is_updated_as_it_is_then,
    test_an_export_goes_into_another_table,
    test_an_update_that_fails_changes_nothing,
    test_no_update_is_lost,
    test_the_optimizer_of_a_table_accumulates_with_the_wrapper,
    test_waiting_gradients_are_saved,
)


@pytest.fixture(
    params=[None, ["/CPU:0", "/CPU:1"]], ids=["here", "on two devices"]
)
def devices(request):
    return request.param
