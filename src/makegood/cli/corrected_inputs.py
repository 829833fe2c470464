"""Corrections of a resubmission: checked before they are sent, if the app's code is available, and shown.

They are shown before the act and afterwards.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from makegood.cli.import_app import naming
from makegood.client.replanning import check_arguments
from makegood.console.redaction import Redaction, by_name
from makegood.errors import ConfigError
from makegood.payload.codec import UNREADABLE
from makegood.store.views import TaskDetail
from makegood.workflow.app import App
from makegood.workflow.workflow import Workflow


def check(
    app: App, detail: TaskDetail, step: str | None, inputs: Any
) -> tuple[Workflow[..., Any] | None, Any]:
    """Check corrected inputs against the annotations of the action, or of the workflow when ``step`` is None.

    Returns the workflow, if it has to plan, and the inputs: then as the plan that it makes of them, once.

    Raises ``PayloadError`` for inputs that do not fit, ``UnknownActionError`` when the app does not have that
    action, ``ConfigError`` when it does not have the workflow, and ``DefinitionError`` for whatever the
    workflow function raises. Other errors are left to the act itself.
    """
    task = detail.task
    if step is None:
        workflow = app._find_workflow(task.workflow) if task.app == app.name else None
        if workflow is None:
            raise ConfigError(
                f"--check: app {app.name!r} declares no workflow {task.app}.{task.workflow}, which this task is one of"
            )
        with naming(workflow, "nothing was changed"):
            return workflow, workflow._plan_from(inputs) if isinstance(inputs, list) else inputs
    view = next((view for view in detail.steps if view.name == step), None)
    if view is not None and view.kind == "action" and isinstance(inputs, dict):
        check_arguments(app._find_action(view.agent, view.action), step, inputs)
    return None, inputs


def correction(change: bytes | None, *, whole: bool = False) -> str:
    """Say what a correction replaced, of an object only the members that differ.

    Secret values are covered, unless ``whole``.

    >>> correction(b'{"step":"charge","was":{"card":5,"order":1},"now":{"card":"a","order":1}}')
    'charge: {"card":"•••"}, another secret value than before'
    """
    return "; ".join(lines(change, whole=whole))


def lines(change: bytes | None, *, whole: bool = False) -> list[str]:
    """Return what a correction replaces, a line for each: the inputs, the steps that run with other
    arguments, and those that are done.

    >>> kept = b'{"step":"a","was":{"x":1},"now":{"x":2}}'
    >>> lines(b'{"step":null,"was":[1],"now":[2],"steps":[],"kept":[%b]}' % kept)
    ['inputs: [2] instead of [1]', 'a: is done, and keeps {"x":1}; with these inputs it would be {"x":2}']
    >>> lines(b"7")
    ['what it replaced cannot be read']
    """
    if change is None:
        return []
    try:
        document = msgspec.json.decode(change)
        return _lines(document if whole else by_name(document), _text if whole else _text_without_secrets)
    except UNREADABLE:
        return ["what it replaced cannot be read"]


def _lines(document: Any, as_text: Callable[[Any], str]) -> list[str]:
    def line(name: str, part: dict[str, Any]) -> str:
        was, now = map(as_text, _differing(part))
        return (
            f"{name}: {now}, another secret value than before"
            if was == now
            else f"{name}: {now} instead of {was}"
        )

    texts = [line("value" if "message" in document else document["step"] or "inputs", document)]
    texts += [line(part["step"], part) for part in document.get("steps", ())]
    if "result" in document:
        texts.append(line("the result", document["result"]))
    for part in document.get("kept", ()):
        was, now = _differing(part)
        texts.append(
            f"{part['step']}: is done, and keeps {as_text(was)}; with these inputs it would be {as_text(now)}"
        )
    return texts


def _differing(part: dict[str, Any]) -> tuple[Any, Any]:
    was, now = part["was"], part["now"]
    if isinstance(was, dict) and isinstance(now, dict):
        differ = [name for name in {**was, **now} if was.get(name, ...) != now.get(name, ...)]
        was, now = ({name: side[name] for name in differ if name in side} for side in (was, now))
    return was, now


def _text(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _text_without_secrets(value: Any) -> str:
    document = Redaction().raw(msgspec.json.encode(value)) or b"null"
    return msgspec.json.format(document, indent=-1).decode()
