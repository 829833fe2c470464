"""Draw a terminal as an SVG: one screen, or a film of many. Readable in light and dark, whatever the reader's fonts."""

from collections.abc import Sequence
from html import escape
from typing import Final

from scripts.pictures.terminal import Drawn, Frame, Row, plain

_WIDE: Final = 8.4
_HIGH: Final = 18
_EDGE: Final = 14
_LIGHT: Final = ("#24292f", "#c2352b", "#18794e", "#8a6100", "#1f5fbf", "#7c3aa8", "#0f7285", "#57606a")
_DARK: Final = ("#8b949e", "#ff7b72", "#56d364", "#e3b341", "#79b8ff", "#c58af9", "#5cc8d7", "#c9d1d9")
_BRIGHT_MAGENTA: Final = ("#c2408f", "#ff9bd2")
_STYLE: Final = (
    'text{{font:14px ui-monospace,"DejaVu Sans Mono",Menlo,Consolas,monospace;fill:{ink};white-space:pre}}'
    ".k{{fill:{ground}}}.e{{stroke:{edge};fill:none}}.b{{font-weight:bold}}.d{{opacity:.6}}.i{{font-style:italic}}"
    ".o{{opacity:.2}}.u{{text-decoration:underline}}{colors}"
)


def _style() -> str:
    def colors(palette: Sequence[str], bright: str) -> str:
        plain_ones = "".join(f".c{n},.c{n + 8}{{fill:{color}}}" for n, color in enumerate(palette))
        return f"{plain_ones}.c13{{fill:{bright}}}"

    light = _STYLE.format(
        ink="#1f2937", ground="#f8fafc", edge="#d0d7de", colors=colors(_LIGHT, _BRIGHT_MAGENTA[0])
    )
    dark = _STYLE.format(
        ink="#e5e7eb", ground="#0f141c", edge="#30363d", colors=colors(_DARK, _BRIGHT_MAGENTA[1])
    )
    return f"{light}@media (prefers-color-scheme:dark){{{dark}}}"


def _row(row: Row) -> str:
    """Draw the pieces of one row; blocks are drawn as areas, since letters leave gaps."""
    elements: list[str] = []
    for column, text, style in row:
        x, wide = f"{column * _WIDE:.1f}", f"{len(text) * _WIDE:.1f}"
        kind = f' class="{style}"' if style else ""
        if set(text) <= {"█"} or set(text) <= {"░"}:
            kind = (style or "c7") if "█" in text else "c7 o"
            elements.append(f'<rect x="{x}" y="-13" width="{wide}" height="16" class="{kind}"/>')
        else:
            fit = f' textLength="{wide}"' if len(text) > 1 else ""
            elements.append(f'<text x="{x}"{kind}{fit}>{escape(text)}</text>')
    return "".join(elements)


def _open(title: str, rows: Drawn, width: float, height: float, style: str) -> list[str]:
    """Open the picture. What the last screen says can be read aloud."""
    return [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" width="{width:.0f}" role="img">',
        f"<title>{escape(title)}</title>",
        f"<desc>{escape(chr(10).join(plain(rows)))}</desc>",
        f"<style>{style}</style>",
        f'<rect class="k" width="{width:.0f}" height="{height}" rx="8"/>',
        f'<rect class="e" x=".5" y=".5" width="{width - 1:.0f}" height="{height - 1}" rx="8"/>',
    ]


def still(title: str, rows: Drawn, columns: int) -> str:
    """Return the picture of one screen."""
    width, height = columns * _WIDE + 2 * _EDGE, len(rows) * _HIGH + 2 * _EDGE
    elements = [
        f'<g transform="translate({_EDGE} {_EDGE + 13 + n * _HIGH})">{_row(row)}</g>'
        for n, row in enumerate(rows)
        if row
    ]
    return "\n".join([*_open(title, rows, width, height, _style()), *elements, "</svg>\n"])


def film(title: str, frames: Sequence[Frame], columns: int, lines: int, seconds: float) -> str:
    """Return a moving picture of ``seconds`` that begins again at its end. A row that stands in several frames is
    drawn once. Where motion is not wanted, the last frame stands still.
    """
    width, height = columns * _WIDE + 2 * _EDGE, lines * _HIGH + 2 * _EDGE
    places: dict[Row, int] = {}
    strip: list[str] = []
    moments: list[str] = []
    for n, frame in enumerate(frames):
        moments.append(f"{100 * frame.at / seconds:.2f}%{{transform:translateX(-{n * width:.1f}px)}}")
        uses = "".join(
            f'<use href="#r{places.setdefault(row, len(places))}" y="{13 + place * _HIGH}"/>'
            for place, row in enumerate(frame.rows[-lines:])
            if row
        )
        strip.append(f'<g transform="translate({n * width:.1f})">{uses}</g>')
    rows = [f'<g id="r{n}">{_row(row)}</g>' for row, n in places.items()]
    last = f"translateX(-{(len(frames) - 1) * width:.1f}px)"
    style = (
        f"{_style()}.f{{animation:f {seconds:.1f}s step-end infinite}}@keyframes f{{{''.join(moments)}}}"
        f"@media (prefers-reduced-motion:reduce){{.f{{animation:none;transform:{last}}}}}"
    )
    inner = width - 2 * _EDGE
    return "\n".join([
        *_open(title, frames[-1].rows, width, height, style),
        "<defs>", *rows, "</defs>",
        f'<svg x="{_EDGE}" y="{_EDGE}" width="{inner:.1f}" height="{lines * _HIGH}">', '<g class="f">', *strip, "</g>",
        "</svg>", "</svg>\n",
    ])  # fmt: skip
