"""The tree of commands: quick help, flags anywhere, and every exit code from a real process."""

import json
import re
import shlex
import signal
import subprocess
import sys

import click
import pytest

from makegood.cli import main
from makegood.cli.app import MEANT, Lazy, every
from makegood.cli.command import EXAMPLES
from makegood.cli.context import Cli
from tests.doors.conftest import BARE, Shop

# What `makegood --help` may load besides the standard library: no rich, no database driver, nothing of a store.
MAY_LOAD = {"makegood", "click", "msgspec", "typing_extensions"}  # the last by msgspec, where it is installed
MUST_NOT = (
    "rich",
    "sqlite3",
    "asyncpg",
    "makegood.store.sqlite",
    "makegood.store.postgres",
    "makegood.cli.tasks",
)


def test_help_loads_little() -> None:
    """``makegood --help`` stays quick: it loads only what it may."""
    script = (
        "import sys; before = set(sys.modules); sys.argv = ['makegood', '--help']\n"
        "from makegood.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print('\\n'.join(sorted(set(sys.modules) - before)), file=sys.stderr)\n"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, env=BARE)
    assert "Usage: makegood" in run.stdout
    modules = run.stderr.split()
    names = {
        name.split(".")[0] for name in modules if not name.startswith("_sysconfigdata")
    }  # the zones' path
    foreign = names - MAY_LOAD - set(sys.stdlib_module_names)
    assert not foreign, f"--help loads {foreign}"
    assert not [name for name in modules if name.startswith(MUST_NOT)]


def commands(group: Lazy, *path: str) -> list[tuple[tuple[str, ...], click.Command, str]]:
    """Return every command: its path, itself, and what the list in --help says of it."""
    entries = []
    context = click.Context(group)
    for name, (_, text) in group.places.items():
        command = group.get_command(context, name)
        assert command is not None
        entries.append(((*path, name), command, text))
        if isinstance(command, Lazy):
            entries += commands(command, *path, name)
    return entries


def test_every_command_is_there_with_help_and_the_common_flags() -> None:
    """What the list promises can be loaded; each command explains itself and knows --store, --json, --color, --debug."""
    assert isinstance(main, Lazy)
    paths = set()
    for path, command, text in commands(main):
        paths.add(" ".join(path))
        assert text.endswith(".")
        assert command.help
        options = {option for parameter in command.params for option in parameter.opts}
        assert {"--store", "--json", "--color", "--debug"} <= options, path
    assert paths == {
        "run", "scheduler", "agent", "supervisor", "inbox", "console", "demo", "check", "schedule", "schedule next", "schedule list", "schedule show", "schedule apply", "schedule pause", "schedule resume", "schedule trigger", "schedule backfill", "schedule delete", "broker", "broker list", "broker check", "broker permissions", "lane", "lane list", "lane show", "lane release", "agents", "leader", "election", "alerts", "audit", "task", "store",
        "task submit", "task list", "task show", "task watch", "task follow", "task history", "task cancel", "task undo", "task resubmit", "task wake", "task signal",
        "task settle", "task extend", "election run", "store migrate", "store status", "store check", "store grants", "store prune", "store restored", "doctor", "queue", "queue list",
        "queue send", "queue receive", "queue ack", "queue replay", "queue drop", "notices", "notices list", "notices retry",
        "notices drop",
    }  # fmt: skip


def test_each_command_has_examples_that_it_takes() -> None:
    """Those of a command are its own, and each is read without an error."""
    leaves = {" ".join(path): command for path, command, _ in commands(main) if not isinstance(command, Lazy)}
    assert set(EXAMPLES) == set(leaves)
    for path, lines in EXAMPLES.items():
        for line in lines:
            words = shlex.split(line.partition(" | ")[0])
            prefix = ["makegood", *path.split()]
            assert words[: len(prefix)] == prefix
            leaves[path].make_context(path, words[len(prefix) :], obj=Cli())


def test_help_describes_the_shared_options_once(shop: Shop) -> None:
    """The examples end a command's help, and the help of makegood has what every command takes."""
    assert "--store URL" in shop.call("--help").stdout
    text = shop.call("task", "submit", "--help").stdout
    assert "--store URL" not in text
    assert "Examples:\n  makegood task submit orders:place_order" in text
    assert "Every command also takes --store, " in text


def test_flags_may_stand_anywhere(shop: Shop) -> None:
    """Before the command, between group and command, after it; the last one said wins."""
    for words in (
        ("--json", "task", "list"),
        ("task", "--json", "list"),
        ("task", "list", "--json"),
        ("--store", "sqlite:////nowhere/at/all.db", "task", "list", "--json", "--store", shop.url),
    ):
        result = shop.call(*words)
        assert (result.exit_code, result.stdout.strip()) == (0, "[]"), result.output


def test_a_slip_of_the_pen_names_the_command_that_was_meant(shop: Shop) -> None:
    """Of commands and of options."""
    for words, suggestion in (
        (("taks",), "task"),
        (("task", "lst"), "list"),
        (("task", "list", "--stat", "x"), "--state"),
    ):
        result = shop.call(*words)
        assert result.exit_code == 2
        assert suggestion in result.stderr


