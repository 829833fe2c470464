"""Mutants of notes."""

from dataclasses import replace
from typing import Any

import pytest

from makegood.agent import reply_sender, reports
from makegood.model.attempt import Attempt
from makegood.model.messages import TaskMessage
from makegood.model.note import Note
from makegood.saga import replies
from makegood.saga.decision_builder import DecisionBuilder
from tests.simulation.mutants_making import mutant
from tests.simulation.mutants_worlds import APART, FAULTS_OF_ALL_KINDS

NOTING = replace(FAULTS_OF_ALL_KINDS, tasks=8, noting=1.0)
"""A little of everything, and every action writes notes."""
NOTING_APART = replace(NOTING, layout=APART)
"""The same, and all notes go through the store."""


@mutant(NOTING_APART)
def reply_passes_its_notes(m: pytest.MonkeyPatch) -> None:
    """An agent sends replies before the notes that wait."""
    true = reply_sender.ReplySender.send

    def send(self: reply_sender.ReplySender, node: int, task: int, message: TaskMessage) -> None:
        true(self, node, task, message)
        self.waiting.sort(key=lambda entry: entry[2].note is not None)

    m.setattr(reply_sender.ReplySender, "send", send)


@mutant(NOTING_APART)
def note_of_an_old_attempt(m: pytest.MonkeyPatch) -> None:
    """A note that comes after its attempt was answered or judged counts as in time."""

    def note(work: DecisionBuilder, message: TaskMessage, words: Note) -> None:
        work.out.notes.append(words)

    m.setattr(replies, "note", note)


@mutant(NOTING)
def last_note_forgotten(m: pytest.MonkeyPatch) -> None:
    """What waits when an attempt ends is not sent."""

    async def settle(self: reports.Reports, attempt: Attempt) -> None:
        self.paces[attempt].waiting = None

    m.setattr(reports.Reports, "settle", settle)


@mutant(NOTING)
def skipped_in_silence(m: pytest.MonkeyPatch) -> None:
    """A note does not say how many it replaces."""
    true = reports.Reports.note

    def note(self: reports.Reports, attempt: Attempt, value: Any) -> None:
        true(self, attempt, value)
        pace = self.paces[attempt]
        if pace.waiting is not None:
            pace.waiting = replace_skips(pace.waiting)

    m.setattr(reports.Reports, "note", note)


def replace_skips(note: Note) -> Note:
    """Return a note that counts nothing."""
    return Note(note.idx, note.attempt, note.doing, note.value)
