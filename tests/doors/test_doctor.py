"""``makegood doctor``: one line for each thing that is looked at, and what to do about it."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from makegood.base import sqlite_log
from makegood.base.zones import ZoneRules
from makegood.cli import findings
from makegood.election.protocol import LeaseView
from makegood.model.plan import KINDS
from makegood.store.postgres import doctor as postgres
from makegood.store.queue_records import QueueView
from makegood.store.sqlite import doctor as sqlite
from makegood.store.views import NodeInfo, NodeView, SchemaStatus, TaskFigures
from tests.doors.conftest import Shop
from tests.unit.zone_folders import enact


def found(document: Any, check: str) -> list[tuple[str, str]]:
    """Return severity and text of the findings of one check."""
    return [(one["severity"], one["what"]) for one in document["findings"] if one["check"] == check]


def test_a_quiet_store_is_sound_and_nobody_leads(shop: Shop) -> None:
    """Everything that can be measured is there; that nothing runs is a warning, and an error only for those who ask for it."""
    report = shop.json("doctor")
    assert report["code"] == 0
    for check in (
        "file",
        "durability",
        "schema",
        "clock",
        "read",
        "commit",
        "orphans",
        "alerts",
        "generation",
    ):
        assert [severity for severity, _ in found(report, check)] == ["ok"], (check, report)
    ((severity, what),) = found(report, "leader")
    assert severity == "warning"
    assert "nobody leads and no supervisor runs" in what
    assert shop.json("doctor", "--strict", code=1)["code"] == 1
    assert all(one["remedy"] for one in report["findings"] if one["severity"] != "ok")


def test_with_everything_running_it_says_who_leads(open_shop: Shop) -> None:
    """A process with all roles: the leader is named, and nothing is left to do."""
    report = open_shop.json("doctor")
    ((severity, what),) = found(report, "leader")
    assert severity == "ok"
    assert "leads in epoch 1" in what
    ((_, running),) = found(report, "processes")
    assert "1 scheduler" in running


def test_zone_rules_that_differ_or_are_old_are_warnings(shop: Shop, tmp_path: Path) -> None:
    """The rules of this machine and of each process, by what it published."""
    shop.done("store", "migrate")
    old, new = (
        enact(tmp_path / version, version, Europe_Berlin="Europe/Berlin") for version in ("2998a", "2998b")
    )
    first = shop.serve("scheduler", "--name", "one", PYTHONTZPATH=str(old))
    assert ("ok", f"zone rules of the processes: 2998a ({old})") in found(shop.json("doctor"), "zones")
    second = shop.serve("scheduler", "--name", "two", PYTHONTZPATH=str(new))
    differing = f"processes compute the moments of schedules by different zone rules: 2998a ({old}): one-{first.pid}; 2998b ({new}): two-{second.pid}"
    assert ("warning", differing) in found(shop.json("doctor"), "zones")
    nodes = shop.json("agents")["nodes"]
    assert {"source": str(old), "version": "2998a"} in [node["zone_rules"] for node in nodes]
    result = shop.run("doctor", "--json", PYTHONTZPATH=str(enact(tmp_path / "newest", "2999a")))
    assert f"zone rules of this machine: 2999a ({tmp_path / 'newest'})" in result.stdout


def test_zone_rules_are_old_a_year_after_their_release() -> None:
    """Whoever publishes them; those of unknown version are not judged."""
    rules = ZoneRules("/usr/share/zoneinfo", "2025b", 1_742_600_000.0)
    for age, severity in ((360, "ok"), (370, "warning")):
        now = 1_742_600_000.0 + age * 86_400
        view = NodeView(
            1, NodeInfo("web-1", ("supervisor",), "host", 7, 5.0, zone_rules=rules), 0.0, 5.0, False, False
        )
        assert findings.zone_rules(rules, now).severity == severity
        assert findings.published_zone_rules([view], now)[0].severity == severity
    assert findings.zone_rules(ZoneRules("/zones", ""), 9e9).severity == "ok"
    assert findings.zone_rules(None, 0.0).remedy == "`pip install tzdata`"


def test_for_people_the_remedy_stands_below(shop: Shop) -> None:
    """A line per finding, what to do under it, and every setting with its origin."""
    text = shop.call(
        "doctor",
        MAKEGOOD_SUPERVISE_EVERY="3s",
        MAKEGOOD_ALERT_SECRET="whsec_c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0",
        MAKEGOOD_WEBHOOK_SECRETS="a.example=whsec_c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0",
    ).stdout
    assert "warning  leader        nobody leads" in text
    assert "-> start one: `makegood supervisor`" in text
    rows = {line.split()[0]: line.split()[1:] for line in text.splitlines() if line.strip()}
    assert rows["supervise_every"] == ["3s", "MAKEGOOD_SUPERVISE_EVERY"]
    assert rows["max_tasks"] == ["10000", "default"]
    assert rows["lease"] == ["15s", "default"]
    assert rows["alert_secret"] == ["•••", "MAKEGOOD_ALERT_SECRET"]
    assert rows["webhook_secrets"] == ["•••", "MAKEGOOD_WEBHOOK_SECRETS"]
    assert "c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0" not in text


def test_settings_tell_flag_environment_file_and_default(shop: Shop) -> None:
    """The origin is the one that won."""
    (shop.folder / "makegood.toml").write_text('late_after = "4s"\ncleanup_every = "1m"\n', encoding="utf-8")
    settings = {one["name"]: one for one in shop.json("doctor", "--store", shop.url)["settings"]}
    assert settings["late_after"]["origin"] == "late_after in makegood.toml"
    assert settings["late_after"]["value"] == "4s"
    assert settings["store"]["origin"] == "--store"
    assert settings["retention"] == {"name": "retention", "value": "30d", "origin": "default"}


def test_a_missing_migration_is_exit_9_with_the_command(tmp_path: Path) -> None:
    """And an unreachable server is exit 8; both are findings, too."""
    shop = Shop(tmp_path)
    report = shop.json("doctor", code=9)
    (schema,) = [one for one in report["findings"] if one["check"] == "schema"]
    assert (schema["severity"], schema["remedy"]) == ("error", "`makegood store migrate`")
    pytest.importorskip("asyncpg")
    away = shop.json("doctor", "--store", "postgresql://nobody:hush@127.0.0.1:1/none", code=8)
    ((severity, what),) = found(away, "store")
    assert severity == "error"
    assert "refuses connections" in what
    assert "c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0" not in str(away)


def test_work_that_nobody_does_is_an_error(shop: Shop) -> None:
    """A task waits and no scheduler runs; a request waits and no process runs its agent."""
    shop.done("task", "submit", "kiosk:buy", '{"id": "o-1"}')
    ((_, _), (severity, what)) = found(shop.json("doctor", code=1), "processes")
    assert (severity, what) == ("error", "1 task under way or waiting, and no scheduler runs")
    with closing(sqlite3.connect(shop.folder / "kiosk.db")) as file:
        file.execute(
            "insert into makegood_request (task, idx, attempt, kind, agent, action, priority, isolate, starved, sent_at, within, "
            "answered) values (1, 0, 1, 'do', 'kiosk/till', 'charge', 0, 0, 0, 0, 5, 0)"
        )
        file.commit()
    ((severity, what),) = found(shop.json("doctor", code=1), "agents")
    assert severity == "error"
    assert what.startswith("1 request for kiosk/till, the oldest for ")


def test_a_task_that_should_have_begun_is_found(shop: Shop) -> None:
    task = shop.json("task", "submit", "kiosk:buy", '{"id": "o-1"}', "--delay", "1h")["id"]
    assert found(shop.json("doctor"), "sleepers") == []
    with closing(sqlite3.connect(shop.folder / "kiosk.db")) as file:
        file.execute("update makegood_task set ready_seq = ready_seq - 7200000000")
        file.commit()
    ((severity, what),) = found(shop.json("doctor", code=1), "sleepers")
    assert severity == "error"
    assert what.startswith("1 task should have begun, the first 1h")
    assert what.endswith(f"ago, and still sleep: {task}; no scheduler runs")


def test_a_scheduler_of_an_older_version_is_named() -> None:
    """Until it is restarted, plans with the kinds of steps that it does not know are refused."""
    old = NodeInfo("old", ("scheduler",), "box", 7, 5.0, kinds=("action", "when"))
    agent = NodeInfo("agent", ("agent",), "box", 8, 5.0)
    new = NodeInfo("new", ("scheduler",), "box", 9, 5.0, kinds=KINDS)
    views = [NodeView(1, info, 0.0, 5.0, False, False) for info in (old, agent, new)]
    (finding,) = findings.unknown_kinds(views)
    assert finding.severity == "warning"
    assert finding.what.startswith("the Scheduler of old (pid 7 on box) is of an older version")
    assert "done, fail, first, sleep, wait_for" in finding.what


def test_a_late_start_beside_a_scheduler_is_a_warning() -> None:
    view = NodeView(1, NodeInfo("one", ("scheduler",), "host", 7, 5.0, held=12), 0.0, 5.0, False, False)
    (finding,) = findings.late_starts([(1, 90.0), (2, 80.0)], 2, [view])
    assert finding.severity == "warning"
    assert finding.what.startswith("2 or more tasks should have begun")
    assert finding.what.endswith("1 scheduler with 12 tasks in hand")
    assert findings.late_starts([], 2, []) == []


def test_a_place_is_judged_by_its_file_system() -> None:
    """Refused, doubtful and good ones; what is not known is not judged."""
    severities = {kind: sqlite.judge_file_system(kind).severity for kind in (
        "ext4", "xfs", "btrfs", "", "nfs", "nfs4", "cifs", "fuse.sshfs", "tmpfs", "overlay", "virtiofs", "9p", "fuse.ntfs")}  # fmt: skip
    assert severities == {
        "ext4": "ok", "xfs": "ok", "btrfs": "ok", "": "ok", "nfs": "error", "nfs4": "error", "cifs": "error", "fuse.sshfs": "error",
        "tmpfs": "warning", "overlay": "warning", "virtiofs": "warning", "9p": "warning", "fuse.ntfs": "warning",
    }  # fmt: skip
    assert (sqlite.judge_free_space(10**7).severity, sqlite.judge_free_space(10**11).severity) == (
        "warning",
        "ok",
    )
    assert (sqlite.judge_log_size(10**6).severity, sqlite.judge_log_size(10**9).severity) == ("ok", "warning")


def test_a_store_on_a_network_file_system_is_an_error(
    shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the table of mounts as Linux writes it."""
    mounts = tmp_path / "mountinfo"
    mounts.write_text(f"40 22 0:30 / {tmp_path} rw,relatime shared:9 - nfs4 server:/share rw\n", "utf-8")
    monkeypatch.setattr(sqlite, "MOUNTS", mounts)
    ((severity, what),) = found(shop.json("doctor", code=1), "place")
    assert severity == "error"
    assert "nfs4" in what


