"""Draw the diagrams of the documentation as SVG files in docs/img: `make pictures`.

Each is readable in light and dark: colours come from a style sheet that asks for the reader's scheme.
"""

import re
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
FOLDER = ROOT / "docs/img"
STYLE = """
text{font:14px system-ui,-apple-system,"Segoe UI",Roboto,sans-serif;fill:#1f2937}
.s{font-size:12px;fill:#5b6472}.b{font-weight:600}.m{text-anchor:middle}
rect{fill:#fff;stroke:#8a94a3;stroke-width:1.4}path,line{stroke:#6b7280;stroke-width:1.5;fill:none}
.h{paint-order:stroke;stroke:#f8fafc;stroke-width:5px}.bg{fill:#f8fafc;stroke:none}.g{fill:#e7f5ec;stroke:#2f8f57}.r{fill:#fdecea;stroke:#c2453a}
.y{fill:#fff5dc;stroke:#b7891f}.p{fill:#efeafc;stroke:#7a5cc4}.c{fill:#e6f1fb;stroke:#3274b5}
.d{stroke-dasharray:5 4}marker path{fill:#6b7280;stroke:none}
@media (prefers-color-scheme:dark){text{fill:#e5e7eb}.s{fill:#a7b0bd}rect{fill:#1b2230;stroke:#7d8796}
path,line{stroke:#9aa4b2}.bg{fill:#0f141c}.h{stroke:#0f141c}.g{fill:#143323;stroke:#4fb37c}.r{fill:#3d1b19;stroke:#e0766c}
.y{fill:#3a2f12;stroke:#d8ae4d}.p{fill:#2a2145;stroke:#a48ce6}.c{fill:#13293f;stroke:#6aa5dd}marker path{fill:#9aa4b2}}
""".replace("\n", "")

MARKER = (
    '<defs><marker id="a" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" markerHeight="8" '
    'orient="auto-start-reverse"><path d="M0 0 10 5 0 10z"/></marker></defs>'
)


