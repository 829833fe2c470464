"""Figures per minute: the leading Supervisor adds up what Schedulers publish with their heartbeats."""

from collections.abc import Sequence

import msgspec

from makegood.base import stored_values
from makegood.base.ids import first_of
from makegood.base.stored_values import record_of
from makegood.payload.codec import UNREADABLE
from makegood.store.oversight_records import BUCKETS, MinuteFigures, bucket_end
from makegood.store.refusals import trim_refusals
from makegood.store.transaction import ReadTx, Sql, Tx
from makegood.store.views import SchedulerTally

MINUTE = 60.0
KEPT = 86_400.0
"""Seconds that figures are kept."""

_MOST_COUNT = 1 << 40
"""If a bucket counts more, the buckets of its row are not believed: makegood has not written them."""
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
_decode = msgspec.json.Decoder(tuple[int, ...]).decode


async def add_minute(tx: Tx, minute: int, duration: float, tally: SchedulerTally) -> None:
    """Add to the figures of a minute (since 1970), of which ``duration`` seconds were observed.

    Counts the tasks whose ids were drawn in it, and removes what is too old.
    """
    (task_count,) = (
        await tx.rows(_SUBMITTED, first_of(minute * MINUTE), first_of((minute + 1) * MINUTE), MOST_SUBMITTED)
    )[0]
    sums = [tally.processed, tally.undone, tally.errors, tally.steps]
    latencies = list(tally.latencies)
    for _, before, _, *counts, data in await tx.rows(_ONE, minute):
        duration = min(MINUTE, duration + max(0.0, stored_values.seconds(before)))
        sums = [total + stored_values.whole(increment) for total, increment in zip(sums, counts, strict=True)]
        latencies = sum_buckets(latencies, _read(data))
    await tx.run(_PUT, minute, duration, task_count, *sums, msgspec.json.encode(latencies))
    await tx.run(_TRIM, KEPT)
    await trim_refusals(tx)


def _read(data: object) -> tuple[int, ...]:
    """Return the buckets of a row; none if they cannot be read."""
    try:
        buckets = _decode(stored_values.data(data))
    except UNREADABLE:
        return ()
    return buckets if len(buckets) <= BUCKETS and all(0 <= count < _MOST_COUNT for count in buckets) else ()


def sum_buckets(first: Sequence[int], second: Sequence[int]) -> list[int]:
    """Add up buckets; a missing one is empty."""
    longest = max(len(first), len(second))
    columns = [[*buckets, *[0] * (longest - len(buckets))] for buckets in (first, second)]
    return [a + b for a, b in zip(*columns, strict=True)]


async def minutes(tx: ReadTx, since: float = 3600.0) -> list[MinuteFigures]:
    """Return the figures of each minute of the last ``since`` seconds, oldest first.

    Of a minute in which nobody led, there are none. They are kept for a day.
    """
    result: list[MinuteFigures] = []
    for minute, *figures, data in await tx.rows(_SINCE, since):
        latencies = _read(data)
        quantiles = quantile(latencies, 0.5), quantile(latencies, 0.95)
        result.append(
            record_of(MinuteFigures, (stored_values.seconds(minute) * MINUTE, *figures, *quantiles))
        )
    return result


def quantile(latencies: Sequence[int], share: float) -> float | None:
    """Return the seconds below which this share (0 to 1) of the latencies is; None if all buckets are empty.

    Within a bucket the values are taken to be spread evenly, as Prometheus' ``histogram_quantile`` does.

    >>> quantile([0, 4], 0.5) == (bucket_end(0) + bucket_end(1)) / 2, quantile([], 0.5)
    (True, None)
    """
    cumulative, target = 0, share * sum(latencies)
    for n, count in enumerate(latencies[:BUCKETS]):
        if count and cumulative + count >= target:
            begin = bucket_end(n - 1) if n else 0.0
            return begin + (bucket_end(n) - begin) * (target - cumulative) / count
        cumulative += count
    return None
