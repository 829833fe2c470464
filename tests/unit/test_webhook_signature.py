"""A receiver's check of a signature: whatever a stranger sends as headers, the answer is False and never an exception."""

import base64
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from makegood.base.webhook_signature import signature, verified

SECRET = f"whsec_{base64.b64encode(b'secret' * 4).decode()}"
BODY = b'{"n":1}'
GOOD = {
    "webhook-id": "m-1",
    "webhook-timestamp": "1000",
    "webhook-signature": signature([SECRET], "m-1", 1000, BODY),
}


def taken(headers: Any, now: float = 1010.0) -> bool:
    """Return whether a receiver takes a message with these headers."""
    return verified(SECRET, headers, BODY, now=now)


def test_what_was_signed_is_taken() -> None:
    assert taken(GOOD)
    assert taken(GOOD | {"webhook-signature": f"v1a,x v1,y {GOOD['webhook-signature']}"})
    headers = GOOD | {"webhook-id": "bestätigt-1", "webhook-signature": signature([SECRET], "bestätigt-1", 1000, BODY)}  # fmt: skip
    assert taken(headers)


@pytest.mark.parametrize("name", GOOD)
@pytest.mark.parametrize(
    "hostile",
    [
        "9" * 400, "9" * 5000, "", " ", "-1000", "1e3", "1000.0", "0x3e8", "1_000", " 1000", "\u0661\u0660\u0660\u0660", "\u00b2", "\udcff",
        "v1,\udcff", "v1,", "v1", "\0", "v1,x " * 10_000, b"1000", None, 1000, 1000.0, ["1000"], {}, float("nan"),
    ],
)  # fmt: skip
def test_a_hostile_header_is_refused_and_does_not_raise(name: str, hostile: Any) -> None:
    assert taken(GOOD | {name: hostile}) is False
    assert taken({key: value for key, value in GOOD.items() if key != name}) is False


@pytest.mark.parametrize("now", [699.0, 1301.0, float("nan"), float("inf"), float("-inf")])
def test_a_time_that_is_not_near_is_refused(now: float) -> None:
    assert not taken(GOOD, now)


ANYTHING = st.one_of(
    st.text(st.characters(exclude_categories=())),  # with lone surrogates
    st.binary(),
    st.none(),
    st.integers(),
    st.floats(),
    st.lists(st.text()),
    st.text("0123456789").map(lambda digits: digits * 50),
    st.sampled_from(sorted(GOOD.values())),
)


@given(st.dictionaries(st.sampled_from(sorted(GOOD)), ANYTHING))
def test_no_header_at_all_makes_it_raise(headers: dict[str, Any]) -> None:
    assert taken(headers) is (headers == GOOD)
