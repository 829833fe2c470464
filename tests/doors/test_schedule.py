"""``makegood schedule next``: moments in UTC and in a zone, gaps and folds marked, and no store."""

import json
import re
from pathlib import Path

from tests.doors.conftest import Shop
from tests.unit.zone_folders import STANDARD, SUMMER, enact

BERLIN = ("schedule", "next", "30 2 * * *", "--timezone", "Europe/Berlin")


def test_json_is_a_list_of_moment_local_and_mark(shop: Shop) -> None:
    """In UTC with Z, as clocks there show it, and what a change of clocks did to it."""
    assert shop.json(*BERLIN, "--from", "2026-03-28T12:00", "--count", "2") == [
        {"moment": "2026-03-29T01:00:00Z", "local": "2026-03-29T03:00:00+02:00", "mark": "gap"},
        {"moment": "2026-03-30T00:30:00Z", "local": "2026-03-30T02:30:00+02:00", "mark": None},
    ]
    (autumn,) = shop.json(*BERLIN, "--from", "2026-10-25", "--count", "1")
    assert autumn == {"moment": "2026-10-25T00:30:00Z", "local": "2026-10-25T02:30:00+02:00", "mark": "fold"}


def test_for_people_marks_are_sentences_and_warnings_go_to_stderr(shop: Shop) -> None:
    """With the moments that come of the gaps and folds of two years."""
    result = shop.call(*BERLIN, "--from", "2026-03-28T12:00Z", "--count", "1")
    assert result.exit_code == 0
    assert result.stdout.splitlines()[1].split("  ")[1:] == [
        "Sun 2026-03-29 03:00:00 +0200",
        "gap: 2026-03-29 02:30 does not exist",
    ]
    gap, fold, *_, rules = result.stderr.splitlines()
    assert gap.endswith("02:30 does not exist; it fires once, at the end: 2026-03-29T01:00:00Z")
    assert fold.endswith("02:30 is there twice; it fires once: 2026-10-25T00:30:00Z")
    assert rules.startswith("zone rules: 20")
    several = shop.call(
        "schedule", "next", "*/15 2 * * *", *BERLIN[3:], "--from", "2026-03-28", "--json"
    ).stderr
    gap, fold, *_ = several.splitlines()
    assert "02:00, 02:15, 02:30, 02:45 do not exist; it does not fire for these times" in gap
    assert "it fires twice for each: 2026-10-25T00:00:00Z" in fold
    assert fold.endswith("and 4 more")
    assert not shop.call(*BERLIN[:2], "0 9 * * *", *BERLIN[3:], "--json").stderr


def test_a_time_without_offset_is_of_the_zone(shop: Shop) -> None:
    """One with an offset is that instant; moments are after it."""
    hourly = ("schedule", "next", "0 * * * *", "--timezone", "Asia/Kathmandu", "--count", "1")
    (moment,) = shop.json(*hourly, "--from", "2026-06-01T09:00")
    assert moment["moment"] == "2026-06-01T04:15:00Z"
    (moment,) = shop.json(*hourly, "--from", "2026-06-01T09:00Z")
    assert moment["local"] == "2026-06-01T15:00:00+05:45"


def test_what_is_wrong_is_a_usage_error(shop: Shop) -> None:
    """A text, a zone, a time: each with its remedy."""
    for words, hint in (
        (("@daily",), "write '0 0 * * *'"),
        (("0 9 * * *", "--timezone", "Berlin"), "did you mean 'Europe/Berlin'?"),
        (("0 9 * * *", "--from", "tomorrow"), "--from: 'tomorrow' is not a point in time"),
        (("0 9 * * *", "--from", "0001-01-01"), "--from: write a year from 1900 to 9989"),
        (("0 9 * * *", "--from", "9999-12-31T23:00-10:00"), "--from: write a year from 1900 to 9989"),
        (("0", "9", "kiosk.db", "kiosk.py"), "quote the CRON, such as '0 9 * * MON-FRI'"),
        (("0 9 * * *", "--count", "0"), "whole number from 1 to 1,000"),
    ):
        result = shop.call("schedule", "next", *words)
        assert (result.exit_code, result.stdout) == (2, ""), words
        assert hint in result.stderr


def test_it_needs_no_store(shop: Shop) -> None:
    """It reads none, makes none, and does not mind a wrong URL."""
    before = sorted(shop.folder.iterdir())
    assert shop.call("schedule", "next", "0 9 * * *", "--store", "sqlite:///none.db").exit_code == 0
    assert sorted(shop.folder.iterdir()) == before


def test_a_process_follows_the_rules_on_its_disk(shop: Shop, tmp_path: Path) -> None:
    """Those of the system, when they are newer than the package's."""
    words = (
        "schedule",
        "next",
        "0 9 * * *",
        "--timezone",
        "America/Winnipeg",
        "--from",
        "2026-12-01",
        "--json",
    )
    for version, law, moment in (("2998a", STANDARD, "T15:00:00Z"), ("2998b", SUMMER, "T14:00:00Z")):
        rules = enact(tmp_path / "rules", version, America_Winnipeg=law)
        run = shop.run(*words, PYTHONTZPATH=str(rules))
        assert json.loads(run.stdout)[0]["moment"] == f"2026-12-01{moment}", run.stderr


