"""Words for a ``when``: what it asks, and what followed."""

from makegood.base.secret_names import COVER, is_secret
from makegood.model.plan import INPUTS, Condition, Template
from makegood.store.views import StepView, TaskDetail

MOST = 60
"""The most characters of a condition in words."""
MOST_NAMES = 3


def condition_text(view: StepView, detail: TaskDetail) -> str:
    """Return what a ``when`` asks, such as ``when screen.risk is "high"``."""
    condition = view.plan.condition if view.plan is not None else None
    if condition is None:
        return view.name
    text = f"when {_words(condition, {step.idx: step.name for step in detail.steps})}"
    return text if len(text) <= MOST else f"{text[: MOST - 1]}…"


def _words(condition: Condition, names: dict[int, str]) -> str:
    if condition.op in ("eq", "ne"):
        verb = "is" if condition.op == "eq" else "is not"
        sides = condition.left, condition.right
        left, right = (_value(side, names, cover=any(map(_secret, sides))) for side in sides)
        return f"{left} {verb} {right}"
    if condition.op == "true":
        return _value(condition.left, names)
    parts = [_words(part, names) for part in condition.parts]
    if condition.op == "not":
        return f"not {' and '.join(parts)}"
    return (" and " if condition.op == "all" else " or ").join(parts)


def _secret(template: Template | None) -> bool:
    """Whether a value comes out of a field whose name says that it is secret."""
    refs = template.refs if template is not None else ()
    return any(isinstance(step, str) and is_secret(step) for ref in refs for step in ref.path)


def _value(template: Template | None, names: dict[int, str], *, cover: bool = False) -> str:
    """Return a value in words: a step's name with the way into its result, or the workflow's JSON."""
    if template is None:
        return "…"
    if cover and not template.refs:
        return COVER  # compared with a secret
    text = template.parts[0]
    for ref, part in zip(template.refs, template.parts[1:], strict=True):
        way = "".join(f".{step}" if isinstance(step, str) else f"[{step}]" for step in ref.path)
        source = "input" if ref.of in INPUTS else ref.of
        text += (names.get(ref.index, f"step {ref.index}") if ref.of == "step" else source) + way + part
    return text


def verdict_text(view: StepView, detail: TaskDetail) -> str:
    """Return what followed from a ``when``: "no: review skipped"; "" while it is undecided."""
    if view.state not in ("done", "kept") or view.result is None:
        return ""
    side = "yes" if view.result == b"true" else "no"
    left_out = [
        step.name
        for step in detail.steps
        if step.state == "skipped" and step.kind == "action" and step.plan is not None
        and any(guard == view.idx for guard, _ in step.plan.guards)
    ]  # fmt: skip
    if not left_out:
        return side
    more = f" and {len(left_out) - MOST_NAMES} more" if len(left_out) > MOST_NAMES else ""
    return f"{side}: {', '.join(left_out[:MOST_NAMES])}{more} skipped"
