"""Zone rules are those on disk now, of the newest version there is."""

import os
from contextvars import copy_context
from datetime import UTC, datetime
from pathlib import Path

import pytest

from makegood.base import zones
from makegood.errors import ConfigError
from tests.unit.zone_folders import STANDARD, SUMMER, enact, system_rules

AT = datetime(2026, 12, 1, tzinfo=UTC)


def hour() -> int:
    """Return what the clocks of Winnipeg show at midnight in UTC."""
    return AT.astimezone(zones.zone("America/Winnipeg")).hour


def test_the_newer_of_system_and_package_decides(tmp_path: Path) -> None:
    """``zoneinfo`` takes the system's, however old."""
    enact(tmp_path, "1999z", America_Winnipeg="Pacific/Apia")
    with system_rules(tmp_path):
        rules = zones.current()
        assert rules is not None
        assert rules.source == zones.PACKAGE
        assert hour() != AT.astimezone(zones.zone("Pacific/Apia")).hour
        enact(tmp_path, "2999a", America_Winnipeg="Pacific/Apia")
        rules = zones.current()
        assert rules is not None
        assert (rules.source, rules.version) == (str(tmp_path), "2999a")
        assert hour() == AT.astimezone(zones.zone("Pacific/Apia")).hour
        assert zones.zone("Europe/Berlin").key == "Europe/Berlin", "the package has what the newer rules lack"


def test_an_upgrade_on_disk_is_seen_without_a_restart(tmp_path: Path) -> None:
    """Also of a zone that was used before."""
    with system_rules(enact(tmp_path, "2998a", America_Winnipeg=STANDARD)):
        assert hour() == 18
        enact(tmp_path, "2998b", America_Winnipeg=SUMMER)
        assert hour() == 19


def test_versions_are_compared_by_year_and_letter(tmp_path: Path) -> None:
    """Whatever the order of the folders; of two equal ones the first is taken, one of unknown version last."""
    for name, version in {"a": "2998z", "b": "2998za", "c": "unknown", "d": "2998za"}.items():
        enact(tmp_path / name, version, America_Winnipeg=STANDARD)
    with system_rules(*(tmp_path / name for name in "cabd")):
        rules = zones.current()
        assert rules is not None
        assert (rules.version, rules.source) == ("2998za", str(tmp_path / "b"))


@pytest.mark.parametrize(
    ("version", "file_date", "release"),
    [
        ("2025b", "2025-03-22", "2025-03-22"),
        ("2025b", "1970-01-01", "2025-01-01"),
        ("2025b", "2026-07-01", "2026-01-01"),
    ],
)
def test_a_release_is_of_its_year_whatever_the_date_of_its_file(
    tmp_path: Path, version: str, file_date: str, release: str
) -> None:
    """An installation may give a file any date."""
    enact(tmp_path, version)
    moment, expected = (datetime.fromisoformat(f"{text}T00:00Z").timestamp() for text in (file_date, release))
    os.utime(tmp_path / "tzdata.zi", (moment, moment))
    assert zones._rules_in("here", tmp_path).released == expected


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("Europe/Berlim", "did you mean 'Europe/Berlin'?"),
        ("europe/berlin", "did you mean 'Europe/Berlin'?"),
        ("CEST", "no such zone: write UTC, or a name such as Europe/Berlin"),
        ("GMT+2", "no such zone: write UTC, or a name such as Europe/Berlin"),
        ("Mars/Olympus", "write UTC, or a name such as Europe/Berlin"),
        ("+02:00", "write UTC, or a name such as Europe/Berlin"),
        ("../zoneinfo/UTC", "pip install --upgrade tzdata"),
        ("/etc/localtime", "pip install --upgrade tzdata"),
        ("right/UTC", "pip install --upgrade tzdata"),
        ("Europe", "pip install --upgrade tzdata"),
        ("", "pip install --upgrade tzdata"),
    ],
)
def test_an_unknown_zone_is_refused_with_the_remedy(name: str, hint: str) -> None:
    """It names what was written, which rules do not know it, and what to do."""
    with pytest.raises(ConfigError) as refusal:
        zones.zone(name)
    assert str(refusal.value).startswith(f"timezone={name!r}: the zone rules 20")
    assert hint in str(refusal.value)


def test_a_damaged_file_is_refused_and_older_rules_do_not_replace_it(tmp_path: Path) -> None:
    """They may be another law."""
    enact(tmp_path, "2999a", America_Winnipeg=STANDARD)
    (tmp_path / "America/Winnipeg").write_bytes(b"TZif2")
    with (
        system_rules(tmp_path),
        pytest.raises(ConfigError, match="is not a readable zone file: install tzdata again"),
    ):
        zones.zone("America/Winnipeg")


def test_a_machine_without_rules_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the system's nor the package."""
    monkeypatch.setattr(zones, "_package_folders", lambda: iter(()))
    with system_rules(tmp_path / "none"):
        assert zones.current() is None
        with pytest.raises(ConfigError, match="pip install tzdata"):
            zones.zone("UTC")


def test_a_context_may_have_folders_of_its_own(tmp_path: Path) -> None:
    """Two hosts of a simulation have different rules, and no other rules behind them."""
    hosts = {law: copy_context() for law in (STANDARD, SUMMER)}
    for law, context in hosts.items():
        folder = enact(tmp_path / law, "2000a", America_Winnipeg=law)
        context.run(zones.FOLDERS.set, [folder])
    assert [context.run(hour) for context in hosts.values()] == [18, 19]
    assert [str(context.run(zones.current)) for context in hosts.values()] == [
        f"2000a ({tmp_path / law})" for law in hosts
    ]
    with pytest.raises(ConfigError, match="Berlin"):
        hosts[SUMMER].run(zones.zone, "Europe/Berlin")
    assert zones.zone("Europe/Berlin").key == "Europe/Berlin"
