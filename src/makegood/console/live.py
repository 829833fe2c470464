"""Live pages: names of the fragments that have changed, as server-sent events.

A page that somebody watches is drawn again when the store announces something, and at least every second, but
not before ten times as long as its last drawing took; equal pages of viewers of one role are drawn once. Its
elements with an ``id`` are compared with those of the last time, and the ids of those that differ are sent.
Relative times are left out of the comparison: the page's script keeps them.
"""

import asyncio
import contextlib
import hashlib
import logging
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Final, Literal, NamedTuple

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from makegood.base.cancelling import cancel_and_wait
from makegood.base.contexts import home_context
from makegood.base.pacing import event_within
from makegood.base.sizes import KIB
from makegood.client.client import Client
from makegood.console.drawing import COST, Cost, DrawingThread
from makegood.console.elements import Element, elements
from makegood.console.reads import Reads
from makegood.console.users import Role
from makegood.console.visits import ANONYMOUS, Denied, Route, Visit
from makegood.errors import MakegoodError, StoreError

log = logging.getLogger("makegood.console")

TOPICS: Final = ("pending", "sleeping", "queued", "inbox", "ended", "answers")
"""Topics on which the pages depend."""
QUICK: Final = 0.25
"""Seconds between two looks when the store announces something after a pause."""
STEADY: Final = 1.0
"""Seconds between two looks when it goes on doing so, and when it announces nothing."""
ALIVE: Final = 15.0
"""Seconds after which a silent stream shows that it is alive."""
LASTS: Final = 600.0
"""Seconds after which a stream ends; its page opens another, and is asked who it is again."""
MOST: Final = 100
"""Streams at the same time."""
MOST_OF_USER: Final = 10
"""Streams of one user; where nobody logs in, of one address."""
SLOW: Final = 15.0
"""Seconds within which a browser takes what a stream sends."""
LIVE_BYTES: Final = 320 * KIB
"""Characters of a page above which it is not live."""
RESTS: Final = 10
"""A page is not drawn again for so many times the CPU time of its last drawing."""

Page = tuple[str, str, Role, str]
"""A page's path and query string, the role that it is drawn for, and the path under which links begin."""
Watcher = tuple[str, str]
"""Whose a stream is: the user's name, and the address where nobody logs in."""
Draw = Callable[[str, str, Role, str], Awaitable[str]]
"""Draws such a page."""

_MOVING: Final = re.compile(
    # possessive, as nothing is won by going back, and a long tag without an end would take its length squared
    r'(<(?:span|b)[^<> ]*+(?: (?!data-(?:since|until)=")[^<> ]*+)*+) data-(?:since|until)="[^"]*+"([^<>]*+>)[^<]*+|'
    r' data-(?:since|ring)="[^"]*+"| data-left="[^"]*+"(?: width="[^"]*+")?|(?<=>)[^<>]*+(?=</time>)'
)
_UNWATCHED: Final = ("i-", "h-")


class PageLook(NamedTuple):
    """A page as it was last time: the hash of each element of its own, without those inside, and its
    parent.
    """

    whole: bytes
    parts: Mapping[str, tuple[bytes, str]]


def look_at(page: str, before: PageLook | None = None) -> PageLook:
    """Return what there is to compare of a page; ``before`` again if nothing has changed."""
    still = _MOVING.sub(r"\1\2", page)
    whole = hashlib.sha256(still.encode()).digest()
    if before is not None and whole == before.whole:
        return before
    return PageLook(whole, _parts(still))


def _parts(page: str) -> dict[str, tuple[bytes, str]]:
    """Return of each element with an id the hash of its own text, without those inside it, and its parent."""
    own: dict[str, list[Element]] = {}
    parts: dict[str, tuple[bytes, str]] = {}
    for element in elements(page, _UNWATCHED):
        texts, at = [], element.begin
        for inner in own.pop(element.id, ()):
            texts += [page[at : inner.begin], f"#{inner.id}"]
            at = inner.end
        texts.append(page[at : element.end])
        parts[element.id] = hashlib.sha256("".join(texts).encode()).digest(), element.parent
        own.setdefault(element.parent, []).append(element)
    return parts


