"""States and the one table of lawful transitions.

``docs/concepts/lifecycle.md`` draws it; a test keeps the two equal. Every move a Decision makes is looked up here, and
one Decision may chain several. The reasons stand beside the moves.
"""

from typing import Literal

TaskState = Literal["pending", "processing", "processed", "undoing", "undone", "error"]
StepState = Literal[
    "waiting",
    "ready",
    "running",
    "done",
    "failed",
    "in_doubt",
    "undoing",
    "undone",
    "undo_failed",
    "kept",
    "skipped",
]
Goal = Literal["forward", "undo", "hold"]
"""Where a task is going: forward, taking its effects back, or waiting to be handed to an operator."""