def test_postgresql_is_judged_by_its_settings() -> None:
    """Durability, standbys, free connections and old transactions, at both sides of each limit."""
    on = {"fsync": "on", "full_page_writes": "on"}
    assert [one.severity for one in postgres.judge_durability(on, "on")] == ["ok"]
    assert [one.severity for one in postgres.judge_durability(on, "off")] == ["note"]
    assert [
        one.severity for one in postgres.judge_durability({"fsync": "off", "full_page_writes": "off"}, "off")
    ] == [
        "error",
        "error",
        "note",
    ]
    cases = [("", 0, 0), ("", 2, 0), ("s1", 1, 1), ("s1", 0, 0), ("s1", 1, 0)]
    severities = [postgres.judge_standbys(*case).severity for case in cases]
    assert severities == ["note", "note", "ok", "error", "error"]
    assert (
        postgres.judge_free_connections(95, 100).severity,
        postgres.judge_free_connections(9, 100).severity,
    ) == ("warning", "ok")
    ages = [postgres.judge_oldest_transaction(age).severity for age in (None, 5.0, 601.0)]
    assert ages == ["ok", "ok", "warning"]


def test_clock_leader_and_latency_are_judged_at_both_sides() -> None:
    """The skew counts only beyond what the round trip leaves open; a lease that is over is nobody's."""
    skews = [findings.clock(skew, 0.01).severity for skew in (0.0, -0.9, 1.2, -90.0)]
    assert skews == ["ok", "ok", "warning", "warning"]
    assert "behind" in findings.clock(-90.0, 0.01).what
    times = [findings.latency("commit", [t] * 3 + [9.0], 0.1, "mend it").severity for t in (0.01, 0.2)]
    assert times == ["ok", "warning"]
    over = LeaseView("makegood/supervisor", "ann", 3, 15.0, 0.0, -1.0)
    assert "the lease of ann, epoch 3, is over" in findings.leading(over, 1).what
    assert [findings.orphans([], 9, has_scheduler=True).severity,
            findings.orphans([1], 9, has_scheduler=False).severity,
            findings.orphans([1], 9, has_scheduler=True).severity] == ["ok", "warning", "error"]  # fmt: skip
    assert "9 or more tasks" in findings.orphans(range(1, 10), 9, has_scheduler=True).what
    nothing = TaskFigures({}, {}, {})
    assert [one.severity for one in findings.processes([], [], nothing)] == ["note"]


