"""Signals as an app declares them: a name and a type of values, for the sender and for the workflow that
waits.
"""

import functools
from typing import Any, Final, Generic, Protocol, TypeVar

import msgspec

from makegood.base.ids import checked_name
from makegood.errors import DefinitionError
from makegood.payload.codec import check_fits, decoder, encode, with_defaults
from makegood.payload.envelopes import SCHEMA, Codec
from makegood.payload.pydantic_models import is_model
from makegood.payload.unchecked_rules import refuse_unkept
from makegood.payload.unknown_fields import refuse_unknown

T = TypeVar("T")


_MOST_SCHEMA: Final = 4096
"""Characters of a JSON schema that is stored with each task."""


class WorkflowName(Protocol):
    """A workflow, as far as a signal needs it."""

    @property
    def app(self) -> str:
        """The name of its app."""

    name: str


class SignalByKey(msgspec.Struct, frozen=True):
    """A signal for the task that has a key."""

    app: str
    workflow: str
    key: str
    name: str
    value: bytes
    """JSON."""
    id: str | None = None
    step: str = ""
    codec: Codec | None = None
    """Encodes its value when it is sent; None: it stays plain."""


class Signal(Generic[T]):
    """A signal of an app: see ``App.signal``. A workflow waits for it; ``client.signal`` sends it."""

    def __init__(
        self,
        name: str,
        type: Any,  # noqa: A002 - what it is
        app: str,
        codec: Codec | None = None,
        *,
        readable: bool = False,
    ) -> None:
        self.readable = readable
        """Whether its values stay plain where the app has a codec."""
        self.codec = None if readable else codec
        """Encodes its values; None: they stay plain."""
        self.name = checked_name(name, "signal")
        self.type = type
        """The type of its values."""
        self.app = app
        """The name of the app that declares it."""
        subject = f"signal {name}"
        refuse_unkept(type, subject)
        decoder(type, subject)  # raises for what no JSON can be decoded to

    def __repr__(self) -> str:
        return f"<signal {self.app}.{self.name}>"

    @functools.cached_property
    def schema(self) -> str:
        """The JSON schema of its values as they are stored.

        "" if none is known, or only a long one: each task has a copy.
        """
        if self.codec is not None:
            return SCHEMA
        try:
            text = msgspec.json.encode(msgspec.json.schema(self.type, schema_hook=_schema)).decode()
        except (TypeError, ValueError, RecursionError):  # a type that msgspec describes no further
            return ""
        return text if len(text) <= _MOST_SCHEMA else ""

    def _encode(self, value: Any) -> bytes:
        """Return a value as JSON. Raises ``PayloadError`` for one that is not of the signal's type."""
        subject = f"the value of signal {self.name}"
        body = encode(value, subject=subject)
        check_fits(body, self.type, value, subject)
        if isinstance(value, dict | list):  # JSON, as people type it
            refuse_unknown(value, self.type, subject)
        return with_defaults(body, self.type, value, subject, limit=None)

    def of(
        self,
        workflow: WorkflowName,
        *,
        key: str,
        value: T,
        id: str | None = None,  # noqa: A002 - what it is
        step: str = "",
    ) -> SignalByKey:
        """Return this signal with a value, for the task of ``workflow`` that has ``key``.

        An inbox's function returns it in place of a plan: then the message becomes a signal. ``id``: as in
        ``client.signal``; None: the message's. Raises ``PayloadError`` for a value that is not of the
        signal's type, and ``DefinitionError`` for a workflow of another app.
        """
        if workflow.app != self.app:
            raise another_app(self, workflow.app, workflow.name)
        body = self._encode(value)
        return SignalByKey(workflow.app, workflow.name, key, self.name, body, id, step, self.codec)


def another_app(signal: Signal[Any], app: str, workflow: str) -> DefinitionError:
    """Return the error for a workflow of another app than the signal's."""
    return DefinitionError(
        f"signal {signal.name} is one of app {signal.app}, and {workflow} is a workflow of {app}: declare it there as well"
    )


def _schema(cls: Any) -> dict[str, Any]:
    """Return the JSON schema of a class that msgspec does not know: a pydantic model has its own."""
    schema: dict[str, Any] = cls.model_json_schema() if is_model(cls) else {}
    return schema
