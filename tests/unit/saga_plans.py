"""Random plans for the property runs of the rules: sequences, parallel parts, first, when, each, nested in each other.

The service that a step talks to is written into its plan as ``action``: K honours key and token, k a key only (``settle``), f a
token and a fencing probe but no key, n neither (both ``retry=mg.NEVER``).
"""

import random
from collections.abc import Callable

import msgspec

from makegood.model.plan import Condition, Ref, StepPlan, Template, inside
from makegood.model.policy import Policy

Place = tuple[int, int]
"""A step while a plan is drawn: how deep the body that holds it lies (0: the plan itself), and its position there."""

ITEMS = ("[]", "[1]", "[1, 2]", '["a", "b", "c"]')
LENGTHS = ("0", "2.5", '"PT3S"', "20")
MOMENTS = ('"1970-01-12T13:46:30Z"', '"1970-01-12T14:48:00+01:00[Europe/Berlin]"', '"1970-01-01T00:00:00Z"')
"""The runs begin on 12 January 1970, at 13:46:40."""
SIGNALS = ("approval", "receipt")
"""The names of the signals that steps wait for."""
DEEPEST = 2


def template(*parts: str | Ref) -> Template:
    """Return a template from text and refs in turn: text first and last."""
    return Template(
        tuple(p for p in parts if isinstance(p, str)), tuple(p for p in parts if isinstance(p, Ref))
    )


def declared(r: random.Random) -> tuple[str, Policy]:
    """Draw a service and what an action at it declares."""
    x = r.random()
    base = Policy(
        within=10.0,
        threshold=r.randint(0, 2),
        undo_threshold=r.randint(0, 2),
        undo_within=5.0,
        then="hold" if r.random() < 0.05 else "undo",
        undoable=r.random() < 0.85,
        key_form=r.choice(["", "", "uuid"]),
    )

    def also(**fields: bool) -> Policy:
        return msgspec.structs.replace(base, **fields)

    if x < 0.45:
        probe = r.random() < 0.5
        return "K", also(probe=probe, fences=probe and r.random() < 0.5)
    if x < 0.65:
        return "k", also(remembers=True, probe=r.random() < 0.3)
    if x < 0.8:
        return "f", also(never=True, probe=True, fences=True)
    if x < 0.92:
        return "n", also(never=True, probe=r.random() < 0.3)
    return "K", also(no_return=True)


