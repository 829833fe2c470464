"""The page of a task, drawn as text from recorded runs: the drawings lie beside the recordings."""

import re
from collections import Counter

import pytest
from msgspec.structs import replace

from makegood.console.attempts import ShownAttempt, course
from makegood.console.conditions import condition_text
from makegood.console.looks import left_look
from makegood.console.pages.task import TaskChoice, TaskPage, TaskSources, task_page
from makegood.console.rungs import ticks
from makegood.console.timeline import MOST_ITEMS
from makegood.model.plan import Condition, Ref, StepPlan, Template
from makegood.store.views import TaskExcerpt
from tests.console.drawing import drawings, drawn, html, page
from tests.console.recorded_tasks import FOLDER, names, recorded


@pytest.mark.parametrize("name", sorted(drawings()))
def test_a_recorded_task_is_drawn_as_its_text_says(name: str) -> None:
    """`python -m tests.console.drawing` writes the texts again; read the difference before you keep it."""
    assert drawings()[name] == (FOLDER / f"{name}.txt").read_text(encoding="utf-8")


def states(whole: TaskPage) -> dict[str, str]:
    """Return the state of each rung."""
    return {step.name: step.state for row in whole.rows for step in row.steps}


def test_an_each_of_300_items_is_one_rung() -> None:
    """Its state is its worst item's, which has a line of its own; the rest is counted."""
    whole = page("each")
    (each_rung,) = [step for row in whole.rows for step in row.steps if step.count is not None]
    assert (each_rung.name, each_rung.count, each_rung.state) == ("hold_line", 300, "undo_failed")
    assert [item.words for item in each_rung.odd] == ["hold_line[19]: 409 the hold is being shipped"]
    assert each_rung.undo_text == "1 failed, 299 of 300 undone"
    assert len(whole.attempts) < 10
    assert whole.asked > 600


def test_an_each_opens_in_the_time_those_in_trouble_first() -> None:
    """Its row is a link; open, its items have rows of their own, as many as fit, and the rest is counted."""
    (anchor,) = [step.anchor for row in page("each").rows for step in row.steps if step.count is not None]
    shut, open_ = page("each"), page("each", open_each=anchor)
    assert shut.chart is not None
    assert open_.chart is not None
    assert (list(shut.chart.folds.values()), shut.chart.items) == ([(anchor, False)], set())
    assert list(open_.chart.folds.values()) == [(anchor, True)]
    first = min(open_.chart.items)
    assert (len(open_.chart.items), open_.chart.more) == (MOST_ITEMS, 300 - MOST_ITEMS)
    assert open_.chart.rows[first] == "hold_line[19]"
    assert [bar.look for bar in open_.chart.bars if bar.row == first][-1] == "need"
    assert f'?open={anchor}#time" aria-expanded="false"' in html(shut)
    assert '#time" aria-expanded="true"' in html(open_)
    assert f"{300 - MOST_ITEMS} more rows are not drawn." in html(open_)
    assert page("each", open_each="strange").opened == ""


def test_a_branch_that_was_not_taken_is_shown_on_request() -> None:
    """Its ``when`` keeps its rung either way, and says which steps were left out."""
    assert states(page("when")) == {"screen": "done", 'when screen is "high"': "done", "reserve": "done"}
    assert states(page("when", shows_skipped=True))["review"] == "skipped"


def test_an_older_submission_is_rebuilt_from_the_history() -> None:
    """As it ended, with its own attempts, and without acts."""
    now, before = page("round_two"), page("round_two", submission=1)
    assert states(now) == states(before) == {"reserve": "undone", "charge": "failed"}
    assert [step.ticks for row in now.rows for step in row.steps] == [
        ("~ok", "|", "ok"),
        ("~fail", "|", "fail"),
    ]
    assert [step.ticks for row in before.rows for step in row.steps] == [("ok",), ("fail",)]
    assert now.offers.acts
    assert not before.offers.acts
    assert before.found.task.submission == 1
    assert not before.current
    assert page("round_two", submission=7).current, "there is no seventh"


def test_a_task_without_times_has_no_drawing_of_time() -> None:
    """Nothing has happened yet, and the page says that nobody is there to begin it."""
    whole = page("without_times")
    assert whole.chart is None
    assert not whole.attempts
    assert whole.verdict.title == "No Scheduler is running: nothing continues until one does"


def test_what_comes_next_is_said_by_the_rule_that_decides_it() -> None:
    """Three more tries, then the undo, whose size the preview knows."""
    verdict = page("in_doubt").verdict
    assert verdict.title == "charge is in doubt: it gave no certain answer"
    assert verdict.next == (
        "{} asked again, under the same key",
        "3 more tries, after 1 h",
        "then undo: 2 effects in 2 turns",
    )
    assert verdict.countdown is not None
    assert 3590 < verdict.countdown.seconds <= 3600


def test_only_what_the_rules_allow_is_offered() -> None:
    """What is refused is said, with the reason; an admin's acts say that they are."""
    offers = page("stuck").offers
    assert [(offer.act, offer.role) for offer in offers.acts] == [("undo", "operator"), ("settle", "admin")]
    assert offers.refused == [
        "Resubmit is refused: the undo of charge has failed: undo the task again or settle that step first."
    ]
    assert [(one.turn, one.name) for one in offers.acts[0].previews] == [("1", "charge"), ("2", "reserve")]


