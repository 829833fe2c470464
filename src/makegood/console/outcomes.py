"""What became of an act, shown to the operator who asked for it: a toast beside the page, or, in a browser
without scripts, on the next page.

Without a script the browser is sent to the page that the act was about, and a signed cookie carries the
sentence there.
"""

from typing import Final, Literal, NamedTuple

import msgspec
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from makegood.console.refused_forms import refused_form
from makegood.console.render import Renderer, Shell
from makegood.console.sessions import Logins
from makegood.console.visits import Denied, Visit, Whence

COOKIE: Final = "makegood_said"
BY_SCRIPT: Final = "hx-request"
"""The header of a form that the page's script sends."""


class ActOutcome(NamedTuple):
    """What came of an act. ``tone``: "ok", "doubt" (not decided yet, or nothing to do) or "need"
    (refused).
    """

    tone: Literal["ok", "doubt", "need"]
    title: str
    text: str = ""
    back: str = "/"
    """The page that the act was about, below the console's own path."""
    status: int = 200


class Toast(NamedTuple):
    """A sentence on a page."""

    tone: str
    title: str
    text: str


class Outcomes:
    """Answers the browser after an act with what became of it."""

    def __init__(self, logins: Logins, renderer: Renderer) -> None:
        self._logins = logins
        self._renderer = renderer

    def respond(self, visit: Visit, outcome: ActOutcome) -> Response:
        """Answer an act: with a toast for the page's script, with the page for a browser without it.

        Raises ``Denied`` for a form that was refused if somebody typed into it: the answer holds that text.
        """
        if (
            outcome.tone == "need"
            and outcome.status >= 400
            and refused_form(visit.form, outcome.text) is not None
        ):
            raise Denied(outcome.status, outcome.title, outcome.text, back=outcome.back)
        toast = Toast(outcome.tone, outcome.title, outcome.text)
        if visit.request.headers.get(BY_SCRIPT):
            text = self._renderer.page(Shell(base=visit.origin.base), "toast.html", {"toast": toast})
            return HTMLResponse(text, outcome.status)
        response = RedirectResponse(visit.origin.base + outcome.back, 303)
        cookie = self._logins.sign("said", msgspec.json.encode(toast))
        response.set_cookie(visit.origin.cookie_name(COOKIE), cookie, max_age=60, **visit.origin.cookie)
        return response

    def take(self, request: Request, origin: Whence) -> Toast | None:
        """Return what the last act's answer left for this page to say."""
        body = self._logins.verify("said", request.cookies.get(origin.cookie_name(COOKIE), ""))
        return None if body is None else msgspec.json.decode(body, type=Toast)
