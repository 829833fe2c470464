"""Notifications of a task's submitter: one *notice* for each state that the task reaches, and for each note
of its actions if the submitter wants them, numbered from 1 without gaps.

The rules make notices, and the store writes them in the transaction of the state change. They leave as
CloudEvents 1.0 in JSON, the same for a queue of the store and for a webhook. The store adds what only it
knows, the ``head``: its own id and the time.
"""

import re
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal, get_args
from urllib.parse import SplitResult, urlsplit

import msgspec
from msgspec.structs import replace

from makegood.base import ids
from makegood.base.host_port import is_host
from makegood.base.text import short_repr
from makegood.brokers.address import BrokerAddress, address_of, is_address
from makegood.brokers.kinds import KINDS
from makegood.errors import ConfigError, DefinitionError
from makegood.model.attributes import LONGEST_INDEXED
from makegood.model.note import Note
from makegood.model.states import TEXTS, Reason
from makegood.model.task import ReplyTo, Step, TaskRecord, standing

Cause = Literal["text", "name", "none"]
"""How much of the cause of a task's failure a webhook's receiver gets."""


NoticeState = Literal["received", "processing", "undoing", "processed", "undone", "error"]
"""States that a submitter is notified of. A task that changes its Scheduler (processing, pending, processing)
is reported once.
"""

STATES: frozenset[str] = frozenset(get_args(NoticeState))
ENDS = frozenset({"processed", "undone", "error"})
TYPE = "dev.makegood.task.{state}.v1"
QUEUE = "queue:"

MOST_TEXT = LONGEST_INDEXED
"""Characters of a correlation id."""
_MOST_URL: Final = 2000

_OWN_CAUSES: Final[tuple[Reason, ...]] = ("cancelled", "operator_undo", "deadline", "result_missing")
_OWN_CAUSE = re.compile(rf"({'|'.join(re.escape(TEXTS[reason]) for reason in _OWN_CAUSES)})(?=$|:| by )")
_STEP = re.compile(r"[\w.\-\[\]#]{1,200}")
_KIND = re.compile(r"[A-Z][A-Za-z0-9_]{0,79}(Error|Exception|Timeout|Interrupt|Exit)(?=$|:| \()")
_parts = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode

_LOCAL = frozenset({"localhost", "127.0.0.1", "::1"})
_encode = msgspec.json.Encoder().encode


class Notice(msgspec.Struct, frozen=True, omit_defaults=True):
    """One state of a task, as its submitter is notified of it."""

    task: int
    sequence: int
    """The notice's number within the task, from 1."""
    state: NoticeState
    reply: ReplyTo
    app: str
    workflow: str
    key: str | None = None
    submission: int = 1
    result: bytes | None = None
    """JSON, for a processed task."""
    cause: str = ""
    """Why the task was undone or is in error."""
    undone_steps: tuple[str, ...] = ()
    """Names of the undone steps."""
    standing: tuple[tuple[str, str], ...] = ()
    """(step, state) of steps whose effect is, or may be, still in place."""
    note: Note | None = None
    """What an action noted: then ``state`` is the one that was reported last."""
    step: str = ""
    """The name of its step."""

    @property
    def type(self) -> str:
        """The type of its event."""
        return TYPE.format(state=self.state if self.note is None else "note")


class _InPlace(msgspec.Struct, frozen=True):
    step: str
    state: str


class _Note(msgspec.Struct, frozen=True, rename={"skips": "skipped"}):
    step: str
    attempt: int
    doing: str
    value: Any
    skips: int


class _Data(msgspec.Struct, frozen=True, kw_only=True):
    """The part of an event that is makegood's own; fields that do not apply to a state are left out."""

    task: str
    state: NoticeState
    sequence: int
    submission: int
    app: str
    workflow: str
    key: str | None
    correlation_id: str | None
    result: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    cause: str | msgspec.UnsetType = msgspec.UNSET
    undone: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET
    standing: tuple[_InPlace, ...] | msgspec.UnsetType = msgspec.UNSET
    note: _Note | msgspec.UnsetType = msgspec.UNSET


class Named(msgspec.Struct, frozen=True):
    """What names an event: its own id, its task's, and the correlation id of the task's submitter, if any."""

    id: str
    subject: str = ""
    correlationid: str = ""


names_of = msgspec.json.Decoder(Named).decode
"""Returns what names an event."""


class _Event(msgspec.Struct, frozen=True, kw_only=True):
    """A CloudEvent after its head."""

    type: str
    source: str
    subject: str
    sequence: str
    correlationid: str | msgspec.UnsetType = msgspec.UNSET
    datacontenttype: str = "application/json"
    data: _Data


