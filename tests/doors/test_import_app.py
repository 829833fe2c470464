"""From "module:attribute" to the thing: whatever is wrong is a usage error, in the name or in the module, and says where."""

import re
from pathlib import Path

import pytest

from makegood.cli import import_app
from tests.doors.conftest import Shop

README = Path(__file__).parents[2] / "README.md"


@pytest.mark.parametrize(
    ("name", "text", "code", "pattern"),
    [
        ("nowhere:shop", "", 2, r"there is no module 'nowhere'"),
        ("kiosk", "", 2, r"write module:attribute; kiosk has kiosk:kiosk"),
        ("kiosk.py:kiosk", "", 2, r"write module:attribute, such as kiosk:kiosk"),
        ("kiosk:koisk", "", 2, r"koisk does not exist; kiosk has kiosk:kiosk"),
        ("kiosk:buy", "", 2, r"buy is not an App but a Workflow; kiosk has kiosk:kiosk"),
        ("kiosk:", "", 2, r"write module:attribute"),
        (
            "broken_a:shop",
            "x = 1\nraise ValueError('no luck')\n",
            2,
            r"ValueError: no luck \(.*broken_a\.py, line 2\)",
        ),
        (
            "broken_b:shop",
            "import nothing_of_the_kind\n",
            2,
            r"No module named 'nothing_of_the_kind' \(.*broken_b",
        ),
        ("broken_c:shop", "def f(:\n", 2, r"SyntaxError: invalid syntax \(/[^ ]*broken_c\.py, line 1\);"),
        ("broken_g:shop", "x = 1\0\n", 2, r"null bytes; see"),
        ("broken_d:shop", "import sys\nsys.exit(0)\n", 2, r"ends the program .*line 2"),
        (
            "broken_e:shop",
            "import makegood as mg\nshop = mg.App('shop')\n\nshop.agent('a b')\n",
            2,
            r"broken_e \(.*broken_e\.py, line 4\): .*'a b' is not allowed",
        ),
    ],
)
def test_what_cannot_be_loaded_is_told_with_its_place(
    tmp_path: Path, name: str, text: str, code: int, pattern: str
) -> None:
    """One sentence, the exit code of its kind, never a traceback."""
    shop = Shop(tmp_path)
    if text:
        (tmp_path / f"{name.partition(':')[0]}.py").write_text(text, encoding="utf-8")
    result = shop.call("check", name)
    assert result.exit_code == code, result.output
    assert re.search(pattern, result.stderr), result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("check", "parcel:shop"), "shop does not exist; did you mean parcel.shop:shop?"),
        (("check", "parcel:later"), "later does not exist; did you mean parcel.broken:later?"),
        (("check", "parcel:broken"), "broken does not exist; did you mean parcel.broken:broken?"),
        (("task", "submit", "parcel:send"), "send does not exist; did you mean parcel.shop:send?"),
        (("check", "parcel:nothing"), "nothing does not exist;"),
    ],
)
def test_what_a_module_of_the_package_has_is_suggested(
    tmp_path: Path, words: tuple[str, ...], hint: str
) -> None:
    """Found in its source or by its own name; no module is imported for that."""
    shop = Shop(tmp_path)
    (tmp_path / "parcel").mkdir()
    (tmp_path / "parcel" / "__init__.py").write_text("", encoding="utf-8")
    source = "raise SystemExit\nshop = 1\nasync def send(): ...\ndef local():\n    nothing = 1\n"
    (tmp_path / "parcel" / "shop.py").write_text(source, encoding="utf-8")
    (tmp_path / "parcel" / "broken.py").write_text("later: int = 3\n", encoding="utf-8")
    (tmp_path / "parcel" / "worse.py").write_text("def f(:\n", encoding="utf-8")
    result = shop.call(*words)
    assert result.exit_code == 2
    assert f"'{words[-1]}': {hint}" in result.stderr


