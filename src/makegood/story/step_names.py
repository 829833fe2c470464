"""Names of steps: an item of an ``each`` has the name of its body's step, with its number."""

from collections.abc import Sequence

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


def listed(names: Sequence[str], most: int = 3, *, more: int = 0) -> str:
    """Return names as a list in a sentence; ``more``: others that are only counted.

    >>> listed(["book", "pack"]), listed(["a", "b", "c", "d", "e"]), listed(["a"], more=2)
    ('book and pack', 'a, b, c and 2 more', 'a and 2 more')
    """
    if (others := max(0, len(names) - most) + more) > 0:
        return f"{', '.join(names[:most])} and {others:,} more"
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))
