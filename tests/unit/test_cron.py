"""Moments of a cron text: Debian's rule, whatever clocks do, never in the past, each day once."""

import random
from bisect import bisect_right
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from functools import cache, partial
from itertools import islice, pairwise, takewhile
from operator import gt
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from makegood.base import zones
from makegood.errors import ConfigError
from makegood.moments.clock_effects import AHEAD, clock_effects
from makegood.moments.cron import Cron
from makegood.moments.every import Every
from makegood.moments.moment import delay, in_utc
from tests.unit.cron_reference import MINUTES, STRIDE, clocks, due
from tests.unit.zone_folders import CHANGING, STANDARD, SUMMER, enact, system_rules

YEARS = {
    "Europe/Berlin": 2026,
    "Australia/Lord_Howe": 2026,  # half an hour
    "America/Santiago": 2026,  # at midnight
    "Pacific/Apia": 2011,  # a day that does not exist
    "America/Vancouver": 2026,  # the last change of its clocks
    "America/Winnipeg": 2026,  # the same
    "Africa/Casablanca": 2026,  # twice around Ramadan
}
TEXTS = (
    "30 2 * * *",
    "0,30 2 * * *",
    "0,15 1,2,3 * * *",
    "*/15 2 * * *",
    "*/10 1-2 * * *",
    "0 * * * *",
    "0 */2 * * *",
    "0 0 * * *",
    "45 23 * * *",
    "0 9 * * 1-5",
    "15 0-3 1,29 * 0",
    "30 2 30 12 *",
)


def instant(text: str) -> datetime:
    """Return a datetime with its offset."""
    return datetime.fromisoformat(text)


@cache
def year_of(name: str) -> tuple[datetime, Sequence[int]]:
    """Return when a zone's year begins, and what its clocks show, minute by minute."""
    start = datetime(YEARS[name], 1, 1, tzinfo=UTC)
    return start, clocks(zones.zone(name), start, start + timedelta(days=365))


@pytest.mark.parametrize("name", YEARS)
def test_a_year_is_what_cron_itself_would_do(name: str) -> None:
    """All moments of the year, and the next one from anywhere, also between two equal hours."""
    start, readings = year_of(name)
    near = [index for index in range(1, len(readings)) if readings[index] != readings[index - 1] + MINUTES]
    rng = random.Random(name)
    for text in TEXTS:
        cron = Cron(text, name)
        expected = [start + index * STRIDE for index in due(text, readings)]
        end = start + len(readings) * STRIDE
        actual = (moment.at for moment in cron.after(start - STRIDE))
        assert [*takewhile(partial(gt, end), actual)] == expected, text
        for index in (
            max(0, around + rng.randrange(-18, 18)) for around in (*near * 4, rng.randrange(len(readings)))
        ):
            at = start + index * STRIDE + timedelta(seconds=rng.choice((0, 0.5, 299)))
            later = bisect_right(expected, at)
            assert later == len(expected) or next(cron.after(at)).at == expected[later], (text, at)


def test_marks_and_keys_of_gap_and_fold() -> None:
    """The key is the time that the text means; the local time is what clocks show."""
    spring = next(Cron("30 2 * * *", "Europe/Berlin").after(instant("2026-03-29T00:00Z")))
    assert (in_utc(spring.at), spring.local.isoformat(), spring.mark, spring.key("n")) == (
        "2026-03-29T01:00:00Z",
        "2026-03-29T03:00:00+02:00",
        "gap",
        "n@2026-03-29T02:30[Europe/Berlin]",
    )
    autumn = [*islice(Cron("*/30 2 * * *", "Europe/Berlin").after(instant("2026-10-25T00:00+02:00")), 5)]
    assert [moment.key("n") for moment in autumn] == [
        "n@2026-10-25T02:00[Europe/Berlin]",
        "n@2026-10-25T02:30[Europe/Berlin]",
        "n@2026-10-25T02:00-second[Europe/Berlin]",
        "n@2026-10-25T02:30-second[Europe/Berlin]",
        "n@2026-10-26T02:00[Europe/Berlin]",
    ]
    assert [moment.mark for moment in autumn] == ["fold"] * 4 + [None]
    hourly = next(Cron("0 * * * *", "Europe/Berlin").after(instant("2026-10-25T00:30Z")))
    assert hourly.key("n") == "n@2026-10-25T01:00:00Z", "real time: the instant is the key"
    assert Cron("30 0 9 * * *", "UTC").text == "30 0 9 * * *"
    seconds = next(Cron("30 0 9 * * *").after(instant("2026-10-25T00:30Z")))
    assert seconds.key("n") == "n@2026-10-25T09:00:30[UTC]"


