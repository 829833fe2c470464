"""Each rule of ``tidy`` finds its bad sample and spares its good one: a rule that cannot fail proves nothing."""

import ast
from collections.abc import Callable, Iterable

import pytest

from tests.house import tidy

Rule = Callable[[ast.Module], Iterable[object]]

BAD: list[tuple[Rule, str]] = [
    (tidy.too_long_function, "def f():\n" + "    x = 1\n" * 80),
    (tidy.too_long_function, "class A:\n    async def f(self):\n" + "        x = 1\n" * 80),
    (tidy.too_many_positional, "def f(a, b, c, d, e, g): ..."),
    (tidy.too_many_positional, "class A:\n    def f(self, a, b, c, /, d, e, g): ..."),
    (
        tidy.too_many_attributes,
        "class A:\n    def f(self):\n" + "".join(f"        self.a{n} = 1\n" for n in range(13)),
    ),
    (tidy.no_module_docstring, "x = 1"),
    (tidy.no_public_docstring, "def f(): ..."),
    (tidy.no_public_docstring, "class A:\n    '''.'''\n    def f(self): ..."),
    (tidy.no_public_docstring, "class A: ..."),
    (tidy.banned_word, "class WorkerPool: ..."),
    (tidy.banned_word, "def enqueue(jobs): ..."),
    (tidy.banned_word, "class A:\n    def __init__(self, *, backend): ..."),
    (tidy.banned_word, "MESSAGE_BROKERS = ()"),
    (tidy.banned_word, "class A:\n    activities: int\n    peer: str"),
    (tidy.sleeping, "import time\ntime.sleep(1)"),
    (tidy.sleeping, "async def f():\n    await asyncio.sleep(0.01)"),
    (tidy.sleeping, "from asyncio import sleep"),
    (tidy.private_attributes, "node._running.stop.set()"),
    (tidy.private_attributes, "assert not client.waiters._timers"),
    (tidy.private_attributes, "monkeypatch.setattr(node, '_turn', broken)"),
    (tidy.private_attributes, "monkeypatch.setattr('makegood.node.node._Running', broken)"),
    (tidy.own_clock_or_chance, "import time\nt = time.time()"),
    (tidy.own_clock_or_chance, "def f(now=time.monotonic): ..."),
    (tidy.own_clock_or_chance, "import random\nx = random.random()"),
    (tidy.own_clock_or_chance, "from random import choice"),
    (tidy.own_clock_or_chance, "import uuid\nx = uuid.uuid4()"),
    (tidy.own_clock_or_chance, "x = datetime.now(UTC)"),
    (tidy.own_clock_or_chance, "x = datetime.datetime.utcnow()"),
    (tidy.unsafe, "import pickle"),
    (tidy.unsafe, "from pickle import loads"),
    (tidy.unsafe, "x = eval('1')"),
    (tidy.unsafe, "subprocess.run('ls', shell=True)"),
    (tidy.unsafe, "os.system('ls')"),
    (tidy.sql_from_values, "db.execute(f'select * from task where id = {task_id}')"),
    (tidy.sql_from_values, "q = 'delete from task where id = %s' % task_id"),
    (tidy.sql_from_values, "q = 'insert into task values ({})'.format(name)"),
    (tidy.sql_from_values, "q = 'update task set state = ' + state"),
    (tidy.sql_from_values, "q = f'update {table} set state = {json.dumps(state)}'"),
    (tidy.module_state, "registry = {}"),
    (tidy.module_state, "seen: set[str] = set()"),
    (tidy.module_state, "waiting = collections.deque()"),
    (tidy.module_state, "TABLE = {}\ndef f(k, v):\n    TABLE[k] = v"),
    (tidy.module_state, "TABLE = []\ndef f(v):\n    TABLE.append(v)"),
    (tidy.module_state, "N = 0\ndef f():\n    global N\n    N += 1"),
]

