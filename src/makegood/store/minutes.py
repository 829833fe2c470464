"""Figures per minute: the leading Supervisor adds up what Schedulers publish with their heartbeats."""

from collections.abc import Sequence

import msgspec

from makegood.base.ids import first_of
from makegood.store.oversight_records import BUCKETS, MinuteFigures, bucket_end
from makegood.store.refusals import trim_refusals
from makegood.store.transaction import ReadTx, Sql, Tx
from makegood.store.views import SchedulerTally

MINUTE = 60.0
KEPT = 86_400.0
"""Seconds that figures are kept."""

MOST_SUBMITTED = 1_000_000
"""Submissions of one minute that are counted."""

_COLUMNS = "minute, seen, submitted, processed, undone, errors, steps, latencies"
_ONE = Sql(f"select {_COLUMNS} from makegood.minute where minute = $1")  # noqa: S608 - our own columns
_SINCE = Sql(f"""
select {_COLUMNS} from makegood.minute where minute > ({{now}} - $1::float8) / 60 - 1 order by minute limit 1440
""")  # noqa: S608 - our own columns
_SUBMITTED = Sql("""
select count(*) from (select 1 from makegood.task where id >= $1 and id < $2 limit $3) t
""")
_PUT = Sql(f"""
insert into makegood.minute ({_COLUMNS}) values ($1, $2, $3, $4, $5, $6, $7, $8)
on conflict (minute) do update set seen = excluded.seen, submitted = excluded.submitted, processed = excluded.processed,
    undone = excluded.undone, errors = excluded.errors, steps = excluded.steps, latencies = excluded.latencies
""")  # noqa: S608 - our own columns
_TRIM = Sql("delete from makegood.minute where minute < ({now} - $1::float8) / 60")
_read = msgspec.json.Decoder(tuple[int, ...]).decode


async def add_minute(tx: Tx, minute: int, seen: float, tally: SchedulerTally) -> None:
    """Add to the figures of a minute (since 1970), of which ``seen`` seconds were observed.

    Counts the tasks whose ids were drawn in it, and removes what is too old.
    """
    (submitted,) = (
        await tx.rows(_SUBMITTED, first_of(minute * MINUTE), first_of((minute + 1) * MINUTE), MOST_SUBMITTED)
    )[0]
    sums = [tally.processed, tally.undone, tally.errors, tally.steps]
    latencies = list(tally.latencies)
    for _, before, _, *counts, data in await tx.rows(_ONE, minute):
        seen = min(MINUTE, seen + before)
        sums = [one + other for one, other in zip(sums, counts, strict=True)]
        latencies = summed(latencies, _read(data))
    await tx.run(_PUT, minute, seen, submitted, *sums, msgspec.json.encode(latencies))
    await tx.run(_TRIM, KEPT)
    await trim_refusals(tx)


def summed(one: Sequence[int], other: Sequence[int]) -> list[int]:
    """Add up buckets; a missing one is empty."""
    longest = max(len(one), len(other))
    padded = [[*each, *[0] * (longest - len(each))] for each in (one, other)]
    return [a + b for a, b in zip(*padded, strict=True)]


async def minutes(tx: ReadTx, since: float = 3600.0) -> list[MinuteFigures]:
    """Return the figures of each minute of the last ``since`` seconds, oldest first.

    Of a minute in which nobody led, there are none. They are kept for a day.
    """
    found: list[MinuteFigures] = []
    for minute, *figures, data in await tx.rows(_SINCE, since):
        latencies = _read(data)
        ends = quantile(latencies, 0.5), quantile(latencies, 0.95)
        found.append(MinuteFigures(minute * MINUTE, *figures, *ends))  # type: ignore[call-arg]  # a row's columns
    return found


def quantile(latencies: Sequence[int], share: float) -> float | None:
    """Return the seconds below which this share is, or None if all buckets are empty.

    Within a bucket the values are taken to be spread evenly, as Prometheus' ``histogram_quantile`` does.

    >>> quantile([0, 4], 0.5) == (bucket_end(0) + bucket_end(1)) / 2, quantile([], 0.5)
    (True, None)
    """
    passed, wanted = 0, share * sum(latencies)
    for n, count in enumerate(latencies[:BUCKETS]):
        if count and passed + count >= wanted:
            begin = bucket_end(n - 1) if n else 0.0
            return begin + (bucket_end(n) - begin) * (wanted - passed) / count
        passed += count
    return None
