"""The overview: does anything need me, and is it making good as usual?"""

from collections.abc import Mapping
from typing import Any

from makegood.console.reads import Reads


async def context(reads: Reads, query: Mapping[str, str]) -> dict[str, Any]:  # noqa: ARG001 - every page's signature
    """Return what the page shows."""
    return {"alerts": [alert for alert in await reads.alerts() if alert.open], "now": await reads.now()}
