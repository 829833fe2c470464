"""Tasks of real runs, as the store showed them: ``python -m tests.console.record`` records them again."""

from pathlib import Path

import msgspec

from makegood.store.views import AlertView, AuditView, EventView, NodeView, TaskDetail

FOLDER = Path(__file__).parent / "recorded"


class Recorded(msgspec.Struct, frozen=True):
    """One task with all that its page reads."""

    detail: TaskDetail
    events: list[EventView]
    audits: list[AuditView]
    alerts: list[AlertView]
    nodes: list[NodeView]
    now: float


def names() -> list[str]:
    """Return the recorded tasks."""
    return sorted(path.stem for path in FOLDER.glob("*.json"))


def recorded(name: str) -> Recorded:
    """Return a recorded task."""
    return msgspec.json.decode((FOLDER / f"{name}.json").read_bytes(), type=Recorded)


def keep(name: str, task: Recorded) -> None:
    """Write a recorded task."""
    FOLDER.mkdir(exist_ok=True)
    text = msgspec.json.encode(task)
    (FOLDER / f"{name}.json").write_bytes(
        (text if len(text) > 50_000 else msgspec.json.format(text, indent=1)) + b"\n"
    )
