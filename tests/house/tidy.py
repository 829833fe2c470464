"""The rules of shape that no linter has, as functions over source text: each yields findings as (line, what is wrong)."""

import ast
import re
from collections.abc import Iterator, Mapping
from itertools import pairwise

Finding = tuple[int, str]
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
Function = ast.FunctionDef | ast.AsyncFunctionDef

MOST_LINES = 800
MOST_FUNCTION_LINES = 80
MOST_ATTRIBUTES = 12
BANNED_WORDS = frozenset({"job", "worker", "handler", "backend", "peer", "activity"})
FOREIGN_NAMES = frozenset({"add_signal_handler", "remove_signal_handler"})
"""Names that asyncio gave to what our loop must have."""


def functions(tree: ast.AST) -> Iterator[Function]:
    """Yield every function and method, nested ones too."""
    for node in ast.walk(tree):
        if isinstance(node, FUNCTIONS):
            yield node


def dotted(node: ast.AST) -> str:
    """Return ``a.b.c`` for such an expression, "" for any other."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        head = dotted(node.value)
        return f"{head}.{node.attr}" if head else ""
    return ""


def too_long_file(text: str) -> Iterator[Finding]:
    """A file holds one subject and is as long as that takes; above 800 lines it holds two."""
    lines = text.count("\n") + (not text.endswith("\n") and bool(text))
    if lines > MOST_LINES:
        yield lines, f"{lines} lines, at most {MOST_LINES}"


def too_long_function(tree: ast.Module) -> Iterator[Finding]:
    """A function fits on a screen: 80 lines, docstring included."""
    for node in functions(tree):
        lines = (node.end_lineno or node.lineno) - node.lineno + 1
        if lines > MOST_FUNCTION_LINES:
            yield node.lineno, f"{node.name} has {lines} lines, at most {MOST_FUNCTION_LINES}"


def too_many_attributes(tree: ast.Module) -> Iterator[tuple[str, Finding]]:
    """A class holds at most twelve attributes: above that it is two classes. Yields the class beside each finding.

    What counts is what its own methods set on ``self``; records, whose fields stand in the class, set none.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            names = {
                target.attr
                for method in node.body
                if isinstance(method, FUNCTIONS)
                for target in ast.walk(method)
                if isinstance(target, ast.Attribute) and isinstance(target.ctx, ast.Store)
                if dotted(target.value) == "self"
            }
            if len(names) > MOST_ATTRIBUTES:
                what = f"{node.name} has {len(names)} attributes, at most {MOST_ATTRIBUTES}"
                yield node.name, (node.lineno, what)


def repeated_class_names(trees: Mapping[str, ast.Module]) -> Iterator[tuple[str, tuple[str, Finding]]]:
    """One class name, one place. Twins of the two stores are one place, names with an underscore are spared.

    Yields the name and (path, finding) for each place after the first.
    """
    first: dict[str, str] = {}
    for path, tree in trees.items():
        place = "the stores" if "/store/sqlite/" in path or "/store/postgres/" in path else path
        for node in ast.walk(tree):
            if not isinstance(node, ast.ClassDef) or node.name.startswith("_"):
                continue
            elsewhere = first.setdefault(node.name, place)
            if elsewhere != place:
                yield node.name, (path, (node.lineno, f"{node.name} is a class in {elsewhere}, too"))


def words_of(name: str) -> set[str]:
    """Split a name into its words, in lower case and without a plural's s.

    >>> sorted(words_of("HTTPPeerJobs_worker"))
    ['http', 'job', 'jobs', 'peer', 'worker']
    """
    parts = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", name)
    words = {part.lower() for part in parts}
    return words | {word.removesuffix("s") for word in words if word not in BANNED_WORDS and len(word) > 3}