def test_what_another_program_did_to_the_file_is_found(shop: Shop) -> None:
    """Its way of keeping a log was changed, until makegood opens it again; a page of it was overwritten."""
    path = shop.folder / "kiosk.db"
    with closing(sqlite3.connect(path)) as file:
        file.execute("pragma journal_mode = delete")
    ((severity, what),) = found(shop.json("doctor"), "durability")
    assert (severity, "journal_mode is delete" in what) == ("warning", True)
    assert [severity for severity, _ in found(shop.json("doctor"), "durability")] == ["ok"]
    with closing(sqlite3.connect(path)) as file:
        file.execute("pragma wal_checkpoint(truncate)")
        find = "select rootpage from sqlite_master where name = 'makegood_bulk_item'"  # which no command reads now
        ((page,),) = file.execute(find).fetchall()
    with path.open("r+b") as raw:
        raw.seek((page - 1) * 4096)
        raw.write(b"\xff" * 4096)
    damage = found(shop.json("doctor", code=1), "file")
    assert {severity for severity, _ in damage} == {"error"}


@pytest.mark.parametrize(
    ("version", "bug"),
    [
        ("3.35.2", True), ("3.40.1", True), ("3.44.5", True), ("3.44.6", False), ("3.44.9", False), ("3.45.0", True), ("3.46.1", True),
        ("3.50.6", True), ("3.50.7", False), ("3.51.0", True), ("3.51.2", True), ("3.51.3", False), ("3.52.0", False), ("3.53.4", False),
    ],
)  # fmt: skip
def test_a_version_of_sqlite_with_the_wal_reset_bug_is_a_warning(version: str, bug: bool) -> None:
    """It names what other programs on the file must do."""
    finding = sqlite.judge_version(version)
    assert (finding.check, finding.version, finding.wal_reset_bug) == ("sqlite", version, bug)
    assert finding.severity == ("warning" if bug else "ok")
    assert version in finding.what
    assert ("pragma wal_autocheckpoint = 0" in finding.remedy) == bug


