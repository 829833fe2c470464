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
        return self.form(visit.request, visit.origin, visit.query.get("next", ""))

    async def enter(self, visit: Visit) -> Response:
        """Log a user in. An unknown name and a wrong password get the same answer, after the same time."""
        self._require_login_page()
        request, origin, after = visit.request, visit.origin, _inside(visit.field("next"))
        if self._access.token is not None:
            if not self._access.is_token(visit.field("token")):
                return self.form(request, origin, after, "That is not the token.")
            return self._enter(request, origin, HOLDER, after)
        name = visit.field("user")
        try:
            user = await self._access.authenticate(name, visit.form.get("password", ""), origin.address)
        except TooManyAttemptsError as error:
            retry = {"retry-after": str(math.ceil(error.wait))}
            return self.form(
                request, origin, after, str(error), status=error.status, user=name, headers=retry
            )
        if user is None:
            return self.form(request, origin, after, _REFUSED, status=401, user=name)
        return self._enter(request, origin, user.name, after)

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
            return self._enter(request, origin, HOLDER, after)
        return None if self._access.login(request, origin) is None else _redirect(origin, after)

    def _enter(self, request: Request, origin: Whence, name: str, after: str) -> Response:
        """Send a browser on with the cookie of a new login; the one that it replaces ends."""
        if (before := self._access.login(request, origin)) is not None:
            self._access.logins.end(before)
        response = _redirect(origin, after)
        cookie = self._access.cookie(name)
        response.set_cookie(origin.cookie_name(COOKIE), cookie, max_age=round(LASTS), **origin.cookie)
        return response

    async def leave(self, visit: Visit) -> Response:
        """Log the user out: the cookie is no longer valid, wherever else it is kept."""
        if (login := self._access.login(visit.request, visit.origin)) is not None:
            self._access.logins.end(login)
        response = RedirectResponse(f"{visit.origin.base}/login", 303)
        response.delete_cookie(visit.origin.cookie_name(COOKIE), **visit.origin.cookie)
        return response

    def _require_login_page(self) -> None:
        if not self._access.has_login and self._access.token is None:
            raise Denied(404, "Not found", "This console has no login page of its own.")

    def form(
        self,
        request: Request,
        origin: Whence,
        after: str,
        message: str = "",
        *,
        status: int = 200,
        user: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> Response:
        """Answer with the login form. While the token is missing, it says where to find it and has a field
        for it.
        """
        hint = ""
        if self._access.token is not None:
            hint, status = str(self._access.token_needed(request)), 401
        context = {"said": message, "next": _inside(after), "user": user, "token": hint}
        shell = Shell(base=origin.base, theme=theme_of(request))
        return HTMLResponse(self._renderer.page(shell, "login.html", context), status, headers)


def _redirect(origin: Whence, after: str) -> Response:
    return RedirectResponse(origin.base + after, 303, {"referrer-policy": "no-referrer"})


def _inside(path: str) -> str:
    r"""Return a path of this console; the root for the address of another site.

    >>> _inside("/tasks?q=a"), _inside("//evil.example"), _inside("/\\evil.example"), _inside("https://evil.example")
    ('/tasks?q=a', '/', '/', '/')
    """
    inside = path.startswith("/") and not path.startswith("//") and path.isprintable() and "\\" not in path
    return path if inside else "/"
