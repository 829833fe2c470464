"""Names are nouns for things, verbs for functions, adjectives for conditions: how many are a bare participle may only fall.

A binding is a parameter, or a name or attribute that is assigned. ``found``, ``asked`` or ``made`` say what was done to a thing, and
not what it is: a reader meets them without the sentence that they end. Libraries of the field have 0.5 to 2 % of them.
"""

import ast
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Final

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src/makegood"


def _words(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"\w+", text))


IRREGULAR: Final = _words(
    "been begun borne bought bound broken brought built caught chosen dealt done drawn driven fallen fed felt forgotten fought found "
    "frozen given gone got grown had heard held hidden hung hurt kept known laid lain led left lent lost made meant met paid proven "
    "ridden risen rung said seen sent shaken shone shot shown slept slid sold sought sent spent spoken spun stolen stood struck stuck "
    "sung sunk sworn swum taken taught thought thrown told torn undone understood withdrawn woken won worn written"
)
NO_PARTICIPLES: Final = _words(
    "bed creed deed embed exceed feed greed hundred indeed need proceed red seed speed succeed"
)
EXEMPT: Final[frozenset[str]] = frozenset({"left"})
"""A side, as often as what remains."""
PUBLIC: Final = {
    "client/client.py": "Client.find.wanted Client.count.wanted Client.alerts.ended Client.cancel_all.wanted Client.undo_all.wanted "
    "Client.resubmit_all.wanted Client.signal_all.wanted Client.bulk.wanted Client.follow.wanted",
    "client/handle.py": "TaskHandle.__init__.created",
    "client/sync.py": "SyncClient.follow.wanted SyncTaskHandle.__init__.created",
    "election/protocol.py": "PastTerm.ended PastTerm.released",
    "election/sync.py": "SyncTerm.__init__.lost",
    "election/term.py": "Term.__init__.lost",
    "model/policy.py": "Recover.extended",
    "node/node.py": "Node.run.started",
    "store/notice_records.py": "ListenerView.sent",
    "store/oversight_records.py": "BulkView.wanted BulkView.counted BulkView.ended BulkView.sent BulkView.applied BulkView.refused",
    "store/signals.py": "Signalled.created",
    "story/brokers.py": "SourceView.taken SourceView.refused SourceView.redelivered ReceiverView.sent ReceiverView.failed",
    "store/queue_records.py": "Sent.created MessageView.ended QueueView.taken QueueView.delayed",
    "store/views.py": "TaskView.created TaskView.ended StepView.stood TaskDetail.asked AlertView.ended AlertView.acked AlertView.logged "
    "AlertView.told "
    "SignalView.used SignalView.kept",
    "supervisor/supervisor.py": "Pass.judged Pass.released Pass.expired Pass.starved Supervisor._judge.judged Supervisor.once.released "
    "Supervisor._look_further.expired Supervisor._look_further.starved",
    "testing/forwarder.py": "Forwarder.__init__.swallowed Forwarder._pass.swallowed",
    "testing/kit/services.py": "Effect.told Effect.asked Heard.told Heard.changed FakeService.needed FakeService.heard",
    "testing/kit/world.py": "World.service.needed",
    "testing/leases.py": "LeaseWorld.observed",
}
"""Fields of public records, and parameters of public methods: the reference lists them, or ``makegood.testing`` offers them."""
PROTOCOL: Final = {
    "model/messages.py": "Request.waited TaskMessage.excused TaskMessage.died TaskMessage.settled",
    "model/notices.py": "_Data.undone",
    "model/policy.py": "Policy.extended",
    "store/oversight_records.py": "ErrorGroup.retried ErrorGroups.capped MinuteFigures.seen MinuteFigures.submitted MinuteFigures.processed "
    "MinuteFigures.undone",
    "store/records.py": "NewGeneration.freed",
    "store/views.py": "SourceInfo.taken SourceInfo.refused SourceInfo.redelivered SenderInfo.sent SenderInfo.failed AgentInfo.used AgentInfo.failed AgentInfo.heard SchedulerTally.processed SchedulerTally.undone NodeInfo.held "
    "NodeView.started SchemaStatus.needed",
}
"""Names in stored JSON, in notifications, and in the JSON of the command line and the API, which are those of the fields."""
COLUMNS: Final = {"model/task.py": "Step.asked TaskRecord.lost TaskRecord.told TaskRecord.notified"}
"""Columns of the tables ``makegood_step`` and ``makegood_task``."""
OTHERS: Final = {
    "testing/simulator/loop.py": "_fill._cancelled WorldLoop.call_at._scheduled WorldLoop._run_once._scheduled WorldLoop._jump._scheduled"
}
"""Attributes of asyncio's handles."""
FIXED: Final = {
    path: frozenset(
        word for names in (PUBLIC, PROTOCOL, COLUMNS, OTHERS) for word in names.get(path, "").split()
    )
    for path in (*PUBLIC, *PROTOCOL, *COLUMNS, *OTHERS)
}
"""What must keep its name and is not counted: by module, each name after the class or function that binds it."""
LOOSE: Final = _words(
    "all any another both each either else here how it later less many more most much neither none nothing one other others rest same "
    "several some such that them then there these they this those what when where which who whom whose why"
)
"""Pronouns and adverbs: they are counted, and have no target."""