def test_turns_count_from_the_end_of_the_task() -> None:
    """Steps that are undone keep the turn that they had; the preview counts what is left."""
    whole = page("stuck")
    assert {step.name: step.turn for row in whole.rows for step in row.steps if step.turn} == {
        "reserve": "3", "charge": "2", "book": "1", "pack": "1",
    }  # fmt: skip


@pytest.mark.parametrize("name", names())
def test_every_attempt_of_a_history_has_a_beginning_before_its_end(name: str) -> None:
    """And none is counted twice: a step has no more attempts than it says."""
    task = recorded(name)
    task_course = course(task.detail, task.events, task.now)
    for attempt in task_course.attempts:
        assert attempt.ended is None or attempt.asked <= attempt.ended
    for step in task.detail.steps:
        assert sum(a.end != "planned" for a in task_course.of(step.idx)) <= step.attempt


def test_a_drawing_shows_a_change() -> None:
    """The texts are no empty promise: another recording draws another text."""
    assert len({drawn(page(name)) for name in names()}) == len(names())


@pytest.mark.parametrize("name", names())
def test_a_page_is_whole(name: str) -> None:
    """Every id is there once, nothing has a style, and what is linked within the ladder's dots exists."""
    text = html(page(name))
    ids = Counter(re.findall(r' id="([^"]+)"', text))
    assert [name for name, count in ids.items() if count > 1] == []
    assert " style=" not in text
    for target in re.findall(r'class="dot-link" href="#([^"]+)"', text):
        assert target in ids
    assert "needs the role" not in text


def test_what_is_folded_is_an_entry_of_the_list() -> None:
    """A screen reader counts rungs and folds alike, and the rungs inside a fold are a list of their own."""
    text = html(page("wide"))
    assert text.count('<div class="ladder__line" role="listitem"><details class="ladder__fold fold">') == 1
    assert text.count('role="list" aria-label="folded steps"') == 1
    assert 'role="listitem"><details class="beyond"' in html(page("round_two"))


def test_a_dozen_items_are_dots_that_link_to_their_attempts() -> None:
    """Three hundred are a meter."""
    assert html(page("few")).count('class="dot-link"') == 12
    assert 'class="dot-link"' not in html(page("each"))


def test_a_service_that_asks_for_time_is_a_mark_of_its_own() -> None:
    """It has answered, and nothing has failed; an older round stands before a line."""

    def made(end: str, round_: int) -> ShownAttempt:
        return ShownAttempt(idx=0, step="s", doing="do", round=round_, submission=1, asked=0.0, end=end)

    assert ticks([made("done", 1), made("later", 2), made("withdrawn", 2), made("running", 2)], 2) == (
        "~ok",
        "|",
        "later",
        "run",
    )
    task = page("undone")
    task.rows[0].cells[0].step.ticks = ("later",)  # type: ignore[union-attr]
    assert "1 attempt: asked to come back later" in html(task)
    assert left_look(task.rows[0].steps[0]).icon == "done"


def test_what_is_compared_with_a_secret_is_covered() -> None:
    """A condition's own text may say what a payload hides."""
    detail = recorded("when").detail
    (view,) = [step for step in detail.steps if step.kind == "when"]
    reference = Template(("", ""), (Ref("step", 0, ("card_number",)),))
    plan = StepPlan(view.idx, "when", "when", condition=Condition("eq", reference, Template(('"4111"',))))
    assert condition_text(replace(view, plan=plan), detail) == "when screen.card_number is •••"


def test_a_second_later_only_what_moves_by_itself_is_another_text() -> None:
    """Countdowns and the drawing of time: everything else waits until something happens."""
    task = recorded("in_doubt")

    def shown(later: float) -> dict[str, str]:
        steps = [
            replace(one, due=one.due - later) if one.due is not None else one for one in task.detail.steps
        ]
        whole = task_page(
            TaskSources(
                part=TaskExcerpt(replace(task.detail, steps=steps), len(steps)),
                events=task.events,
                nodes=task.nodes,
                now=task.now + later,
            ),
            TaskChoice(),
        )
        text = re.sub(r'data-(ring|until)="[^"]*"|stroke-dasharray="[^"]*"', "", html(whole))
        return {
            name: text.split(f'id="{name}"')[1].split("</section>")[0]
            for name in ("ladder", "attempts", "history", "acts", "verdict")
        }

    assert shown(0.0) == shown(3.0)


def test_now_moves_in_steps_in_the_drawing_of_time() -> None:
    """Of an hour: every 18 seconds."""
    task = recorded("in_doubt")

    def took(at: float) -> str:
        part = TaskExcerpt(task.detail, len(task.detail.steps))
        return task_page(
            TaskSources(part=part, events=task.events, nodes=task.nodes, now=at), TaskChoice()
        ).took

    start = task.detail.task.created
    assert took(start + 3600.0) == "1 h so far"
    assert took(start + 20.5) == took(start + 20.9) == "20 s so far"
