"""Who may open, read and write the files that makegood makes, and whose files it believes: real users, real processes."""

import asyncio
import grp
import json
import os
import re
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from makegood.base.private_files import secret_in
from makegood.cli.settings import load
from makegood.election import open_leases
from makegood.errors import ConfigError
from makegood.messaging.outbox import open_outbox
from makegood.store import store_url
from makegood.store.sqlite.wake_socket import WakeSocket, folder_of
from tests.doors.conftest import HERE, Shop
from tests.other_users import OWNER, VISITOR, common_folder, run_as
from tests.waiting import until


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder of everybody's, with the shop's module."""
    with common_folder() as common:
        shutil.copy(HERE / "cli_app.py", common / "kiosk.py")
        yield common


@contextmanager
def usual_umask() -> Iterator[None]:
    """The one under which files are made for everybody to read."""
    before = os.umask(0o022)
    try:
        yield
    finally:
        os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def modes(folder: Path) -> dict[str, int]:
    return {file.name: mode(file) for file in folder.iterdir()}


def call(user: int, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return run_as(user, folder, "-m", "makegood", *words)


# -- files that are made -----------------------------------------------------------------------------------------------


def test_a_new_store_is_for_its_user_alone_with_all_beside_it(shop: Shop) -> None:
    """The file, its log, the log's index and the folder of sockets, under a umask that would let everybody read them."""
    with usual_umask():
        for file in shop.folder.glob("kiosk.db*"):
            file.unlink()
        process = shop.serve("run", "kiosk:kiosk")
        modes = {end: mode(shop.folder / f"kiosk.db{end}") for end in ("", "-wal", "-shm")}
        bell = mode(folder_of(shop.folder / "kiosk.db"))
        shop.stop(process)
    assert modes == {"": 0o600, "-wal": 0o600, "-shm": 0o600}
    assert bell == 0o700


def test_new_leases_in_a_file_are_for_their_user_alone(tmp_path: Path) -> None:
    """The same three files."""

    async def lead() -> dict[str, int]:
        async with open_leases(f"sqlite:///{tmp_path}/leases.db") as leases:
            assert await leases.acquire("reports", "a", "n", 5.0) is not None
            return modes(tmp_path)

    with usual_umask():
        rights = asyncio.run(lead())
    assert rights == {"leases.db": 0o600, "leases.db-wal": 0o600, "leases.db-shm": 0o600}


def test_the_rights_of_a_file_that_is_there_stay(shop: Shop) -> None:
    """Somebody may have shared it on purpose; what SQLite puts beside it is shared as well."""
    file = shop.folder / "kiosk.db"
    file.chmod(0o660)
    process = shop.serve("run", "kiosk:kiosk")
    modes = {each.name: mode(each) for each in shop.folder.glob("kiosk.db*")}
    shop.stop(process)
    assert modes["kiosk.db"] == modes["kiosk.db-wal"] == modes["kiosk.db-shm"] == 0o660


def test_a_link_to_a_store_that_is_not_there_yet_makes_a_private_one(shop: Shop) -> None:
    """SQLite follows the link, and would make the file for everybody."""
    (shop.folder / "link.db").symlink_to(shop.folder / "far.db")
    with usual_umask():
        shop.done("store", "migrate", "--store", "sqlite:///link.db")
    assert mode(shop.folder / "far.db") == 0o600


def test_a_store_in_a_folder_that_may_not_be_written_names_the_folder(folder: Path) -> None:
    """Exit 8, as its page says; nothing is made."""
    folder.chmod(0o755)
    for words in (("store", "migrate"), ("run", "kiosk:kiosk")):
        refusal = call(VISITOR, folder, *words)
        assert (refusal.returncode, refusal.stdout) == (8, ""), refusal.stderr
        place = f"makegood.db: it cannot be created (Permission denied): give this user write access to the folder {folder.resolve()}"
        assert place in refusal.stderr
    assert not (folder / "makegood.db").exists()


