"""What may watch a process that runs roles, and what it is told: the hooks that ``makegood.telemetry`` hangs in.

Nobody watches unless somebody was handed in. The actors do not know what is done with what they tell; where nothing watches,
a Scheduler asks that once for each commit, and the store and the agents not at all: a watched process is given other objects in
their place, which pass everything on.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from makegood.declare.action import Action
from makegood.model.attempt import Attempt
from makegood.model.decision import Decision
from makegood.model.messages import TaskMessage
from makegood.model.shape import HeldTask
from makegood.store.protocol import Store
from makegood.store.records import Committed, Submission
from makegood.store.views import AgentInfo


class Answering(Protocol):
    """Runs the functions of attempts: ``trying.AttemptRunner``."""

    async def answer(self, attempt: Attempt, action: Action[..., Any]) -> TaskMessage | None:
        """Return the answer of one attempt, or None for silence."""
        ...


class Watch(Protocol):
    """What a Scheduler tells of its commits."""

    def decided(
        self,
        heard: Mapping[int, Sequence[TaskMessage]],
        decided: Sequence[tuple[HeldTask, Decision]],
        committed: Committed,
    ) -> None:
        """Hear of a commit, before memory is brought up to it: by task the messages, what was decided on those that were held,
        what came of it.
        """
        ...


class Process(Protocol):
    """What can be asked of a process that runs roles: ``Node``."""

    @property
    def name(self) -> str:
        """Its name."""
        ...

    @property
    def roles(self) -> Sequence[str]:
        """What it runs."""
        ...

    @property
    def store(self) -> Store:
        """The store that its roles use."""
        ...

    def dead(self) -> str:
        """Return what of it has died, "" when all of it lives."""
        ...

    def unready(self) -> str:
        """Return why nothing should be sent to it, "" when it is ready."""
        ...

    def infos(self) -> tuple[AgentInfo, ...]:
        """Return what is to be said of its agents."""
        ...

    def leads(self) -> bool | None:
        """Return whether its Supervisor leads; None when it runs none."""
        ...


class Observer(Protocol):
    """Watches one process: ``telemetry.Telemetry``."""

    @property
    def address(self) -> str:
        """Where it answers probes and scrapers, "http://127.0.0.1:9464"; "" when nowhere, or not yet."""
        ...

    @property
    def watch(self) -> Watch | None:
        """Who is told of a Scheduler's commits."""
        ...

    def watched(self, store: Store) -> Store:
        """Return what the roles are to use in place of the store."""
        ...

    def answering(self, runner: Answering) -> Answering:
        """Return what the agents are to use in place of ``runner``."""
        ...

    def submitted(self, draft: Submission) -> Submission:
        """Return a submission as it is to be written: with the trace that it belongs to."""
        ...

    def sent(self, headers: Mapping[str, str] | None) -> Mapping[str, str] | None:
        """Return a message's headers as they are to be sent: with the trace under way."""
        ...

    def receiving(self, headers: Mapping[str, str]) -> AbstractContextManager[object]:
        """Return a context in which what is done belongs to the trace that a message's headers name."""
        ...

    async def begin(self, process: Process) -> None:
        """Begin to watch, before the store is opened. Raises ``ConfigError``."""
        ...

    async def end(self) -> None:
        """Stop watching: the process has stopped."""
        ...
