"""Names of steps: an item of an ``each`` has the name of its body's step, with its number."""

from makegood.store.views import StepView


def stem(name: str) -> str:
    """Return the name of the body's step that an item of an ``each`` is a copy of.

    >>> stem("create_zone[17]"), stem("charge")
    ('create_zone', 'charge')
    """
    return name.partition("[")[0]


def stem_of(step: StepView) -> str:
    """Return the stem of an item of an ``each``, and the whole name of any other step."""
    return stem(step.name) if step.plan is not None and step.plan.nth >= 0 else step.name
