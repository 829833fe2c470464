"""Which roles a process runs, and how many slots each agent has."""

from collections.abc import Iterable, Sequence

from makegood.agent.slots import Slots
from makegood.errors import ConfigError, DefinitionError
from makegood.model.breaker import Circuit
from makegood.workflow.app import App

ROLES = ("scheduler", "agent", "supervisor")
"""What a process runs unless it is told otherwise; and "inbox" where the app declares any."""


def _roles(roles: Iterable[str] | None, app: App | None, *, relays: bool) -> tuple[str, ...]:
    if isinstance(roles, str):
        raise ConfigError(f"roles={roles!r}: a tuple of names, roles=({roles!r},)")
    if roles is None:
        roles = ROLES if app is None or not app.inboxes else (*ROLES, "inbox")
    wanted = tuple(dict.fromkeys([*roles, *(["relay"] if relays else [])]))
    unknown = [role for role in wanted if role not in (*ROLES, "inbox", "relay")]
    if "relay" in wanted and not relays:
        raise ConfigError("the role 'relay' needs the outbox from which it carries: Node(..., outbox=URL)")
    if unknown or not wanted:
        raise ConfigError(f"roles={wanted!r}: any of {', '.join(ROLES)} and inbox, at least one")
    if "agent" in wanted and app is None:
        raise ConfigError(
            "the role 'agent' runs actions and needs the app that declares them: Node(app, ...)"
        )
    if "inbox" in wanted and (app is None or not app.inboxes):
        raise ConfigError(
            "the role 'inbox' needs an app that declares one: @app.inbox(\"orders\") above the function that takes its messages"
        )
    return wanted


def _slots(app: App, agents: Sequence[str] | None, slots: int | None) -> dict[str, Slots]:
    names = list(app.agents) if agents is None else list(agents)
    found: dict[str, Slots] = {}
    for name in names:
        declared = app.agents.get(name)
        if declared is None:
            raise DefinitionError(
                f"app {app.name!r} declares no agent {name!r}; it has {', '.join(app.agents) or 'none'}"
            )
        actions = {
            known: action for action in declared.actions.values() for known in (action.name, *action.formerly)
        }
        for action in declared.actions.values():
            action.fitted()  # an annotation that cannot be used is refused here, not found out by a step
        address = f"{app.name}/{name}"
        size = slots or declared.concurrency
        circuit = None if declared.breaker is None else Circuit(declared.breaker, size)
        found[address] = Slots(address, actions, size, circuit, declared.rate)
    return found