def test_hours_that_are_named_are_times_of_the_day_also_if_all_are() -> None:
    """The hour that clocks show twice has one moment less than twice, which is an effect; real time has none."""
    span = instant("2026-03-01T00:00Z"), instant("2026-12-01T00:00Z")
    counts = [
        (effect.mark, len(effect.walls), len(effect.moments))
        for effect in clock_effects(Cron("0,30 0-23 * * *", "Europe/Berlin"), *span)
    ]
    assert counts == [("gap", 2, 1), ("fold", 2, 2)]
    for text in ("0,30 * * * *", "*/30 0-23 * * *"):
        assert not [*clock_effects(Cron(text, "Europe/Berlin"), *span)]


def no_moment_is_in_the_past() -> None:
    """Asked in the second of two equal hours, a fixed time of the first one has passed."""
    query = instant("2026-10-25T01:10Z")  # 02:10 once more
    moment = next(Cron("30 2 * * *", "Europe/Berlin").after(query))
    assert moment.at > query
    assert moment.key("n") == "n@2026-10-26T02:30[Europe/Berlin]"


def an_upgrade_is_seen(folder: Path) -> None:
    """The next computation of the same schedule follows the new law."""
    with system_rules(enact(folder, "2998a", America_Winnipeg=STANDARD)):
        cron, start = Cron("0 9 * * *", "America/Winnipeg"), instant("2026-12-01T00:00Z")
        assert in_utc(next(cron.after(start)).at) == "2026-12-01T15:00:00Z"
        enact(folder, "2998b", America_Winnipeg=SUMMER)
        assert in_utc(next(cron.after(start)).at) == "2026-12-01T14:00:00Z"


def each_day_is_one_task(folder: Path) -> None:
    """The lead moves between hosts with old rules and hosts with new ones: two instants of one day, one key."""
    laws = [
        enact(folder / law.replace("/", "-"), "2998a", America_Winnipeg=law) for law in (CHANGING, SUMMER)
    ]
    rng = random.Random(11)
    cron = Cron("0 9 * * *", "America/Winnipeg")
    keys: list[str] = []
    last = instant("2026-10-25T00:00Z")
    while len(set(keys)) < 31:
        with system_rules(rng.choice(laws)):
            moment = next(cron.after(last))
        last = moment.at
        keys.append(moment.key("n"))
    assert len(keys) > len(set(keys)), "hosts disagreed"
    days = {f"n@{date(2026, 10, 25) + timedelta(days=day)}T09:00[America/Winnipeg]" for day in range(31)}
    assert set(keys) == days


def test_no_moment_is_in_the_past() -> None:
    """As ``no_moment_is_in_the_past`` says."""
    no_moment_is_in_the_past()


def test_an_upgrade_of_the_rules_is_seen_by_the_next_computation(tmp_path: Path) -> None:
    """As ``an_upgrade_is_seen`` says."""
    an_upgrade_is_seen(tmp_path)


def test_each_local_day_is_one_task_while_hosts_disagree(tmp_path: Path) -> None:
    """As ``each_day_is_one_task`` says."""
    each_day_is_one_task(tmp_path)


instants = st.integers(-300_000_000, 4_000_000_000).map(
    lambda seconds: datetime.fromtimestamp(seconds / 1.25, UTC)
)
_NUMBERS = {"minute": (0, 59), "hour": (0, 23), "day": (1, 28), "month": (1, 12), "weekday": (0, 7)}


@st.composite
def texts(draw: st.DrawFn) -> str:
    """Draw a text of five fields."""
    fields = []
    for least, most in _NUMBERS.values():
        number = st.integers(least, most)
        term = st.one_of(
            number.map(str),
            st.lists(number, min_size=2, max_size=2).map(sorted).map(lambda pair: f"{pair[0]}-{pair[1]}"),
        )
        step = st.integers(1, most).map(lambda every: f"*/{every}")
        fields.append(
            draw(st.one_of(st.just("*"), step, st.lists(term, min_size=1, max_size=3).map(",".join)))
        )
    return " ".join(fields)


