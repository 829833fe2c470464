"""A role's reaction to an unexpected exception: it logs it, rests, and continues.

An unreadable row is set aside where it is read. If a role meets an exception all the same, that is a defect,
of makegood or of its installation. Ending the process would help nobody: the next one meets the same. So the
role logs the exception with its traceback, rests ever longer, raises an alert if it meets nothing else, and
ends that alert once it works again.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from typing import Final, Protocol, TypeVar

from makegood.base.pacing import Pauses
from makegood.base.text import without_backticks, words
from makegood.errors import ClosedError, ConfigError, SchemaMismatchError, StoreUnavailableError
from makegood.model.messages import Alert

log = logging.getLogger("makegood.node")

T = TypeVar("T")

ENDING: Final = (ConfigError, SchemaMismatchError, ClosedError)
"""Exceptions that do end a role: somebody has to change its installation, and the message says what."""

IN_A_ROW: Final = 3
"""Exceptions without a successful turn between them, after which an alert is raised."""

FIRST_PAUSE: Final = 0.1
LONGEST_PAUSE: Final = 5.0
"""Seconds that a role rests after an exception: doubled each time."""


class _Alerts(Protocol):
    async def alert(self, alerts: list[Alert], /) -> None: ...

    async def ease(self, causes: list[Alert], why: str, /) -> None: ...


class Setbacks:
    """The setbacks of one role.

    ``store``: where its alerts go; None: nowhere. ``most``: this many in a row end the role; None: never.
    """

    def __init__(
        self, role: str, store: _Alerts | None, rng: random.Random, *, most: int | None = None
    ) -> None:
        self.count = 0
        """Exceptions since a turn went well."""
        self._most = most
        self._role = role
        self._store = store
        self._pauses = Pauses(rng, first=FIRST_PAUSE, longest=LONGEST_PAUSE)
        self._away = Pauses()
        self._last = ""
        self._has_alert = False

    async def turn(
        self, once: Callable[[], Awaitable[float | None]], log: logging.Logger, away: str, *arguments: object
    ) -> float | None:
        """Do a turn, and return the seconds to rest, as ``once`` returns them.

        While the store is away, ``log`` reports it in the words ``away`` about what is ``named``, and the
        rests grow. After an exception it rests here, and returns 0.
        """
        try:
            rest = await once()
            self._away.reset()
            if self.count:
                await self.over()
        except StoreUnavailableError as fault:
            log.warning(away, *arguments, fault)
            return self._away.draw()
        except Exception as defect:  # noqa: BLE001 - the role continues
            await asyncio.sleep(await self.pause_after(defect))
            return 0.0
        return rest

    async def attempt(
        self, once: Callable[[], Awaitable[T]], away: Callable[[StoreUnavailableError], object]
    ) -> T | None:
        """Return what ``once`` returns; None if the store is away, after a call of ``away``, or after an
        exception and a rest.
        """
        try:
            result = await once()
        except StoreUnavailableError as fault:
            away(fault)
        except Exception as defect:  # noqa: BLE001 - the role continues
            await asyncio.sleep(await self.pause_after(defect))
        else:
            await self.over()
            return result
        return None

    async def pause_after(self, defect: Exception) -> float:
        """Log an exception, and return the seconds to rest.

        Raises the exception again if it is one of ``ENDING``, or the last of too many.
        """
        self.count += 1
        if isinstance(defect, ENDING) or self.count == self._most:
            raise defect
        pause = self._pauses.draw()
        text = words(defect, named=True)
        log.error(
            "%s: this is a defect, please report it; the role continues in %.1f s: %s", self._role, pause, text,
            exc_info=None if text == self._last else defect,
        )  # fmt: skip
        self._last = text
        if self.count >= IN_A_ROW and not self._has_alert:
            self._has_alert = await self._report(text)
        return pause

    async def over(self) -> None:
        """Record that a turn went well.

        While the alert cannot be ended, ``count`` stays above 0: call this again.
        """
        if self._has_alert and self._store is not None:
            try:
                await self._store.ease([self._alert("")], "it works again")
            except StoreUnavailableError:
                return
            except Exception as fault:  # noqa: BLE001 - the role works, whatever becomes of its alert
                log.warning("%s: its alert could not be ended: %s", self._role, words(fault, named=True))
            self._has_alert = False
        self.count, self._last = 0, ""
        self._pauses.reset()

    async def _report(self, cause: str) -> bool:
        if self._store is None:
            return False
        text = f"{self._role} meets an exception at each turn, and does nothing else: {cause}; see its log"
        try:
            await self._store.alert([self._alert(text)])
        except Exception as fault:  # noqa: BLE001 - a role that continues after any exception does so after this one
            log.warning("%s: no alert could be raised: %s", self._role, words(fault, named=True))
            return False
        return True

    def _alert(self, text: str) -> Alert:
        return Alert("role_failing", step=self._role, text=without_backticks(text)[:1000])