# -- making them ---------------------------------------------------------------------------------------------


def notice_of(task: TaskRecord, steps: Callable[[], Sequence[Step]]) -> Notice | None:
    """Return the notice of the state that a task has just reached; None if there is nobody to notify, or the
    state is the last one that was reported.

    ``steps`` returns all steps; it is called for final states only.
    """
    state = task.state
    if task.reply is None or state not in STATES or state == task.told:
        return None
    notice = Notice(
        task.id,
        task.notified + 1,
        state,  # type: ignore[arg-type]  # "pending" is none of STATES
        task.reply,
        task.app,
        task.workflow,
        task.key,
        task.submission,
    )
    if state not in ENDS:
        return notice
    if state == "processed":
        return replace(notice, result=task.result)
    rows = steps()
    return replace(
        notice,
        cause=task.cause,
        undone_steps=tuple(s.name for s in rows if s.plan.kind == "action" and s.state == "undone"),
        standing=tuple((s.name, s.state) for s in standing(rows)),
    )


def notice_of_note(task: TaskRecord, step: str, note: Note) -> Notice | None:
    """Return the notice of a note of the step of this name; None if nobody wants notes."""
    reply = task.reply
    if reply is None or not reply.notes:
        return None
    return Notice(
        task.id, task.notified + 1, task.told or "received", reply, task.app, task.workflow, task.key, task.submission,  # type: ignore[arg-type]  # the state of a notice
        note=note, step=step,
    )  # fmt: skip


def event(notice: Notice) -> str:
    """Return a notice as the text of a CloudEvent, without its opening brace and its head."""
    rest: dict[str, object] = {}
    note = notice.note
    if note is not None:
        rest["note"] = _Note(notice.step, note.attempt, note.doing, note.value, note.skipped)
    elif notice.state == "processed":
        rest["result"] = msgspec.Raw(notice.result or b"null")
    elif notice.state in ENDS:
        rest["cause"] = notice.cause
        rest["undone"] = notice.undone_steps
        rest["standing"] = tuple(_InPlace(*effect) for effect in notice.standing)
    correlation_id, task = notice.reply.correlation_id, ids.show(notice.task)
    data = _Data(
        task=task, state=notice.state, sequence=notice.sequence, submission=notice.submission, app=notice.app,
        workflow=notice.workflow, key=notice.key, correlation_id=correlation_id, **rest,  # type: ignore[arg-type]
    )  # fmt: skip
    message = _Event(
        type=notice.type,
        source=f"/makegood/{notice.app}/{notice.workflow}",
        subject=task,
        sequence=f"{notice.sequence:010}",
        correlationid=msgspec.UNSET if correlation_id is None else correlation_id,
        data=data,
    )
    return _encode(message).decode()[1:]


def head(store_id: str, generation: int, notice: Notice, time: str) -> str:
    """Return the start of an event; ``time`` is RFC 3339. PostgreSQL writes the same text itself.

    >>> head("5e", 1, Notice(7, 2, "processing", ReplyTo("queue:a"), "shop", "place"), "2026-01-01T00:00:00Z")
    '{"specversion":"1.0","id":"5e-1-0000000000007-2","generation":1,"time":"2026-01-01T00:00:00Z",'
    """
    name = f"{store_id}-{generation}-{label(notice)}"
    return f'{{"specversion":"1.0","id":"{name}","generation":{generation},"time":"{time}",'


def label(notice: Notice) -> str:
    """Return the name of a notice within one generation of its store.

    After a restore the same sequence may come with another state, so the store's id and generation precede
    this name wherever notices of different stores or generations meet.
    """
    return f"{ids.show(notice.task)}-{notice.sequence}"


def name_of(event: bytes) -> str:
    """Return the id of an event: receivers identify it by this, whatever the store's generation is when it
    leaves.
    """
    return names_of(event).id


# -- what leaves the house -----------------------------------------------------------------------------------


def for_receiver(event: bytes, cause: Cause) -> bytes:
    """Return an event as a webhook's receiver gets it.

    ``cause``, how much of the cause of an undone or failed task to include: its "text" (which may contain
    hosts, users and values of your services), its "name" (see ``named``) or "none" ("").

    >>> for_receiver(b'{"data":{"cause":"pack: OSError: db-7 refuses svc"}}', "name")
    b'{"data":{"cause":"pack: OSError"}}'
    """
    if cause == "text" or b'"cause":' not in event:
        return event
    whole = _parts(event)
    data = _parts(whole["data"])
    if "cause" not in data:  # the word is somewhere in a result
        return event
    text = kind_of_cause(msgspec.json.decode(data["cause"], type=str)) if cause == "name" else ""
    data["cause"] = msgspec.Raw(_encode(text))
    whole["data"] = msgspec.Raw(_encode(data))
    return _encode(whole)