@settings(max_examples=150, deadline=None)
@given(
    texts(),
    st.sampled_from([*YEARS, "UTC", "Asia/Kathmandu", "Africa/Cairo"]),
    instants,
)
def test_moments_rise_and_do_not_depend_on_where_one_begins(text: str, name: str, start: datetime) -> None:
    """Each is after the one before, has a key of its own, and is the next one when asked from there."""
    cron = Cron(text, name)
    moments = [*islice(cron.after(start), 6)]
    assert moments[0].at > start
    for moment, later in pairwise(moments):
        assert moment.at < later.at
        assert next(cron.after(moment.at)) == later
        assert next(cron.after(later.at - timedelta(microseconds=1))).at == later.at
    assert len({moment.key("n") for moment in moments}) == len(moments)
    for moment in moments:
        assert (moment.wall == moment.local.replace(tzinfo=None)) == (moment.mark != "gap")


@given(
    st.integers(1, 10_000_000),
    instants,
)
def test_an_interval_counts_from_the_epoch(seconds: int, start: datetime) -> None:
    """Whoever asks, whenever."""
    first, second = islice(Every(seconds).after(start), 2)
    assert start < first.at <= start + timedelta(seconds=seconds)
    assert second.at - first.at == timedelta(seconds=seconds)
    assert (first.at - datetime(1970, 1, 1, tzinfo=UTC)) % timedelta(seconds=seconds) == timedelta()
    assert first.key("n") == f"n@{in_utc(first.at)}"


@pytest.mark.parametrize(
    ("every", "hint"), [(0.5, "at least 1 s"), ("4000d", "ten years"), (1e300, "ten years"), ("hourly", "2h")]
)
def test_an_interval_has_limits(every: float | str, hint: str) -> None:
    """From a second to ten years, and not beyond the calendar."""
    with pytest.raises(ConfigError, match=hint):
        Every(every)
    assert [*Every("1d").after(datetime(9999, 12, 31, tzinfo=UTC))] == []


@given(st.text(), st.just(0.0) | st.floats(1e-3, 1e6), st.floats(1e-3, 1e6))
def test_jitter_stays_below_its_limit_and_the_next_moment(key: str, jitter: float, room: float) -> None:
    """And is the same for all who compute it."""
    key = key.encode(errors="replace").decode()
    seconds = delay(key, jitter, room)
    assert 0 <= seconds < min(jitter, room) or seconds == jitter == 0
    assert seconds == delay(key, jitter, room)


def test_jitter_spreads() -> None:
    """Over its whole length."""
    delays = [delay(f"n@{day}", 60, 3600) for day in range(200)]
    assert min(delays) < 3
    assert max(delays) > 57


@pytest.mark.parametrize(
    ("text", "moments"),
    [
        ("0 12 L * *", ["2026-01-31T12:00:00Z", "2026-02-28T12:00:00Z"]),
        ("0 12 LW * *", ["2026-01-30T12:00:00Z", "2026-02-27T12:00:00Z"]),
        ("0 12 * * mon#2", ["2026-01-12T12:00:00Z", "2026-02-09T12:00:00Z"]),
        ("0 12 * * 5L", ["2026-01-30T12:00:00Z", "2026-02-27T12:00:00Z"]),
        ("0 12 1 * SUN", ["2026-01-01T12:00:00Z", "2026-01-04T12:00:00Z"]),
        ("0 12 29 feb *", ["2028-02-29T12:00:00Z", "2032-02-29T12:00:00Z"]),
        ("*/30 0 12 1 1 *", ["2026-01-01T12:00:00Z", "2026-01-01T12:00:30Z"]),
        ("0 22-23,0-2 * * 6-7", ["2026-01-03T00:00:00Z", "2026-01-03T01:00:00Z"]),
    ],
)
def test_the_forms_of_fields(text: str, moments: list[str]) -> None:
    """Names, L, LW, #, day of month or day of week, seconds first."""
    actual = islice(Cron(text).after(instant("2025-12-31T23:00Z")), 2)
    assert [in_utc(moment.at) for moment in actual] == moments


