"""The reference page has every public name and every parameter with its default, and its blocks run."""

import asyncio
import inspect
import re
from pathlib import Path
from typing import Any

import pytest

import makegood.election
from makegood.cli.commands.leader import leader, run
from makegood.election import Election, SyncElection, SyncTerm, Term, open_leases, preference
from makegood.election.command import UNKEPT
from makegood.election.preference import Bully, LowestId, Ring, TcpTransport
from makegood.election.watchdog import EXIT_CODE
from tests.docs.test_election_howto import DOCS, blocks, module

PAGE = (DOCS / "reference/election.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", sorted({*makegood.election.__all__, *preference.__all__}))
def test_every_public_name_is_there(name: str) -> None:
    assert re.search(rf"`{name}\b", PAGE) or f"## {name}\n" in PAGE


@pytest.mark.parametrize("of", [Election, SyncElection, Term, SyncTerm])
def test_every_public_attribute_is_there(of: type) -> None:
    missing = [n for n in vars(of) if not n.startswith("_") and not re.search(rf"`[^`\n]*\b{n}\b", PAGE)]
    assert not missing


@pytest.mark.parametrize("of", [Election, open_leases])
def test_every_parameter_has_a_row(of: Any) -> None:
    for parameter in inspect.signature(of).parameters:
        assert re.search(rf"^\|[^|]*`{parameter}`", PAGE, re.MULTILINE), parameter


@pytest.mark.parametrize("of", [LowestId, Bully, Ring, TcpTransport])
def test_the_parameters_of_preferences_have_their_defaults(of: Any) -> None:
    (signature,) = re.findall(rf"`{of.__name__}\(([^`]*)\)`", PAGE)
    for name, parameter in inspect.signature(of).parameters.items():
        if parameter.default is inspect.Parameter.empty or callable(parameter.default):
            assert name in signature
        else:
            assert f"{name}={parameter.default}" in signature


def test_the_command_line_s_page_has_every_option_and_exit_code_of_its_commands() -> None:
    page = (DOCS / "reference/cli.md").read_text(encoding="utf-8")
    for command in (run, leader):
        ours = {o for p in command.params for o in p.opts if o.startswith("--")}
        assert not [o for o in ours - {"--json", "--color", "--debug"} if f"`{o}`" not in page], command.name
    codes = re.findall(r"^\| (\d+) \|", page.partition("## Exit codes")[2], re.MULTILINE)
    assert {*map(str, range(10)), str(UNKEPT), "130", "143"} <= set(codes)
    assert UNKEPT == EXIT_CODE


def test_its_blocks_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    page = module(tmp_path, "\n".join(blocks(PAGE, "python")))
    asyncio.run(page.once())
    page.blocking()
    asyncio.run(page.preferred())
    asyncio.run(page.late())
    output = capsys.readouterr().out.splitlines()
    assert output == [
        *(f"epoch 1, part {part}, {output[part].split()[4]} s left" for part in range(3)),
        "1 host-7 released",
        "epoch 2: at work",
        "None",
        "host-2 leads in epoch 1",
        "1 is over",
    ]
