"""Messages of a queue, made of what a broker delivers: their ids, headers and addresses."""

import hashlib
import logging
import random
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from makegood.base import ids
from makegood.base.text import words
from makegood.brokers import BrokerAddress, Delivery
from makegood.client.queues import outgoing
from makegood.declare.inbox import WITHOUT_ID
from makegood.errors import ConfigError, PayloadError
from makegood.messaging.queue_feed import check_body
from makegood.model import notices
from makegood.payload import envelopes
from makegood.payload.envelopes import Codec, message_context
from makegood.store.queue_records import Outgoing

REMEMBERED: Final = 14 * 86_400.0
"""Seconds for which a message's id is known once the inbox has acknowledged it: brokers may deliver a message
again long after its acknowledgement.
"""

log = logging.getLogger("makegood.relay")

_MOST_ID: Final = 300
_MOST_NAMED: Final = 20
"""Places that may not be named of which the log speaks, at most."""
_MOST_HEADERS: Final = 64 * 1024


class SourceMessages:
    """Makes messages of ``queue`` of what the place at ``address`` delivers.

    ``codec``: encodes bodies before they are stored. ``identify`` returns a delivery's id, in place of the
    broker's. ``may_reply`` returns whether a place at the broker may be named as ``reply_to``.
    """

    def __init__(
        self,
        address: BrokerAddress,
        queue: str,
        rng: random.Random,
        *,
        codec: Codec | None = None,
        identify: Callable[[Delivery], str | None] | None = None,
        may_reply: Callable[[BrokerAddress], bool] = lambda _: False,
    ) -> None:
        self.address = address
        self.queue = queue
        self._rng = rng
        self._codec = codec
        self._identify = identify
        self._may_reply = may_reply
        self._unheard: set[str] = set()
        """Places that senders named and may not name, each logged once."""

    async def message(self, delivery: Delivery) -> Outgoing:
        """Return a delivery as a message of the queue. Raises ``PayloadError`` if none can be made of it."""
        subject = f"message {delivery.id or 'without an id'} of {self.address}"
        if delivery.fault:
            raise PayloadError(f"{subject}: {delivery.fault}")
        body = check_body(delivery.body, subject)
        name = self._id(delivery, subject)
        message_id = name or ids.random_uuid(self._rng)
        if self._codec is not None:
            body = await envelopes.encode(self._codec, body, message_context(self.queue, message_id))
        headers = _fitting(delivery.headers)
        if name is None:
            headers[WITHOUT_ID] = str(self.address)
        correlation_id = _printable(delivery.correlation_id)
        if delivery.correlation_id and correlation_id is None:
            headers["correlation-id"] = delivery.correlation_id
        return outgoing(
            self.queue, message_id, body, kind=_printable(delivery.kind) or "", correlation_id=correlation_id,
            reply_to=self._reply_to(delivery, headers), headers=headers, remember=REMEMBERED,
        )  # fmt: skip

    def letter(self, delivery: Delivery) -> Outgoing:
        """Return a delivery that no queue can take as a message that is kept as it is."""
        # The name of a dead letter is one of its own: the queue may have a message of that id, and several
        # refused ones may share it.
        name = hashlib.sha256((delivery.id or "").encode(errors="surrogatepass") + b"\0" + delivery.body)
        return Outgoing(
            queue=self.queue, id=f"refused-{name.hexdigest()[:32]}", body=delivery.body,
            headers=_fitting(delivery.headers), remember=REMEMBERED,
        )  # fmt: skip

    def _id(self, delivery: Delivery, subject: str) -> str | None:
        """Return the id under which the queue knows a delivery; None if it has none."""
        try:
            name = delivery.id if self._identify is None else self._identify(delivery)
        except Exception as defect:
            raise PayloadError(f"{subject}: id= of the inbox raised {words(defect, named=True)}") from defect
        if name is None or name == "":
            return None
        if not isinstance(name, str):
            raise PayloadError(f"{subject}: id= of the inbox returned {type(name).__name__}, not a text")
        if len(name) <= _MOST_ID and name.isprintable():
            return name
        return f"sha256:{hashlib.sha256(name.encode(errors='surrogatepass')).hexdigest()}"

    def _reply_to(self, delivery: Delivery, headers: dict[str, str]) -> str | None:
        """Return where the sender wants to be notified, if it may name that place."""
        if not delivery.reply_to:
            return None
        to = f"{self.address.broker}/{delivery.reply_to}"
        try:
            address = notices.at_broker(to)
        except ConfigError:
            address = None
        if address is not None and self._may_reply(address):
            return to
        headers["reply-to"] = delivery.reply_to
        if len(self._unheard) < _MOST_NAMED and to not in self._unheard:
            self._unheard.add(to)
            log.warning(
                "a message of %s asks for answers at %.300r, which %s: its sender is not notified",
                self.address, to, "cannot be an address" if address is None else "is not among reply_to_brokers",
            )  # fmt: skip
        return None


def _printable(text: str | None) -> str | None:
    """Return a text that a message may have as its kind or correlation id, None for any other."""
    return text if text and len(text) <= _MOST_ID and text.isprintable() else None


def _fitting(headers: Mapping[str, str]) -> dict[str, str]:
    """Return headers, without the longest ones if they are too many to keep."""
    result = dict(headers)
    while result and len(msgspec.json.encode(result)) > _MOST_HEADERS:
        del result[max(result, key=lambda name: len(result[name]))]
    return result