def test_programs_read_the_version_of_sqlite(shop: Shop) -> None:
    (finding,) = [each for each in shop.json("doctor")["findings"] if each["check"] == "sqlite"]
    assert finding["version"] == sqlite3.sqlite_version
    assert finding["wal_reset_bug"] == (finding["severity"] == "warning")


def test_a_log_that_counts_more_merged_than_it_has_is_an_error(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That is what the index says after the loss; the merge that finds it has a guard, as all have."""
    checkpoints = []

    def checkpoint(guard: sqlite3.Connection, merger: sqlite3.Connection) -> tuple[int, int]:
        checkpoints.append((guard.in_transaction, sqlite_log.checkpoint(guard, merger)))
        return 21, 151

    monkeypatch.setattr(sqlite, "checkpoint", checkpoint)
    document = shop.json("doctor", code=1)
    assert [in_transaction for in_transaction, _ in checkpoints] == [True]
    (_, (severity, what)) = found(document, "log")
    assert (severity, "21 pages and 151 of them" in what) == ("error", True)


def test_the_dead_and_what_operators_must_see_are_told(shop: Shop) -> None:
    """A process that was killed, and the alert that its customers' message is a dead letter."""
    shop.serve("scheduler", MAKEGOOD_HEARTBEAT="50ms", MAKEGOOD_DEAD_AFTER="100ms").kill()
    shop.done("queue", "send", "orders", "1")
    shop.done("queue", "receive", "orders", "--no-ack", "--tries", "1", "--lease", "10ms")
    while not shop.json("queue", "list", "--dead"):
        shop.done("queue", "receive", "orders", "--tries", "1")
    while len(processes := found(shop.json("doctor"), "processes")) < 2:
        pass
    assert processes[1][0] == "note"
    assert "1 died within the last hour" in processes[1][1]
    assert found(shop.json("doctor"), "alerts") == [("warning", "1 dead_letter")]


def test_a_queue_that_nobody_reads_is_told() -> None:
    """Its name may be misspelt, or its reader gone; one that somebody has a message of, or that is new, is fine."""
    misspelt = QueueView("jbos", 3, 0, 0, 0, 61.0, read=False)
    (finding,) = findings.unread(
        [misspelt, QueueView("jobs", 9, 1, 0, 0, 99.0), QueueView("a", 1, 0, 0, 0, 1.0)]
    )
    assert (finding.check, finding.severity) == ("queues", "note")
    assert "3 messages in queue jbos" in finding.what
    assert "none was ever received" in finding.what
    assert "makegood queue drop --all --waiting jbos" in finding.remedy
    (other,) = findings.unread([QueueView("jobs", 1, 0, 0, 0, 99.0)])
    assert "none was ever" not in other.what
    assert [one.severity for one in findings.unread([])] == ["ok"]


def test_a_store_of_a_newer_version_wants_the_newer_program() -> None:
    newer = findings.schema(SchemaStatus("sqlite", 9, 8, []))
    assert (newer.severity, newer.remedy) == ("error", "install the newer makegood here as well")
