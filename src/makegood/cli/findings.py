"""Findings: plain rules that turn a measurement or a count into a finding, for ``makegood doctor``."""

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from makegood.base import ids
from makegood.base.counts import quantity
from makegood.base.durations import short_duration
from makegood.base.terminal_text import command
from makegood.base.zones import ZoneRules
from makegood.election.protocol import LeaseView
from makegood.model.plan import FIRST_KINDS, KINDS
from makegood.store.queue_records import QueueView
from makegood.store.records import Identity
from makegood.store.views import Finding, NodeView, SchemaStatus, TaskFigures

SKEW = 1.0
"""Seconds between this machine's clock and the store's from which on the difference is worth fixing."""
FAR = 60.0
"""Seconds from which on other services begin to refuse signatures and tokens."""
LATE_START = 60.0
"""Seconds after its moment from which on a task that still sleeps is worth a remark."""
UNREAD = 60.0
"""Seconds that messages of a queue wait without a receiver, from which on it seems to have no reader."""
SLOW_READ = 0.05
"""Seconds of a read of the store, from which on everything waits noticeably."""
SLOW_COMMIT = 0.1
"""Seconds of a commit from which on most of a step's latency is the disk's, or the standby's."""

_OLD = "older than a year: countries have changed their clocks since"
YEAR = 366 * 86_400.0
"""Seconds after their release from which on zone rules count as old."""
_NEWER = "`pip install --upgrade tzdata` there, or a newer tzdata of the system; processes need no restart"


def clock(skew: float, round_trip: float) -> Finding:
    """Judge how many seconds the store's clock is ahead of this machine's, known to half the round trip.

    >>> clock(0.002, 0.01).severity, clock(-5.0, 0.01).severity, clock(0.9, 3.0).severity
    ('ok', 'warning', 'ok')
    """
    apart, side = abs(skew), "ahead of" if skew > 0 else "behind"
    accuracy = f" (known to {short_duration(round_trip / 2)})"
    if apart - round_trip / 2 < SKEW:
        within = short_duration(max(apart, round_trip / 2))
        return Finding("clock", "ok", f"the store's clock and this machine's agree within {within}")
    but = "times in logs and in the store do not match"
    if apart >= FAR:
        but = "signed webhooks and other services' tokens will be refused"
    what = f"the store's clock is {short_duration(apart)} {side} this machine's{accuracy}: makegood judges nothing by it, but {but}"
    remedy = "let both machines follow a time server (chrony, systemd-timesyncd)"
    return Finding("clock", "warning", what, remedy)


