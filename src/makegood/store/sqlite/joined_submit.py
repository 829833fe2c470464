"""Submits tasks in the caller's transaction, on the caller's own connection to the same file.

The first statement is a write that changes nothing, so that it waits for the lock like any writer. A read
before it would fix the transaction's snapshot, and after a commit of another connection SQLite would refuse
every write. The inserts are made under a savepoint of ours. If they fail half way, nothing of them is left in
a transaction that the caller may still commit.
"""

import json
import os
from collections.abc import Sequence
from pathlib import Path

from makegood.errors import TransactionError
from makegood.model.notices import topic_of
from makegood.store import migrations, rows
from makegood.store.joined_checks import another, check_drafts, current, places, same_kind, topics_of
from makegood.store.notice_records import first_notice
from makegood.store.records import Submission, Submitted
from makegood.store.sqlite.decision_rows import READY
from makegood.store.sqlite.notices import STORE, sending
from makegood.store.sqlite.store_threads import StoreClock
from makegood.store.sqlite.submit import ATTRIBUTES, BY_KEY, LANES, SLEEP, sleep
from makegood.store.sqlite.transaction import blob
from makegood.transactions import Caller
from makegood.transactions.caller import defer_checkpoints

_FULL = 2
_FILES = "pragma database_list"
_LEVEL = "pragma main.synchronous"
_LOCK = "update main.makegood_generation set generation = generation where store_id = ? returning 1"
_VERSION = "select max(version) from main.makegood_schema_version"
# One row at a time, by any driver: nobody holds such a task yet.
_TASK = """
insert into makegood_task (id, app, workflow, fingerprint, state, goal, on_failure, submission, priority, ready_seq,
    epoch, cause, failure_count, lost, task_expired, created_at, static, key, within, undo_within, correlation_id, trace, told,
    notified)
values (?, ?, ?, ?, ?, 'forward', ?, 1, ?, ?, 0, '', 0, 0, 0, ?, ?, ?, ?, ?, ?, ?, ?, ?)
on conflict do nothing returning 1
"""
_STEP = """
insert into makegood_step (task, idx, kind, name, agent, action, state, attempt, round, failure_count, asked, deaths, flags,
    spec)
values (?, ?, ?, ?, ?, ?, 'waiting', 0, 1, 0, 0, 0, 0, ?)
"""
_SAVEPOINT, _RELEASE = "savepoint makegood_submit", "release makegood_submit"
_ROLL_BACK = "rollback to makegood_submit"


async def join(
    caller: Caller, drafts: Sequence[Submission], path: Path, store_id: str, clock: StoreClock
) -> list[Submitted]:
    """Insert tasks with their steps. Returns one answer per draft, in order.

    A task that already has the key or the id stays as it is.

    Raises ``TransactionError``, ``SchemaMismatchError``, ``PayloadError``, and the errors of the caller's
    driver.
    """
    check_drafts(drafts)
    await verify(caller, path, store_id)
    await caller.ask(_SAVEPOINT)
    try:
        answers = [await _insert(caller, draft, clock.now(), clock.clock.wall()) for draft in drafts]
    except BaseException as failure:
        if caller.failure is not None:  # all of it is rolled back
            raise
        try:
            await caller.ask(_ROLL_BACK)
            await caller.ask(_RELEASE)
        except Exception as loss:  # noqa: BLE001 - SQLite has ended the whole transaction: the first failure says why
            failure.add_note(f"the savepoint was gone: {loss}")
        raise
    await caller.ask(_RELEASE)
    caller.topics |= topics_of(drafts)
    caller.topics |= {topic_of(draft.reply_to) for draft in drafts if draft.reply_to is not None}
    return answers


async def verify(caller: Caller, path: Path, store_id: str) -> None:
    """Verify that the store may write on this connection.

    Raises ``TransactionError`` or ``SchemaMismatchError``.
    """
    if caller.ours:
        return
    same_kind(caller, "sqlite", str(path))
    await _same_file(caller, path)
    ((level,),) = await caller.ask(_LEVEL)
    if int(level) < _FULL:
        raise TransactionError(
            f"connection= has synchronous = {level}: a power cut could take back what it commits. Execute "
            "`pragma synchronous = full` on it when it is opened, before any transaction (in Django: OPTIONS' init_command)"
        )
    await defer_checkpoints(caller)
    await _lock(caller, path, store_id)


async def _same_file(caller: Caller, path: Path) -> None:
    names = {_text(name): _text(file) for _, name, file in await caller.ask(_FILES)}
    file = names.get("main") or ""
    if not _same(file, path):
        raise another(f"{caller.kind} to {file or 'a database in memory'}", str(path))


def _same(file: str, path: Path) -> bool:
    try:
        return bool(file) and path.samefile(file)
    except OSError:
        return False


def _text(value: str | bytes | None) -> str:
    return os.fsdecode(value or "")


async def _lock(caller: Caller, path: Path, store_id: str) -> None:
    """Take the write lock, and verify that the tables belong to this store."""
    try:
        ours = await caller.ask(_LOCK, store_id)
        ((version,),) = await caller.ask(_VERSION)
    except Exception as failure:
        if "no such table" in str(failure):
            migrations.verify("sqlite", 0, str(path))
        raise
    if not ours:
        raise another(f"{caller.kind} to {path}, which by now holds another store,", str(path))
    current("sqlite", version, str(path))


async def _insert(caller: Caller, draft: Submission, now: float, calendar: float) -> Submitted:
    ((ready,),) = await caller.ask(READY, 1, round(now * 1_000_000))
    notice_values = (None, None) if draft.reply_to is None else (draft.told, draft.notified)
    task = (
        draft.id, draft.app, draft.workflow, blob(draft.fingerprint), "queued" if draft.lanes.names else "pending",
        draft.on_failure, draft.priority, ready, now,
        blob(rows.static(draft.inputs, draft.returns, draft.reply, draft.names, draft.signals, lanes=draft.lanes.names)), draft.key, draft.within, draft.undo_within,
        draft.correlation_id, draft.trace, *notice_values,
    )  # fmt: skip
    if await caller.ask(_TASK, *task):
        for step, spec in zip(draft.steps, draft.steps.specs, strict=True):
            place = (draft.id, step.idx, step.kind, step.name, step.agent, step.action)
            await caller.ask(_STEP, *place, spec)
        if (start := sleep(draft, now, calendar)) is not None:
            await caller.ask(SLEEP, *start)
        if lanes := places(draft, ready):
            await caller.ask(LANES, json.dumps(lanes))
        if draft.attributes:
            await caller.ask(ATTRIBUTES, json.dumps([(draft.id, *pair) for pair in draft.attributes]))
        if (notice := first_notice(draft)) is not None:
            (store,) = await caller.ask(STORE)
            for sql, value_rows in sending([notice], store, now):
                for values in value_rows:
                    await caller.ask(sql, *values)
        return Submitted(draft.id, is_new=True)
    if draft.key is not None:
        by_key = (blob(draft.fingerprint), draft.key, draft.workflow, draft.app)
        for task_id, fingerprint in await caller.ask(BY_KEY, *by_key):
            return rows.duplicate_answer(task_id, None if fingerprint is None else bytes(fingerprint))
    return Submitted(draft.id, is_new=False, key_collision=True)
