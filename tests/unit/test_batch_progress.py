"""What became of the tasks of an act on many."""

import pytest

from makegood.story.batch_progress import bulk_progress


@pytest.mark.parametrize(
    ("kind", "states", "text"),
    [
        ("undo", {"undone": 112, "undoing": 187}, "299 accepted; 112 undone, 187 to go, 0 stuck"),
        ("cancel", {"pending": 1, "processing": 2, "error": 1}, "4 accepted; 0 undone, 3 to go, 1 stuck"),
        ("undo", {"undone": 1299}, "1,299 undone"),
        ("resubmit", {"processed": 2, "undone": 1, "error": 1}, "2 processed, 1 stuck, 1 undone"),
        ("undo", {"processed": 1}, "0 undone, 1 processed"),
    ],
)
def test_an_act_is_not_done_when_its_commands_are_accepted(
    kind: str, states: dict[str, int], text: str
) -> None:
    assert bulk_progress(kind, states).text == text