def latency(check: str, seconds: Sequence[float], most: float, remedy: str) -> Finding:
    """Judge how long something took, by its median."""
    middle = sorted(seconds)[len(seconds) // 2]
    words = {"read": "a read of the store", "commit": "a durable commit"}
    what = f"{words[check]} takes {short_duration(middle)} (median of {len(seconds)}, slowest {short_duration(max(seconds))})"
    return Finding(check, "ok", what) if middle < most else Finding(check, "warning", what, remedy)


def schema(status: SchemaStatus) -> Finding:
    """Judge the schema's version."""
    if status.version > status.needed:
        what = f"version {status.version} is newer than this makegood, which knows {status.needed}"
        return Finding("schema", "error", what, "install the newer makegood here as well")
    if status.missing:
        what = f"version {status.version}, this makegood needs {status.needed}: missing {', '.join(status.missing)}"
        return Finding("schema", "error", what, "`makegood store migrate`")
    return Finding("schema", "ok", f"{status.dialect} version {status.version}, up to date")


def leading(view: LeaseView | None, supervisors: int) -> Finding:
    """Judge the lease under which one Supervisor leads; ``supervisors``: how many processes run one."""
    if view is not None and view.held:
        what = f"{view.holder} leads in epoch {view.epoch}, {short_duration(view.remaining)} left"
        return Finding("leader", "ok", f"{what}; {supervisors} may lead")
    if view is not None and view.holder:
        what = f"nobody leads: the lease of {view.holder}, epoch {view.epoch}, is over"
    else:
        what = "nobody leads"
    if supervisors:
        remedy = "a supervisor runs and does not get the lease: see its log, and `makegood leader`"
        return Finding("leader", "warning", what, remedy)
    what += " and no supervisor runs: steps that fall silent, and dead schedulers' tasks, are not found"
    return Finding("leader", "warning", what, "start one: `makegood supervisor`, or `makegood run`")


def processes(alive: Sequence[NodeView], dead: Sequence[NodeView], figures: TaskFigures) -> list[Finding]:
    """Judge whether there is somebody for what there is to do."""
    roles = [role for view in alive for role in view.info.roles]
    summary = ", ".join(quantity(roles.count(role), role) for role in dict.fromkeys(roles)) or "none"
    remedy = "" if alive else "`makegood run APP`, or a process for each role"
    results = [Finding("processes", "ok" if alive else "note", f"running: {summary}", remedy)]
    pending = sum(
        n for (_, _, state), n in figures.tasks.items() if state not in ("error", "sleeping", "queued")
    )
    if pending and "scheduler" not in roles:
        what = f"{quantity(pending, 'task')} under way or waiting, and no scheduler runs"
        results.append(Finding("processes", "error", what, "`makegood scheduler`, or `makegood run APP`"))
    agents = {info.agent for view in alive for info in view.info.agents}
    for agent, (depth, oldest) in sorted(figures.queues.items()):
        if agent not in agents:
            app, _, name = agent.partition("/")
            what = f"{quantity(depth, 'request')} for {agent}, the oldest for {short_duration(oldest)}, and no process runs it"
            start = command(["agent"], [f"MODULE:{app}", name])
            results.append(
                Finding("agents", "error", what, f"{start}{', or ' if start else ''}`makegood run`")
            )
    if dead:
        first = ", ".join(f"{view.info.name} (pid {view.info.pid} on {view.info.host})" for view in dead[:3])
        what = f"{len(dead)} died within the last hour: {first}"
        remedy = "ask what restarts them (systemd, Kubernetes) for the reason"
        results.append(Finding("processes", "note", what, remedy))
    return results


def zone_rules(rules: ZoneRules | None, now: float) -> Finding:
    """Judge the rules of time zones on this machine; ``now``: seconds since 1970.

    >>> rules = ZoneRules("/usr/share/zoneinfo", "2025b", 1_756_000_000.0)
    >>> zone_rules(rules, 1_757_000_000.0).severity, zone_rules(rules, 1_796_000_000.0).severity
    ('ok', 'warning')
    """
    if rules is None:
        what = "this machine has no rules of time zones: schedules in a zone cannot be computed here"
        return Finding("zones", "warning", what, "`pip install tzdata`")
    what = f"zone rules of this machine: {rules}"
    return (
        Finding("zones", "warning", f"{what}, {_OLD}", _NEWER)
        if _is_old(rules, now)
        else Finding("zones", "ok", what)
    )


def published_zone_rules(alive: Sequence[NodeView], now: float) -> list[Finding]:
    """Judge the zone rules of the processes that run; ``now``: seconds since 1970."""
    names: dict[ZoneRules, list[str]] = {}
    for view in alive:
        if view.info.zone_rules is not None:
            names.setdefault(replace(view.info.zone_rules, released=None), []).append(view.info.name)
    results = [
        Finding("zones", "warning", f"zone rules of {view.info.name}: {view.info.zone_rules}, {_OLD}", _NEWER)
        for view in alive
        if view.info.zone_rules is not None and _is_old(view.info.zone_rules, now)
    ]
    if len({rules.version for rules in names}) > 1:
        each = "; ".join(
            f"{rules}: {', '.join(processes[:3])}{', ...' if len(processes) > 3 else ''}"
            for rules, processes in sorted(names.items(), key=lambda item: item[0].version)
        )
        what = f"processes compute the moments of schedules by different zone rules: {each}"
        results.append(Finding("zones", "warning", what, _NEWER))
    elif names:
        results.append(Finding("zones", "ok", f"zone rules of the processes: {', '.join(map(str, names))}"))
    return results


def _is_old(rules: ZoneRules, now: float) -> bool:
    return rules.released is not None and now - rules.released > YEAR


def orphans(tasks: Sequence[int], most: int, *, has_scheduler: bool) -> Finding:
    """Judge tasks under way that nothing will advance.

    ``has_scheduler``: a Scheduler and a leader are alive, which would free them.
    """
    if not tasks:
        return Finding("orphans", "ok", "every task under way has a request, a timer or a live scheduler")
    count = f"{most} or more tasks" if len(tasks) >= most else quantity(len(tasks), "task")
    sample = ", ".join(ids.show(task) for task in tasks[:3]) + (", ..." if len(tasks) > 3 else "")
    what = f"{count} under way without a request, a timer or a live scheduler: {sample}"
    if not has_scheduler:
        remedy = "a leading supervisor frees them and a scheduler takes them: start both"
        return Finding("orphans", "warning", what, remedy)
    remedy = "check again in a minute; if they are still there, `makegood task cancel ID` has each undone. Please report it"
    return Finding("orphans", "error", what, remedy)


def unknown_kinds(alive: Sequence[NodeView]) -> list[Finding]:
    """Judge whether each Scheduler knows the kinds of steps that this version submits."""
    results: list[Finding] = []
    for view in alive:
        unknown = sorted(set(KINDS).difference(FIRST_KINDS, view.info.kinds))
        if unknown and "scheduler" in view.info.roles:
            what = f"the Scheduler of {view.info.place} is of an older version: it does not know steps of the kind {', '.join(unknown)}"
            remedy = "restart it with the new version: until then makegood refuses plans with such steps"
            results.append(Finding("kinds", "warning", what, remedy))
    return results


def late_starts(tasks: Sequence[tuple[int, float]], most: int, alive: Sequence[NodeView]) -> list[Finding]:
    """Judge tasks that still sleep, each with the seconds since it should have begun.

    ``alive``: the processes that run.
    """
    if not tasks:
        return []
    count = f"{most} or more tasks" if len(tasks) >= most else quantity(len(tasks), "task")
    sample = ", ".join(ids.show(task) for task, _ in tasks[:3]) + (", ..." if len(tasks) > 3 else "")
    what = (
        f"{count} should have begun, the first {short_duration(tasks[0][1])} ago, and still sleep: {sample}"
    )
    schedulers = [view.info for view in alive if "scheduler" in view.info.roles]
    if not schedulers:
        what += "; no scheduler runs"
        return [Finding("sleepers", "error", what, "`makegood scheduler`, or `makegood run APP`")]
    what += f"; {quantity(len(schedulers), 'scheduler')} with {quantity(sum(info.held for info in schedulers), 'task')} in hand"
    remedy = "if they have max_tasks in hand, start another scheduler; if not, look at their logs, wake the tasks with `makegood task wake ID`, and please report it"
    return [Finding("sleepers", "warning", what, remedy)]


def unreadable_rows(rows: Sequence[str], most: int) -> list[Finding]:
    """Judge rows that do not read."""
    remedy = (
        "restore the row from a backup, or correct it with SQL; then send a task in error forward again with `makegood task resubmit ID`, "
        "a message with `makegood queue replay`"
    )
    results = [Finding("rows", "error", what, remedy) for what in rows[: most - 1]]
    if len(rows) >= most:
        results.append(Finding("rows", "error", "and more; `makegood store check` names up to 100", remedy))
    return results or [Finding("rows", "ok", "every unfinished row is readable")]


def unread(queues: Sequence[QueueView]) -> list[Finding]:
    """Judge whether the queues with waiting messages have readers.

    A name may be misspelt, or a reader may be gone.
    """
    results: list[Finding] = []
    for view in queues:
        if not view.waiting or view.taken or view.oldest is None or view.oldest < UNREAD:
            continue
        waits = f"{quantity(view.waiting, 'message')} in queue {view.queue}, the oldest for {short_duration(view.oldest)}"
        what = f"{waits}, and nobody receives them" + ("" if view.read else "; none was ever received")
        remedy = "check the queue's name, and that its reader runs"
        if see := command(["queue", "list"], [view.queue]):
            remedy += f" {see}; {command(['queue', 'drop', '--all', '--waiting'], [view.queue])} removes them"
        results.append(Finding("queues", "note", what, remedy))
    return results or [Finding("queues", "ok", "no queue waits for a receiver")]


def alerting(alerts: Mapping[str, int]) -> Finding:
    """Judge the open alerts, by kind."""
    if not alerts:
        return Finding("alerts", "ok", "no open alerts")
    summary = ", ".join(f"{count} {kind}" for kind, count in sorted(alerts.items()))
    return Finding("alerts", "warning", summary, "`makegood alerts`")


def generation(identity: Identity) -> Finding:
    """Tell which history of the store this is."""
    return Finding("generation", "ok", f"store {identity.store_id}, generation {identity.generation}")
