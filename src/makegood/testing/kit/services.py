"""The services that a user's workflow calls in a simulated world: the user's own fake behind an unreliable
network.

A service *hears* only what each request carries: it does not know a key that the action did not pass on. What
it *did* is in the world's books, which know the step behind every call. So a workflow that forgets the key is
found out.
"""

import asyncio
import inspect
from collections.abc import Callable, Mapping
from contextvars import Context
from dataclasses import dataclass, field, replace
from typing import Any, Final

from makegood.base.ids import parse
from makegood.declare.call import Call, current_call
from makegood.declare.outcomes import NOT_HAPPENED, Happened, NotHappened
from makegood.errors import ConfigError, Later, Permanent, Refused
from makegood.testing.simulator.loop import KilledError, current_process
from makegood.testing.simulator.services import KeyState, Service, ServiceError, StaleTokenError

_SILENT: Final = ("service hangs", "service does it and times out", "service late", "service too late")
_TROUBLES: Final = ("service slow", "service fails", "service refuses", *_SILENT)
_AT_ONCE: Final = ("service fails", "service refuses", "service does it and times out")

Headers = Mapping[str, str] | None
"""The headers of a call: ``current_call().headers``, or some of them."""


@dataclass(slots=True)
class Effect:
    """Something that a service did."""

    truth: str
    """The key of the step that it was done for."""
    told: str | None
    """The key that the request carried."""
    answer: Any
    asked: tuple[tuple[Any, ...], Mapping[str, Any]]
    """The arguments of the request."""
    stands: bool = True
    """Whether the effect is still in place."""


@dataclass(slots=True)
class Heard:
    """One request as it arrived."""

    at: float
    task: int
    step: str
    """The step that it truly belongs to."""
    doing: str
    """"do", "undo", "probe" or "fencing probe"."""
    truth: str
    """The key of that step."""
    told: str | None
    """The key that the request carried (of an undo: the key of what to take back)."""
    token: tuple[int, ...] | None
    changed: bool
    """Whether the request changed the service."""
    outcome: str
    """See ``history``; of a probe "happened" or "not happened"."""


@dataclass(slots=True)
class ServiceRequest:
    """A request on the wire: what it says, which step it truly belongs to, and who waits for the answer."""

    doing: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    key: str | None
    undoes: str | None
    token: tuple[int, ...] | None
    scope: str
    call: Call
    truth: str
    task: int
    step: str
    trouble: str | None = None
    reply: "asyncio.Future[Any] | None" = None
    fences: bool = False

    def again(self) -> "ServiceRequest":
        """Return the same request as it arrives a second time: nobody waits for its answer."""
        return replace(self, trouble=None, reply=None)