GOOD: list[tuple[Rule, str]] = [
    (tidy.too_many_attributes, "class A:\n    def f(self):\n" + "        self.a = self.b\n" * 13),
    (tidy.too_long_function, "def f():\n" + "    x = 1\n" * 59),
    (tidy.too_many_positional, "class A:\n    def f(self, a, b, c, d, e, *, g, h): ..."),
    (tidy.too_many_positional, "@overload\ndef f(a, b, c, d, e, g): ..."),
    (tidy.no_module_docstring, "'''What it is for.'''"),
    (tidy.no_public_docstring, "def _f(): ...\nclass _A:\n    def f(self): ..."),
    (
        tidy.no_public_docstring,
        "class A:\n    '''.'''\n    @overload\n    def f(self): ...\n    def __init__(self): ...",
    ),
    (tidy.banned_word, "class StepRow:\n    state: str\ndef settle(reply, _worker): ..."),
    (tidy.banned_word, "class _LogHandler(logging.Handler): ..."),
    (tidy.sleeping, "async def f():\n    await asyncio.sleep(0)\n    await event.wait()"),
    (
        tidy.private_attributes,
        "class A:\n    def f(self): return self._x + url._replace(port=1).__doc__\nmonkeypatch.setattr(actor, '_WAIT', 1)",
    ),
    (
        tidy.own_clock_or_chance,
        "import random, time\ndef f(rng: random.Random, clock):\n    rng.random(); clock.monotonic()",
    ),
    (tidy.own_clock_or_chance, "import random\nrng = random.Random(1)"),
    (tidy.unsafe, "subprocess.run(['ls'], shell=False)\nre.compile('x')\nast.literal_eval('1')"),
    (tidy.sql_from_values, "db.execute(f'select {COLUMNS} from {self.prefix}task where id = ?', (task_id,))"),
    (tidy.sql_from_values, "sql = f'select * from task where id = ${len(values)}'"),
    (tidy.sql_from_values, "raise ValueError(f'{name} cannot be updated: see the table {state}')"),
    (tidy.module_state, "__all__ = ['a']\nTABLE = {'a': 1}\nnames = ('a', 'b')\nx = TABLE['a']"),
    (
        tidy.module_state,
        "class A:\n    def __init__(self):\n        self.seen = []\n        self.seen.append(1)",
    ),
]


def name_of(value: object) -> str | None:
    """Name a case by its rule."""
    return getattr(value, "__name__", None)


@pytest.mark.parametrize(("rule", "source"), BAD, ids=name_of)
def test_bad_sample_is_found(rule: Rule, source: str) -> None:
    """The rule finds something wrong."""
    assert list(rule(ast.parse(source)))


@pytest.mark.parametrize(("rule", "source"), GOOD, ids=name_of)
def test_good_sample_is_spared(rule: Rule, source: str) -> None:
    """The rule finds nothing."""
    assert list(rule(ast.parse(source))) == []


def test_every_rule_over_source_has_a_bad_and_a_good_sample() -> None:
    """No rule goes unproven: all functions of ``tidy`` that take a tree and yield findings are in both lists."""
    rules = {
        name
        for name, value in vars(tidy).items()
        if callable(value) and getattr(value, "__annotations__", {}).get("tree") is ast.Module
    }
    assert rules
    assert rules == {rule.__name__ for rule, _ in BAD} == {rule.__name__ for rule, _ in GOOD}


def test_file_of_800_lines_passes_and_of_801_does_not() -> None:
    """The limit itself is lawful, with and without a last newline."""
    assert not list(tidy.too_long_file("x\n" * 800))
    assert not list(tidy.too_long_file("x\n" * 799 + "x"))
    assert list(tidy.too_long_file("x\n" * 801))
    assert list(tidy.too_long_file("x\n" * 800 + "x"))


@pytest.mark.parametrize(
    "text",
    [
        "see " + "/wor" + "k/main/x",
        "open('" + "/tm" + "p/x')",
        "cd /home" + "/anna/x",
        "https://pypi" + ".org/simple",
        "made by a coding " + "agent",
        "as in shared/" + "reference/x.md",
    ],
)
def test_traces_of_the_workplace_are_found(text: str) -> None:
    """Paths of a machine, package hosts and the like are found."""
    assert list(tidy.workplace(text))


def test_ordinary_paths_are_no_traces() -> None:
    """A path inside the project, a URL's path and the word agent in our sense are all right."""
    assert not list(
        tidy.workplace(
            "docs/work/x  https://example.com/tmp/x  $HOME/work/x  /home/me/x  the /workflow  the agent's session  /usr/lib/x"
        )
    )


