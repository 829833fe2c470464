"""The stills of terminals show what the commands write today: they are recorded once more, as `make pictures` does."""

from collections.abc import Callable

import pytest

from scripts.pictures.record import FOLDER, SCENES, noticed, spoken
from scripts.pictures.terminal import Drawn, plain


def shown(name: str, lines: list[str]) -> list[str]:
    """Return what a reader would notice; of `doctor` the names of its checks: what they find is the machine's."""
    if name != "terminal-doctor":
        return noticed(lines)
    return [line.split()[1] for line in lines if line.startswith(("ok ", "warning ", "error "))]


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
def test_a_still_shows_what_a_command_writes(scene: Callable[[], dict[str, Drawn]]) -> None:
    for name, rows in scene().items():
        picture = (FOLDER / f"{name}.svg").read_text(encoding="utf-8")
        now = shown(name, plain(rows))
        assert now
        assert shown(name, spoken(picture)) == now, f"{name}.svg is stale: run `make pictures`"
