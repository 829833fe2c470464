"""The pages on operating do what they say: units are verified, processes start as written, a backup is restored, numbers are the code's."""

import inspect
import json
import re
import shlex
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from makegood.base import ids, name_lookups, webhook_signature
from makegood.base.durations import seconds
from makegood.base.sizes import PAYLOAD_LIMIT
from makegood.client import queues, submission
from makegood.client import schedules as client_schedules
from makegood.client import signals as client_signals
from makegood.console import access, limited_server, live
from makegood.console import app as console_app
from makegood.declare.terms import EXTEND_MOST
from makegood.election.preference import tcp
from makegood.errors import DefinitionError
from makegood.messaging import alert_webhook, notifier
from makegood.model import notices, schedule
from makegood.options import Options
from makegood.saga.rules import MOST_DEATHS
from makegood.store import alerts, filters, firing
from makegood.store import signals as store_signals
from makegood.store.notice_records import KEPT
from makegood.store.postgres import connection as link
from makegood.store.records import MOST_LOST
from makegood.store.sqlite import connection
from makegood.telemetry import http_server
from makegood.workflow import app, verbs
from tests.docs import shell
from tests.doors.conftest import Shop

ROOT = Path(__file__).resolve().parents[2]
PAGES = {name: (ROOT / "docs" / name).read_text(encoding="utf-8") for name in (
    "operate/deploy.md", "operate/upgrade.md", "operate/back-up-and-restore.md", "reference/limits.md")}  # fmt: skip
BIN = Path(sys.executable).parent


def blocks(page: str, kind: str) -> list[str]:
    """Return the blocks of one kind on a page."""
    return re.findall(rf"^```{kind}\n(.*?)^```", PAGES[page], re.MULTILINE | re.DOTALL)


def units() -> dict[str, str]:
    """Return the systemd units of the page by file name."""
    unit_files = {}
    for text in blocks("operate/deploy.md", "ini"):
        name = re.match(r"# (\S+)", text)
        assert name is not None
        if name[1].endswith(".service"):
            unit_files[name[1].rpartition("/")[2]] = text
    return unit_files


def called(shop: Shop, text: str) -> str:
    """Type lines of `makegood` in this process, which is quicker than a shell; what loads a user's module runs in one."""
    output = ""
    for line in text.splitlines():
        name, *words = shlex.split(line)
        assert name == "makegood", line
        output += typed(shop, line) if words[0] == "check" else shop.done(*words)
    return output


def typed(shop: Shop, text: str) -> str:
    """Run lines in a real shell, in the shop's folder; all must succeed. Returns what they said."""
    return shell.typed(text, shop.folder, MAKEGOOD_STORE=shop.url)


@pytest.fixture
def orders(tmp_path: Path) -> Iterator[Shop]:
    """A shop whose module bears the name that the pages use."""
    new_shop = Shop(tmp_path, f"sqlite:///{tmp_path / 'shop.db'}")
    text = (tmp_path / "kiosk.py").read_text(encoding="utf-8")
    text = text.replace('App("kiosk")', 'App("shop")').replace("till", "payments")
    (tmp_path / "orders.py").write_text(re.sub(r"\bkiosk\b", "shop", text), encoding="utf-8")
    yield new_shop
    new_shop.close()


def test_the_units_are_what_systemd_takes(tmp_path: Path) -> None:
    """By systemd's own eyes where it is there; they wait longer for the end than the processes drain."""
    assert set(units()) == {
        "makegood-scheduler.service",
        "makegood-supervisor.service",
        "makegood-agent@.service",
        "makegood-console.service",
    }
    drain = seconds(Options().drain)
    for text in units().values():
        stop = re.search(r"^TimeoutStopSec=(\d+)s$", text, re.MULTILINE)
        assert stop is not None
        assert int(stop[1]) > drain
        head, _, service = text.partition("[Service]")
        assert "\nStartLimitIntervalSec=0\n" in head, "or it is given up after five starts without a store"
        assert "\nRestart=always\n" in service
        assert "\nUMask=0077\n" in service
    verify = shutil.which("systemd-analyze")
    if verify is None:
        pytest.skip("systemd-analyze is not installed: the units were only read")
    names = []
    for name, text in units().items():
        file = tmp_path / name.replace("@.", "@stock.")
        file.write_text(
            text.replace("/opt/shop/.venv/bin/makegood", shutil.which("true") or "/bin/true"), "utf-8"
        )
        names.append(str(file))
    ran = subprocess.run(
        [verify, "--man=no", "verify", *names], capture_output=True, text=True, timeout=120, check=False
    )
    ours = [line for line in ran.stderr.splitlines() if str(tmp_path) in line or "makegood" in line]
    assert (ran.returncode, ours) == (0, []), ran.stderr


