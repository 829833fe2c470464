"""Words for declarations: NOTHING, and a probe's answers."""

import enum
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from makegood.base.arguments import judge_calls
from makegood.errors import ConfigError

R_co = TypeVar("R_co", covariant=True)


class Nothing(enum.Enum):
    """The type of ``NOTHING``."""

    NOTHING = "nothing"

    def __repr__(self) -> str:
        return "mg.NOTHING"


class NotHappened(enum.Enum):
    """The type of ``NOT_HAPPENED``, for annotations: ``-> mg.Happened[str] | mg.NotHappened``."""

    NOT_HAPPENED = "not happened"

    def __repr__(self) -> str:
        return "mg.NOT_HAPPENED"


NOTHING: Final = Nothing.NOTHING
"""``undo=mg.NOTHING``: a read, or a harmless effect, which is listed while it is in place."""

NOT_HAPPENED: Final = NotHappened.NOT_HAPPENED
"""A probe's answer if the service does not know the key."""


@judge_calls(ConfigError)
@dataclass(frozen=True, slots=True)
class Happened(Generic[R_co]):
    """A probe's answer if the action happened, with the action's result.

    >>> Happened("pay-7").result
    'pay-7'
    """

    result: R_co
