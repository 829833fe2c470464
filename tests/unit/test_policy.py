"""``policy.verdict`` is the one place that says retry, wait longer, undo or hold."""

import pytest

from makegood.model.policy import Then, verdict


@pytest.mark.parametrize("then", ["undo", "hold"])
@pytest.mark.parametrize("threshold", [0, 1, 3, 10])
def test_up_to_the_threshold_then_longer_then_the_verdict(threshold: int, then: Then) -> None:
    """Failures up to ``threshold`` wait ``wait``, one more try waits ``extended``, then ``then``; for ever."""
    verdicts = [verdict(n, threshold, then) for n in range(threshold + 5)]
    assert verdicts == ["retry"] * (threshold + 1) + ["extended"] + [then] * 3


def test_no_failure_is_no_verdict() -> None:
    """A step in doubt whose count begins anew is tried at once, whatever its threshold."""
    assert verdict(0, 0, "undo") == "retry"