class Drawing:
    """One picture: boxes, lines and words on a plain ground."""

    def __init__(self, name: str, title: str, width: int, height: int) -> None:
        self.name = name
        self.parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" role="img">',
            f"<title>{escape(title)}</title><style>{STYLE}</style>",
            MARKER,
            f'<rect class="bg" width="{width}" height="{height}" rx="8"/>',
        ]

    def say(self, x: float, y: float, text: str, kind: str = "") -> None:
        """Write a line of text."""
        self.parts.append(f'<text x="{x}" y="{y}" class="{kind}">{escape(text)}</text>')

    def box(self, x: float, y: float, w: float, h: float, *lines: str, kind: str = "") -> None:
        """Draw a box with lines of text in its middle, the first one bold."""
        self.parts.append(f'<rect x="{x}" y="{y}" width="{w}" height="{h}" rx="7" class="{kind}"/>')
        top = y + h / 2 + 5 - 9 * (len(lines) - 1)
        for n, line in enumerate(lines):
            self.say(x + w / 2, top + 18 * n, line, "m b" if n == 0 else "m s")

    def arrow(self, x1: float, y1: float, x2: float, y2: float, text: str = "") -> None:
        """Draw an arrow, with words above its middle."""
        self.parts.append(f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" marker-end="url(#a)"/>')
        if text:
            self.say((x1 + x2) / 2, (y1 + y2) / 2 - 6, text, "m s h")

    def save(self) -> None:
        """Write the file."""
        (FOLDER / f"{self.name}.svg").write_text("\n".join([*self.parts, "</svg>\n"]), encoding="utf-8")


def lifecycle() -> None:
    """Draw the states of a task."""
    d = Drawing("lifecycle", "The states of a task", 720, 300)
    d.box(20, 60, 120, 56, "pending", "submitted")
    d.box(260, 60, 140, 56, "processing", "going forward", kind="c")
    d.box(560, 60, 140, 56, "processed", "done", kind="g")
    d.box(260, 200, 140, 56, "undoing", "going back", kind="p")
    d.box(560, 130, 140, 56, "error", "an operator's hands", kind="r")
    d.box(560, 220, 140, 56, "undone", "effects taken back", kind="y")
    d.arrow(140, 88, 260, 88, "claimed")
    d.arrow(400, 88, 560, 88, "every step done")
    d.arrow(330, 116, 330, 200)
    d.say(330, 150, "refused, cancelled,", "m s h")
    d.say(330, 168, "or too late", "m s h")
    d.arrow(400, 240, 560, 248, "nothing left to undo")
    d.arrow(400, 108, 560, 146, "held")
    d.arrow(400, 214, 560, 174, "an undo is stuck")
    d.say(20, 30, "Every task ends in one of three known states.", "b")
    d.parts.append('<path d="M700 158H712V44H80V60" class="d" marker-end="url(#a)"/>')
    d.say(500, 48, "resubmitted", "m s h")
    d.save()


def recovery() -> None:
    """Draw a crash after an effect, and what follows."""
    d = Drawing("recovery", "Crash and recovery", 760, 470)
    names = ("Scheduler", "store", "agent 1", "agent 2", "payments", "Supervisor")
    at = {name: 70 + 124 * n for n, name in enumerate(names)}
    for name, x in at.items():
        d.box(x - 54, 16, 108, 32, name, kind="c" if name == "store" else "")
        d.parts.append(f'<line x1="{x}" y1="48" x2="{x}" y2="456" class="d"/>')
    moves = (
        ("Scheduler", "store", "attempt 1, deadline"), ("store", "agent 1", "request"),
        ("agent 1", "payments", "charge, key K, token 1.1"), ("", "", ""),
        ("Supervisor", "store", "its process is gone, or its deadline passed"), ("store", "Scheduler", "message"),
        ("Scheduler", "store", "in doubt; attempt 2"), ("store", "agent 2", "request"),
        ("agent 2", "payments", "key K, token 1.2"), ("payments", "agent 2", "first answer again"),
        ("agent 2", "store", "reply: done"),
    )  # fmt: skip
    for n, (a, b, text) in enumerate(moves):
        y = 82 + 35 * n
        if a:
            d.arrow(at[a], y, at[b], y, text)
        else:
            d.box(at["agent 1"] - 62, y - 20, 124, 28, "killed", kind="r")
            d.box(at["payments"] - 62, y - 20, 124, 28, "charged once", kind="g")
    d.save()


def undo() -> None:
    """Draw the way forward and the way back."""
    d = Drawing("undo", "The undo ladder", 720, 230)
    forward = (
        ("reserve", "done", "g"),
        ("charge", "done", "g"),
        ("book", "in doubt", "y"),
        ("ship", "failed", "r"),
    )
    back = (("release", "", "p"), ("refund", "", "p"), ("cancel booking", "result is None", "p"))
    for n, (name, state, kind) in enumerate(forward):
        d.box(20 + 180 * n, 44, 140, 54, name, state, kind=kind)
        if n:
            d.arrow(180 * n - 20, 71, 20 + 180 * n, 71)
    for n, (name, state, kind) in enumerate(back):
        d.box(20 + 180 * n, 150, 140, 54, name, *([state] if state else []), kind=kind)
        if n:
            d.arrow(20 + 180 * n, 177, 180 * n - 20, 177)
    d.arrow(630, 98, 524, 164)
    d.say(20, 28, "forward", "b")
    d.say(20, 136, "undo, in reverse order", "b")
    d.say(628, 176, "certainly nothing happened:", "m s")
    d.say(628, 194, "the first verdict wins", "m s")
    d.save()


def shapes() -> None:
    """Draw three ways to deploy."""
    d = Drawing("shapes", "Deployment shapes", 840, 290)
    for n, (name, cost) in enumerate((("inside", "n + 1"), ("together", "n + 2"), ("apart", "3n + 2"))):
        x = 16 + 276 * n
        d.say(x + 128, 28, name, "m b")
        d.say(x + 128, 276, f"{cost} commits for n steps", "m s")
        d.box(x + 68, 206, 120, 44, "store", kind="c")
    d.box(44, 60, 200, 90, "your program", "mg.Node: all roles", kind="g")
    d.arrow(144, 150, 144, 206)
    d.box(292, 60, 122, 90, "your program", "mg.Client", kind="g")
    d.box(426, 60, 122, 90, "makegood run", "all roles")
    d.arrow(353, 150, 395, 206)
    d.arrow(487, 150, 445, 206)
    roles = (
        ("your program", "mg.Client", "g"), ("scheduler", "two", ""),
        ("agents", "two per service", ""), ("supervisor", "two", ""),
    )  # fmt: skip
    for n, (name, role, kind) in enumerate(roles):
        d.box(568 + 134 * (n % 2), 44 + 66 * (n // 2), 122, 54, name, role, kind=kind)
    d.arrow(696, 168, 696, 206)
    d.save()


def brokers() -> None:
    """Draw the pattern with a broker at both ends."""
    d = Drawing("brokers", "A broker at both ends", 920, 312)
    for y, program, does, place, process, works in (
        (66, "your shop", "publishes", "orders", "inbox", "takes, commits, then acknowledges"),
        (216, "your reader", "knows repeats by id", "notices", "notifier", "sends until it is confirmed"),
    ):
        d.box(16, y, 136, 54, program, does, kind="g")
        d.box(206, y, 116, 54, place, "your broker", kind="y")
        d.box(390, y, 110, 54, process)
        d.say(445, y + 74, works, "m s")
    d.arrow(152, 93, 206, 93)
    d.arrow(322, 84, 390, 84, "take")
    d.arrow(390, 106, 322, 106)
    d.say(356, 120, "ack", "m s h")
    d.arrow(500, 93, 566, 93, "commit")
    d.arrow(566, 243, 500, 243, "read")
    d.arrow(390, 243, 322, 243, "send")
    d.arrow(206, 243, 152, 243)
    d.box(566, 40, 104, 240, "store", "queue, plans,", "steps, notices", kind="c")
    for y, role, does in (
        (40, "Scheduler", "decides the next step"),
        (132, "Supervisor", "finds what is silent"),
        (226, "Agent", "calls a remote service"),
    ):
        d.box(744, y, 160, 54, role, does)
        d.arrow(744, y + 20, 670, y + 20)
        d.arrow(670, y + 36, 744, y + 36)
    d.save()


def counters() -> None:
    """Draw which counter is inside which."""
    d = Drawing("counters", "What is counted inside what", 720, 250)
    rows = (
        ("task", "submission 1, 2, …", "begun again by an operator", "c"),
        ("step", "round 1, 2, …", "a new idempotency key", "g"),
        ("attempt", "attempt 1, 2, …", "same key, higher fencing token: mg.Recover", "y"),
        ("try", "try 1, 2, …", "same key, same token: mg.Retry", "p"),
    )
    for n, (name, count, what, kind) in enumerate(rows):
        d.box(20 + 28 * n, 16 + 44 * n, 680 - 56 * n, 222 - 50 * n, kind=kind)
        d.say(38 + 28 * n, 42 + 44 * n, name, "b")
        d.say(112 + 28 * n, 42 + 44 * n, count, "s")
        d.say(232 + 28 * n, 42 + 44 * n, what, "s")
    d.save()


def attempt() -> None:
    """Draw one attempt on a line of time."""
    d = Drawing("attempt", "One attempt", 740, 210)
    d.arrow(20, 120, 720, 120)
    for n, (x, w) in enumerate(((90, 110), (230, 110), (390, 130))):
        d.box(x, 74, w, 36, f"try {n + 1}", kind="g" if n < 2 else "y")
    for x, name, what in (
        (90, "taken", "commit before"),
        (520, "deadline", "complete_within"),
        (650, "verdict", "silent: in doubt"),
    ):
        d.parts.append(f'<line x1="{x}" y1="56" x2="{x}" y2="136" class="d"/>')
        d.say(x, 156, name, "m b")
        d.say(x, 174, what, "m s")
    d.box(521, 74, 128, 36, "patience", kind="p")
    d.say(305, 46, "mg.Retry: same key, same token, pauses that grow", "m s")
    d.say(650, 46, "then mg.Recover decides", "m s")
    d.say(305, 198, "a reply counts only up to the deadline", "m s")
    d.save()


def figures() -> list[tuple[str, int]]:
    """Return the steps per second with 500 tasks in flight, as the README's table has them, the highest first."""
    table = README.read_text(encoding="utf-8").partition("| steps/s |")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| (\w[^|]*?) \|(?:[^|]*\|){2} ([\d,]+) \|", table, re.MULTILINE)
    entries = [
        (re.sub(r" \(.*\)| with Redis", "", name), int(figure.replace(",", ""))) for name, figure in rows
    ]
    return sorted(entries, key=lambda row: -row[1])


def benchmark() -> None:
    """Draw the README's figures at 500 tasks in flight."""
    d = Drawing("benchmark", "Steps per second with 500 tasks in flight", 740, 240)
    d.say(20, 28, "steps per second, 500 tasks in flight (higher is better)", "b")
    rows = figures()
    for n, (name, figure) in enumerate(rows):
        y, wide = 50 + 36 * n, 440 * figure / rows[0][1]
        d.say(20, y + 18, name)
        d.box(220, y, wide, 26, kind="g" if name.startswith("makegood") else "c")
        d.say(228 + wide, y + 18, f"{figure:,}")
    d.save()


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for draw in (lifecycle, recovery, undo, shapes, brokers, counters, attempt, benchmark):
        draw()