def changes(before: PageLook, after: PageLook) -> tuple[str, ...]:
    """Return the ids of elements that have changed; one inside another that has changed is left out."""
    differ = {
        name
        for name, (text, _) in after.parts.items()
        if name not in before.parts or before.parts[name][0] != text
    }
    parents = {name: parent for name, (_, parent) in after.parts.items()}
    fresh = {name for name in differ if name not in before.parts}

    def is_inside_a_change(name: str) -> bool:
        while name := parents.get(name, ""):
            if name in differ:
                return True
        return False

    return tuple(
        name for name in after.parts if name in differ and name not in fresh and not is_inside_a_change(name)
    )


class Stream:
    """What one page is still to be told."""

    def __init__(self) -> None:
        self.names: dict[str, None] = {}
        self.away = False
        self.large = False
        """Whether the page has become too large to be live."""
        self.ended = False
        self.wake = asyncio.Event()

    def take(self) -> str:
        """Return the next event, "" for none."""
        self.wake.clear()
        if self.large:
            return "event: large\ndata: reload the page to see what has changed\n\n"
        if self.away:
            self.away = False
            return "event: away\ndata: the store does not answer\n\n"
        names, self.names = self.names, {}
        return f"event: changed\ndata: {','.join(names)}\n\n" if names else ""


class _Watched:
    """A page that is watched."""

    def __init__(self) -> None:
        self.streams: set[Stream] = set()
        self.look: PageLook | None = None
        self.due = 0.0
        """When it may be drawn again, on the loop's clock."""

    def mark(self, condition: Literal["away", "large", "ended"]) -> None:
        """Let all its streams know of a condition."""
        for stream in self.streams:
            setattr(stream, condition, True)
            stream.wake.set()


class LivePages:
    """Looks at the pages that are watched, and tells their streams what has changed."""

    def __init__(self, client: Client, reads: Reads, draw: Draw, thread: DrawingThread) -> None:
        self._client = client
        self._reads = reads
        self._draw = draw
        self._thread = thread
        self._pages: dict[Page, _Watched] = {}
        self.streams: Counter[Watcher] = Counter()
        """The streams of each user, those whose page is still being drawn included."""
        self.looking: asyncio.Task[None] | None = None
        self._news = asyncio.Event()
        self._closing = False
        self._context = home_context()  # not that of the first visitor's request

    def route(self) -> Route:
        """Return the route of the streams."""
        return Route(path="/events", role="viewer", kind="stream", respond=self.respond)

    async def respond(self, visit: Visit) -> Response:
        """Answer with a stream for the page that ``?page=`` names. Raises ``Denied`` if there are too
        many.
        """
        path, _, query = visit.query.get("page", "").partition("?")
        page = path, query, visit.visitor.role, visit.origin.base
        watcher = self._take_place(visit)  # before the page is drawn, which takes a while
        try:
            look, due = await self._look_at(page, None)
        except BaseException:
            self.leave_place(watcher)
            raise
        if look is None:
            self.leave_place(watcher)
            return Response(status_code=204)  # a browser does not ask again
        return EventStream(self, page, look, due, watcher)

    def _take_place(self, visit: Visit) -> Watcher:
        """Count one more stream, and return whose it is. Raises ``Denied`` if there are too many."""
        name = visit.visitor.name
        watcher = name, visit.origin.address if name == ANONYMOUS else ""
        if self._closing or self.streams.total() >= MOST:
            raise Denied(503, "Too many live pages", "Close some, or read without live updates.")
        if self.streams[watcher] >= MOST_OF_USER:
            text = f"{name} has {MOST_OF_USER} live pages. Close some, or read without live updates."
            raise Denied(429, "Too many live pages", text)
        self.streams[watcher] += 1
        return watcher

    def leave_place(self, watcher: Watcher) -> None:
        """Count one stream less."""
        self.streams[watcher] -= 1
        if not self.streams[watcher]:
            del self.streams[watcher]

    async def _look_at(self, page: Page, before: PageLook | None) -> tuple[PageLook | None, float]:
        """Draw a page. Return what there is to compare of it, None if it is too large to be live, and when it
        may be drawn again.
        """
        cost = Cost()
        token = COST.set(cost)
        try:
            html = await self._draw(*page)
            large = len(html) > LIVE_BYTES
            look = None if large else await self._thread.run(lambda: look_at(html, before))
        finally:
            COST.reset(token)
        return look, asyncio.get_running_loop().time() + RESTS * cost.seconds

    @contextlib.contextmanager
    def watching(self, page: Page, look: PageLook, due: float) -> Iterator[Stream]:
        """Watch a page, which looks like this now and is not drawn before ``due``, with a stream."""
        watch = self._pages.setdefault(page, _Watched())
        watch.look, watch.due = watch.look or look, max(watch.due, due)
        watch.streams.add(stream := Stream())
        if self.looking is None or self.looking.done():
            self.looking = asyncio.get_running_loop().create_task(
                self._look_on(), name="console live", context=self._context.copy()
            )
        try:
            yield stream
        finally:
            watch.streams.discard(stream)
            if not watch.streams and self._pages.get(page) is watch:
                del self._pages[page]
            self._news.set()

    def end(self) -> None:
        """End all streams: the process is about to end."""
        self._closing = True
        for watch in self._pages.values():
            watch.mark("ended")
        self._news.set()

    async def close(self) -> None:
        """Wait until nobody looks any more."""
        self.end()
        await cancel_and_wait(self.looking)

    async def _look_on(self) -> None:
        """Look at the pages for as long as somebody watches one."""
        stops = [self._client.store.subscribe(topic, self._news.set) for topic in TOPICS]
        busy = False
        try:
            while self._pages and not self._closing:
                await asyncio.sleep(STEADY if busy else QUICK)
                busy = await event_within(self._news, 0 if busy else STEADY - QUICK)
                self._news.clear()
                self._reads.forget()
                for page, watch in list(self._pages.items()):
                    if asyncio.get_running_loop().time() >= watch.due:
                        await self._look(page, watch)
        finally:
            for stop in stops:
                stop()

    async def _look(self, page: Page, watch: _Watched) -> None:
        before = watch.look
        try:
            watch.look, watch.due = await self._look_at(page, before)
        except StoreError:
            watch.mark("away")
            return
        except MakegoodError as error:
            log.debug("a live page cannot be drawn any more: %s", error)
            return
        except Exception:
            log.exception("a live page cannot be drawn")
            return
        if watch.look is None:
            watch.mark("large")
            return
        if before is None or before is watch.look:
            return
        for name in changes(before, watch.look):
            for stream in watch.streams:
                stream.names[name] = None
                stream.wake.set()


