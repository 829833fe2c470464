"""The hooks for watching a process that runs roles; ``makegood.telemetry`` implements them.

Nothing watches unless an observer was passed in. The actors do not know what an observer does with their
reports. Without an observer, a Scheduler makes one check for each commit, and the store and the agents make
none: a watched process gets other objects in their place, which pass everything on.
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
from makegood.store.views import AgentInfo, SenderInfo, SourceInfo


class Answering(Protocol):
    """Runs the functions of attempts: ``attempt_runner.AttemptRunner``."""

    async def answer(self, attempt: Attempt, action: Action[..., Any]) -> TaskMessage | None:
        """Return the answer of one attempt, or None for silence."""


Heard = Mapping[int, Sequence[TaskMessage]]
"""The messages of a commit, by task."""

Decided = Sequence[tuple[HeldTask, Decision]]
"""The Decisions of a commit on the tasks that were held."""


class Watch(Protocol):
    """Receives a Scheduler's commits."""

    def decided(self, messages: Heard, decisions: Decided, outcome: Committed) -> None:
        """Receive a commit, before the Scheduler's memory is updated. ``outcome``: its outcome."""


class Process(Protocol):
    """A process that runs roles: ``Node``."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def roles(self) -> Sequence[str]:
        """The roles that it runs."""

    @property
    def store(self) -> Store:
        """The store that its roles use."""

    def dead(self) -> str:
        """Return which part of it has died, "" if all parts are alive."""

    def unready(self) -> str:
        """Return why nothing should be sent to it, "" if it is ready."""

    def _infos(self) -> tuple[AgentInfo, ...]:
        """Return the state of its agents."""

    def _sources(self) -> tuple[SourceInfo, ...]:
        """Return the state of the places at brokers from which it takes orders."""

    def _senders(self) -> tuple[SenderInfo, ...]:
        """Return the state of the brokers to which it sends notices."""

    def leads(self) -> bool | None:
        """Return whether its Supervisor leads; None if it runs none."""


class Observer(Protocol):
    """Watches one process: ``telemetry.Telemetry``."""

    @property
    def address(self) -> str:
        """Where it answers probes and scrapers, "http://127.0.0.1:9464"; "" when nowhere, or not yet."""

    @property
    def watch(self) -> Watch | None:
        """Who is told of a Scheduler's commits."""

    def watched(self, store: Store) -> Store:
        """Return what the roles are to use in place of the store."""

    def answering(self, runner: Answering) -> Answering:
        """Return what the agents are to use in place of ``runner``."""

    def submitted(self, draft: Submission) -> Submission:
        """Return a submission as it is to be written: with the trace that it belongs to."""

    def sent(self, headers: Mapping[str, str] | None) -> Mapping[str, str] | None:
        """Return a message's headers as they are to be sent: with the trace under way."""

    def receiving(self, headers: Mapping[str, str]) -> AbstractContextManager[object]:
        """Return a context in which what is done belongs to the trace that a message's headers name."""

    def source_messages(self, source: str, outcome: str, count: int) -> None:
        """Receive how many messages of a broker were ``taken``, ``refused`` or ``redelivered``."""

    def broker_send(self, broker: str, outcome: str) -> None:
        """Receive that a notice to a broker was ``sent``, or that its sending ``failed``."""

    async def begin(self, process: Process) -> None:
        """Begin to watch, before the store is opened. Raises ``ConfigError``."""

    async def end(self) -> None:
        """Stop watching: the process has stopped."""
