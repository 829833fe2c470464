"""The login page of the console's own users, or of its token, and logging out."""

import math
from collections.abc import Mapping
from typing import Final
from urllib.parse import parse_qsl, urlencode

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from makegood.console.access import HOLDER, Access, TooManyAttemptsError
from makegood.console.render import Renderer, Shell, theme_of
from makegood.console.sessions import COOKIE, LASTS
from makegood.console.visits import Denied, Visit, Whence

_REFUSED: Final = "The name or the password is wrong."


class LoginPages:
    """Logs users in and out."""

    def __init__(self, access: Access, renderer: Renderer) -> None:
        self._access = access
        self._renderer = renderer

    async def show(self, visit: Visit) -> Response:
        """Answer with the login form."""
        self._require_login_page()
        if self._access.token is not None:
            return self.token_form(visit.request, visit.origin, visit.query.get("next", ""))
        return self._form(visit, visit.query.get("next", ""))

    async def enter(self, visit: Visit) -> Response:
        """Log a user in. An unknown name and a wrong password get the same answer, after the same time."""
        self._require_login_page()
        if self._access.token is not None:
            return self._enter_by_token(visit)
        credentials = visit.field("user"), visit.form.get("password", ""), visit.origin.address
        try:
            user = await self._access.proved(*credentials)
        except TooManyAttemptsError as error:
            return self._form(
                visit, visit.field("next"), str(error), error.status, retry=math.ceil(error.wait)
            )
        if user is None:
            return self._form(visit, visit.field("next"), _REFUSED, 401)
        return self._entered(visit.request, visit.origin, user.name, _inside(visit.field("next")))

    def _enter_by_token(self, visit: Visit) -> Response:
        after = _inside(visit.field("next"))
        if not self._access.is_token(visit.field("token")):
            return self.token_form(visit.request, visit.origin, after, "That is not the token.")
        return self._entered(visit.request, visit.origin, HOLDER, after)

    def by_link(self, request: Request, origin: Whence, path: str) -> Response | None:
        """Log in whoever opens the printed address: its token gives a cookie, and leaves the address.

        None: there is no token in the address, or it is wrong and nobody is logged in.
        """
        query = parse_qsl(request.url.query, keep_blank_values=True)
        tokens = [value for name, value in query if name == "token"]
        if self._access.token is None or not tokens:
            return None
        remainder = urlencode([(name, value) for name, value in query if name != "token"])
        after = _inside(path) + (f"?{remainder}" if remainder else "")
        if self._access.is_token(tokens[-1]):
            return self._entered(request, origin, HOLDER, after)
        return None if self._access.login(request, origin) is None else _led(origin, after)

    def _entered(self, request: Request, origin: Whence, name: str, after: str) -> Response:
        """Send a browser on with the cookie of a new login; the one that it replaces ends."""
        if (before := self._access.login(request, origin)) is not None:
            self._access.logins.end(before)
        response = _led(origin, after)
        cookie = self._access.cookie(name)
        response.set_cookie(origin.named(COOKIE), cookie, max_age=round(LASTS), **origin.cookie)
        return response

    async def leave(self, visit: Visit) -> Response:
        """Log the user out: the cookie is no longer valid, wherever else it is kept."""
        if (login := self._access.login(visit.request, visit.origin)) is not None:
            self._access.logins.end(login)
        response = RedirectResponse(f"{visit.origin.base}/login", 303)
        response.delete_cookie(visit.origin.named(COOKIE), **visit.origin.cookie)
        return response

    def _require_login_page(self) -> None:
        if not self._access.has_login and self._access.token is None:
            raise Denied(404, "Not found", "This console has no login page of its own.")

    def _form(
        self, visit: Visit, after: str, message: str = "", status: int = 200, retry: int = 0
    ) -> Response:
        context = {"said": message, "next": _inside(after), "user": visit.field("user"), "token": ""}
        headers = {"retry-after": str(retry)} if retry else {}
        return self._page(visit.request, visit.origin, context, status, headers)

    def token_form(self, request: Request, origin: Whence, after: str, message: str = "") -> Response:
        """Answer whoever has not shown the token: where it is, and a field to paste it into."""
        hint = str(self._access.token_needed(request))
        context = {"said": message, "next": _inside(after), "user": "", "token": hint}
        return self._page(request, origin, context, 401, {})

    def _page(
        self,
        request: Request,
        origin: Whence,
        context: Mapping[str, str],
        status: int,
        headers: Mapping[str, str],
    ) -> Response:
        shell = Shell(base=origin.base, theme=theme_of(request))
        return HTMLResponse(self._renderer.page(shell, "login.html", context), status, headers)


def _led(origin: Whence, after: str) -> Response:
    return RedirectResponse(origin.base + after, 303, {"referrer-policy": "no-referrer"})


def _inside(path: str) -> str:
    r"""Return a path of this console; the root for the address of another site.

    >>> _inside("/tasks?q=a"), _inside("//evil.example"), _inside("/\\evil.example"), _inside("https://evil.example")
    ('/tasks?q=a', '/', '/', '/')
    """
    inside = path.startswith("/") and not path.startswith("//") and path.isprintable() and "\\" not in path
    return path if inside else "/"
