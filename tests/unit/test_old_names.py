"""Old public names work until 0.2, and the log reports each of them once."""

import importlib
import logging
import re
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import click
import msgspec
import pytest

import makegood as mg
from makegood.base.old_names import OLD, SETTINGS, report
from makegood.cli.commands.acts import cancel
from makegood.cli.commands.leader import run as election_run
from makegood.cli.commands.run import supervisor
from makegood.cli.context import Cli
from makegood.cli.settings import KNOWN, load
from makegood.election import Election
from makegood.election.stores.memory import MemoryLeases
from makegood.errors import ConfigError
from makegood.model.policy import Policy
from makegood.testing import World


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    """What the log says of old names, as in a process that has used none yet."""
    report.cache_clear()
    with caplog.at_level(logging.INFO, "makegood"):
        yield caplog
    report.cache_clear()


def test_every_old_setting_names_a_present_one() -> None:
    assert set(SETTINGS.values()) <= {field.name for field in fields(mg.Options)} & set(KNOWN)
    assert not set(SETTINGS) & set(KNOWN)


@pytest.mark.parametrize(("old", "new"), SETTINGS.items())
def test_an_old_option_works_and_is_reported_once(said: pytest.LogCaptureFixture, old: str, new: str) -> None:
    make: Any = mg.Options
    assert make(**{old: 7}) == make(**{old: 7}) == (options := make(**{new: 7}))
    assert said.messages == [f"Options({old}=) is called {new}= now; the old name works until makegood 0.2"]
    assert getattr(options, old) == getattr(options, old) == 7
    assert said.messages[1:] == [f"Options.{old} is called {new} now; the old name works until makegood 0.2"]


def test_an_option_under_both_names_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"life is the old name of dead_after: pass dead_after only"):
        replace(mg.Options(), life="9s")  # type: ignore[call-arg]


def test_old_settings_work_in_files_and_in_the_environment(
    tmp_path: Path, said: pytest.LogCaptureFixture
) -> None:
    """An old name in the environment beats a new one in a file, and loses against the new one beside it."""
    (tmp_path / "makegood.toml").write_text('keep = "90d"\nhold = 5\ndead_after = 8\n')
    environ = {"MAKEGOOD_LIFE": "7s", "MAKEGOOD_POLL": "1", "MAKEGOOD_POLL_EVERY": "2"}
    settings = load({}, environ, tmp_path)
    assert load({}, environ, tmp_path) == settings
    options = settings.options
    assert (options.retention, options.max_tasks, options.dead_after) == ("90d", 5, "7s")
    assert options.poll_every == 2
    assert dict(settings.origins) == {
        "retention": "keep in makegood.toml", "max_tasks": "hold in makegood.toml", "dead_after": "MAKEGOOD_LIFE",
        "poll_every": "MAKEGOOD_POLL_EVERY",
    }  # fmt: skip
    assert [message.partition(";")[0] for message in said.messages] == [
        "keep in makegood.toml is called retention in makegood.toml now",
        "hold in makegood.toml is called max_tasks in makegood.toml now",
        "MAKEGOOD_LIFE is called MAKEGOOD_DEAD_AFTER now",
        "MAKEGOOD_POLL is called MAKEGOOD_POLL_EVERY now",
    ]


def _nothing() -> None: ...


def test_an_action_may_say_settle_for_remembers(said: pytest.LogCaptureFixture) -> None:
    """In the store it is called settle, as before."""

    def declared(**options: Any) -> Policy:
        action: mg.Action[..., Any] = (
            mg.App("shop").agent("bank").action(complete_within="1s", **options)(_nothing)
        )
        return action._policy

    policy = declared(settle=True, name="pay")
    assert policy == declared(remembers=True, name="pay")
    assert msgspec.json.decode(msgspec.json.encode(policy))["settle"] is True
    assert said.messages == [
        "action(settle=) is called remembers= now; the old name works until makegood 0.2"
    ]