def banned_word(tree: ast.Module) -> Iterator[Finding]:
    """The public surface speaks our glossary: no job, worker, handler, backend, peer or activity."""

    def check(name: str, line: int, kind: str) -> Iterator[Finding]:
        words = sorted(words_of(name) & BANNED_WORDS)
        if words and not name.startswith("_") and name not in FOREIGN_NAMES:
            yield line, f"{kind} {name!r} says {words[0]!r}: see docs/learn/glossary.md"

    def visit(body: list[ast.stmt]) -> Iterator[Finding]:
        for node in body:
            if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
                if node.name.startswith("_") and node.name != "__init__":
                    continue
                yield from check(node.name, node.lineno, "the name")
            if isinstance(node, ast.ClassDef):
                yield from visit(node.body)
            elif isinstance(node, FUNCTIONS):
                for arg in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs):
                    yield from check(arg.arg, arg.lineno, "the parameter")
            elif isinstance(node, ast.Assign | ast.AnnAssign):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                for target in targets:
                    yield from check(dotted(target), node.lineno, "the name")

    yield from visit(tree.body)


def sleeping(tree: ast.Module) -> Iterator[Finding]:
    """Tests wait for events, not for time; ``asyncio.sleep(0)`` merely yields and is allowed."""
    sleepers = {"time.sleep", "asyncio.sleep", "anyio.sleep"}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module in {"time", "asyncio", "anyio"}:
            for alias in node.names:
                if alias.name == "sleep":
                    yield node.lineno, "imports sleep by name; sleeping belongs to tests/processes only"
        if isinstance(node, ast.Call) and dotted(node.func) in sleepers:
            first = node.args[0] if node.args else None
            if not (isinstance(first, ast.Constant) and first.value == 0):
                yield node.lineno, "sleeps; wait for an event instead, or move the test to tests/processes"


MUTABLE_CALLS = {"list", "dict", "set", "bytearray", "defaultdict", "deque", "Counter", "OrderedDict"}
MUTATORS = {
    "append", "extend", "insert", "add", "update", "setdefault", "pop", "popitem", "remove", "discard", "clear",
    "appendleft", "sort", "reverse",
}  # fmt: skip


def is_mutable(node: ast.expr | None) -> bool:
    """Whether an expression makes a list, a dict, a set or the like."""
    if isinstance(node, ast.Call):
        return dotted(node.func).split(".")[-1] in MUTABLE_CALLS
    return isinstance(node, ast.List | ast.Dict | ast.Set | ast.ListComp | ast.DictComp | ast.SetComp)


def module_state(tree: ast.Module) -> Iterator[Finding]:
    """No module-level mutable state: a table in CAPITALS may stand there as long as its module never changes it."""
    tables: set[str] = set()
    for statement in tree.body:
        if isinstance(statement, ast.Assign | ast.AnnAssign) and is_mutable(statement.value):
            for target in statement.targets if isinstance(statement, ast.Assign) else [statement.target]:
                name = dotted(target)
                tables.add(name)
                if name != "__all__" and name != name.upper():
                    yield statement.lineno, f"{name} is mutable and lives in the module"
    for node in ast.walk(tree):
        table = ""
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del):
            table = dotted(node.value)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in MUTATORS:
            table = dotted(node.func.value)
        if isinstance(node, ast.expr) and table in tables:
            yield node.lineno, f"changes the module's {table}"


# Spelt so that this file does not itself say what it forbids.
NOT_OURS = re.compile(
    r"(?<![\w.~$}])/((work|tmp|root|Users)/|home/(?!me\b))\w+"
    r"|\b(pypi|pythonhosted|npmjs)\.(org|com)\b"
    r"|\bshared/(reference|prototypes|design)"
    r"|\b(coding|AI)[ -](agent|assistant|session)s?\b"
    r"|\b(cl[a]ude|anthr[o]pic|ll[m]s?(?!(-full)?[.]txt))\b",
    re.IGNORECASE,
)
# A page that has to name a service whose name is barred everywhere else, and that name.
SERVICES = {"docs/build/your-services-sdk.md": re.compile("anthr[o]pic", re.IGNORECASE)}