@pytest.mark.parametrize(
    ("text", "field", "remedy"),
    [
        ("0 0 * * MON-SUN", "day of week 'MON-SUN'", "write `MON-SAT,SUN`"),
        ("0 0 * * 6-1", "day of week '6-1'", "write `6,0-1`"),
        ("0 22-2 * * *", "hour '22-2'", "write `22-23,0-2`"),
        ("0 0 * NOV-JAN *", "month 'NOV-JAN'", "write `NOV-DEC,JAN`"),
        ("@daily", "names with @", "write '0 0 * * *'"),
        ("@reboot", "names with @", "write five fields"),
        ("0 0 ? * *", "day of month '?'", "write `*`"),
        ("0 0 15W * *", "day of month '15W'", "`LW` for the last weekday"),
        ("0 0 30 2 *", "day of month '30', month '2'", "write a day that these months have"),
        ("0 0 31 4,6,9,11 *", "day of month '31'", "write a day that these months have"),
        ("0 0 */30 2 1#2", "day of week '1#2'", "within 50 years"),
        ("60 * * * *", "minute '60'", "minute goes from 0 to 59"),
        ("0 24 * * *", "hour '24'", "hour goes from 0 to 23"),
        ("0 0 0 * *", "day of month '0'", "goes from 1 to 31"),
        ("0 0 * * FRIL", "day of week 'FRIL'", "`5L`"),
        ("0 0 * * L", "day of week 'L'", "`5L`"),
        ("0 0 * * MON#6", "day of week 'MON#6'", "write 1 to 5"),
        ("0 0 * * MONDAY", "day of week 'MONDAY'", "or SUN to SAT"),
        ("0 0 * 1# *", "month '1#'", "write `*`, a number"),
        ("*/90 * * * *", "minute '*/90'", "write a step of 1 to 59"),
        ("*/0 * * * *", "minute '*/0'", "write a step of 1 to 59"),
        ("1,,2 * * * *", "minute ''", "write `*`, a number"),
        ("-1 * * * *", "minute '-1'", "write `*`, a number"),
        ("* * *", "has 3 fields", "write five"),
        ("0 0 1 1 * * 2026", "has 7 fields", "or six, with the seconds first"),
        ("", "has 0 fields", "write five"),
        ("1," * 600 + "1 * * * *", "has more than 1000 characters", "write five"),
        ("9" * 500 + " * * * *", "minute '99999", "goes from 0 to 59"),
        ("٣ * * * *", "minute '٣'", "write `*`, a number"),
    ],
)
def test_a_refusal_names_the_field_and_the_remedy(text: str, field: str, remedy: str) -> None:
    """The library alone says "Bad day-of-week"."""
    with pytest.raises(ConfigError) as refusal:
        Cron(text)
    assert str(refusal.value).startswith(f"cron={text!r:.80}")
    assert field in str(refusal.value)
    assert remedy in str(refusal.value)


def test_the_end_of_the_calendar_ends_the_moments() -> None:
    """No error in the year 9999."""
    assert [*Cron("0 0 1 1 *", "Europe/Berlin").after(instant("9999-01-01T12:00Z"))] == []
    assert len([*Cron("0 0 31 12 *", "America/Chicago").after(instant("9998-01-01T12:00Z"))]) in {1, 2}


@pytest.mark.parametrize(
    ("text", "name", "marks"),
    [
        ("30 2 * * *", "Europe/Berlin", [("fold", 1, 1), ("gap", 1, 1)] * 2),
        ("0,30 2 * * *", "Europe/Berlin", [("fold", 2, 2), ("gap", 2, 1)] * 2),
        ("*/15 2 * * *", "Europe/Berlin", [("fold", 4, 8), ("gap", 4, 0)] * 2),
        ("0 */2 * * *", "Europe/Berlin", [("fold", 1, 2), ("gap", 1, 0)] * 2),
        ("0 9 * * *", "Europe/Berlin", []),
        ("*/5 * * * *", "Europe/Berlin", []),
        ("30 2 * * SAT", "Europe/Berlin", []),
        ("30 2 * * *", "UTC", []),
        ("45 1 * * *", "Australia/Lord_Howe", [("fold", 1, 1)] * 2),
        ("15 2 * * *", "Australia/Lord_Howe", [("gap", 1, 1)] * 2),
        ("0 * * * *", "Australia/Lord_Howe", [("gap", 1, 0)] * 2),
    ],
)
def test_the_effects_of_clocks_within_two_years(
    text: str, name: str, marks: list[tuple[str, int, int]]
) -> None:
    """How many times of the text do not exist or exist twice, and how often it fires for them."""
    start = instant("2026-09-01T00:00Z")
    effects = [*clock_effects(Cron(text, name), start, start + AHEAD)]
    assert sorted((effect.mark, len(effect.walls), len(effect.moments)) for effect in effects) == sorted(
        marks
    )
