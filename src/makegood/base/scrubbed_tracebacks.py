"""Tracebacks of log lines without the secrets in them: a line of the user's code may hold a password, and so
may the text of a library's error.

    log.addFilter(SCRUBBED_TRACEBACKS)
"""

import logging
from typing import Final

from makegood.base.secret_names import without_secrets
from makegood.base.text import storable_text


class _ScrubbedTracebacks(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        """Write the record's traceback, for all formatters: ``logging`` keeps it in ``exc_text``."""
        if record.exc_info and not record.exc_text:
            text = logging.Formatter().formatException(record.exc_info)
            record.exc_text = without_secrets(storable_text(text))
        return True


SCRUBBED_TRACEBACKS: Final = _ScrubbedTracebacks()
"""For each logger of ours whose lines may have tracebacks of the user's code. It drops no record."""