class Planner:
    """Draws one plan."""

    def __init__(self, r: random.Random) -> None:
        self.r = r
        self.named = 0
        self.bodies: list[list[StepPlan]] = [[]]
        self.around: list[list[Place]] = []
        self.apart = random.Random(repr(r.getstate()))
        """Draws waits, so that the other choices stay what they are."""
        self.waits = 0.2 if self.apart.random() < 0.4 else 0.0
        self.asking = random.Random(f"signals {r.getstate()}")
        """The same for waits for signals."""
        self.asks = 0.2 if self.asking.random() < 0.3 else 0.0
        self.racing = random.Random(f"races {r.getstate()}")
        """The same for races, and for early ends."""
        self.races = 0.25 if self.racing.random() < 0.25 else 0.0
        self.in_lanes = 0

    def plan(self) -> tuple[StepPlan, ...]:
        """Return the steps of a plan."""
        self._sequence(0, [], ())
        return tuple(self.bodies[0])

    def _index(self, place: Place, outwards: int = 0) -> int:
        """Write a place as an index, seen from the innermost body (or from ``outwards`` bodies further out)."""
        depth, position = place
        here = len(self.bodies) - 1 - outwards
        return position if depth == 0 else inside(position, here - depth)

    def _make(self, kind: str, after: list[Place], guards: tuple[tuple[Place, bool], ...]) -> Place:
        body = self.bodies[-1]
        place = (len(self.bodies) - 1, len(body))
        self.named += 1
        # A head of a body needs no `after`: it comes after its each by itself.
        inner = [p for p in after if p[0] == place[0]]
        body.append(
            StepPlan(
                idx=self._index(place),
                kind=kind,  # type: ignore[arg-type]
                name=f"{kind}{self.named}",
                after=tuple(self._index(p) for p in inner),
                guards=tuple((self._index(w), side) for w, side in guards),
            )
        )
        return place

    def _set(self, place: Place, change: Callable[[StepPlan], StepPlan]) -> None:
        body = self.bodies[place[0]]
        body[place[1]] = change(body[place[1]])

    def _kind(self, place: Place) -> str:
        return self.bodies[place[0]][place[1]].kind

    def _sequence(
        self, depth: int, front: list[Place], guards: tuple[tuple[Place, bool], ...]
    ) -> list[Place]:
        for _ in range(self.r.randint(1, 3)):
            if self.apart.random() < self.waits:
                front = [self._wait(front, guards)]
            if self.asking.random() < self.asks:
                front = [self._listen(front, guards)]
            if depth < DEEPEST and self.racing.random() < self.races:
                front = [self._race(depth, front, guards)]
            x = self.r.random()
            if x < 0.55 or depth >= DEEPEST:
                front = [self._action(front, guards)]
            elif x < 0.72:
                front = [
                    last
                    for _ in range(self.r.randint(2, 3))
                    for last in self._sequence(depth + 1, front, guards)
                ]
            elif x < 0.87:
                front = [self._when(depth, front, guards)]
            else:
                front = [self._each(depth, front, guards)]
        return front

    def _value(self, front: list[Place], *path: str) -> Ref:
        """Return a ref to (part of) the result of a step before, or to a workflow input; rarely to what is not there."""
        if self.r.random() < 0.01:
            path = ("missing",)
        actions = [p for p in front if self._kind(p) == "action"]
        if not actions:
            return Ref("input", 0, path)
        return Ref("step", self._index(self.r.choice(actions)), path)

    def _action(self, front: list[Place], guards: tuple[tuple[Place, bool], ...]) -> Place:
        place = self._make("action", front, guards)
        service, policy = declared(self.r)
        if self.in_lanes:  # refused when a plan is made
            policy = msgspec.structs.replace(policy, no_return=False)
        ref = self._value(front)
        if len(self.bodies) > 1:
            outer = self.r.choice(self.around)
            if self.r.random() < 0.6:
                ref = Ref("item", self._around(self.r.randint(1, len(self.bodies) - 1)))
            elif outer:
                ref = self._value(outer)
        args = template('{"given":', ref, "}")
        self._set(
            place,
            lambda s: msgspec.structs.replace(s, agent="a", action=service, policy=policy, args=args),
        )
        return place

    def _wait(self, front: list[Place], guards: tuple[tuple[Place, bool], ...]) -> Place:
        kind = "fail" if guards and self.apart.random() < 0.1 else "sleep"
        if guards and self.races and not self.in_lanes and self.racing.random() < 0.4:
            kind = "done"
        place = self._make(kind, front, guards)
        until = kind == "sleep" and self.apart.random() < 0.4
        text = self.apart.choice(MOMENTS if until else LENGTHS) if kind == "sleep" else f'"{kind}"'
        if self.apart.random() < 0.01:
            text = "null"
        action = "until" if until else ""
        self._set(place, lambda s: msgspec.structs.replace(s, action=action, args=template(text)))
        return place

    def _listen(self, front: list[Place], guards: tuple[tuple[Place, bool], ...]) -> Place:
        place = self._make("wait_for", front, guards)
        args = None if self.asking.random() < 0.4 else template("20.0")
        sides = (template('{"b": false}'),) if args is not None and self.asking.random() < 0.5 else ()
        action = self.asking.choice(SIGNALS)
        self._set(place, lambda s: msgspec.structs.replace(s, action=action, args=args, sides=sides))
        return place

    def _race(self, depth: int, front: list[Place], guards: tuple[tuple[Place, bool], ...]) -> Place:
        """Draw branches of which the first wins, from a stream of their own."""
        others, self.r = self.r, self.racing
        self.in_lanes += 1
        branches: list[Place] = []
        lasts: list[Place] = []
        sides = []
        for _ in range(self.r.randint(1, 3)):
            branches.append((len(self.bodies) - 1, len(self.bodies[-1])))
            ends = self._sequence(depth + 1, front, guards)
            lasts += ends
            sides.append(template("", Ref("step", self._index(ends[0])), ""))
        self.in_lanes -= 1
        self.r = others
        race = self._make("first", lasts, guards)
        indices = tuple(map(self._index, branches))
        self._set(race, lambda s: msgspec.structs.replace(s, branches=indices, sides=tuple(sides)))
        return race

    def _around(self, depth: int) -> int:
        """Return the index of the each whose body lies at ``depth``: the last step of the body around it."""
        return self._index((depth - 1, len(self.bodies[depth - 1]) - 1))

    def _when(self, depth: int, front: list[Place], guards: tuple[tuple[Place, bool], ...]) -> Place:
        when = self._make("when", front, guards)
        left = template("", self._value(front, "b"), "")
        plain = Condition("true", left)
        condition = self.r.choice(
            [
                plain,
                Condition("eq", left, template("true")),
                Condition("ne", left, template("true")),
                Condition("not", parts=(plain,)),
                Condition("all", parts=(plain, plain)),
                Condition("any", parts=(plain, plain)),
            ]
        )
        self._set(when, lambda s: msgspec.structs.replace(s, condition=condition))
        lasts, sides = [when], []
        for side in (True, False):
            if side or self.r.random() < 0.7:
                ends = self._sequence(depth + 1, [when], (*guards, (when, side)))
                lasts += ends
                sides.append(template("", Ref("step", self._index(ends[0])), ""))
        merge = self._make("merge", lasts[1:], guards)
        of = self._index(when)
        self._set(merge, lambda s: msgspec.structs.replace(s, of=of, sides=tuple(sides)))
        return merge

    def _each(self, depth: int, front: list[Place], guards: tuple[tuple[Place, bool], ...]) -> Place:
        each = self._make("each", front, guards)
        args = template("", self._value(front, "l"), "")
        limit = 2 if self.r.random() < 0.1 else 1000
        self.bodies.append([])
        self.around.append(front)
        item = Ref("item", self._around(len(self.bodies) - 1))
        ends = self._sequence(depth + 1, [], ())
        value = template('{"i":', item, ',"v":', Ref("step", self._index(ends[0])), "}")
        body = tuple(self.bodies.pop())
        self.around.pop()
        at_once = self.r.randint(0, 2)
        self._set(
            each,
            lambda s: msgspec.structs.replace(s, args=args, limit=limit, at_once=at_once, body=body),
        )
        gather = self._make("gather", [each], guards)
        of = self._index(each)
        self._set(gather, lambda s: msgspec.structs.replace(s, of=of, sides=(value,)))
        return gather