MOST: Final = {
    "actor": 0.0,
    "agent": 0.0,
    "base": 10.6,
    "benchmarks": 19.0,
    "brokers": 7.7,
    "cli": 7.2,
    "client": 0.0,
    "console": 16.6,
    "declare": 0.0,
    "election": 0.0,
    "examples": 22.4,
    "messaging": 5.9,
    "model": 4.5,
    "moments": 0.0,
    "node": 0.0,
    "payload": 5.8,
    "proofs": 22.1,
    "saga": 0.1,
    "scheduler": 0.0,
    "scripts": 7.0,
    "store": 1.4,
    "story": 7.2,
    "supervisor": 0.0,
    "telemetry": 8.4,
    "testing": 0.0,
    "tests": 7.0,
    "the package": 4.8,
    "transactions": 0.0,
    "workflow": 1.0,
}
"""Bindings in a thousand that are bare participles, at most; nobody raises a number. The target: 20 in each room, 15 in all."""


def is_participle(name: str) -> bool:
    """Whether a name is one word that says what was done."""
    word = name.strip("_")
    if not word.isalpha() or not word.islower() or word in EXEMPT:
        return False
    return word in IRREGULAR or (len(word) > 3 and word.endswith("ed") and word not in NO_PARTICIPLES)


def bindings(tree: ast.AST, scope: str = "") -> Iterator[tuple[str, str]]:
    """Yield the names that a module binds, parameters and what is assigned, each with the place that binds it."""
    for node in ast.iter_child_nodes(tree):
        inner = scope
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            inner = f"{scope}{node.name}."
        elif isinstance(node, ast.arg):
            yield scope, node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield scope, node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield scope, node.attr
        elif isinstance(node, ast.ExceptHandler) and node.name is not None:
            yield scope, node.name
        yield from bindings(node, inner)


@cache
def bindings_of(file: Path) -> Sequence[tuple[str, str]]:
    """Return the names that a file binds, each with the place that binds it."""
    return [*bindings(ast.parse(file.read_text(encoding="utf-8")))]


def names_of(files: Sequence[Path]) -> Counter[str]:
    """Return how often each name is bound where it may be changed."""
    names: Counter[str] = Counter()
    for file in files:
        fixed = FIXED.get(file.relative_to(PACKAGE).as_posix(), ()) if file.is_relative_to(PACKAGE) else ()
        names.update(name for place, name in bindings_of(file) if f"{place}{name}" not in fixed)
    for usual in ("self", "cls", "_"):
        names.pop(usual, None)
    return names


def thousandths(names: Counter[str]) -> float:
    """Return how many bindings in a thousand are bare participles."""
    return 1000 * sum(count for name, count in names.items() if is_participle(name)) / names.total()


def rooms() -> dict[str, list[Path]]:
    """Return the files of each part of the project."""
    inside = [path for path in PACKAGE.iterdir() if path.is_dir() and path.name != "__pycache__"]
    parts = {path.name: sorted(path.rglob("*.py")) for path in inside}
    parts["the package"] = sorted(PACKAGE.rglob("*.py"))
    parts |= {
        name: sorted((ROOT / name).rglob("*.py"))
        for name in ("tests", "proofs", "scripts", "examples", "benchmarks")
    }
    return parts


@pytest.mark.parametrize("room", sorted(rooms()))
def test_fewer_names_say_only_what_was_done(room: str) -> None:
    """A room without a number has too few names to count."""
    names = names_of(rooms()[room])
    if names.total() <= 100:
        return
    share, worst = (
        thousandths(names),
        [(name, n) for name, n in names.most_common() if is_participle(name)][:8],
    )
    loose = 1000 * sum(n for name, n in names.items() if name.strip("_") in LOOSE) / names.total()
    assert share <= MOST[room], (
        f"{room}: {share:.1f} of 1,000 names are bare participles, {MOST[room]} were allowed; most often {worst}; "
        f"{loose:.1f} are pronouns and adverbs"
    )
    assert share > MOST[room] - 5, (
        f"{room}: {share:.1f} of 1,000 names are bare participles: write {share:.0f} or less into MOST"
    )


@pytest.mark.parametrize("path", sorted(FIXED))
def test_what_is_not_counted_is_there_and_would_count(path: str) -> None:
    """A name that was changed after all leaves the list."""
    there = {f"{place}{name}" for place, name in bindings_of(PACKAGE / path) if is_participle(name)}
    assert there >= FIXED[path], (
        f"{path}: no longer bound, or not a participle: {sorted(FIXED[path] - there)}"
    )


@pytest.mark.parametrize(
    ("name", "participle"),
    [
        ("found", True),
        ("_asked", True),
        ("detail", False),
        ("found_at", False),
        ("seed", False),
        ("FOUND", False),
        ("left", False),
    ],
)
def test_what_a_bare_participle_is(name: str, participle: bool) -> None:
    assert is_participle(name) is participle