class EventStream(Response):
    """Sends a stream until its page is closed."""

    def __init__(self, live: LivePages, page: Page, look: PageLook, due: float, watcher: Watcher) -> None:
        super().__init__(media_type="text/event-stream", headers={"x-accel-buffering": "no"})
        del self.headers["content-length"]
        self._live = live
        self._page = page
        self._look = look
        self._due = due
        self._who = watcher

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send events, at most four a second, and comments in between."""
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            with self._live.watching(self._page, self._look, self._due) as stream:
                departure = asyncio.ensure_future(_wait_for_departure(Request(scope, receive)))
                departure.add_done_callback(lambda _: stream.wake.set())
                try:
                    await self._send_all(stream, send, departure)
                finally:
                    await cancel_and_wait(departure)
            if not stream.ended:
                with contextlib.suppress(OSError):
                    await send({"type": "http.response.body", "body": b"", "more_body": False})
        except TimeoutError:
            log.debug("a stream ends: its browser reads nothing")
        finally:
            self._live.leave_place(self._who)

    async def _send_all(self, stream: Stream, send: Send, departure: asyncio.Future[None]) -> None:
        text, end = "retry: 2000\n\n: live\n\n", asyncio.get_running_loop().time() + LASTS
        while True:
            if text:
                async with asyncio.timeout(SLOW):
                    await send({"type": "http.response.body", "body": text.encode(), "more_body": True})
            if stream.large:
                return
            text = stream.take() if await event_within(stream.wake, ALIVE) else ": alive\n\n"
            if stream.ended or departure.done() or asyncio.get_running_loop().time() > end:
                return


async def _wait_for_departure(request: Request) -> None:
    """Wait until the browser has left."""
    while (await request.receive())["type"] != "http.disconnect":
        continue
