"""Writes the history of what surrounds the engine in a storm: notices, messages, and the tasks that retention
removes.
"""

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from makegood.model.schedule import ATTRIBUTE
from makegood.testing.simulator.recorder import LoggedChanges, Recorder, Trigger, triggers

_COUNT: Final = "(select count(*) from makegood_{} where task = old.id)"
_TRIGGERS: Final[tuple[Trigger, ...]] = (
    ("removed", "delete", "makegood_task", f"old.id, old.state, {_COUNT.format('listener')}, {_COUNT.format('inbox')}, old.ended_at"),
    ("made", "insert", "makegood_task", "new.id, new.correlation_id"),
    ("handled", "update of state", "makegood_message", "new.id, new.queue, new.state"),
    ("handled", "delete", "makegood_message", "old.id, old.queue, 'done'"),
    ("notice", "insert", "makegood_notice", "new.task, new.sequence, cast(new.body as text), ''"),
    ("notice", "insert", "makegood_message", "new.task, new.sequence, cast(new.body as text), new.queue"),
    ("lane", "insert", "makegood_lane", "new.task, new.name, new.seq, new.at_once, new.state"),
    ("lane", "update", "makegood_lane", "new.task, new.name, new.seq, new.at_once, new.state"),
    ("lane", "delete", "makegood_lane", "old.task, old.name, old.seq, old.at_once, 'gone'"),
    ("schedule", "insert", "makegood_schedule", "new.name, new.spec, new.progress"),
    ("schedule", "update", "makegood_schedule",
     "new.name, new.spec, new.progress, old.progress, old.last_task, old.paused_at, old.paused_until, new.paused_at, new.paused_until"),
    ("scheduled", "insert", "makegood_attribute", "new.task, new.value, (select key from makegood_task where id = new.task)"),
)  # fmt: skip
_WHEN: Final = {
    "made": " when {row}.correlation_id is not null",
    "handled": " when {row}.task is null",
    "notice": " when {row}.task is not null",
    "scheduled": f" when new.name = '{ATTRIBUTE}'",
}


class StormRecorder(Recorder):
    """Turns logged changes into history, also those around the engine."""

    __slots__ = ()

    def log(self) -> Iterable[str]:
        """Return the statements that make a connection log its changes."""
        yield from super().log()
        yield from triggers(_TRIGGERS, _WHEN)

    def _around(self, changes: LoggedChanges) -> None:
        for id_, queue, state, *_ in changes.of("handled"):
            self._note("handled", queue=queue, id=id_, state=state)
        for task, message, *_ in changes.of("made"):
            self._note("made", task, message=message)
        for task, lane, seq, at_once, state, *_ in changes.of("lane"):
            self._note("lane", task, lane=lane, seq=seq, at_once=at_once, state=state)
        for task, sequence, body, queue, *_ in changes.of("notice"):
            data = msgspec.json.decode(body)["data"]
            state = "note" if "note" in data else data["state"]
            self._note("notice", task, sequence=sequence, state=state, queue=queue)
        for task, state, unsent, unheard, ended_at, *_ in changes.of("removed"):
            self._note(
                "removed", task, state=state, unsent=unsent, unheard=unheard, ended=ended_at, now=changes.now
            )
        self._schedules(changes)

    def _schedules(self, changes: LoggedChanges) -> None:
        """Note what became of each schedule's row, with the tasks that this operation made of it."""
        tasks: dict[str, list[tuple[int, str | None]]] = {}
        for task, name, key, *_ in changes.of("scheduled"):
            tasks.setdefault(name, []).append((task, key))
        versions: dict[str, list[tuple[Any, ...]]] = {}
        for row in changes.of("schedule"):
            versions.setdefault(row[0], []).append(row)
        for name, (first, *_, last) in ((n, (rows[0], *rows)) for n, rows in versions.items()):
            _, spec, progress, _, _, _, _, *pause = last
            _, _, _, before, last_task, *former_pause = first[:7]
            self._note(
                "schedule",
                name=name,
                verb=changes.verb,
                calendar=changes.calendar,
                spec=msgspec.json.decode(spec),
                before=None if before is None else msgspec.json.decode(before),
                progress=msgspec.json.decode(progress),
                last_task=last_task,
                former_pause=former_pause,
                pause=pause[:2],
                tasks=tasks.pop(name, []),
            )
