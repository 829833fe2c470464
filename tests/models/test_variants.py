"""The list of checked models is what its table and the mutants say; and a verdict is read as spin means it. No spin is needed."""

import pytest

from scripts import models
from tests.simulation.mutants import MUTANTS

LISTED = (models.MODELS / "variants.txt").read_text(encoding="utf-8")
README = (models.MODELS / "README.md").read_text(encoding="utf-8")
VARIANTS = models.read(LISTED)

NOT_A_RULE = ("(reached)", "(limit)", "(locks)")
_FULL = """pan:1: assertion violated (a==b) (at depth 44)
State-vector 40 byte, depth reached 45, errors: {errors}
  1.5e+03 states, stored
pan: elapsed time 0.03 seconds
"""


def test_the_table_of_the_readme_is_the_list() -> None:
    """Made anew from ``variants.txt``, the page does not change."""
    assert models.page(README, VARIANTS) == README


def test_each_rule_that_a_model_misses_has_its_mutant_in_the_simulator() -> None:
    """A violated variant names the mutant of the engine that must die as well; what holds names none."""
    for variant in VARIANTS:
        if variant.verdict == "holds":
            assert variant.mutant == "-", variant.name
        else:
            assert variant.mutant in MUTANTS or variant.mutant in NOT_A_RULE, variant.name


def test_every_model_is_searched_and_something_of_each_in_every_run() -> None:
    """No model stands there unused, and ``make proof`` searches a variant of each model; names are unique, and all were measured."""
    there = {path.name for path in models.MODELS.glob("*.pml")}
    assert {variant.spec.split()[0] for variant in VARIANTS} == there
    assert {variant.spec.split()[0] for variant in VARIANTS if variant.tested} == there
    assert len({variant.name for variant in VARIANTS}) == len(VARIANTS)
    assert [variant.name for variant in VARIANTS if not variant.states] == []


def test_both_verdicts_are_expected_of_each_model() -> None:
    """A model of which nothing is violated may be unable to fail, and one of which nothing holds proves nothing."""
    for path in models.MODELS.glob("*.pml"):
        verdicts = {variant.verdict for variant in VARIANTS if variant.spec.split()[0] == path.name}
        assert verdicts == {"holds", "violated"}, path.name


@pytest.mark.parametrize(
    "line",
    [
        "name | quick | holds",
        "n | soon | holds | 1 | 1 | - | what | a.pml",
        "n | quick | perhaps | 1 | 1 | - | w | a.pml",
    ],
)
def test_a_line_that_is_no_variant_is_refused(line: str) -> None:
    """With its number."""
    with pytest.raises(ValueError, match=r"variants.txt:2"):
        models.read(f"# head\n{line}\n")


def test_measured_numbers_go_into_their_line_alone() -> None:
    """What was searched is written back, everything else stays as it was."""
    text = "# a | b\na | quick | holds | 1 | 2 | - | what | a.pml -DX\nb | quick | holds | 1 | 2 | - | what | a.pml\n"
    output = models.written(text, {"a": models.Found("holds", 7, 0.25)})
    assert output == text.replace("a | quick | holds | 1 | 2 |", "a | quick | holds | 7         | 0.25  |")


def test_a_verdict_is_read_from_what_the_search_says() -> None:
    """Errors mean violated; none means that it holds, but not when the search was cut short or said nothing."""
    assert models.judged(_FULL.format(errors=1)) == models.Found(
        "violated", 1500, 0.03, "assertion violated (a==b)"
    )
    clean = _FULL.partition("\n")[2].format(errors=0)
    assert models.judged(clean) == models.Found("holds", 1500, 0.03)
    assert models.judged(f"{clean}error: max search depth too small\n").verdict == "unknown"
    assert models.judged("pan: out of memory").verdict == "unknown"


def test_the_table_goes_between_its_marks() -> None:
    """What stands around them stays."""
    page = models.page(f"head\n{models.BEGIN}\nbefore\n{models.END}\ntail\n", VARIANTS[:1])
    assert page.startswith(f"head\n{models.BEGIN}\n| variant |")
    assert page.endswith(f"{models.END}\ntail\n")
    assert "before" not in page
