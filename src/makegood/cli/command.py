"""Commands, as their help shows them: examples below the options, and the shared options only once."""

from collections.abc import Mapping, Sequence
from typing import Any

import click

from makegood.base.sizes import LARGEST

EXAMPLES: Mapping[str, Sequence[str]] = {
    "run": (
        "makegood run orders:shop",
        "makegood run orders:shop --store postgresql://app@db/app --listen 0.0.0.0:9464",
    ),
    "scheduler": ("makegood scheduler --store postgresql://app@db/app",),
    "agent": ("makegood agent orders:shop payments stock", "makegood agent orders:shop payments --slots 50"),
    "supervisor": ("makegood supervisor --listen 0.0.0.0:9464", "makegood supervisor --once"),
    "inbox": (
        "makegood inbox orders:shop",
        "makegood inbox orders:shop --from postgresql://app@db/shop",
        "makegood inbox --from postgresql://app@db/shop --ddl",
    ),
    "console": (
        "makegood console",
        "makegood console --store postgresql://app@db/app --console 0.0.0.0:8640",
        "makegood console --hash-password ann --role operator",
    ),
    "demo": ("makegood demo", "makegood demo --orders 200 --kills 10 --postgres"),
    "task submit": (
        """makegood task submit orders:place_order '{"id": "o-1", "cents": 990}' --key o-1""",
        "makegood task submit orders:place_order @order.json --wait --timeout 1m",
        "makegood task submit orders:remind @order.json --delay 2h",
    ),
    "task list": (
        "makegood task list state:error",
        "makegood task list workflow:place_order since:1d",
    ),
    "task show": ("makegood task show 01j5zk3v8x2ab", "makegood task show 01j5zk3v8x2ab --json"),
    "task watch": ("makegood task watch 01j5zk3v8x2ab --timeout 5m",),
    "task follow": ("makegood task follow correlation:2026-11-28 --expect 300 --timeout 6h",),
    "task history": ("makegood task history 01j5zk3v8x2ab --follow",),
    "task cancel": (
        'makegood task cancel 01j5zk3v8x2ab --reason "ordered twice"',
        "makegood task cancel --state pending --workflow place_order --dry-run",
    ),
    "task undo": (
        "makegood task undo 01j5zk3v8x2ab --preview",
        "makegood task undo --state error --older 1h --yes",
    ),
    "task resubmit": (
        "makegood task resubmit 01j5zk3v8x2ab --wait",
        """makegood task resubmit 01j5zk3v8x2ab --step charge --input '{"cents": 900}'""",
    ),
    "task extend": (
        'makegood task extend 01j5zk3v8x2ab --by 2h --reason "the carrier answers again at six"',
    ),
    "task wake": ('makegood task wake 01j5zk3v8x2ab --reason "the customer cannot wait"',),
    "task signal": (
        """makegood task signal 01j5zk3v8x2ab approval '{"yes": true}' --reason "she said so on the phone\"""",
        "makegood task signal travel approval @answer.json --key trip-7 --id mail-4711",
        """makegood task signal chat message '"hello"' --key chat-7 --id m-1 --until reply --timeout 30s""",
    ),
    "task settle": (
        'makegood task settle 01j5zk3v8x2ab --step charge --undone --reason "refunded by hand, receipt 4711"',
    ),
    "lane list": ("makegood lane list", "makegood lane list --app shop --json"),
    "lane show": ("makegood lane show ada",),
    "lane release": ('makegood lane release 01j5zk3v8x2ab --reason "the others may continue"',),
    "queue list": ("makegood queue list", "makegood queue list orders --dead"),
    "queue send": (
        """makegood queue send orders '{"id": "o-1"}' --id o-1""",
        "makegood queue send orders @order.json",
    ),
    "queue receive": (
        "makegood queue receive replies --follow",
        "makegood queue receive replies --max 10 --no-ack",
    ),
    "queue ack": ("makegood queue ack replies 17.1",),
    "queue replay": ("makegood queue replay orders o-1", "makegood queue replay orders --all"),
    "queue drop": ("makegood queue drop orders o-1", "makegood queue drop orders --all --waiting"),
    "notices list": ("makegood notices list --dead",),
    "notices retry": ("makegood notices retry 01j5zk3v8x2ab", "makegood notices retry --all"),
    "notices drop": ("makegood notices drop 01j5zk3v8x2ab",),
    "broker list": ("makegood broker list", "makegood broker list --json"),
    "broker check": (
        "makegood broker check",
        "makegood broker check amqp:main/orders --to amqp:main/notices",
    ),
    "broker permissions": (
        "makegood broker permissions amqp:main/orders --to notices",
        "makegood broker permissions kafka://localhost:9092 --from orders",
    ),
    "schedule list": ("makegood schedule list", "makegood schedule list --app shop --json"),
    "schedule show": ("makegood schedule show nightly",),
    "schedule apply": ("makegood schedule apply orders:shop",),
    "schedule pause": ("makegood schedule pause nightly --for 2h --reason 'the bank is away'",),
    "schedule resume": ("makegood schedule resume nightly",),
    "schedule trigger": ("makegood schedule trigger nightly --reason 'the report is missing'",),
    "schedule backfill": ("makegood schedule backfill nightly --since 2026-11-01 --until 2026-11-08",),
    "schedule delete": ("makegood schedule delete nightly",),
    "schedule next": (
        "makegood schedule next '30 2 * * *' --timezone Europe/Berlin",
        "makegood schedule next '0 9 * * MON-FRI' --timezone America/Vancouver --from 2026-10-30 --count 3 --json",
    ),
    "agents": ("makegood agents", "makegood agents --all --json"),
    "leader": ("makegood leader", "makegood leader reports --past --store sqlite:///leases.db"),
    "election run": (
        "makegood election run backup --store sqlite:///leases.db --wait 20s -- backup.sh /srv",
    ),
    "alerts": ("makegood alerts", 'makegood alerts --ack 7 --reason "on it"', "makegood alerts --test"),
    "audit": ("makegood audit --limit 20", "makegood audit --task 01j5zk3v8x2ab"),
    "doctor": ("makegood doctor", "makegood doctor --strict --json"),
    "check": ("makegood check orders:shop",),
    "store migrate": ("makegood store migrate --plan", "makegood store migrate"),
    "store grants": ("makegood store grants --role agent --agent shop/payments | psql",),
    "store status": ("makegood store status",),
    "store check": ("makegood store check",),
    "store prune": ("makegood store prune --older 90d --dry-run", "makegood store prune --older 90d"),
    "store restored": ('makegood store restored --reason "backup of Monday"',),
}
"""What one would type, by command."""


