"""The login page of the console's own users, and logging out."""

import math
from typing import Final

from starlette.responses import HTMLResponse, RedirectResponse, Response

from makegood.console.access import Access, TooManyAttemptsError
from makegood.console.render import Renderer, Shell, theme_of
from makegood.console.sessions import COOKIE, LASTS
from makegood.console.visits import Denied, Visit

_REFUSED: Final = "The name or the password is wrong."


class LoginPages:
    """Logs users in and out."""

    def __init__(self, access: Access, renderer: Renderer) -> None:
        self._access = access
        self._renderer = renderer

    async def show(self, visit: Visit) -> Response:
        """Answer with the login form."""
        self._require_login_page()
        return self._form(visit, visit.query.get("next", ""))

    async def enter(self, visit: Visit) -> Response:
        """Log a user in. An unknown name and a wrong password get the same answer, after the same time."""
        self._require_login_page()
        given = visit.field("user"), visit.form.get("password", ""), visit.origin.address
        try:
            user = await self._access.proved(*given)
        except TooManyAttemptsError as many:
            return self._form(visit, visit.field("next"), str(many), many.status, retry=math.ceil(many.wait))
        if user is None:
            return self._form(visit, visit.field("next"), _REFUSED, 401)
        response = RedirectResponse(visit.origin.base + _inside(visit.field("next")), 303)
        response.set_cookie(
            COOKIE,
            self._access.logins.cookie(user.name),
            max_age=round(LASTS),
            **visit.origin.cookie,
        )
        return response

    async def leave(self, visit: Visit) -> Response:
        """Log the user out: the cookie is no longer valid, wherever else it is kept."""
        if (login := self._access.login(visit.request)) is not None:
            self._access.logins.end(login)
        response = RedirectResponse(f"{visit.origin.base}/login", 303)
        response.delete_cookie(COOKIE, **visit.origin.cookie)
        return response

    def _require_login_page(self) -> None:
        if not self._access.has_login:
            raise Denied(404, "Not found", "This console has no login page of its own.")

    def _form(self, visit: Visit, after: str, said: str = "", status: int = 200, retry: int = 0) -> Response:
        shell = Shell(base=visit.origin.base, theme=theme_of(visit.request))
        context = {"said": said, "next": _inside(after), "user": visit.field("user")}
        headers = {"retry-after": str(retry)} if retry else {}
        return HTMLResponse(self._renderer.page(shell, "login.html", context), status, headers)


def _inside(path: str) -> str:
    r"""Return a path of this console; the root for the address of another site.

    >>> _inside("/tasks?q=a"), _inside("//evil.example"), _inside("/\\evil.example"), _inside("https://evil.example")
    ('/tasks?q=a', '/', '/', '/')
    """
    inside = path.startswith("/") and not path.startswith("//") and path.isprintable() and "\\" not in path
    return path if inside else "/"
