"""Sends replies and notes through the store where no Scheduler of this process takes them in memory."""

import asyncio
import logging
import random
from collections.abc import Sequence

from makegood.actor.setbacks import Setbacks
from makegood.base.ids import show
from makegood.base.pacing import Pauses
from makegood.base.sizes import MIB
from makegood.channels.protocol import Channel
from makegood.errors import StoreUnavailableError
from makegood.model.messages import TaskMessage

log = logging.getLogger("makegood.agent")

_MOST_REPLIES, _MOST_BYTES = 1000, 4 * MIB
"""Replies, and their bytes, that are sent together."""

Entry = tuple[int, int, TaskMessage]
"""A reply or a note: the number of the process that made it, its task, the message."""


class ReplySender:
    """Sends replies in batches; a reply that the store cannot take now is kept until it is accepted or
    late. A note is sent before what came after it.
    """

    def __init__(self, channel: Channel, setbacks: Setbacks, rng: random.Random) -> None:
        self.waiting: list[Entry] = []
        """Replies that the store has not accepted yet."""
        self._channel = channel
        self._setbacks = setbacks
        self._rng = rng
        self._wake = asyncio.Event()
        self._one_by_one = False

    def send(self, node: int, task: int, message: TaskMessage) -> None:
        """Send a reply soon."""
        self.waiting.append((node, task, message))
        self._wake.set()

    async def run(self) -> None:
        """Send what there is, until cancelled."""
        pauses = Pauses(self._rng)
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self.waiting:
                batch = _batch(self.waiting[:1] if self._one_by_one else self.waiting)
                try:
                    node, messages = batch[0][0], [(task, message) for _, task, message in batch]
                    verdicts: Sequence[bool] = ()
                    if _is_note(batch[0]):
                        await self._channel.note(messages)
                    else:
                        verdicts = await self._channel.answer(node, messages)
                except StoreUnavailableError as away:
                    log.warning("%d replies wait for the store: %s", len(self.waiting), away)
                    await asyncio.sleep(pauses.draw())
                    continue
                except Exception as defect:  # noqa: BLE001 - a reply must not keep the others
                    await asyncio.sleep(await self._rest_after_defect(batch[0], defect))
                    continue
                if self._setbacks.count:
                    self._one_by_one = self._one_by_one and len(self.waiting) > 1
                    await self._setbacks.over()
                pauses.reset()
                entries = {id(entry) for entry in batch}
                self.waiting = [entry for entry in self.waiting if id(entry) not in entries]
                if late := verdicts.count(False):
                    log.info("%d of %d replies came too late and were rejected", late, len(batch))

    async def _rest_after_defect(self, first: Entry, defect: Exception) -> float:
        """Return how long to rest after the store raised an unexpected exception.

        The first reply of a batch is then sent alone. A reply that was alone is dropped: its step is in doubt
        once its deadline has passed.
        """
        rest = await self._setbacks.pause_after(defect)
        if self._one_by_one:
            log.error("a reply of task %s could not be given to the store", show(first[1]), exc_info=defect)
            self.waiting.remove(first)
        self._one_by_one = not self._one_by_one
        return rest


def _batch(waiting: Sequence[Entry]) -> Sequence[Entry]:
    """Return the replies, or the notes, of one node that are sent together: at least one."""
    node, entries, size = waiting[0][0], list[Entry](), 0
    for entry in waiting[:_MOST_REPLIES]:
        if _is_note(entry) != _is_note(waiting[0]):  # a reply must not pass a note
            break
        size += len(entry[2].value or b"")
        if size > _MOST_BYTES and entries:
            break
        if entry[0] == node:
            entries.append(entry)
    return entries


def _is_note(entry: Entry) -> bool:
    return entry[2].note is not None