class Command(click.Command):
    """A command whose help ends with examples."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the words of a call; the error for an option without its value shows the value's form."""
        try:
            return super().parse_args(ctx, args)
        except click.BadOptionUsage as wrong:
            option = next((param for param in self.params if wrong.option_name in param.opts), None)
            if option is not None and wrong.message.endswith("requires an argument."):
                text = f"{wrong.message[:-1]}: {wrong.option_name} {option.make_metavar(ctx)}"
                raise click.BadOptionUsage(wrong.option_name, text, ctx) from wrong
            raise

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples, and where the options of every command are described."""
        super().format_epilog(ctx, formatter)
        with formatter.section("Examples"):
            for line in EXAMPLES.get(ctx.command_path.partition(" ")[2], ()):
                formatter.write(f"{'':{formatter.current_indent}}{line}\n")
        formatter.write_paragraph()
        formatter.write_text(
            "Every command also takes --store, --require-tls, --json, --color and --debug: `makegood --help`."
        )


class SharedOption(click.Option):
    """An option of every command: only the help of ``makegood`` itself describes it."""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """Return what the help says of it."""
        return super().get_help_record(ctx) if ctx.parent is None else None


class Whole(click.ParamType[int]):
    """A whole number, from ``least`` to ``most``: what a store can hold if no limit is given."""

    name = "n"

    def __init__(self, least: int, most: int | None = None) -> None:
        self.least, self.most = least, most

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the number; anything else is a usage error."""
        text = str(value)
        number = int(text) if len(text) < 20 and text.removeprefix("-").isdecimal() else None
        most = LARGEST if self.most is None else self.most
        if number is None or not self.least <= number <= most:
            range_ = (
                f"of at least {self.least}" if self.most is None else f"from {self.least} to {self.most:,}"
            )
            self.fail(f"{text!r} is not a whole number {range_}", param, ctx)
        return number
