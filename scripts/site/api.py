"""The pages of the API reference: each public name of a module, made from its docstring."""

import importlib
import inspect
from collections.abc import Mapping, Sequence

import makegood as mg

MODULES: Mapping[str, str] = {  # besides makegood itself
    "makegood.election": "Leader election",
    "makegood.testing": "Tests of your own workflows",
    "makegood.telemetry": "Logs, metrics and spans",
}

GROUPS: Mapping[str, Sequence[str]] = {
    "Declare": (
        "App", "Agent", "Action", "Workflow", "Plan", "Inbox", "Signal", "SignalByKey", "Retry", "Recover", "NEVER", "Breaker", "Answer", "Asked", "NOTHING",
        "NOT_HAPPENED", "NotHappened", "Happened", "SETUP",
    ),
    "Inside a workflow": (
        "parallel", "branches", "first", "each", "when", "sleep", "sleep_until", "wait_for", "fail", "done", "all_of", "any_of", "not_", "MOMENT",
    ),
    "Inside an action": ("current_call", "Call", "Token", "Transaction"),
    "Submit and operate": (
        "Client", "SyncClient", "TaskHandle", "SyncTaskHandle", "Submissions", "SyncSubmissions", "Filter", "Prefix", "Exact",
        "BatchProgress", "Act", "Acted", "Signalled", "ScheduleHandle", "SyncScheduleHandle",
    ),
    "Queues and notifications": ("Queue", "SyncQueue", "QueueMessage", "Sent", "verified", "Delivery"),
    "Run": ("Node", "SyncNode", "Options", "Pass"),
    "Records": (
        "TaskView", "TaskDetail", "BulkView", "StepView", "SignalView", "EventView", "AuditView", "AlertView", "MessageView", "QueueView", "ListenerView", "ScheduleView", "LaneView", "LanePlace", "TaskLane", "BrokersView", "SourceView", "ReceiverView",
    ),
}  # fmt: skip
"""The names of ``makegood`` by subject. Errors make the last group."""

VALUES: Mapping[str, str] = {
    "NOTHING": "For ``undo=mg.NOTHING``: the action only reads, or its effect is harmless. makegood lists the effect as long as it is in place.",
    "NOT_HAPPENED": "What a probe returns if certainly nothing happened.",
    "SETUP": "The default of a keyword-only parameter that a setup of the same name fills: see ``App.setup``.",
    "MOMENT": "Among the inputs of a schedule: the moment, which the workflow gets as an aware ``datetime``.",
    "NEVER": "For ``retry=mg.NEVER``, at services without idempotency keys: one try. makegood neither repeats nor undoes a step in doubt, "
    "unless a probe can decide.",
    "LEASE_STORE_CASES": "What every lease store must do. To prove yours, call ``await case.prove(world)`` for each of these cases.",
}
"""Public names that are values, which have no docstring of their own."""


def exported(module: str) -> Sequence[str]:
    """Return the public names of a module."""
    names: Sequence[str] = importlib.import_module(module).__all__
    return names


def groups() -> dict[str, list[str]]:
    """Return every public name of ``makegood`` by subject. Raises ``LookupError`` for one that has none."""
    errors = [
        name for name in mg.__all__
        if inspect.isclass(one := getattr(mg, name)) and issubclass(one, BaseException)
    ]  # fmt: skip
    members = {title: list(names) for title, names in GROUPS.items()} | {"Errors": errors}
    all_names = [name for names in members.values() for name in names]
    if wrong := set(all_names) ^ set(mg.__all__):
        raise LookupError(f"scripts/site/api.py: {', '.join(sorted(wrong))}: in one group each, and public")
    return members


def _entry(module: str, name: str) -> str:
    one = getattr(importlib.import_module(module), name)
    if inspect.isclass(one):
        return _directive(
            "autoclass",
            f"{module}.{name}",
            [":members:", ":inherited-members: object, Exception, BaseException, tuple"],
        )
    if not callable(one):
        return "\n".join(
            ["```{eval-rst}", f".. py:data:: {module}.{name}", "", f"   {VALUES[name]}", "```", ""]
        )
    return _directive("autofunction", f"{module}.{name}", [])


def _directive(kind: str, name: str, options: Sequence[str]) -> str:
    return "\n".join(
        ["```{eval-rst}", f".. {kind}:: {name}", *(f"   {option}" for option in options), "```", ""]
    )


def _page(title: str, module: str, names: Sequence[str]) -> str:
    return "\n".join([f"# {title}", "", *(_entry(module, name) for name in names)])


def pages() -> dict[str, str]:
    """Return the pages by file name."""
    texts: dict[str, str] = {}
    for title, names in groups().items():
        texts[title.lower().replace(" ", "-") + ".md"] = _page(title, "makegood", names)
    for module, title in MODULES.items():
        texts[module.removeprefix("makegood.") + ".md"] = _page(title, module, exported(module))
    listing = "\n".join(["```{toctree}", ":maxdepth: 2", "", *texts, "```"])
    about = "Every public name, generated from its docstring. Names below *Declare* to *Errors* are `mg.NAME` after `import makegood as mg`."
    texts["index.md"] = f"# API reference\n\n{about}\n\n{listing}\n"
    return texts