@pytest.mark.parametrize(
    ("words", "suggestions"),
    [
        (("settle", "--step", "x"), ["makegood task settle"]),
        (("undo", "0000000000000"), ["makegood task undo"]),
        (("retry",), ["makegood task resubmit", "makegood task undo", "makegood notices retry"]),
        (
            ("list",),
            [
                "makegood task list",
                "makegood lane list",
                "makegood queue list",
                "makegood notices list",
                "makegood schedule list",
            ],
        ),
        (("setlte",), ["makegood task settle"]),
        (("migrat",), ["makegood store migrate"]),
        (("tasks", "list"), ["makegood task"]),
        (("task", "alerts"), ["makegood alerts"]),
        (("task", "lst"), ["makegood task list"]),
        (("queue", "show"), ["makegood task show", "makegood lane show", "makegood schedule show"]),
        (("notices", "ack"), ["makegood alerts --ack", "makegood queue ack"]),
        (("Task", "list"), ["makegood task"]),
        (("xyzzy",), []),
    ],
)
def test_an_unknown_command_names_those_that_may_be_meant_in_full(
    shop: Shop, words: tuple[str, ...], suggestions: list[str]
) -> None:
    """The group's word forgotten, one too many, misspelt, or what other tools call it."""
    result = shop.call(*words)
    assert (result.exit_code, result.stdout) == (2, "")
    assert re.findall("`(.+?)`", result.stderr)[:-1] == suggestions, "the last one is the help"


def test_every_suggestion_for_other_tools_words_is_a_command_and_no_such_word_is_one() -> None:
    """The table keeps up with the tree."""
    assert isinstance(main, Lazy)
    names = {" ".join(path) for path, _, _ in commands(main)}
    assert {" ".join(path) for path in every(main, click.Context(main))} == names
    for word, suggestions in MEANT.items():
        assert word not in names
        for command in suggestions:
            assert command.partition(" --")[0] in names


def test_version(shop: Shop) -> None:
    """One line."""
    assert shop.done("--version").startswith("makegood ")


def test_each_exit_code_from_a_real_process(open_shop: Shop) -> None:
    """0 and 2 to 7 as the reference lists them; data on stdout, one sentence on stderr, never a traceback."""
    submit = ("task", "submit", "kiosk:buy")
    good = open_shop.run(*submit, '{"id": "x"}', "--key", "exit", "--wait")
    assert (good.returncode, good.stdout) == (0, '"paid-100-for-hold-x"\n')
    task = json.loads(open_shop.done("task", "list", "--key", "exit", "--json"))[0]["id"]
    (open_shop.folder / "broken.py").write_text("import makegood\n1 / 0\n")
    cases = [
        (2, ("task", "submit", "broken:buy", "{}")),
        (2, ("task", "show")),
        (3, ("task", "show", "0000000000000")),
        (4, ("task", "cancel", task)),
        (4, (*submit, '{"id": "y"}', "--key", "exit")),
        (5, (*submit, '{"id": "x", "card": "declined"}', "--wait")),
        (6, (*submit, '{"id": "x", "card": "stuck"}', "--wait")),
        (7, (*submit, '{"id": "x", "card": "slow"}', "--wait", "--timeout", "0.2")),
    ]
    for code, words in cases:
        run = open_shop.run(*words)
        assert (run.returncode, run.stdout) == (code, ""), (words, run.stderr)
        assert run.stderr.strip()
        assert "Traceback" not in run.stderr


@pytest.mark.parametrize(
    ("url", "code", "hint"),
    [
        ("postgresql://nobody@127.0.0.1:1/none", 8, "127.0.0.1"),
        ("sqlite:///never_made.db", 9, "makegood store migrate"),
        ("sqlite:////nowhere/at/all.db", 2, "does not exist"),
        ("mysql://x", 2, "unsupported store URL"),
        ("bill.db", 2, "did you mean sqlite:///bill.db?"),
    ],
)
def test_a_store_that_cannot_be_used(open_shop: Shop, url: str, code: int, hint: str) -> None:
    """8 unreachable, 9 needs migrating, 2 a URL of no store; each says what to do, and no file is made."""
    run = open_shop.run("task", "list", "--store", url)
    assert (run.returncode, run.stdout) == (code, ""), run.stderr
    assert hint in run.stderr
    assert "Traceback" not in run.stderr
    assert not (open_shop.folder / "never_made.db").exists()


def test_ctrl_c_ends_only_the_watching(open_shop: Shop) -> None:
    """Exit 130; the task goes on."""
    slow = json.loads(open_shop.done("task", "submit", "kiosk:buy", '{"id": "s", "card": "slow"}', "--json"))[
        "id"
    ]
    watching = open_shop.start("task", "watch", slow)
    assert watching.stdout is not None
    assert watching.stdout.readline()
    code, _, err = open_shop.stop(watching, signal.SIGINT)
    assert code == 130
    assert "Traceback" not in err
    assert open_shop.json("task", "show", slow)["state"] in ("pending", "processing")


def test_a_pipe_that_closes_early_is_no_accident(open_shop: Shop) -> None:
    """``makegood task list | head -1``: no traceback."""
    for _ in range(3):
        open_shop.done("task", "submit", "kiosk:buy", '{"id": "p"}')
    listing = open_shop.start("task", "list")
    assert listing.stdout is not None
    listing.stdout.close()
    assert listing.stderr is not None
    err = listing.stderr.read()
    listing.wait(timeout=120)
    assert "Traceback" not in err


def test_who_stops_reading_ends_the_command_in_good_order(open_shop: Shop) -> None:
    """``task history ID --json --follow | head -c 10``, and a list longer than a pipe holds: exit 0, in silence."""
    task = json.loads(open_shop.done("task", "submit", "kiosk:buy", '{"id": "h", "card": "slow"}', "--json"))[
        "id"
    ]
    for words in (("task", "history", task, "--json", "--follow"), ("task", "show", task)):
        process = open_shop.start(*words)
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert (process.wait(timeout=120), process.stderr.read()) == (0, ""), words
