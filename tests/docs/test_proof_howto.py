"""The how-to does what it says: its files are taken from the page, fail as printed, are mended as told, and are green."""

import re
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

PAGE = Path(__file__).resolve().parents[2] / "docs/build/test-your-workflow.md"
BLOCK = re.compile(r"^```python\n# (\S+\.py)(?:: (\w+))?\n(.*?)^```", re.MULTILINE | re.DOTALL)
TEXT = re.compile(r"^```text\n(.*?)^```", re.MULTILINE | re.DOTALL)


def mended(text: str, name: str, new: str) -> str:
    """Return a file in which one decorated function was replaced."""
    old = re.compile(rf"^@[^\n]*\nasync def {name}\(.*?(?=\n\n\n)", re.MULTILINE | re.DOTALL)
    assert len(old.findall(text)) == 1
    return old.sub(lambda _: new.rstrip(), text)


def failed(result: pytest.RunResult, name: str) -> str:
    """Return what was printed of a failed test."""
    return "\n".join(result.outlines).split(f"_ {name} _")[1].split("\n____")[0]


def plain(text: str) -> str:
    """Return a text without its numbers and its layout, which are another day's."""
    return re.sub(r"\s+", " ", re.sub(r"\d+(\.\d+)?", "N", text)).strip()


def printed(output: str, block: str) -> None:
    """Check that the lines of a block stand in the output, in this order; ``[...]``: and so on."""
    rest = plain(output)
    for line in block.strip().splitlines():
        words = plain(line.partition("[...]")[0])
        assert words in rest, f"the page says {words!r}"
        rest = rest[rest.index(words) + len(words) :]


def test_the_page_fails_as_printed_and_is_mended_as_told(pytester: pytest.Pytester) -> None:
    page = PAGE.read_text(encoding="utf-8")
    blocks = BLOCK.findall(page)
    files = {name: text for name, function, text in blocks if not function}
    mends = [(name, function, text) for name, function, text in blocks if function]
    assert set(files) == {"shop.py", "test_shop.py", "test_storms.py"}
    assert [function for _, function, _ in mends] == ["charge", "refund"]
    assert len(re.findall(r"^```python", page, re.MULTILINE)) == len(blocks), (
        "a block without the name of its file"
    )
    double, story, standing = TEXT.findall(page)

    def run(*options: str) -> pytest.RunResult:
        for name, text in files.items():
            (pytester.path / name).write_text(text, encoding="utf-8")
        return pytester.runpytest_subprocess("-p", "no:cacheprovider", "--import-mode=prepend", *options)

    naive = run("test_shop.py")
    naive.assert_outcomes(failed=2)
    printed(failed(naive, "test_order"), double)
    printed(failed(naive, "test_order"), story)

    name, function, text = mends[0]
    files[name] = mended(files[name], function, text)
    half = run("test_shop.py")
    half.assert_outcomes(passed=1, failed=1)
    printed(failed(half, "test_the_customer_cancels"), standing)

    name, function, text = mends[1]
    files[name] = mended(files[name], function, text)
    run("--makegood-seeds=5").assert_outcomes(passed=3)