@pytest.mark.parametrize(
    ("cls", "old"), [(cls, old) for cls in (mg.Queue, mg.SyncQueue, World) for old in OLD[cls.__name__]]
)
def test_an_old_method_is_the_present_one(said: pytest.LogCaptureFixture, cls: type[Any], old: str) -> None:
    new = OLD[cls.__name__][old]
    assert getattr(cls, old) is getattr(cls, old) is getattr(cls, new)
    one: Any = object.__new__(cls)
    assert getattr(one, old) == getattr(one, new)
    where = cls.__name__
    assert said.messages == [f"{where}.{old} is called {new} now; the old name works until makegood 0.2"]


def test_an_election_may_say_grace_for_wind_down(said: pytest.LogCaptureFixture) -> None:
    election = Election("reports", MemoryLeases(), grace=1)  # type: ignore[call-arg]
    assert election.settings.wind_down == election.settings.grace == 1  # type: ignore[attr-defined]
    assert [message.partition(";")[0] for message in said.messages] == [
        "Election(grace=) is called wind_down= now",
        "Settings.grace is called wind_down now",
    ]


@pytest.mark.parametrize(
    ("command", "old", "new", "read"),
    [
        (
            supervisor,
            "--every 3s",
            "--supervise-every 3s",
            lambda c: c.find_object(Cli).flags["supervise_every"],
        ),
        (election_run, "--grace 1s NAME true", "--wind-down 1s NAME true", lambda c: c.params["wind_down"]),
        (election_run, "--hold 2m NAME true", "--keep-lease 2m NAME true", lambda c: c.params["keep_lease"]),
        (cancel, "--why x 00000001", "--reason x 00000001", lambda c: c.params["why"]),
    ],
    ids=lambda value: value.partition(" ")[0] if isinstance(value, str) else "",
)
def test_an_old_option_of_a_command_works_and_no_help_shows_it(
    said: pytest.LogCaptureFixture,
    command: click.Command,
    old: str,
    new: str,
    read: Callable[[click.Context], object],
) -> None:
    made = [command.make_context("it", words.split()) for words in (old, old, new)]
    assert len({read(each) for each in made}) == 1
    assert made[0].params == made[2].params
    before, after = old.split(maxsplit=1)[0], new.split(maxsplit=1)[0]
    assert said.messages == [f"{before} is called {after} now; the old name works until makegood 0.2"]
    assert before not in command.get_help(made[0])


def test_every_old_option_of_a_command_was_tried() -> None:
    assert set(OLD["makegood"]) == {"--every", "--grace", "--hold", "--why"}


def test_a_client_may_say_poll_for_poll_every(tmp_path: Path, said: pytest.LogCaptureFixture) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    for client in (mg.Client, mg.SyncClient):
        client(url, poll="1h")  # type: ignore[call-arg]
    assert [message.partition(";")[0] for message in said.messages] == [
        "Client(poll=) is called poll_every= now", "SyncClient(poll=) is called poll_every= now"
    ]  # fmt: skip


def test_the_page_of_old_names_lists_them_all() -> None:
    page = (Path(__file__).parents[2] / "docs/reference/old-names.md").read_text()
    listed = {
        tuple(re.findall(r"`([^`]+)`", row)[-2:]) for row in re.findall(r"^\| `.*$", page, re.MULTILINE)
    }
    assert listed == {pair for names in OLD.values() for pair in names.items()}


def test_views_are_found_where_they_were_imported_from(said: pytest.LogCaptureFixture) -> None:
    records = importlib.import_module("makegood.store.records")
    assert records.Filter is mg.Filter
    assert records.TaskView is mg.TaskView
    assert said.messages[0] == (
        "makegood.store.records.Filter is called makegood.Filter now; the old name works until makegood 0.2"
    )
    with pytest.raises(AttributeError, match="no attribute 'Filters'"):
        _ = records.Filters