def kind_of_cause(cause: str) -> str:
    """Return the kind of a cause, without its text.

    That is the step and the class of its exception, if the class is named like most of Python's (...Error,
    ...Exception, ...Timeout, ...Interrupt, ...Exit). Otherwise it is the step and "failed", or makegood's own
    word.

    >>> kind_of_cause("pack: TimeoutError: db-7:5432"), kind_of_cause("charge: card 4711 refused")
    ('pack: TimeoutError', 'charge: failed')
    >>> kind_of_cause("cancelled by ann")
    'cancelled'
    """
    own = _OWN_CAUSE.match(cause)
    if own is not None:
        return own[0]
    step, colon, rest = cause.partition(": ")
    if not colon or _STEP.fullmatch(step) is None:
        return "failed"
    kind = _KIND.match(rest)
    return f"{step}: {'failed' if kind is None else kind[0]}"


# -- addresses -----------------------------------------------------------------------------------------------


def reply(reply_to: str | None, correlation_id: str | None) -> ReplyTo | None:
    """Return whom to notify; None: nobody. Raises ``ConfigError`` for an address that can never be
    notified.
    """
    if reply_to is None:
        return None
    if not isinstance(reply_to, str):
        raise ConfigError(f'reply_to={reply_to!r}: a text, "queue:NAME", "https://…" or "amqp:NAME/queue"')
    if correlation_id is not None and not (
        isinstance(correlation_id, str) and len(correlation_id) <= MOST_TEXT and correlation_id.isprintable()
    ):
        raise ConfigError(
            f"correlation_id={short_repr(correlation_id)}: pass a text of at most {MOST_TEXT} printable characters; every notice carries it"
        )
    if not reply_to.startswith(QUEUE):
        if at_broker(reply_to) is None:
            split_url(reply_to)
        return ReplyTo(reply_to, correlation_id)
    try:
        ids.checked_queue(reply_to.removeprefix(QUEUE))
    except DefinitionError as wrong:
        raise ConfigError(f"reply_to={reply_to!r}: {wrong}") from None
    return ReplyTo(reply_to, correlation_id)


def queue(to: str) -> str | None:
    """Return the queue that an address names, None for a URL."""
    return to.removeprefix(QUEUE) if to.startswith(QUEUE) else None


def at_broker(to: str) -> BrokerAddress | None:
    """Return an address at a broker, None for a queue of the store or a URL. Raises ``ConfigError``."""
    if not is_address(to, KINDS):
        return None
    address = address_of(to, KINDS, "reply_to")
    if address.parameters:
        raise ConfigError(f"reply_to={to!r:.200}: leave out what is after the ?: it is for reading")
    return address


def topic_of(to: str) -> str:
    """Return the topic that wakes whoever delivers to an address, or reads its queue.

    >>> topic_of("queue:web"), topic_of("https://shop.example/hook")
    ('queue:web', 'notice')
    """
    name = queue(to)
    return "notice" if name is None else f"queue:{name}"


def split_url(url: str) -> SplitResult:
    """Return the parts of a webhook's URL.

    Raises ``ConfigError`` unless it is https:// with a host, or http:// to this very machine, for trying out.
    """
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port  # reading a port that is none raises ValueError
    except ValueError as unreadable:
        raise ConfigError(f"reply_to={url!r} cannot be read: {unreadable}") from None
    if not host or parts.scheme not in ("https", "http"):
        raise ConfigError(f'reply_to={url!r}: write "queue:NAME", "https://host/path" or "amqp:NAME/queue"')
    if parts.scheme == "http" and host not in _LOCAL:
        raise ConfigError(
            f"reply_to={url!r}: only https:// leaves this machine; http:// is for localhost alone"
        )
    plain = url.isascii() and url.isprintable() and " " not in url
    faults = (
        (len(url) > _MOST_URL, "it is too long"),
        (not plain, "write it in ASCII: percent-encode the path, punycode the host"),
        (parts.username is not None, "remove the user and the password: the signature identifies the sender"),
        (parts.fragment, "remove the part after #: it is never sent"),
        (not is_host(host), "the host is neither a host name nor an IP address"),
    )
    for wrong, text in faults:
        if wrong:
            raise ConfigError(f"reply_to={url[:200]!r}: {text}")
    return parts


def safe_address(to: str) -> str:
    """Return an address without the parts that may be secret: a URL's path and query."""
    if queue(to) is not None or is_address(to, KINDS):
        return to
    try:
        parts = urlsplit(to)
    except ValueError:
        return "an unreadable address"
    return f"{parts.scheme}://{parts.netloc}"
