"""The filter language: what each term means, and what is refused with which words."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from makegood.errors import ConfigError
from makegood.model.attributes import text_of
from makegood.store import filters
from makegood.store.filters import MOST, NAMES, parse_filter, parse_terms
from makegood.store.views import Exact, Filter, Prefix


def test_a_filter_says_all_in_one() -> None:
    assert parse_terms("") == {}
    assert parse_terms("state=error,undone since=2h app=shop") == {
        "state": ("error", "undone"), "since": 7200.0, "app": "shop",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "means"),
    [
        ("state:error workflow:place_order", Filter(states=("error",), workflow="place_order")),
        ("key:a=b", Filter(key="a=b")),
        ("key=a:b", Filter(key="a:b")),
        ("o-1187", Filter(word="o-1187")),
        ('"two words"', Filter(word="two words")),
        ("step:charge agent:payments", Filter(step="charge", agent="payments")),
        ("waits:approval", Filter(waits="approval")),
        ("agent:shop/payments", Filter(app="shop", agent="payments")),
        ("age:>5m", Filter(older=300.0)),
        ("age:<=90", Filter(younger=90.0)),
        ("older:1h since:2h", Filter(older=3600.0, younger=7200.0)),
        ("failing:yes doubt:no", Filter(failing=True, doubt=False)),
        ("failures:3", Filter(failures=(3, 3))),
        ("failures:>=3 priority:<5", Filter(failures=(3, MOST), priority=(0, 4))),
        ("failures:>0 priority:<=5", Filter(failures=(1, MOST), priority=(0, 5))),
        ("error:Timeout", Filter(error="Timeout")),
        ("correlation:2026-11-28", Filter(correlation_id="2026-11-28")),
        ("correlation=2026-*", Filter(correlation_id=Prefix("2026-"))),
        ("key:2026-11-28/*", Filter(key=Prefix("2026-11-28/"))),
        ("2026-11-28/*", Filter(key=Prefix("2026-11-28/"))),
        ("key:'a b/'*", Filter(key=Prefix("a b/"))),
        ("key:'a*'", Filter(key=Exact("a*"))),
        (r"key:a\*", Filter(key=Exact("a*"))),
        ('key:"a*"', Filter(key=Exact("a*"))),
        ("key:'a*b'", Filter(key="a*b")),
        ("key:'a*'*", Filter(key=Prefix("a*"))),
        ("'a*'", Filter(word="a*")),
        ("error:'a * b'", Filter(error="a * b")),
        ("attribute:customer=ada", Filter(attributes={"customer": "ada"})),
        ("attribute=customer=ada", Filter(attributes={"customer": "ada"})),
        ("attribute:a:b=c=d", Filter(attributes={"a:b": "c=d"})),
        ("attribute:city=''", Filter(attributes={"city": ""})),
        ("attribute:city=ul* attribute:vip=true", Filter(attributes={"city": Prefix("ul"), "vip": "true"})),
    ],
)
def test_a_term_means_one_condition(text: str, means: Filter) -> None:
    assert parse_filter(text) == means


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("stat:error", "'stat:error' is not understood; did you mean state:...?"),
        ("stat=error", "did you mean state=...?"),
        ("zzz:1", f"write name:value, of {', '.join(NAMES)}"),
        ("state:", "'state:' has no value: write it after the :, without a space"),
        ("key: a", "'key:' has no value"),
        ("state:eror", "'eror' is not a state; the states are pending"),
        ("older:soon", "older='soon' is not a duration"),
        ("age:5m", "write age:>5m or age:<5m"),
        ("age:>5m older:1h", "older is given twice"),
        ("a b", "a word without a name is given twice"),
        ("failing:maybe", "write failing:yes or failing:no"),
        ("failures:many", "write failures:3, failures:>=3 or failures:<3"),
        ("failures:99999999999", "failures:99999999999 is not understood"),
        ("key:'a", "no closing quote for 'a, character 5 of the filter"),
        (r"""a\" key:"b'" error:'c d""", "no closing quote for 'c d, character 20 of the filter"),
        ("key:a\\", r"ends with a \: write \\ for one"),
        ("key:\x00", "texts must be Unicode without NUL"),
        ("customer=ada", "'customer=ada' is not understood; write name=value, of state, "),
        ("customer=ada", "An attribute of a task is attribute:customer=ada"),
        ("attribute:customer", "write attribute:customer=ada"),
        ("attribute:a=1 attribute:a=2", "attribute is given twice"),
        ("key:*", "key:* is not understood: write a * only at the end, after the beginning that all have"),
        ("*", "key:* is not understood"),
        ("key:*-a", "key:*-a is not understood: write a * only at the end"),
        ("attribute:city=*m", "attribute:city=*m is not understood"),
        (
            "workflow:place*",
            "workflow:place* is not understood: write a * only at the end of a value of key, correlation",
        ),
        ("state:err*", "put a star that is meant in quotes"),
        ("a*b", "word:a*b is not understood"),
    ],
)
def test_what_is_not_understood_names_what_is_known(text: str, hint: str) -> None:
    with pytest.raises(ConfigError) as error:
        parse_filter(text)
    assert hint in str(error.value)


@pytest.mark.parametrize(
    "condition",
    [
        Filter(
            key=Prefix("a b"),
            correlation_id=Exact("n*"),
            attributes={"a": Exact("*"), "b c": Prefix("x"), "n": 3},
        ),
        Filter(key="a*b", word="c*"),
        Filter(correlation_id=Prefix("a*"), attributes={"a": ""}),
    ],
)
def test_a_filter_in_words_means_the_same(condition: Filter) -> None:
    texts = {
        name: text_of(value) if isinstance(value, int) else value
        for name, value in (condition.attributes or {}).items()
    }
    assert parse_filter(filters.text_of(condition)) == replace(condition, attributes=texts or None)


def test_a_filter_is_kept_as_json() -> None:
    condition = Filter(
        key=Prefix("a"),
        correlation_id=Exact("b*"),
        attributes={"a": "b", "n": 3, "c": True, "d": Prefix("e")},
    )
    data = msgspec.json.encode(condition)
    assert msgspec.json.decode(data, type=Filter) == condition
    assert msgspec.json.encode(msgspec.json.decode(data, type=Filter)) == data


@pytest.mark.parametrize(
    "field", [{"key": "night/*"}, {"correlation_id": "night/*"}, {"attributes": {"a": "night/*"}}]
)
def test_a_star_in_python_is_neither_read_nor_overlooked(field: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"Prefix\('night/'\) finds all that begin so; Exact\('night/\*'\)"):
        Filter(**field)


def test_a_filter_of_states_that_do_not_exist_is_refused() -> None:
    wrong: Any = ("eror",)
    with pytest.raises(ConfigError, match="a tuple of states, which are pending, sleeping"):
        Filter(states=wrong)


@pytest.mark.parametrize(
    ("field", "pattern"),
    [
        ({"states": "error"}, r"Filter\(\): states='error': pass a tuple"),
        (
            {"state": "error"},
            r"there is no option 'state' \(did you mean 'states'\?\); there are ids, states",
        ),
        ({"workflow": 3}, r"workflow=3: pass a text or None"),
        ({"limit": "3"}, r"limit='3': pass a whole number"),
        ({"limit": -1}, r"Filter\(limit\)=-1: a whole number from 0"),
        ({"limit": True}, r"limit=True: pass a whole number"),
        ({"older": "1h"}, r"older='1h': pass a number or None"),
        ({"older": float("nan")}, r"Filter\(older\)=nan must be a finite"),
        ({"failures": (3,)}, r"the lowest and the highest"),
        ({"ids": ("0000000000007",)}, r"numbers of tasks"),
        ({"failing": "yes"}, r"failing='yes': pass True or False or None"),
    ],
)
def test_what_makes_no_sense_in_a_filter_is_refused(field: dict[str, Any], pattern: str) -> None:
    with pytest.raises(ConfigError, match=pattern):
        Filter(**field)
