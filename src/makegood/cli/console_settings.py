"""The console that the settings describe."""

from makegood.cli.settings import CliSettings
from makegood.console.options import DEFAULT, ConsoleOptions


def console_options(settings: CliSettings) -> ConsoleOptions:
    """Return where the console listens and who may use it. Raises ``ConfigError``."""
    return ConsoleOptions(
        listen=settings.console or DEFAULT,
        users=settings.console_users,
        proxies=settings.console_proxies,
        user_header=settings.console_user_header,
        role=settings.console_role,
        base=settings.console_base,
        secret=settings.console_secret,
        insecure=settings.console_insecure,
        trace_url=settings.console_trace_url,
    )
