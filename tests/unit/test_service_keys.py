"""Keys in the forms that services take: never another one for the same step, and each leads back to it."""

import re
import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from makegood import keys
from makegood.base import ids
from makegood.base.service_keys import (
    LONGEST,
    MOST_ROUNDS,
    MOST_STEPS,
    SHORTEST,
    VERSION,
    KeyedRequest,
    checked_form,
    form_of_length,
    in_form,
    length_of,
    longest_key,
    request_of,
    task_of,
)
from makegood.errors import ConfigError

STORE, OTHER = "674203e9d29c1b4e", "674203e9d29c1b4f"
TASK = 7_000_000_000
DO, UNDO = KeyedRequest(TASK, 2, 3, undo=False), KeyedRequest(TASK, 2, 3, undo=True)

KEYED = st.builds(
    KeyedRequest,
    st.integers(0, 2**63 - 1),
    st.integers(0, MOST_STEPS - 1),
    st.integers(1, MOST_ROUNDS),
    undo=st.booleans(),
)
FORMS = st.sampled_from(["uuid", "uuid4", "quoted"]) | st.integers(SHORTEST, LONGEST).map("length={}".format)

FROZEN = [
    ("uuid", DO, "e88e42e5-b8c6-5637-9c08-f46229c99a18"),
    ("uuid", UNDO, "ff8acad2-d7ee-5570-b72d-a4dfffca37d4"),
    ("uuid4", DO, "e88e42e5-b8c6-4637-9c08-f46229c99a18"),
    ("uuid4", UNDO, "ff8acad2-d7ee-4570-b72d-a4dfffca37d4"),
    ("quoted", DO, '"e88e42e5-b8c6-5637-9c08-f46229c99a18"'),
    ("length=20", DO, "xgcxxw8x0pxd7emg9zpw"),
    ("length=20", UNDO, "1ege4y62b4hf2p3bhjkv"),
    ("length=28", DO, "brnj35fgkkm2gv1nh9r5s6nxgn2a"),
    ("length=28", UNDO, "2ffsb96p83k38jw99xaexeknn99h"),
    ("length=33", DO, "0d9nt2qms6ad5gy12ynraew60xwd0zhh3"),
]


@pytest.mark.parametrize(("form", "keyed_request", "key"), FROZEN)
def test_a_derivation_never_changes(form: str, keyed_request: KeyedRequest, key: str) -> None:
    """These very values are at services: whoever changes one makes a retry a second charge."""
    assert VERSION == b"makegood-key-1"
    assert in_form(STORE, keyed_request, form) == key


@given(KEYED, FORMS)
def test_every_form_leads_back_to_its_step_and_has_the_length_that_it_says(
    keyed_request: KeyedRequest, form: str
) -> None:
    key = in_form(STORE, keyed_request, form)
    assert len(key) == length_of(form)
    assert re.fullmatch(r"[0-9a-z]+", key) or form in ("uuid", "uuid4", "quoted")
    for spelling in (key, key.upper(), f" {key}\n", f'"{key}"', key.replace("-", "")):
        assert request_of(STORE, spelling) == keyed_request
        assert task_of(STORE, spelling) == keyed_request.task


@given(KEYED)
def test_uuids_are_of_the_version_that_services_ask_for(keyed_request: KeyedRequest) -> None:
    five, four = (uuid.UUID(in_form(STORE, keyed_request, form)) for form in ("uuid", "uuid4"))
    assert (five.version, four.version) == (5, 4)
    assert five.variant == four.variant == uuid.RFC_4122


@given(KEYED, st.sampled_from(["uuid", "uuid4", "quoted", "length=28", "length=36"]))
def test_a_key_of_another_store_is_told_apart(keyed_request: KeyedRequest, form: str) -> None:
    source = request_of(OTHER, in_form(STORE, keyed_request, form))
    assert source != keyed_request
    # 22 bits of a UUID tell it apart, 40 of 28 characters: one in four million passes
    assert source is None or form in ("uuid", "uuid4", "quoted")


