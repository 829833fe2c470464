"""An event loop that stood still is said, once a minute at most."""

import logging

import pytest

from makegood.node.loop_lag import Lateness


def test_a_sleep_that_lasted_too_long_is_said_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    lateness = Lateness()
    with caplog.at_level(logging.WARNING, "makegood.node"):
        lateness.note_sleep(1.0, 100.0, 101.9)
        assert caplog.messages == []
        for began in (200.0, 230.0, 300.0):
            lateness.note_sleep(1.0, began, began + 3.3)
    assert [text[:45] for text in caplog.messages] == ["the event loop was blocked for 2.3 s, and hea"] * 2