def test_another_user_can_neither_read_nor_stop_a_store_and_is_told_whose_it_is(folder: Path) -> None:
    """One read lock on the log's index would hold up every writer."""
    with usual_umask():
        call(OWNER, folder, "store", "migrate").check_returncode()
        os.setegid(OWNER)
        os.seteuid(OWNER)
        try:
            writer = sqlite3.connect(folder / "makegood.db")
            with closing(writer):
                writer.execute("update makegood_task set state = 'error'")
                os.seteuid(0)
                for name in ("makegood.db", "makegood.db-wal", "makegood.db-shm"):
                    attempt = run_as(VISITOR, folder, "-c", f"open({name!r}, 'rb')")
                    assert "PermissionError" in attempt.stderr, name
                os.seteuid(OWNER)
        finally:
            os.seteuid(0)
            os.setegid(0)
    for words in (
        ("task", "list"), ("store", "status"), ("task", "submit", "kiosk:buy", '{"id": "o"}'), ("leader", "reports"),
        ("scheduler",), ("inbox", "--from", "sqlite:///makegood.db"), ("election", "run", "e", "--wait", "0.2s", "--", "true"),
    ):  # fmt: skip
        refusal = call(VISITOR, folder, *words)
        assert refusal.returncode in (7, 8), (words, refusal.stderr)
        assert refusal.returncode == 7 or re.search(
            f"it belongs to user {OWNER}, and this user may not read it. Run makegood as user {OWNER}",
            refusal.stderr,
        ), (words, refusal.stderr)
    report = call(VISITOR, folder, "doctor", "--json")
    assert report.returncode == 8
    assert f"it belongs to user {OWNER}" in report.stdout


# -- the doctor --------------------------------------------------------------------------------------------------------


def findings(shop: Shop, check: str) -> list[tuple[str, str, str]]:
    report = json.loads(shop.call("doctor", "--json").stdout)["findings"]
    return [(each["severity"], each["what"], each["remedy"]) for each in report if each["check"] == check]


def test_the_doctor_says_what_others_may_do_and_its_commands_mend_it(shop: Shop) -> None:
    """With the file, and with its folder."""
    assert [severity for severity, _, _ in findings(shop, "rights")] == ["ok"]
    (shop.folder / "kiosk.db").chmod(0o644)
    shop.folder.chmod(0o777)
    first, second = findings(shop, "rights")
    assert (first[0], second[0]) == ("warning", "warning")
    assert "every user may open kiosk.db" in first[1]
    assert "every user may write its folder" in second[1]
    for _, _, remedy in (first, second):
        (command,) = re.findall("`(.*?)`", remedy)
        subprocess.run(["/bin/sh", "-c", command], check=True)
    assert [severity for severity, _, _ in findings(shop, "rights")] == ["ok"]
    assert mode(shop.folder / "kiosk.db") == 0o600


# -- root beside a service ---------------------------------------------------------------------------------------------


def test_a_killed_command_of_root_leaves_the_bell_to_the_service(folder: Path) -> None:
    """The folder of its sockets was root's, for good, and the service could only poll."""
    call(OWNER, folder, "store", "migrate").check_returncode()
    receiver = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "makegood",
            "queue",
            "receive",
            "x",
            "--follow",
            "--store",
            f"sqlite:///{folder}/makegood.db",
        ],
        stdout=subprocess.DEVNULL,
    )
    bell = folder / "makegood.db.bell"
    try:

        async def listens() -> bool:
            assert receiver.poll() is None
            return bell.exists() and any("q" in each.name for each in bell.iterdir())

        asyncio.run(until(listens, "root's command to listen"))
        beside = list(folder.glob("makegood.db*"))
        assert {file.stat().st_uid for file in beside} == {OWNER}
        assert len(beside) == 4
        code = (
            "import sys; from pathlib import Path; from makegood.store.sqlite.wake_socket import WakeSocket\n"
            "bell = WakeSocket(Path('makegood.db'), print); assert bell.open() is not None\n"
            "import os, socket; line = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)\n"
            "[line.sendto(b'queue:none', f'makegood.db.bell/{name}') for name in os.listdir('makegood.db.bell')]"
        )
        ring = run_as(OWNER, folder, "-c", code)
        assert ring.returncode == 0, ring.stderr
    finally:
        receiver.send_signal(signal.SIGKILL)
        receiver.wait()
    assert (bell.stat().st_uid, mode(bell)) == (OWNER, 0o700)
    code = "from pathlib import Path; from makegood.store.sqlite.wake_socket import WakeSocket; assert WakeSocket(Path('makegood.db'), print).open() is not None"
    command = run_as(OWNER, folder, "-c", code)
    assert command.returncode == 0, command.stderr
    assert "no wake socket" not in command.stderr


