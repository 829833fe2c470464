"""The exit codes are those that scripts were promised."""

import pytest

from makegood import errors
from makegood.cli import exits


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (errors.MakegoodError, 1),
        (errors.ConfigError, 2),
        (errors.DefinitionError, 1),
        (errors.KeyConflict, 4),
        (errors.PayloadError, 2),
        (errors.StoreError, 1),
        (errors.TaskNotFoundError, 3),
        (errors.ActRefusedError, 4),
        (errors.TaskUndone, 5),
        (errors.TaskInError, 6),
        (errors.WaitExpiredError, 7),
        (errors.StoreUnavailableError, 8),
        (errors.SchemaMismatchError, 9),
    ],
)
def test_every_error_has_its_code(kind: type[errors.MakegoodError], code: int) -> None:
    """The table of the reference, row by row."""
    assert exits.code_of(kind("said")) == code


def test_the_outcome_of_a_task_is_its_code() -> None:
    """Processed 0, undone 5, in error 6; a task that is not at rest was waited for too short."""
    states = ("processed", "undone", "error", "processing")
    assert [exits.outcome(state) for state in states] == [0, 5, 6, 7]


def test_of_many_the_highest_of_refused_undone_error_wins() -> None:
    """So that a script sees that one of many was refused even if another was not found."""
    assert exits.of_many([0, 4, 6, 5, 0]) == 6
    assert exits.of_many([3, 4]) == 4
    assert exits.of_many([0, 3, 8]) == 8
    assert exits.of_many([]) == 0
