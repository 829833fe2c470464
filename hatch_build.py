"""The README of a built package: its relative links are absolute, for an index shows the page alone.

The repository is ``Source`` of ``[project.urls]``. Without that entry the links stay as they are.
"""

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

LINK = re.compile(r"(?P<image>!?)\[(?P<text>[^\]]*)\]\((?P<target>[^)\s]+)\)")
ELSEWHERE = ("#", "http://", "https://", "mailto:")


def with_absolute_links(page: str, repository: str) -> str:
    """Return the Markdown ``page`` with its relative links made absolute: they lead into ``repository``."""

    def absolute(link: re.Match[str]) -> str:
        if link["target"].startswith(ELSEWHERE):
            return link[0]
        kind = "raw" if link["image"] else "blob"
        return f"{link['image']}[{link['text']}]({repository.rstrip('/')}/{kind}/HEAD/{link['target']})"

    parts = re.split(r"(^```.*?^```$)", page, flags=re.MULTILINE | re.DOTALL)
    return "".join(part if part.startswith("```") else LINK.sub(absolute, part) for part in parts)


class ReadmeHook(MetadataHookInterface):
    """Fills in ``readme``, which pyproject.toml declares dynamic."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Put the README's text into ``metadata``."""
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        repository = metadata.get("urls", {}).get("Source")
        if repository:
            text = with_absolute_links(text, repository)
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