def workplace(text: str, path: str = "") -> Iterator[Finding]:
    """The project says nothing of the machine or the people it was made with, and holds no absolute path."""
    for number, line in enumerate(text.splitlines(), 1):
        for match in NOT_OURS.finditer(line):
            service = SERVICES.get(path)
            if service is None or not service.fullmatch(match.group()):
                yield number, f"says {match.group()!r}"


SECTIONS = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
RELEASE = re.compile(r"## \[(?:(Unreleased)|(\d+)\.(\d+)\.(\d+)\] - \d{4}-\d{2}-\d{2}$)")


def changelog_form(text: str) -> Iterator[Finding]:
    """Keep a Changelog: a title, ``[Unreleased]`` first, releases falling, known sections, no empty ones."""
    lines = text.splitlines()
    if not lines or lines[0] != "# Changelog":
        yield 1, "does not begin with '# Changelog'"
    releases = [(n, line) for n, line in enumerate(lines, 1) if line.startswith("## ")]
    versions: list[tuple[int, ...]] = []
    for place, (number, line) in enumerate(releases):
        match = RELEASE.match(line)
        if match is None:
            yield number, f"{line!r} is neither '## [Unreleased]' nor '## [1.2.3] - 2026-01-31'"
        elif match[1]:
            if place:
                yield number, "[Unreleased] must come first"
        else:
            versions.append(tuple(int(part) for part in match.groups()[1:]))
    if not releases or "[Unreleased]" not in releases[0][1]:
        yield 1, "has no '## [Unreleased]' at the top"
    for newer, older in pairwise(versions):
        if newer <= older:
            yield 1, f"release {newer} stands above {older}"
    for number, line in enumerate(lines, 1):
        if line.startswith("### ") and line[4:] not in SECTIONS:
            yield number, f"{line!r} is no section of Keep a Changelog"
    headings = [(n, line) for n, line in enumerate(lines, 1) if line.strip()]
    for (number, line), (_, following) in pairwise([*headings, (len(lines) + 1, "## end")]):
        if line.startswith("### ") and following.startswith("#"):
            yield number, f"{line!r} is empty"


def migration_numbers(names: list[str]) -> Iterator[Finding]:
    """Migrations of one dialect are numbered 0001, 0002, … without gaps, once each."""
    numbers: list[int] = []
    for name in names:
        match = re.fullmatch(r"(\d{4})_[a-z0-9_]+\.sql", name)
        if match is None:
            yield 0, f"{name} is not named like 0001_what_it_does.sql"
        else:
            numbers.append(int(match[1]))
    if sorted(numbers) != list(range(1, len(numbers) + 1)):
        yield 0, f"the numbers are {sorted(numbers)}: they must run from 1 without gaps"


def untested_modules(modules: dict[str, str], tests: dict[str, str]) -> Iterator[Finding]:
    """Every module has its test: a file ``test_<name>*.py``, or a test that imports it by name.

    How a package below ``makegood`` is cut into files is its own affair: a test of the package will do for its parts.
    ``modules``: dotted name -> path; ``tests``: path -> text.
    """

    def tested(module: str) -> bool:
        package, _, stem = module.rpartition(".")
        if any(re.search(rf"/test_{re.escape(stem)}(_\w+)?\.py$", test) for test in tests):
            return True
        pattern = re.compile(
            rf"\b{re.escape(module)}\b|from {re.escape(package or module)} import [^\n]*\b{re.escape(stem)}\b"
            if stem != "__main__"
            else rf'"-m", "{re.escape(package)}"'
        )
        word = stem if stem != "__main__" else package
        return any(word in text and pattern.search(text) for text in tests.values())

    for module, path in sorted(modules.items()):
        parts = module.split(".")
        names = [".".join(parts[:length]) for length in range(len(parts), min(1, len(parts) - 1), -1)]
        if not any(tested(name) for name in names):
            yield 0, f"{path} has no test_{parts[-1]}.py and no test imports {module}"