def commands() -> list[list[str]]:
    """Return each command that the units and the containers start, as words after `makegood`."""
    command_lines = []
    for text in units().values():
        line = re.search(r"^ExecStart=\S+/makegood (.*)$", text, re.MULTILINE)
        assert line is not None
        command_lines.append(shlex.split(line[1].replace("%i", "stock")))
    (compose,) = blocks("operate/deploy.md", "yaml")
    command_lines += [json.loads(words) for words in re.findall(r"command: (\[.*\])", compose)]
    (image,) = blocks("operate/deploy.md", "dockerfile")
    assert 'ENTRYPOINT ["makegood"]' in image
    command_lines += [json.loads(words) for words in re.findall(r"^CMD (\[.*\])", image, re.MULTILINE)]
    return command_lines


def test_the_image_takes_what_there_is(orders: Shop) -> None:
    """Its lines in order: the wheel is built by the line above them, found by their pattern, and has those extras."""
    (image,) = blocks("operate/deploy.md", "dockerfile")
    (wheel,) = blocks("operate/deploy.md", "sh wheel")
    typed(
        orders, f"CHECKOUT={ROOT}\n" + wheel.replace("--no-deps", "--no-deps --no-index --no-build-isolation")
    )
    for pattern in " ".join(re.findall(r"^COPY (.+) \.$", image, re.MULTILINE)).split():
        assert list(orders.folder.glob(pattern)) or (ROOT / pattern).is_file(), pattern
    (install,) = re.findall(r"^RUN pip install --no-cache-dir (.*)$", image, re.MULTILINE)
    match = re.fullmatch(
        r"-c constraints.txt \./(makegood-\S+\.whl)\[(\S+)\]\n", typed(orders, f"echo {install}")
    )
    assert match is not None
    metadata = f"{match[1].split('-py3')[0]}.dist-info/METADATA"
    contents = zipfile.ZipFile(orders.folder / match[1]).read(metadata).decode()
    for extra in match[2].split(","):
        assert f"Provides-Extra: {extra}\n" in contents


def test_the_composition_names_what_it_has() -> None:
    """Services that are waited for, the file of settings, volumes, secrets, the password, the port that is asked for health."""
    (text,) = blocks("operate/deploy.md", "yaml")
    head, services, rest = re.split(r"^(?:services|volumes):", text, flags=re.MULTILINE)
    names = set(re.findall(r"^  (\w+):$", services, re.MULTILINE))
    assert names == {"db", "migrate", "scheduler", "supervisor", "agents"}
    assert set(re.findall(r"depends_on: \{(\w+):", text)) <= names
    assert set(re.findall(r"<<: \*(\w+)", text)) == set(re.findall(r"&(\w+)$", head, re.MULTILINE))
    assert re.findall(r'volumes: \["(\w+):', services) == re.findall(r"^ \{(\w+):", rest)
    assert re.findall(r"secrets: \[(\w+)\]", services) == re.findall(
        r"^secrets: \{(\w+):", rest, re.MULTILINE
    )
    (settings,) = set(re.findall(r"env_file: (\S+)", text))
    (env,) = [block for block in blocks("operate/deploy.md", "ini") if block.startswith(f"# {settings}\n")]
    assert "@db/shop" in env, "the service's name is its host"
    (port,) = re.findall(r"http://127\.0\.0\.1:(\d+)/livez", head)
    assert set(re.findall(r"0\.0\.0\.0:(\d+)", services)) == {port}
    assert re.findall(r"^  restart: (.*)$", head, re.MULTILINE) == ["always"], (
        "without a limit to its attempts"
    )
    (grace,) = re.findall(r"stop_grace_period: (\d+)s", text)
    assert int(grace) > seconds(Options().drain)


