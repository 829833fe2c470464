"""What a role does about exceptions that nobody expected."""

import logging
import random

import pytest

from makegood.actor.setbacks import IN_A_ROW, LONGEST_PAUSE, Setbacks
from makegood.errors import ConfigError, StoreUnavailableError
from makegood.model.messages import Alert


class Alerts:
    """Keeps the causes that are so."""

    def __init__(self) -> None:
        self.open: list[str] = []
        self.away = False
        self.broken = False

    async def alert(self, alerts: list[Alert], /) -> None:
        self._reach()
        self.open += [alert.step for alert in alerts]

    async def ease(self, causes: list[Alert], why: str, /) -> None:
        self._reach()
        assert why
        for alert in causes:
            self.open.remove(alert.step)

    def _reach(self) -> None:
        if self.away:
            raise StoreUnavailableError("away")
        if self.broken:
            raise ZeroDivisionError("the table of alerts")


async def test_an_alert_is_raised_after_some_in_a_row_and_ends_when_the_role_works_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    alerts = Alerts()
    setbacks = Setbacks("relay", alerts, random.Random(1))
    pauses = [await setbacks.pause_after(ZeroDivisionError("each time")) for _ in range(IN_A_ROW + 20)]
    assert alerts.open == ["relay"]
    assert pauses[0] < pauses[3]
    assert max(pauses) <= LONGEST_PAUSE * 1.5
    traces = [record for record in caplog.records if record.levelno == logging.ERROR and record.exc_info]
    assert len(traces) == 1, "its traceback is logged once, later ones are a line each"
    await setbacks.over()
    assert (alerts.open, setbacks.count) == ([], 0)


async def test_an_alert_that_cannot_be_raised_or_ended_yet_is_later() -> None:
    alerts = Alerts()
    setbacks = Setbacks("relay", alerts, random.Random(1))
    alerts.away = True
    for _ in range(IN_A_ROW):
        await setbacks.pause_after(ZeroDivisionError())
    assert alerts.open == []
    alerts.away = False
    await setbacks.pause_after(ZeroDivisionError())
    assert alerts.open == ["relay"]
    alerts.away = True
    await setbacks.over()
    assert setbacks.count, "roles call it again only then"
    alerts.away = False
    await setbacks.over()
    assert (alerts.open, setbacks.count) == ([], 0)


async def test_a_role_goes_on_when_its_alert_meets_an_exception_as_well(
    caplog: pytest.LogCaptureFixture,
) -> None:
    alerts = Alerts()
    setbacks = Setbacks("relay", alerts, random.Random(1))
    alerts.broken = True
    for _ in range(IN_A_ROW):
        await setbacks.pause_after(ZeroDivisionError())
    assert "no alert could be raised" in caplog.text
    alerts.broken = False
    await setbacks.pause_after(ZeroDivisionError())
    alerts.broken = True
    await setbacks.over()
    assert "its alert could not be ended" in caplog.text
    assert setbacks.count == 0


async def test_what_an_installation_lacks_and_the_last_of_too_many_end_the_role() -> None:
    setbacks = Setbacks("scheduler", None, random.Random(1), most=3)
    with pytest.raises(ConfigError):
        await setbacks.pause_after(ConfigError("no outbox"))
    await setbacks.over()
    for _ in range(2):
        await setbacks.pause_after(ZeroDivisionError())
    with pytest.raises(ZeroDivisionError):
        await setbacks.pause_after(ZeroDivisionError())
