"""The page about keys: its blocks run, its tables are those of the code."""

import re
from pathlib import Path
from typing import Any

from makegood import keys
from makegood.base.service_keys import (
    LONGEST,
    SHORTEST,
    VERSION,
    checked_form,
    length_of,
    longest_key,
    task_of,
)
from makegood.keys import Preset
from tests.docs.test_operate_howto import loaded

PAGE = (Path(__file__).resolve().parents[2] / "docs/reference/keys.md").read_text("utf-8")
PRESETS = {name: value for name, value in vars(keys).items() if isinstance(value, Preset) and name != "PLAIN"}
_CONFLICT = {"running": "it still runs", "done": "it was done", "another": "another body", None: "–"}


def cells(heading: str) -> list[list[str]]:
    """Return the table below a heading, without its first two lines."""
    table = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    lines = [line for line in table.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_every_preset_has_its_row_and_every_row_its_preset() -> None:
    presets = [
        [
            f"`{name}`",
            preset.service,
            "as it is" if preset.form == "plain" else f'`"{preset.form}"`',
            str(preset.limit or "–"),
            (f"header `{preset.header}`" if preset.header else f"`{preset.field}`")
            + (f", `{preset.first_sent}`" if preset.first_sent else ""),
            str(preset.keeps or "–"),
            "yes" if preset.remembers else "–",
            _CONFLICT[preset.conflict],
        ]
        for name, preset in PRESETS.items()
    ]
    assert cells("Presets") == presets


def test_every_preset_names_its_source_in_its_docstring() -> None:
    source = Path(keys.__file__).read_text("utf-8")
    for name in PRESETS:
        docstring = re.search(rf'^{name}: Final = Preset\(.*?\n"""(.*?)"""', source, re.MULTILINE | re.DOTALL)
        assert docstring is not None, name
        assert re.search(r"\w\.\w|/|-\d", docstring[1]), f"{name}: name the page, and when it was read"


def test_the_forms_are_those_of_the_code_and_their_examples_have_their_lengths() -> None:
    rows = cells("Forms")
    assert [row[0] for row in rows] == [
        '`"plain"`, the default', '`"uuid"`', '`"uuid4"`', '`"quoted"`', '`"length=28"`'
    ]  # fmt: skip
    for row in rows:
        form = checked_form(re.findall(r'"(.*)"', row[0])[0], "here")
        example = re.match(r"`([^`]*)`", row[1])
        if form and example is not None:
            assert len(example[1]) == length_of(form)
    assert (
        rows[0][2]
        == f"{longest_key('', 'do')} and the step's name; {longest_key('', 'undo')} and the name for an undo"
    )
    assert rows[4][2] == f"{SHORTEST} to {LONGEST}"
    assert VERSION.decode() in PAGE


def test_the_examples_of_one_key_name_the_same_task() -> None:
    store = "674203e9d29c1b4e"
    examples = [text.strip('"') for text in re.findall(r"`([^`]*)`", PAGE) if re.match(r'"?e88e|brnj', text)]
    assert len(examples) >= 3
    assert {task_of(store, text) for text in examples} == {7_000_000_000}


def test_its_blocks_are_a_module(tmp_path: Path) -> None:
    code = "\n\n".join(re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL))
    (tmp_path / "keys_reference.py").write_text(code, encoding="utf-8")
    page: Any = loaded(tmp_path, "keys_reference")
    assert page.pay._policy.key_form == "uuid"
    assert page.look._policy.keeps == 86400.0
    assert page.SQUARE_TERMINAL.limit == 64