def test_a_folder_that_root_left_is_named_by_the_doctor_and_given_back_by_roots_next_command(
    folder: Path,
) -> None:
    call(OWNER, folder, "store", "migrate").check_returncode()
    bell = folder / "makegood.db.bell"
    bell.mkdir(mode=0o700)
    report = call(OWNER, folder, "doctor")
    assert "makegood.db.bell belongs to root, mode 700" in report.stdout
    assert f"as root: `chown {OWNER} {bell} && chmod 700 {bell}`" in report.stdout
    own = WakeSocket(folder / "makegood.db", lambda _: None)
    assert own.open() is not None
    assert (bell.stat().st_uid, mode(bell)) == (OWNER, 0o700)
    own.close()


def test_root_gives_away_nothing_but_a_folder_of_sockets(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Who may write the folder above could put another folder of root's, or a link to one, in its place."""
    call(OWNER, folder, "store", "migrate").check_returncode()
    precious = folder / "precious"
    precious.mkdir(mode=0o700)
    (precious / "key").write_text("secret", encoding="utf-8")
    file = folder / "makegood.db"
    bell = folder_of(file)
    precious.rename(bell)
    assert WakeSocket(file, lambda _: None).open() is None
    assert bell.stat().st_uid == 0
    bell.rename(folder / "kept")
    bell.symlink_to(folder / "kept")
    assert WakeSocket(file, lambda _: None).open() is None
    assert (folder / "kept").stat().st_uid == bell.lstat().st_uid == 0
    assert caplog.text.count("no wake socket") == 2


# -- files that are believed -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["makegood.toml", "pyproject.toml"])
def test_settings_that_another_user_may_have_written_are_refused(tmp_path: Path, name: str) -> None:
    """In a folder of somebody else's they would name the server that gets our password."""
    file = tmp_path / name
    file.write_text(
        f"{'[tool.makegood]' if name == 'pyproject.toml' else ''}\nstore = 'sqlite:///x.db'\n",
        encoding="utf-8",
    )
    file.chmod(0o644)
    assert load({}, {}, tmp_path).store == "sqlite:///x.db"
    file.chmod(0o646)
    with pytest.raises(ConfigError, match=rf"{name} may be written by every user.*`chmod go-w \S+{name}`"):
        load({}, {}, tmp_path)
    file.chmod(0o644)
    if os.geteuid() != 0:
        pytest.skip("users: only root can give a file away")
    os.chown(file, OWNER, OWNER)
    with pytest.raises(ConfigError, match=rf"belongs to user {OWNER}.*sudo chown 0 "):
        load({}, {}, tmp_path)
    os.chown(file, 0, VISITOR)
    file.chmod(0o664)
    with pytest.raises(ConfigError, match=rf"may be written by group {re.escape(str(group_of(VISITOR)))}"):
        load({}, {}, tmp_path)


def group_of(number: int) -> str | int:
    try:
        return grp.getgrgid(number).gr_name
    except KeyError:
        return number


def test_a_file_of_roots_is_believed_by_everybody_and_one_without_settings_by_nobody(folder: Path) -> None:
    """And a pyproject.toml of somebody else's that has no table of ours bars nothing."""
    (folder / "makegood.toml").write_text("store = 'sqlite:///roots.db'\n", encoding="utf-8")
    assert "roots.db" in call(OWNER, folder, "store", "status").stdout
    (folder / "makegood.toml").unlink()
    (folder / "pyproject.toml").write_text("[tool.other]\nx = 1\n", encoding="utf-8")
    os.chown(folder / "pyproject.toml", VISITOR, VISITOR)
    assert "sqlite:///makegood.db" in call(OWNER, folder, "store", "status").stdout


def test_a_group_of_ones_own_is_nobody_else(tmp_path: Path) -> None:
    """Where each user has a group, the usual umask lets it write: an editor makes files so."""
    file = tmp_path / "makegood.toml"
    file.write_text("store = 'sqlite:///x.db'\n", encoding="utf-8")
    file.chmod(0o664)
    if os.geteuid() != 0:
        pytest.skip("users: only of root it is known that its group is its own")
    assert load({}, {}, tmp_path).store == "sqlite:///x.db"


# -- a store's URL in a file -------------------------------------------------------------------------------------------


def test_a_stores_url_is_taken_from_a_file_wherever_it_can_be_given(shop: Shop) -> None:
    """So that no list of processes and no settings show the password: flag, environment, settings, client, outbox and leases."""
    secret = shop.folder / "store.url"
    secret.write_text(f"{shop.url}\n", encoding="utf-8")
    secret.chmod(0o600)
    reference = f"@{secret}"
    shop.url = "sqlite:///none.db"
    assert shop.json("store", "status", "--store", reference)["missing"] == []
    assert (
        json.loads(shop.call("store", "status", "--json", MAKEGOOD_STORE=reference).stdout)["missing"] == []
    )
    (shop.folder / "makegood.toml").write_text(f"store = '{reference}'\n", encoding="utf-8")
    assert json.loads(shop.call("store", "status", "--json", MAKEGOOD_STORE="").stdout)["missing"] == []
    plain = secret.read_text(encoding="utf-8").strip()
    assert store_url(reference) == plain
    assert open_outbox(reference).where.endswith("kiosk.db")
    open_leases(reference)
    task = shop.json("task", "submit", "kiosk:buy", '{"id": "a"}', "--store", reference)["id"]
    assert shop.call("task", "show", task, "--store", reference).exit_code == 0


def test_the_commands_that_are_offered_name_the_file_and_not_what_is_in_it(shop: Shop) -> None:
    secret = shop.folder / "store.url"
    secret.write_text(shop.url, encoding="utf-8")
    secret.chmod(0o600)
    serving = shop.serve("run", "kiosk:kiosk")
    task_id = shop.json("task", "submit", "kiosk:buy", '{"id": "s", "card": "stuck"}', "--wait", code=6)["id"]
    shop.stop(serving)
    remedies = shop.json("task", "show", task_id, "--store", f"@{secret}")["next"]
    assert remedies
    assert all(each["command"].endswith(f"--store @{secret}") for each in remedies)


@pytest.mark.parametrize(
    ("text", "rights", "pattern"),
    [
        ("", 0o600, "is empty"),
        ("postgresql://db/x", 0o602, "may be written by every user: `chmod 600 "),
        (None, 0o600, "cannot be read"),
        ("\udcff", 0o600, "is not UTF-8"),
    ],
)
def test_a_secret_that_cannot_be_one_is_refused(
    tmp_path: Path, text: str | None, rights: int, pattern: str
) -> None:
    file = tmp_path / "secret"
    if text is not None:
        file.write_bytes(text.encode(errors="surrogateescape"))
        file.chmod(rights)
    with pytest.raises(ConfigError, match=pattern):
        secret_in(f"@{file}", "store")
    with pytest.raises(ConfigError, match=pattern):
        store_url(f"@{file}")


def test_a_secret_that_everybody_may_read_is_taken_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Docker mounts them so; on a host of several users it is a mistake."""
    file = tmp_path / "secret"
    file.write_text("whsec_x\n", encoding="utf-8")
    file.chmod(0o644)
    assert secret_in(f"@{file}", "alert_secret") == "whsec_x"
    assert f"every user of this machine may read {file}: `chmod 600 {file}`" in caplog.text
    file.chmod(0o640)
    caplog.clear()
    assert secret_in(f"@{file}", "alert_secret") == "whsec_x"
    assert caplog.text == ""


def test_the_doctor_shows_of_a_webhook_its_host_alone(shop: Shop) -> None:
    """Its path is the secret of a chat's address."""
    url = "https://hooks.example/services/T0/B0/XXSECRETXX?token=YYSECRETYY"
    for words in (("doctor",), ("doctor", "--json")):
        text = shop.call(*words, MAKEGOOD_ALERT_WEBHOOK=url).output
        assert "https://hooks.example" in text
        assert "SECRET" not in text