@given(KEYED, KEYED, FORMS)
def test_two_steps_never_share_a_key(one: KeyedRequest, other: KeyedRequest, form: str) -> None:
    assert (in_form(STORE, one, form) == in_form(STORE, other, form)) is (one == other)


def test_foreign_uuids_are_none_of_ours() -> None:
    foreign = [str(uuid.uuid5(uuid.NAMESPACE_URL, str(n))) for n in range(10_000)]
    assert sum(request_of(STORE, text) is not None for text in foreign) <= 1


@pytest.mark.parametrize(
    "text",
    ["", "0anwsb9z853yp", "e88e42e5-b8c6-1637-9c08-f46229c99a18", "e88e42e5-b8c6-5637-1c08-f46229c99a18", "ü" * 28, "o" * 28,
     "x" * 65, f"{OTHER}-0000006gks600/charge/1/do"],
)  # fmt: skip
def test_other_texts_are_no_keys(text: str) -> None:
    assert task_of(STORE, text) is None


def test_the_readable_key_leads_back_too() -> None:
    for direction in ("do", "undo"):
        key = ids.key(STORE, TASK, "charge[3]", 12, direction)
        assert task_of(STORE, key) == task_of(STORE, f'"{key}"') == TASK
        assert len(key) == longest_key("charge[3]", direction, 12)


def test_what_no_form_can_hold_is_refused() -> None:
    for keyed_request in (
        KeyedRequest(TASK, MOST_STEPS, 1, undo=False),
        KeyedRequest(TASK, 0, MOST_ROUNDS + 1, undo=False),
    ):
        with pytest.raises(ConfigError, match="1,048,576 steps"):
            in_form(STORE, keyed_request, "uuid")


@pytest.mark.parametrize(
    ("length", "words"),
    [(19, "two steps would share a key"), (0, "at least 20"), (65, "at most 64"), (True, "whole number"), ("28", "whole number")],
)  # fmt: skip
def test_a_length_has_bounds(length: object, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        form_of_length(length, "key_as")


@pytest.mark.parametrize(
    "form", ["uuid5", "UUID", "length=19", "length=", "length=٢٨", "length=28 ", None, 28]
)
def test_a_form_that_does_not_exist_is_refused(form: object) -> None:
    with pytest.raises(ConfigError):
        checked_form(form, "key")


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"form": ""}, "not the form of a key"),
        ({"conflict": "run"}, "conflict='run': running, done, another"),
        ({"remembers": "yes"}, "remembers='yes': True, False, or None"),
        ({"header": "X-Key\n"}, "not the name of an HTTP header"),
        ({"header": 3}, "header=3 is not the name of an HTTP header"),
        ({"first_sent": b"X-First"}, "first_sent=b'X-First' is not the name"),
        ({"field": ""}, "field='' is not the name of a field"),
        ({"field": "a b"}, "field='a b' is not"),
        ({"field": 3}, "field=3 is not"),
        ({"header": "X-Key", "field": "key"}, "a key goes in one place"),
        ({"header": "X-Key", "first_sent": "x-key"}, "cannot share the header X-Key"),
        ({"remembers": 1}, "remembers=1: True, False, or None"),
        ({"limit": True}, "limit=True: a whole number"),
        ({"keeps": "soon"}, "keeps='soon' is not a duration"),
        ({"keep": "1h"}, r"there is no option 'keep' \(did you mean 'keeps'\?\)"),
    ],
)
def test_a_preset_of_values_that_make_no_sense_is_refused(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        keys.Preset("the service", **fields)


@pytest.mark.parametrize("service", ["", "  ", None, 3])
def test_a_preset_names_its_service(service: Any) -> None:
    with pytest.raises(ConfigError, match="the name of the service"):
        keys.Preset(service)
