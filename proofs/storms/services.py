"""The remote services of a storm, of three kinds. "fenced" honours the idempotency key and the token, and
remembers what was undone (a tombstone). "keyed" honours only the key. "bare" does whatever it is asked,
whenever a request arrives. Of steps whose names begin with ``BRIEF`` they forget the keys after a while.
"""

import asyncio
from collections.abc import Mapping
from contextvars import Context, ContextVar
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

from makegood.base.ids import parse
from makegood.base.service_keys import task_of
from makegood.declare.call import current_call
from makegood.declare.outcomes import NOT_HAPPENED, Happened, NotHappened
from makegood.errors import Later, Permanent, Refused
from makegood.testing.simulator.loop import current_process
from makegood.testing.simulator.services import KeyState, Service, ServiceError, ServiceWorld, StaleTokenError

Kind = Literal["fenced", "keyed", "bare"]
KINDS: tuple[Kind, ...] = ("fenced", "keyed", "bare")

_ABLE = (
    "service slow",
    "service fails",
    "service refuses",
    "service hangs",
    "service does it and times out",
    "service late",
)


class StormServiceWorld(ServiceWorld, Protocol):
    """The parts of a storm's world that a service needs."""

    store_id: str
    """The id of the store in it."""

    async def point(self, name: str, *able: str) -> str | None:
        """Report that a fault point is reached; returns what struck there."""
        ...

    def report(self) -> None:
        """Let the running action write a note, in some worlds."""
        ...

    def trouble(self, able: tuple[str, ...]) -> str | None:
        """Return what goes wrong with a call, if anything."""
        ...


POISONED = "stain"
"""Steps whose names begin so fail at their service forever, and take no effect. Their probes, their undos and
all others are answered.
"""

BRIEF = "brief"
"""Steps whose names begin so have keys that their service forgets: a request that comes later does its work
again.
"""
KEEPS = 10.0
"""For how many seconds a service says that it remembers such a key."""
_KEEPS_TRULY = KEEPS * 1.01
"""It remembers the key a little longer, because the clocks of agents drift."""

SERVICES: ContextVar[Mapping[str, "StormService"]] = ContextVar("makegood_services")
"""The remote services that the running process can reach."""


def service(name: str) -> "StormService":
    """Return the remote service of this name in the world of the running action. Raises ``LookupError``
    outside of a world.
    """
    return SERVICES.get()[name]