def test_a_folder_whose_name_begins_like_ours_is_the_users(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its error has a place: frames are makegood's own if they are in its folder, not if the name begins alike."""
    monkeypatch.setattr(import_app, "__file__", str(shop.folder / "makegood/cli/import_app.py"))
    (shop.folder / "makegood_shop.py").write_text("raise ValueError('no luck')\n", encoding="utf-8")
    refusal = shop.call("check", "makegood_shop:app")
    assert refusal.exit_code == 2
    assert re.search(r"ValueError: no luck \(.*makegood_shop\.py, line 1\)", refusal.stderr)


def test_the_example_is_started_as_the_readme_says(shop: Shop) -> None:
    """From the folder examples, by the name that stands there; in a process, as other tests have a module of that name."""
    match = re.search(r"`makegood run (orders[.:\w]*)` in `examples`", README.read_text(encoding="utf-8"))
    assert match is not None
    shop.folder = README.parent / "examples"
    result = shop.run("check", match[1])
    assert result.returncode == 0, result.stderr


def test_a_module_that_cannot_be_read_is_not_blamed_on_python(tmp_path: Path) -> None:
    """What the system says stands alone: no line of the user's has run."""
    shop = Shop(tmp_path)
    (tmp_path / "broken_h.py").symlink_to(
        "/proc/self/mem"
    )  # a file that is there and cannot be read, by nobody
    result = shop.call("check", "broken_h:shop")
    assert result.exit_code == 2
    assert re.search(r"broken_h cannot be imported: OSError: .*error; see", result.stderr), result.stderr


def test_debug_shows_where_it_arose(tmp_path: Path) -> None:
    """--debug, anywhere, adds the traceback before the sentence."""
    shop = Shop(tmp_path)
    (tmp_path / "broken_f.py").write_text("1 / 0\n", encoding="utf-8")
    for words in (("--debug", "check", "broken_f:shop"), ("check", "broken_f:shop", "--debug")):
        result = shop.call(*words)
        assert "Traceback" in result.stderr
        assert "ZeroDivisionError" in result.stderr


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("task", "list", "--limit", "0"), "makegood: --limit: '0' is not a whole number from 1 to 10,000; see `makegood task list --help`"),
        (("task", "submit", "kiosk:koisk"), "makegood: 'kiosk:koisk': koisk does not exist; kiosk has kiosk:buy"),
        (("supervisor", "--supervise-every", "-5s"), "makegood: --supervise-every='-5s' is negative: write"),
        (("task", "watch", "x", "--timeout", "soon"), "makegood: --timeout='soon' is not a duration: write seconds, or \"200ms\","),
        (("task", "list", "--limit", "x"), "makegood: --limit: 'x' is not a whole number from 1 to 10,000; see `makegood task list --help`"),
        (("alerts", "--ack"), "makegood: option '--ack' requires an argument: --ack ID; see `makegood alerts --help`"),
        (
            ("run", "--console"),
            "makegood: option '--console' requires an argument: --console HOST:PORT; see `makegood run --help`",
        ),
        (
            ("task", "list", "--color"),
            "makegood: option '--color' requires an argument: --color [auto|always|never]; see `makegood task list --help`",
        ),
        (("task", "show", "--debug=1"), "makegood: option '--debug' does not take a value; see `makegood task show --help`"),
        (("alerts", "--reason", "x"), "makegood: --reason goes with --ack or --ack-all; see"),
        (("alerts", "--who", "x"), "makegood: --who goes with --ack, --ack-all or --test"),
        (("task", "resubmit", "x", "--check", "kiosk:kiosk"), "makegood: --check goes with --input"),
        (("task", "show"), "makegood: missing argument 'ID'; see `makegood task show --help`"),
        (("taks",), "makegood: no such command 'taks': did you mean `makegood task`? See `makegood --help`"),
        (("task", "submit", "kiosk:buy", "{"), "makegood: the input order is not JSON: Input data was truncated; see"),
        (("task", "list", "--stat", "x"), "makegood: no such option '--stat'"),
        (("task", "list", "--color", "pink"), "makegood: --color: 'pink' is not one of 'auto', 'always', 'never'"),
    ],
)  # fmt: skip
def test_a_usage_error_is_one_sentence_that_says_how_to_get_help(
    shop: Shop, words: tuple[str, ...], hint: str
) -> None:
    """As every other error: what is wrong, what to do, no preamble."""
    result = shop.call(*words)
    assert (result.exit_code, result.stdout) == (2, ""), result.output
    assert result.stderr.startswith(hint), result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert " --help`" in result.stderr
