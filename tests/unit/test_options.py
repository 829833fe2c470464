"""Settings are refused at start, with what is wrong about them."""

from typing import Any

import pytest

from makegood.errors import ConfigError
from makegood.options import Options


def test_durations_are_taken_in_every_form_and_read_as_seconds() -> None:
    options = Options(supervise_every="500ms", lease=3, poll_every=None)
    assert options.number("supervise_every") == 0.5
    assert options.number("lease") == 3.0
    assert options._poll_seconds is None
    assert Options()._poll_seconds == 1.0


@pytest.mark.parametrize(
    ("wrong", "pattern"),
    [
        ({"supervise_every": "fast"}, "supervise_every='fast'"),
        ({"max_tasks": 0}, "max_tasks=0"),
        ({"slots": -1}, "slots=-1"),
        ({"claim_batch": 1.5}, "claim_batch=1.5"),
        ({"dead_after": "1s", "heartbeat": "1s"}, "at least twice"),
        ({"poll_every": 0}, "poll_every=0"),
        ({"webhook_cause": "all"}, "webhook_cause='all': one of text, name, none"),
        (
            {"webhook_secrets": {"a b": "whsec_c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0"}},
            "webhook_secrets: 'a b' is not a host",
        ),
        ({"webhook_secrets": {"a.example": "s3cret"}}, "webhook_secrets of 'a.example': write whsec_"),
        ({"webhook_secrets": {"a.example": ""}}, "webhook_secrets of 'a.example': write whsec_"),
        ({"max_task_memory": "much"}, "max_task_memory='much' is not a size"),
        ({"queue_bytes": 0}, "queue_bytes=0 must be at least 1 B"),
    ],
)
def test_a_setting_that_cannot_be_meant_is_named(wrong: dict[str, Any], pattern: str) -> None:
    with pytest.raises(ConfigError, match=pattern):
        Options(**wrong)