@dataclass(slots=True)
class StormService(Service):
    """One remote service. Actions call ``do``, undos ``undo``, probes ``probe``; tests call ``standing``."""

    world: StormServiceWorld
    kind: Kind = "fenced"
    undone_by: set[str] = field(default_factory=set)
    calls: int = 0
    """How many calls callers made."""
    first: dict[str, float] = field(default_factory=dict)
    """When the first request arrived under each key that will be forgotten."""
    kept: set[int] = field(default_factory=set)
    """Tasks whose keys an operator had it keep for good."""
    forgets: bool = True
    """Whether it forgets keys at all."""

    # -- what actions call -------------------------------------------------------------------------

    async def do(self) -> str:
        """Do it for the running action; returns the service's answer. Raises ``mg.Permanent``,
        ``mg.Refused``, ``mg.Later``.
        """
        return str(await self._ask("do"))

    async def undo(self) -> None:
        """Undo what the running undo's action did, if it did anything."""
        await self._ask("undo")

    async def probe(self, *, fences: bool = False) -> Happened[str] | NotHappened:
        """Return whether the running probe's action happened. ``fences``: refuse every older token from now
        on.
        """
        answer = await self._ask("fencing probe" if fences else "probe")
        return NOT_HAPPENED if answer is None else Happened(str(answer))

    # -- the wire ----------------------------------------------------------------------------------

    async def _ask(self, doing: str) -> Any:
        world, call = self.world, current_call()
        world.report()
        await world.point(f"{doing} before call", "kill", "stop")
        call.check()
        process = current_process()
        task, about = parse(call.task_id), call.undoes_as("plain") or call.key_as("plain")
        key = call.undoes or call.key
        if key != about and task_of(world.store_id, key) != task:
            raise AssertionError(f"the key {key} does not lead back to {about}")
        verb = doing.removeprefix("fencing ")
        world.history.note(
            "call", process.name if process else "", task, service=self.name, step=call.step, doing=verb, attempt=call.attempt,
            key=call.key_as("plain"), token=list(call.token), remaining=call.left,
        )  # fmt: skip
        trouble = self._spell if world.loop.now < self._spell_ends else world.trouble(_ABLE)
        if doing == "do" and call.step.startswith(POISONED):
            trouble = "poisoned"
        future: asyncio.Future[Any] = world.loop.create_future()
        self.calls += 1
        answers = trouble not in ("service does it and times out", "service hangs", "service late")
        if trouble != "service hangs":
            request = _Sent(
                self,
                doing,
                call.key,
                about,
                call.scope,
                call.token,
                task,
                future if answers else None,
                trouble,
                self.calls,
                world.loop.now,
                brief=call.step.startswith(BRIEF),
            )
            self._send(request, self._delay(trouble))
            if self.kind != "bare" and world.trouble(("service called twice",)):
                again = replace(request, answered=None, trouble=None)
                self._send(again, world.draw() * 3.0)
        world.report()
        patience = None if world.draw() < 0.3 else world.draw() * 3.0
        try:
            async with asyncio.timeout(patience if not answers else None):
                answer = await future
        except TimeoutError:
            raise ServiceError(f"{self.name}: no answer in {patience:.1f} s") from None
        world.report()
        await world.point(f"{doing} after call", "kill", "stop")
        world.report()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _send(self, request: "_Sent", delay: float) -> None:
        self._under_way[request.about] = self._under_way.get(request.about, 0) + 1
        self.world.loop.call_later(delay, request.arrive, context=Context())

    # -- the books ---------------------------------------------------------------------------------

    def keep(self, task: int | None = None) -> None:
        """Remember the keys of a task for good, by default of all tasks.

        An operator who is about to have requests sent again asks for it: makegood warns that they may be done
        twice.
        """
        if task is None:
            self.forgets = False
        else:
            self.kept.add(task)

    def delivers(self, request: "_Sent") -> bool:
        """Whether a request arrives at all: the network delivers none that was sent while its key was known,
        and arrives after that.

        If its key is forgotten, it counts as the first one under that key.
        """
        if not request.brief or request.doing.endswith("probe"):
            return True
        now = self.world.loop.now
        ends = self.first.setdefault(request.key, now) + _KEEPS_TRULY
        if now < ends or not self.forgets or request.task in self.kept:
            return True
        if request.at < ends:
            return False
        self.first[request.key], request.anew = now, True
        return True

    def carry_out(self, request: "_Sent") -> Any:
        """Carry out a call that arrived; returns the answer, or the exception that the caller gets."""
        if request.trouble == "poisoned":
            return ServiceError(f"{self.name}: 500, as always")
        if request.trouble == "service fails" and self.world.draw() < 0.5:
            return ServiceError(f"{self.name}: 503")
        if self.kind == "fenced":
            if request.token < self.highest.get(request.scope, request.token):
                self._note(request, 0, "stale token")
                return StaleTokenError(f"{self.name}: {request.scope} was asked with a later token")
            if request.doing != "probe":
                self.highest[request.scope] = request.token
        entry = self.books.setdefault(request.about, KeyState())
        if request.doing == "do":
            answer: Any = self._do(request, entry)
        elif request.doing == "undo":
            answer = self._undo(request, entry)
        else:
            answer = entry.answer if entry.net else None
        return ServiceError(f"{self.name}: 500") if request.trouble == "service fails" else answer

    def _do(self, request: "_Sent", entry: KeyState) -> Any:
        remembers = self.kind != "bare"
        if request.anew:
            entry.answer, entry.is_refused, entry.refused_token, entry.is_undone = None, False, None, False
        if remembers and (
            entry.is_refused or entry.refused_token == request.token
        ):  # A duplicate gets the same answer.
            self._note(request, 0, "refused")
            return Permanent(f"{self.name}: refused before")
        if self.kind == "fenced" and entry.is_undone and self.world.swarm.tombstones:
            self._note(request, 0, "tombstone")
            return Refused(f"{self.name}: undone before")
        if remembers and entry.answer is not None:
            self._note(request, 0, "ok")
            return entry.answer
        if request.trouble == "service refuses":
            entry.is_refused = self.kind == "keyed"
            entry.refused_token = request.token if remembers else None
            self._note(request, 0, "refused")
            return (
                Later(0.5)
                if self.world.draw() < 0.3 and not entry.is_refused
                else Permanent(f"{self.name}: no")
            )
        self.effect_count += 1
        entry.answer = f"{self.name}-{self.effect_count}"
        entry.net += 1
        self._note(request, 1, "ok")
        return entry.answer

    def _undo(self, request: "_Sent", entry: KeyState) -> Any:
        if request.trouble == "service refuses":
            self._note(request, 0, "refused")
            return Permanent(f"{self.name}: cannot be taken back") if self.world.draw() < 0.3 else Later(0.5)
        if self.kind == "keyed" and request.key in self.undone_by and not request.anew:
            self._note(request, 0, "ok")
            return "undone"
        again = request.anew and request.key in self.undone_by and entry.answer is not None
        change = -1 if entry.net or again else 0
        entry.net += change
        entry.is_undone = True
        self.undone_by.add(request.key)
        self._note(request, change, "ok")
        return "undone"

    def _note(self, request: "_Sent", change: int, outcome: str) -> None:
        self.world.history.note(
            "effect", "", request.task, service=self.name, key=request.about, doing=request.doing, token=list(request.token),
            net=self.standing(request.about), changed=bool(change), outcome=outcome,
        )  # fmt: skip


@dataclass(slots=True)
class _Sent:
    """One call on the wire. It belongs to the world: its sender may be dead when it arrives."""

    service: StormService
    asked: str
    key: str
    about: str
    scope: str
    token: Any
    task: int
    answered: "asyncio.Future[Any] | None"
    trouble: str | None
    call: int
    """Its number at the service; if the network delivers it twice, both copies have the same."""
    at: float
    """When it was sent."""
    brief: bool
    """Whether the service will forget its key."""
    anew: bool = False
    """Whether the service has forgotten its key when it arrives."""

    @property
    def doing(self) -> str:
        """The kind of request: do, undo, probe. A fencing probe takes a token like the others."""
        return self.asked

    def arrive(self) -> None:
        """Reach the service, and send its answer back."""
        service = self.service
        service._under_way[self.about] -= 1
        if not service.delivers(self):
            return
        answer = service.carry_out(self)
        if self.answered is not None:
            world = service.world
            delay = world.draw() * (0.02 if world.draw() < 0.9 else 2.0)
            world.loop.call_later(delay, self._answer, answer, context=Context())

    def _answer(self, answer: Any) -> None:
        if self.answered is not None and not self.answered.done():
            self.answered.set_result(answer)
