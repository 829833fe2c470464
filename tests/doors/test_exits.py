"""The exit codes are those that scripts were promised."""

import contextlib
import os
import signal
import subprocess
import sys

import pytest

from makegood import errors
from makegood.cli import exits
from tests.doors.conftest import BARE, Shop


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


@pytest.mark.parametrize(
    "words",
    [
        ("queue", "ack", "q", "99999999999999999999.1"),
        ("task", "undo", "--state", "pending", "--preview", "--limit", "99999999999999999999"),
        ("task", "list", "--limit", "9" * 5000),
        ("demo", "--stage", "--port", "99999"),
    ],
)
def test_a_number_that_is_too_large_is_a_usage_error(shop: Shop, words: tuple[str, ...]) -> None:
    refusal = shop.call(*words)
    assert refusal.exit_code == 2, refusal.output
    assert "is not a whole number" in refusal.stderr or "is not a receipt" in refusal.stderr


def test_a_setting_with_too_many_digits_is_refused(shop: Shop) -> None:
    refusal = shop.call("run", "kiosk:kiosk", MAKEGOOD_SLOTS="9" * 5000)
    assert refusal.exit_code == 2, refusal.output
    assert "a whole number of at least 1 is expected" in refusal.stderr


def test_ctrl_c_at_a_question_is_an_interrupt(shop: Shop) -> None:
    """And no usage error: somebody was there to answer."""
    shop.done("task", "submit", "kiosk:buy", '{"id": "o-1"}')
    ours, theirs = os.openpty()
    command = [sys.executable, "-m", "makegood", "task", "cancel", "--state", "pending"]
    environ = {**BARE, "MAKEGOOD_STORE": shop.url}
    with subprocess.Popen(
        command, cwd=shop.folder, env=environ, stdin=theirs, stderr=subprocess.PIPE
    ) as asking:
        os.close(theirs)
        assert asking.stderr is not None
        text = b""
        while b"[y/N]" not in text:
            text += os.read(asking.stderr.fileno(), 4096)
        while asking.poll() is None:  # Python does not see a signal that comes just before it begins to read
            asking.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                asking.wait(timeout=30)
        text += asking.stderr.read()
        assert asking.returncode == 130, text
    os.close(ours)
    assert b"--yes" not in text
