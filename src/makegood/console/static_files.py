"""The console's own files, such as its style sheet: read once, and served under the hash of their content."""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from starlette.responses import Response

from makegood.console.security_headers import FOREVER
from makegood.console.visits import Denied, Visit

FOLDER: Final = Path(__file__).parent / "static"
_KINDS: Final = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


@dataclass(frozen=True, slots=True)
class StaticFile:
    """A file in memory."""

    hash: str
    kind: str
    body: bytes


class StaticFiles:
    """All files of a folder that a page may load, by name."""

    def __init__(self, folder: Path = FOLDER) -> None:
        self._files = {
            path.relative_to(folder).as_posix(): StaticFile(
                hashlib.sha256(body := path.read_bytes()).hexdigest()[:16], _KINDS[path.suffix], body
            )
            for path in sorted(folder.rglob("*"))
            if path.suffix in _KINDS
        }

    def path(self, name: str) -> str:
        """Return the path of a file, below the console's own."""
        return f"/static/{self._files[name].hash}/{name}"

    def find(self, hash: str, name: str) -> StaticFile | None:  # noqa: A002 - what it is
        """Return a file; None if there is none of that name and hash."""
        file = self._files.get(name)
        return file if file is not None and file.hash == hash else None

    async def respond(self, visit: Visit) -> Response:
        """Answer with a file. Raises ``Denied`` if there is none of that name and hash."""
        if (file := self.find(visit.params["hash"], visit.params["file"])) is None:
            raise Denied(404, "Not found", "There is no such file.")
        return Response(file.body, media_type=file.kind, headers={"cache-control": FOREVER})