def test_the_settings_of_units_and_containers_are_known(orders: Shop) -> None:
    """Each name in the files of settings is one that makegood reads, and its value one that it takes."""
    files = [block for block in blocks("operate/deploy.md", "ini") if re.match(r"# \S+\.env\n", block)]
    assert len(files) == 2
    for text in files:
        environment = dict(line.split("=", 1) for line in text.splitlines()[1:])
        store = environment.pop("MAKEGOOD_STORE")
        result = orders.call("doctor", "--json", **environment)
        assert set(environment) <= {setting["origin"] for setting in json.loads(result.stdout)["settings"]}
        assert "PostgreSQL at db" in orders.call("store", "status", MAKEGOOD_STORE=store).stderr


def test_every_process_starts_as_written_and_ends_on_sigterm(orders: Shop) -> None:
    """Units, containers, the image's own command: each runs its role on a store that was migrated first."""
    orders.done("store", "migrate")
    command_lines: list[list[str]] = []
    for words in commands():
        if words == ["store", "migrate"]:
            continue
        free = [re.sub(r"^(127\.0\.0\.1|0\.0\.0\.0):\d+$", "127.0.0.1:0", word) for word in words]
        if free not in command_lines:
            command_lines.append(free)
    processes = [orders.start(*free, "--json") for free in command_lines]
    assert len(processes) == 6
    for process in processes:
        assert process.stdout is not None
        assert '"started"' in process.stdout.readline()
    for process in processes:
        process.terminate()
    for process in processes:
        process.communicate(timeout=120)
        assert process.returncode == 0


def test_what_is_typed_before_the_first_customer_and_at_an_upgrade(orders: Shop) -> None:
    """All of it, in order; the second migration has nothing to do."""
    (first,) = blocks("operate/deploy.md", "sh")
    output = called(orders, first)
    assert "nobody leads" in output
    assert "row      alert 1" in output
    check, migrate = blocks("operate/upgrade.md", "sh")
    called(orders, check)
    assert "nothing to apply" in called(orders, migrate)


def test_a_sqlite_store_is_backed_up_and_restored(orders: Shop) -> None:
    """What came after the backup is gone, what was before is there, and a new generation began."""
    orders.done("store", "migrate")
    before = orders.done("task", "submit", "orders:buy", '{"id": "o-1"}').strip()
    typed(orders, blocks("operate/back-up-and-restore.md", "sh")[0])
    assert (orders.folder / "backup.db").stat().st_mode & 0o777 == 0o600
    after = orders.done("task", "submit", "orders:buy", '{"id": "o-2"}').strip()
    typed(orders, blocks("operate/back-up-and-restore.md", "sh restore")[0])
    assert (orders.folder / "shop.db").stat().st_mode & 0o777 == 0o600
    assert "generation 2 began" in called(orders, blocks("operate/back-up-and-restore.md", "sh restored")[0])
    assert orders.json("task", "show", before)["state"] == "pending"
    assert orders.call("task", "show", after).exit_code == 3
    orders.serve("run", "orders:shop")
    assert orders.call("task", "watch", before).exit_code == 0


def test_a_postgresql_store_is_backed_up_and_restored(orders: Shop) -> None:
    """With PostgreSQL's own tools: a dump that is read into the same server bears no other history, so it has to be said."""
    pytest.importorskip("asyncpg", reason="postgres: asyncpg is not installed")
    from proofs.private_server import PrivateServer  # noqa: PLC0415 - asyncpg is an extra

    if shutil.which("pg_dump") is None:
        pytest.skip("pg_dump is not installed")
    with ExitStack() as stack:
        server = stack.enter_context(PrivateServer(database="shop"))
        orders.url = server.url
        orders.done("store", "migrate")
        before = orders.done("task", "submit", "orders:buy", '{"id": "o-1"}').strip()
        typed(orders, blocks("operate/back-up-and-restore.md", "sh postgresql")[0])
        assert (orders.folder / "shop.dump").stat().st_mode & 0o777 == 0o600
        after = orders.done("task", "submit", "orders:buy", '{"id": "o-2"}').strip()
        typed(orders, blocks("operate/back-up-and-restore.md", "sh postgresql-restore")[0])
        assert "generation 2 began" in called(
            orders, blocks("operate/back-up-and-restore.md", "sh restored")[0]
        )
        assert orders.json("task", "show", before)["state"] == "pending"
        assert orders.call("task", "show", after).exit_code == 3
        process = orders.serve("run", "orders:shop")
        assert orders.call("task", "watch", before).exit_code == 0
        orders.stop(process)