GOOD_CHANGELOG = (
    "# Changelog\n\n## [Unreleased]\n\n### Added\n\n- x\n\n## [0.2.0] - 2026-01-02\n\n### Fixed\n\n- y\n"
)


def test_well_formed_changelog_passes() -> None:
    """The sample that the bad ones are made of is itself all right."""
    assert list(tidy.changelog_form(GOOD_CHANGELOG)) == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("# Changelog\n", "# Changes\n"),
        ("## [Unreleased]", "## [0.1.0] - 2026-01-01"),
        ("## [0.2.0] - 2026-01-02", "## 0.2.0"),
        ("### Added", "### New"),
        ("- x\n", ""),
        ("- y\n", "- y\n\n## [0.3.0] - 2026-01-03\n\n### Fixed\n\n- z\n"),
    ],
)
def test_malformed_changelog_is_found(old: str, new: str) -> None:
    """Wrong title, no Unreleased, wrong heading, unknown or empty section, releases out of order."""
    assert old in GOOD_CHANGELOG
    assert list(tidy.changelog_form(GOOD_CHANGELOG.replace(old, new)))


@pytest.mark.parametrize(
    "names",
    [["0001_a.sql", "0003_b.sql"], ["0002_a.sql"], ["0001_a.sql", "0001_b.sql"], ["1_a.sql"], ["0001-A.sql"]],
)
def test_gap_in_migrations_is_found(names: list[str]) -> None:
    """A gap, a late start, a number twice and an odd name are found."""
    assert list(tidy.migration_numbers(names))


def test_migrations_in_order_pass() -> None:
    """Numbered from 1, in any order of listing."""
    assert not list(tidy.migration_numbers(["0002_b.sql", "0001_a.sql"]))


@pytest.mark.parametrize(
    "test",
    [
        {"tests/unit/test_ids.py": ""},
        {"tests/unit/test_ids_draw.py": ""},
        {"tests/x/test_y.py": "from makegood.ids import show"},
        {"tests/x/test_y.py": "from makegood import clock, ids"},
        {"tests/x/test_y.py": "import makegood.ids"},
    ],
)
def test_tested_module_passes(test: dict[str, str]) -> None:
    """A file named after the module, or an import of it, will do."""
    assert not list(tidy.untested_modules({"makegood.ids": "src/makegood/ids.py"}, test))


def test_part_of_a_tested_package_passes_and_the_root_is_no_such_package() -> None:
    """A test of ``saga`` speaks for ``saga.undo``; one that imports ``makegood`` speaks for nothing else."""
    inner = {"makegood.saga.undo": "src/makegood/saga/undo.py"}
    assert not list(
        tidy.untested_modules(inner, {"tests/unit/test_rules.py": "from makegood.saga import apply"})
    )
    assert list(tidy.untested_modules(inner, {"tests/unit/test_rules.py": "import makegood"}))


def test_main_module_is_tested_by_running_the_package() -> None:
    """``__main__`` cannot be imported usefully: a test starts it."""
    main = {"makegood.__main__": "src/makegood/__main__.py"}
    assert not list(tidy.untested_modules(main, {"tests/x.py": 'run([sys.executable, "-m", "makegood"])'}))
    assert list(tidy.untested_modules(main, {"tests/x.py": "import makegood"}))


@pytest.mark.parametrize("test", [{}, {"tests/unit/test_kids.py": "from makegood.idsx import y"}])
def test_untested_module_is_found(test: dict[str, str]) -> None:
    """A module that nothing names is found."""
    assert list(tidy.untested_modules({"makegood.ids": "src/makegood/ids.py"}, test))


def test_repeated_class_names() -> None:
    """Two stores' twins and private classes may share a name; others may not, wherever they stand."""
    both = ast.parse("class A: ...\nclass _B: ...")
    trees = {"src/store/sqlite/a.py": both, "src/store/postgres/b.py": both}
    assert not list(tidy.repeated_class_names(trees))
    assert [name for name, _ in tidy.repeated_class_names({**trees, "src/c.py": both})] == ["A"]
