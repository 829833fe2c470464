"""Chromium, driven by its own protocol over a pipe: pages are opened, read, keyed and pictured; what it complains of is kept.

The browser is MAKEGOOD_CHROMIUM, or Debian's. It loads nothing but what a test asks for.
"""

import base64
import fcntl
import json
import multiprocessing.connection
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

FLAGS: Final = (
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-default-apps", "--disable-extensions", "--mute-audio",
    "--disable-dev-shm-usage", "--force-color-profile=srgb", "--hide-scrollbars", "--remote-debugging-pipe",
)  # fmt: skip
PATIENCE: Final = 60.0
"""Seconds that an answer may take on a busy machine."""
KEYS: Final = {"Tab": 9, "Enter": 13, "Escape": 27, " ": 32}
"""Keys that are no characters, or have a code of their own."""
LISTEN: Final = """
window.refusedByPolicy = [];
document.addEventListener("securitypolicyviolation", e => refusedByPolicy.push(`${e.violatedDirective} ${e.blockedURI}`));
"""


class ChromiumError(Exception):
    """The browser failed, or did not answer."""


def found() -> str | None:
    """Return the browser's program, None if there is none."""
    program = os.environ.get("MAKEGOOD_CHROMIUM", "")
    return program if program and Path(program).exists() else shutil.which("chromium")


@contextmanager
def chromium(program: str) -> Iterator["Chromium"]:
    """Run a browser with a profile of its own."""
    folder = tempfile.mkdtemp(prefix="makegood-chromium-")
    browser = Chromium(program, folder)
    try:
        yield browser
    finally:
        browser.close()
        shutil.rmtree(folder, ignore_errors=True)


def _high(end: int) -> int:
    """Return the end of a pipe under a number that no other use has."""
    duplicate = fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 20)
    os.close(end)
    return duplicate


class Chromium:
    """A running browser."""

    def __init__(self, program: str, folder: str) -> None:
        theirs, self._out = map(_high, os.pipe())
        self._in, answers = map(_high, os.pipe())
        home = {"HOME": folder, "PATH": os.environ.get("PATH", ""), "LANG": "C.UTF-8"}
        null = _high(os.open(os.devnull, os.O_RDWR))  # not 3 or 4, which become others
        self._pid = os.posix_spawn(
            program, [program, *FLAGS, f"--user-data-dir={folder}/profile", "about:blank"], home,
            file_actions=[
                (os.POSIX_SPAWN_DUP2, theirs, 3), (os.POSIX_SPAWN_DUP2, answers, 4),
                (os.POSIX_SPAWN_DUP2, null, 1), (os.POSIX_SPAWN_DUP2, null, 2),
            ], setpgroup=0,
        )  # fmt: skip
        for end in (theirs, answers, null):
            os.close(end)
        self._read = b""
        self._number = 0
        self.events: list[dict[str, Any]] = []

    def call(self, method: str, session: str | None = None, **params: Any) -> dict[str, Any]:
        """Call a method of the protocol and return its result."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if session is not None:
            message["sessionId"] = session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.hear()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise ChromiumError(f"{method}: {answer['error']['message']}")
                result: dict[str, Any] = answer["result"]
                return result
            self.events.append(answer)

    def hear(self) -> dict[str, Any]:
        """Return the next message."""
        while b"\0" not in self._read:
            ready = multiprocessing.connection.wait([self._in], PATIENCE)
            more = os.read(self._in, 1 << 20) if ready else b""
            if not more:
                raise ChromiumError("the browser does not answer")
            self._read += more
        text, _, self._read = self._read.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        return message

    def page(self) -> "Page":
        """Open a tab."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        return Page(self, self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"])

    def close(self) -> None:
        """End the browser and all its processes."""
        with suppress(ChromiumError, OSError):
            self.call("Browser.close")
        with suppress(ProcessLookupError):
            os.killpg(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)
        os.close(self._in)
        os.close(self._out)


class Page:
    """A tab."""

    def __init__(self, browser: Chromium, session: str) -> None:
        self._browser = browser
        self._session = session
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")
        self.call("Page.addScriptToEvaluateOnNewDocument", source=LISTEN)

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Call a method of the protocol for this tab."""
        return self._browser.call(method, self._session, **params)

    def look(self, *, width: int, height: int = 900, scheme: str = "light", scale: float = 1.0) -> None:
        """Set the size of the window and the colour scheme of the system."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=scale,
            mobile=False,
        )
        features = [
            {"name": "prefers-color-scheme", "value": scheme},
            {"name": "prefers-reduced-motion", "value": "reduce"},
        ]
        self.call("Emulation.setEmulatedMedia", features=features)

    def open(self, url: str) -> None:
        """Open an address, and wait until it is loaded."""
        self._browser.events.clear()
        answer = self.call("Page.navigate", url=url)
        if answer.get("errorText"):
            raise ChromiumError(f"{url}: {answer['errorText']}")
        self.loaded()

    def heard(self) -> None:
        """Forget what was heard: a page is about to be loaded."""
        self._browser.events.clear()

    def close(self) -> None:
        """Close the tab."""
        with suppress(ChromiumError):
            self.call("Page.close")

    def loaded(self) -> None:
        """Wait until the page that is under way is loaded."""
        while not any(
            e.get("method") == "Page.loadEventFired" and e.get("sessionId") == self._session
            for e in self._browser.events
        ):
            self._browser.events.append(self._browser.hear())

    def run(self, script: str) -> Any:
        """Return what an expression evaluates to; a promise is awaited."""
        answer = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in answer:
            details = answer["exceptionDetails"]
            raise ChromiumError(details.get("exception", {}).get("description") or details["text"])
        return answer["result"].get("value")

    def press(self, key: str) -> None:
        """Press and release a key."""
        code = KEYS.get(key, ord(key.upper()) if len(key) == 1 else 0)
        text = {"Enter": "\r"}.get(key, key if len(key) == 1 else "")
        both = {"key": key, "windowsVirtualKeyCode": code, "nativeVirtualKeyCode": code}
        self.call("Input.dispatchKeyEvent", type="keyDown", text=text, **both)
        self.call("Input.dispatchKeyEvent", type="keyUp", **both)

    def write(self, text: str) -> None:
        """Write into what has the focus."""
        self.call("Input.insertText", text=text)

    def complaints(self) -> list[str]:
        """Return what the browser's console and the content policy said since the page was opened."""
        texts = [str(one) for one in self.run("window.refusedByPolicy") or []]
        for event in self._browser.events:
            params = event.get("params", {})
            if event.get("method") == "Log.entryAdded":
                texts.append(params["entry"]["text"])
            elif event.get("method") == "Runtime.consoleAPICalled":
                texts.append(
                    " ".join(str(arg.get("value", arg.get("description"))) for arg in params["args"])
                )
            elif event.get("method") == "Runtime.exceptionThrown":
                texts.append(params["exceptionDetails"]["text"])
        return texts

    def picture(self, path: Path) -> None:
        """Save a picture of the whole page."""
        screenshot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(screenshot["data"]))