def test_the_numbers_are_those_of_the_code() -> None:
    """Each row of the table of limits, against the constant that it stands for."""
    options = Options()
    of_app = inspect.signature(app.App).parameters
    limits = [
        ("an input, argument or result", of_app["payload_limit"].default),
        ("a message of a queue", PAYLOAD_LIMIT),
        ("steps of a task", of_app["step_limit"].default),
        ("items of one", inspect.signature(verbs.each).parameters["limit"].default),
        ("a task key", submission.MOST_KEY),
        ("a correlation id", notices.MOST_TEXT),
        ("messages that wait in a queue", options.queue_limit),
        ("bytes of the messages", options.size("queue_bytes")),
        ("a notification waits unread", KEPT),
        ("the id of a message", queues._MOST_ID),
        ("signals of a task", store_signals.MOST_BACKLOG),
        ("the id of a signal", client_signals.MOST_ID),
        ("moments of one backfill", client_schedules.MOST_BACKFILL),
        ("moments of all schedules", firing.MOST),
        ("the name of a schedule", schedule.MOST_NAME),
        ("tasks that a Scheduler holds", options.max_tasks),
        ("bytes of the tasks", options.size("max_task_memory")),
        ("tasks that it claims", options.claim_batch),
        ("an attempt's deadline", EXTEND_MOST),
        ("processes that an attempt may kill", MOST_DEATHS),
        ("Schedulers in a row", MOST_LOST),
        ("posts of a notification", options.webhook_tries),
        ("one post of a notification", options.number("webhook_timeout")),
        ("one post of an alert", webhook_signature.TIMEOUT),
        ("notifications that a process posts", notifier.AT_ONCE),
        ("names that a process resolves", name_lookups.SHARE),
        ("the head of a receiver's answer", alert_webhook.MOST_HEAD),
        ("connections to the port", http_server.MOST_AT_ONCE),
        ("connections to the console", limited_server.MOST_CONNECTIONS),
        ("the head of a request to the console", limited_server.HEAD),
        ("a form of the console", access.MOST_FORM),
        ("an address of the console", console_app.MOST_ADDRESS),
        ("live pages of a console", live.MOST),
        ("a filter of tasks", filters.LONGEST),
        ("connections to a member", tcp.MOST_CONNECTIONS),
        ("makegood sends an alert", alerts.TOLD_WITHIN),
        ("makegood keeps ended tasks for", seconds(options.retention or 0)),
        ("PostgreSQL", link.OLDEST),
    ]
    rows = {
        cells[0].strip(): cells[1]
        for line in PAGES["reference/limits.md"].splitlines()
        if len(cells := line.split("|")[1:]) > 2
    }
    for name, number in limits:
        (row,) = [cell for what, cell in rows.items() if what.startswith(name)]
        match = re.search(r"[\d,]+", row)
        assert match is not None
        assert int(match[0].replace(",", "")) == number, name
    assert f"{connection._OLDEST[0]}.{connection._OLDEST[1]} or newer" in rows["SQLite"]
    with pytest.raises(DefinitionError, match="up to 100 ASCII"):
        ids.checked_name("a" * 101, "an app's")
    assert "100 characters" in rows["a name of an app, agent, action, workflow or signal"]
    last = ids.draw_time(2**63 - 1)
    assert f"the year {1970 + int(last // (365.2425 * 86400))}" in PAGES["reference/limits.md"]