@dataclass(slots=True, repr=False)
class FakeService(Service):
    """A remote service of the world, made by ``world.service(...)``. Actions call ``do``, undos ``undo``,
    probes ``probe``.

        async def charge(order: Order) -> str:
            return await bank.do(order.id, order.cents, headers=mg.current_call().headers)

    It learns only ``headers`` (or ``key`` alone) of the call, as over HTTP. In a ``def`` action write
    ``bank.blocking.do``.
    """

    keys: bool = True
    """Whether it honours idempotency keys."""
    tokens: bool = True
    """Whether it refuses tokens older than the highest it has seen."""
    does: Callable[..., Any] | None = None
    undoes: Callable[..., Any] | None = None
    needed: bool = True
    """Whether the test fails if no world calls it."""
    effects: list[Effect] = field(default_factory=list)
    """All that it ever did."""
    heard: list[Heard] = field(default_factory=list)
    """Every request that arrived."""
    answers: dict[str, Any] = field(default_factory=dict)
    undos: set[str] = field(default_factory=set)

    def __repr__(self) -> str:
        return f"<service {self.name}>"

    @property
    def blocking(self) -> "Blocking":
        """The same service for ``def`` actions: calls return their answer at once, without virtual time."""
        return Blocking(self)

    async def do(self, *args: Any, headers: Headers = None, key: str | None = None, **kwargs: Any) -> Any:
        """Call the fake's ``do(*args, **kwargs)`` and return its result. ``key``: the idempotency key, if
        ``headers`` are not sent.
        """
        return await self._over_the_wire(self._request("do", args, kwargs, headers, key))

    async def undo(self, answer: Any = None, *, headers: Headers = None, key: str | None = None) -> None:
        """Undo what was done under the key in ``headers`` (or ``key``, the action's:
        ``current_call().undoes``), or what was answered with ``answer``.

        The fake's ``undo(answer)`` gets the answer of the effect found. If none is found, nothing happens.
        """
        await self._over_the_wire(self._request("undo", (answer,), {}, headers, key))

    async def probe(
        self, *args: Any, headers: Headers = None, key: str | None = None, fences: bool = False, **kwargs: Any
    ) -> Happened[Any] | NotHappened:
        """Ask whether it happened: by the key, or by the arguments of ``do``.

        ``fences``: refuse older tokens from now on, even if the service does not compare them otherwise. The
        token is in ``headers``; without one the service rejects nothing.
        """
        request = self._request("probe", args, kwargs, headers, key, fences=fences)
        effect = await self._over_the_wire(request)
        return NOT_HAPPENED if effect is None else Happened(effect.answer)

    def standing(self, key: str | None = None) -> int:
        """Return how many effects are in place: all, or those of the step with this key, in any form."""
        return sum(effect.stands for effect in self.effects if key in (None, effect.truth, effect.told))

    # -- the wire ----------------------------------------------------------------------------------

    def _request(
        self,
        doing: str,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        headers: Headers,
        key: str | None,
        *,
        fences: bool = False,
    ) -> ServiceRequest:
        call = current_call()
        fields = {name.lower(): value for name, value in (headers or {}).items()}
        header = (call._keys.header or "Idempotency-Key").lower()  # noqa: SLF001 - as ``call.headers`` spells it
        sent_key = fields.get(header, fields.get("idempotency-key")) if key is None else key
        undoes = key if doing == "undo" and key is not None else fields.get("makegood-undoes")
        token = fields.get("makegood-token")
        return ServiceRequest(
            doing, args, kwargs, sent_key, undoes, None if token is None else tuple(int(n) for n in token.split(".")),
            fields.get("makegood-scope", ""), call, call.undoes_as("plain") or call.key_as("plain"), parse(call.task_id), call.step, fences=fences,
        )  # fmt: skip

    def _begin(self, request: ServiceRequest) -> None:
        """Send the request."""
        call, process = request.call, current_process()
        call._check_time()  # noqa: SLF001 - a client has a timeout, and does not know of a cancel
        self.world.history.note(
            "call", process.name if process else "", request.task, service=self.name, step=request.step, doing=request.doing,
            attempt=call.attempt, key=call.key_as("plain"), token=list(call.token), remaining=call.left,
        )  # fmt: skip

    async def _over_the_wire(self, request: ServiceRequest) -> Any:
        world: Any = self.world
        place = f"{request.doing} at {self.name}"
        await world.point(f"{place} before the call", "kill", "stop")
        self._begin(request)
        trouble = self._spell if world.loop.now < self._spell_ends else world.strike(place, _TROUBLES)
        request.trouble = trouble
        future: asyncio.Future[Any] = world.loop.create_future()
        silent = trouble in _SILENT
        if not silent:
            request.reply = future
        if trouble != "service hangs":
            self._send(request, self._on_its_way(request, trouble))
        if self.keys and world.strike(f"{place} again", ("service called twice",)):
            self._send(request.again(), world.draw() * 3.0)
        patience = self._patience(request, trouble)
        try:
            async with asyncio.timeout(patience if silent else None):
                answer = await future
        except TimeoutError:
            raise ServiceError(f"{self.name}: no answer in {patience:.1f} s") from None
        await world.point(f"{place} after the call", "kill", "stop")
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _patience(self, request: ServiceRequest, trouble: str | None) -> float | None:
        """Return after how many seconds the caller gives up; None: not before its complete-by.

        A timeout leaves time for another attempt; otherwise a forbidden retry would never show.
        """
        fraction, world = self.world.draw(), self.world
        if trouble == "service does it and times out":
            return fraction * min(3.0, request.call.remaining() / 2)
        return None if fraction < 0.3 or trouble == "service too late" else world.draw() * 3.0

    def _on_its_way(self, request: ServiceRequest, trouble: str | None) -> float:
        """Return how long a request travels. Too late means after its complete-by, when its step may have
        been undone.
        """
        if trouble == "service too late":
            return request.call.left + 10.0 + self.world.draw() * 20.0
        return self._delay(trouble)

    def _ask_now(self, request: ServiceRequest) -> Any:
        """Make a request from a ``def`` action: everything happens at one moment of virtual time."""
        world: Any = self.world
        place = f"{request.doing} at {self.name}"
        if world.strike(f"{place} before the call", ("kill",)) == "kill":
            raise KilledError
        self._begin(request)
        trouble = request.trouble = world.strike(place, _AT_ONCE)
        twice = self.keys and world.strike(f"{place} again", ("service called twice",))
        answer = self._carry_out(request)
        if twice:
            self._send(request.again(), world.draw() * 3.0)
        if world.strike(f"{place} after the call", ("kill",)) == "kill":
            raise KilledError
        if trouble in _SILENT:
            raise ServiceError(f"{self.name}: no answer")
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _send(self, request: ServiceRequest, delay: float) -> None:
        self._under_way[request.truth] = self._under_way.get(request.truth, 0) + 1
        self.world.loop.call_later(delay, self._arrives, request, context=Context())

    def _arrives(self, request: ServiceRequest) -> None:
        self._under_way[request.truth] -= 1
        answer = self._carry_out(request)
        if request.reply is not None:
            delay = self.world.draw() * self.world.swarm.pace
            self.world.loop.call_later(delay, _answer, request.reply, answer, context=Context())

    # -- the books ---------------------------------------------------------------------------------

    def _carry_out(self, request: ServiceRequest) -> Any:
        """Carry out a request that arrived; returns the answer, or the exception that the caller gets."""
        if request.trouble == "service fails" and self.world.draw() < 0.5:
            return ServiceError(f"{self.name}: 503")
        # If the service compares no tokens, ``highest`` is the highest of its fencing probes.
        if request.token is not None:
            if request.token < self.highest.get(request.scope, request.token):
                self._note(request, request.truth, "stale token", has_changed=False)
                return StaleTokenError(f"{self.name}: it was asked with a later token")
            if request.fences or (self.tokens and request.doing != "probe"):
                self.highest[request.scope] = request.token
        answer = {"do": self._do, "undo": self._undo, "probe": self._probe}[request.doing](request)
        return ServiceError(f"{self.name}: 500") if request.trouble == "service fails" else answer

    def _do(self, request: ServiceRequest) -> Any:
        key = request.key if self.keys else None
        if key is not None and key in self.answers:
            reply = self.answers[key]
            outcome = "refused" if isinstance(reply, Exception) else "ok"
            self._note(request, request.truth, outcome, has_changed=False)
            return reply
        if key is not None and self.tokens and key in self.undos:
            self._note(request, request.truth, "tombstone", has_changed=False)
            return Refused(f"{self.name}: undone before")
        try:
            if request.trouble == "service refuses":
                raise Permanent(f"{self.name}: no")  # noqa: TRY301 - as if the fake had raised it
            answer = self._answer_of(request)
        except Exception as error:  # noqa: BLE001 - the fake's own answer, which goes to the caller
            if key is not None and isinstance(error, Permanent | Refused):
                self.answers[key] = error
            self._note(request, request.truth, "refused", has_changed=False)
            return error
        if key is not None:
            self.answers[key] = answer
        self.effects.append(Effect(request.truth, key, answer, (request.args, request.kwargs)))
        entry = self.books.setdefault(request.truth, KeyState())
        entry.net += 1
        entry.answer = answer
        self._note(request, request.truth, "ok", has_changed=True)
        return answer

    def _answer_of(self, request: ServiceRequest) -> Any:
        if self.does is None:
            self.effect_count += 1
            return f"{self.name}-{self.effect_count}"
        answer = self.does(*request.args, **request.kwargs)
        if inspect.isawaitable(answer):
            if inspect.iscoroutine(answer):
                answer.close()
            raise ConfigError(
                f"world.service({self.name!r}, do=...): a plain function, which does it at once; the waiting is the world's part"
            )
        return answer

    def _undo(self, request: ServiceRequest) -> Any:
        if request.trouble == "service refuses":
            self._note(request, request.truth, "refused", has_changed=False)
            return Later(0.5)
        key = request.undoes if self.keys else None
        effect = self._standing_of(key, request.args[0])
        if key is not None:
            self.undos.add(key)
        if effect is None:
            self._note(request, request.truth, "ok", has_changed=False)
            return None
        if self.undoes is not None:
            try:
                self.undoes(effect.answer)
            except Exception as error:  # noqa: BLE001 - the fake's own answer, which goes to the caller
                self._note(request, effect.truth, "refused", has_changed=False)
                return error
        effect.stands = False
        self.books[effect.truth].net -= 1
        self._note(request, effect.truth, "ok", has_changed=True)
        return None

    def _standing_of(self, key: str | None, answer: Any) -> Effect | None:
        """Return the effect that an undo request means: by its key; an effect without a key by its answer."""
        for effect in self.effects:
            if effect.stands and (
                effect.told == key
                if key is not None and effect.told is not None
                else answer is not None and effect.answer == answer
            ):
                return effect
        return None

    def _probe(self, request: ServiceRequest) -> Effect | None:
        key = request.undoes or request.key if self.keys else None
        arguments = request.args, request.kwargs
        standing = (effect for effect in self.effects if effect.stands)
        match = next(
            (
                candidate
                for candidate in standing
                if (candidate.told == key if key else candidate.asked == arguments)
            ),
            None,
        )
        self._hear(request, request.truth, "not happened" if match is None else "happened", has_changed=False)
        return match

    def _note(self, request: ServiceRequest, truth: str, outcome: str, *, has_changed: bool) -> None:
        entry = self.books.setdefault(truth, KeyState())
        self._hear(request, truth, outcome, has_changed=has_changed)
        self.world.history.note(
            "effect", "", request.task, service=self.name, key=truth, doing=request.doing, token=list(request.token or ()),
            net=entry.net, changed=has_changed, outcome=outcome,
        )  # fmt: skip

    def _hear(self, request: ServiceRequest, truth: str, outcome: str, *, has_changed: bool) -> None:
        now, key = self.world.loop.now, request.undoes if request.doing == "undo" else request.key
        doing = "fencing probe" if request.fences else request.doing
        entry = Heard(now, request.task, request.step, doing, truth, key, request.token, has_changed, outcome)
        self.heard.append(entry)

    def _take_back(self, key: str, task: int = 0) -> None:
        """An operator takes an effect back by hand, permanently."""
        for effect in self.effects:
            effect.stands = effect.stands and effect.truth != key
        Service._take_back(self, key, task)


@dataclass(slots=True, frozen=True)
class Blocking:
    """A service for ``def`` actions. A call takes no virtual time: it is done, refused or unanswered at
    once.
    """

    service: FakeService

    def do(self, *args: Any, headers: Headers = None, key: str | None = None, **kwargs: Any) -> Any:
        """See ``FakeService.do``."""
        return self.service._ask_now(self.service._request("do", args, kwargs, headers, key))  # noqa: SLF001 - its other half

    def undo(self, answer: Any = None, *, headers: Headers = None, key: str | None = None) -> None:
        """See ``FakeService.undo``."""
        self.service._ask_now(self.service._request("undo", (answer,), {}, headers, key))  # noqa: SLF001 - as above

    def probe(
        self, *args: Any, headers: Headers = None, key: str | None = None, fences: bool = False, **kwargs: Any
    ) -> Happened[Any] | NotHappened:
        """See ``FakeService.probe``."""
        request = self.service._request("probe", args, kwargs, headers, key, fences=fences)  # noqa: SLF001 - as above
        effect = self.service._ask_now(request)
        return NOT_HAPPENED if effect is None else Happened(effect.answer)


def _answer(future: "asyncio.Future[Any]", answer: Any) -> None:
    if not future.done():
        future.set_result(answer)
