"""Acknowledging alerts: one, or all that are open now of a kind or of a task."""

from typing import Final, get_args

from makegood.errors import ActRefusedError, AlertNotFoundError, ConfigError
from makegood.model.messages import Act, AlertKind
from makegood.store.protocol import Store
from makegood.store.views import AlertView

_AT_A_TIME: Final = 500


def checked_kind(kind: str | None) -> str | None:
    """Return a kind of alerts, None for any. Raises ``ConfigError`` for an unknown kind."""
    kinds = get_args(AlertKind)
    if kind is not None and kind not in kinds:
        raise ConfigError(f"kind={kind!r:.60} is not a kind of alerts: write one of {', '.join(kinds)}")
    return kind


async def acknowledge(store: Store, alert: int, act: Act) -> AlertView:
    """Acknowledge an alert, and return it as it is now.

    Raises ``AlertNotFoundError``, and ``ActRefusedError`` when somebody else was first or it has ended.
    """
    view = (await store.alerts.acknowledge([alert], act)).get(alert)
    if view is None:
        raise AlertNotFoundError(f"there is no alert {alert} in this store: see `makegood alerts --all`")
    if view.acked is None:
        raise ActRefusedError(
            f"alert {alert} has ended by itself: {view.ended_why}", act="acknowledge", state="ended"
        )
    if (view.acked_by, view.acked_why) != (act.who, act.why):
        why = f" ({view.acked_why})" if view.acked_why else ""
        text = f"alert {alert} was acknowledged by {view.acked_by}{why} before"
        raise ActRefusedError(text, act="acknowledge", state="acknowledged")
    return view


async def acknowledge_all(store: Store, act: Act, kind: str | None, task: int | None) -> list[AlertView]:
    """Acknowledge the open alerts of a kind, of a task, or of both; return them as they are now.

    Those that somebody has, or that end meanwhile, are left out. Raises ``ConfigError`` without either, or
    for an unknown kind.
    """
    if kind is None and task is None:
        raise ConfigError("name the kind or the task of the alerts to acknowledge")
    result: list[AlertView] = []
    while True:
        views = await store.alerts.views(_AT_A_TIME, task, ended=False, kind=checked_kind(kind))
        numbers = [view.id for view in views if view.acked is None]
        if not numbers:
            return result
        answers = await store.alerts.acknowledge(numbers, act)
        result += [view for view in answers.values() if view.acked is not None and view.acked_by == act.who]