def nightly(shop: Shop) -> None:
    """Write an app with one schedule, and apply it."""
    (shop.folder / "nightly.py").write_text(
        "import makegood as mg\n"
        'app = mg.App("nightly")\n'
        '@app.agent("desk").action(complete_within="10s", undo=mg.NOTHING)\n'
        "def count() -> None: ...\n"
        '@app.schedule(cron="30 2 * * *", timezone="Europe/Berlin")\n'
        "@app.workflow()\n"
        "def night() -> None:\n"
        "    count()\n",
        encoding="utf-8",
    )
    shop.done("schedule", "apply", "nightly:app")


def test_a_backfill_says_before_what_it_would_do(shop: Shop) -> None:
    """--dry-run lists the moments, on the zone's clocks, with the tasks that some have; it submits nothing."""
    nightly(shop)
    march = ("schedule", "backfill", "night", "--since", "2026-03-28", "--until", "2026-03-30T12:00")
    moments = shop.json(*march, "--dry-run")
    assert [(each["local"], each["mark"], each["task"]) for each in moments] == [
        ("2026-03-28T02:30:00+01:00", None, None),
        ("2026-03-29T03:00:00+02:00", "gap", None),
        ("2026-03-30T02:30:00+02:00", None, None),
    ]
    assert shop.json("task", "list") == []
    (task,) = shop.json("schedule", "backfill", "night", "--since", "2026-03-28", "--until", "2026-03-29")
    result = shop.call(*march, "--dry-run")
    assert [line.split("  ")[-1].strip() for line in result.stdout.splitlines()[1:]] == [
        task["id"], "would be new", "would be new",
    ]  # fmt: skip
    assert result.stderr == "2 of 3 moments would get a task\n"
    future = ("schedule", "backfill", "night", "--since", "2026-03-28", "--until", "2999-01-01")
    for words, error in (
        ((*march, "--limit", "2"), ": shorten the range, or raise --limit"),
        ((*march, "--limit", "2", "--dry-run"), "there are more than --limit=2 moments from "),
        (future, "--until=2999-01-01 00:00:00+01:00 is not over yet"),
        ((*future, "--dry-run"), "--until=2999-01-01 00:00:00+01:00 is not over yet"),
        (("schedule", "pause", "night", "--for", "0"), "--for=0.0 must be"),
    ):
        result = shop.call(*words)
        assert (result.exit_code, error in result.stderr) == (2, True), result.stderr
    assert [each["created"] for each in shop.json(*march)] == [False, True, True]
    late = shop.call("schedule", "backfill", "night", "--since", "2026-03-28", "--until", "9999-01-01")
    assert (late.exit_code, "--until: write a year from 1900 to 9989" in late.stderr) == (2, True)


def test_a_backfill_refuses_a_range_that_ends_before_it_begins(shop: Shop) -> None:
    """The dry run as well."""
    nightly(shop)
    for options in ((), ("--dry-run",)):
        result = shop.call(
            "schedule",
            "backfill",
            "night",
            "--since",
            "2026-03-30T00:00Z",
            "--until",
            "2026-03-28T00:00Z",
            *options,
        )
        assert (result.exit_code, result.stdout) == (2, "")
        assert "until=2026-03-28T00:00:00Z is before " in result.stderr


def test_a_schedule_is_named_as_the_list_prints_it(shop: Shop) -> None:
    """And a name that nearly fits gets a suggestion, of an app too."""
    nightly(shop)
    (row,) = shop.done("schedule", "list").splitlines()[1:]
    name, *_ = row.split()
    assert name == "nightly/night"
    assert shop.json("schedule", "show", name)["name"] == "night"
    for words in (("show", "nihgt"), ("show", "nightly/nihgt"), ("pause", "nihgt", "--app", "nightly")):
        result = shop.call("schedule", *words)
        assert (result.exit_code, "did you mean 'night'?" in result.stderr) == (3, True), result.stderr
    result = shop.call("schedule", "list", "--app", "nihgtly")
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == "no schedules of app 'nihgtly'\nmakegood: did you mean 'nightly'?\n"


def test_times_of_the_list_name_their_zone_and_a_warning_says_that_nobody_leads(shop: Shop) -> None:
    """In UTC, whatever the zone of the machine and of the schedule."""
    nightly(shop)
    result = shop.call("schedule", "list")
    assert re.search(r"  \d{4}-\d\d-\d\dT0[01]:30:00Z  ", result.stdout), result.stdout
    assert "nobody leads" in result.stderr
    paused = shop.done("schedule", "pause", "night", "--for", "1h")
    assert re.fullmatch(r"schedule nightly/night is paused until \d{4}-\S+T\d\d:\d\d:\d\dZ\n", paused), paused


def test_who_deletes_a_declared_schedule_learns_that_it_comes_back(shop: Shop) -> None:
    """The next process of its app writes it again."""
    nightly(shop)
    result = shop.call("schedule", "delete", "night")
    assert result.stdout == "schedule nightly/night is deleted\n"
    assert "app nightly declares it" in result.stderr
    assert shop.done("schedule", "apply", "nightly:app").splitlines()[1].split() == ["nightly/night", "new"]
