"""The report of ``make bench-scale``: what was measured, what the model says of the same rows, and of larger machines."""

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.forecast import Costs, Machines, Network, fitted, limit
from benchmarks.table import lines

Run = Mapping[str, Any]

LARGER = tuple(
    Machines(cores, trip=0.0005, flush=flush, bandwidth=250e6)
    for cores, flush in ((8, 0.001), (16, 0.001), (32, 0.001), (16, 0.002))
)
_ENGINES = (1, 2, 4, 8, 16)
_FLIGHTS = (250, 1000)
"""Tasks in flight for each process, when larger machines are asked for what they can."""
_NEAR = 0.9
"""The smallest fleet that does so much of what the best one does is shown."""


def report(document: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the tables and the model's figures, from what ``scale`` has measured."""
    machine, runs = document["machine"], document["runs"]
    shapes = list(dict.fromkeys(run["shape"] for run in runs))
    wakes = [run["listener_server_us"] for run in runs if run.get("listeners")]
    wake = wakes[0] / 1e6 if wakes else 0.0
    parts = [
        _about(machine),
        "## Measured",
        "",
        *_measured([run for run in runs if not run.get("listeners")]),
    ]
    model: dict[str, Any] = {"wake_us": wake * 1e6, "costs": {}, "compared": [], "larger": []}
    parts += ["", "What backends were at, on average, in the largest flight:", "", *_waits(runs)]
    if wakes:
        parts += ["", f"A notification costs the server {wake * 1e6:.0f} µs for each process that listens."]
    if any("server_us" not in run for run in runs):
        parts += ["", "The server is not on this machine: its CPU is not known, and nothing is predicted."]
        return "\n".join(parts) + "\n", model
    costs = {}
    for shape in shapes:
        alone = [
            run
            for run in runs
            if run["shape"] == shape and run["processes"] == 1 and not run.get("listeners")
        ]
        if len({run["flight"] for run in alone}) > 1:
            costs[shape] = fitted(shape, sorted(alone, key=lambda run: run["flight"]), wake)
    model["costs"] = {shape: _told(cost) for shape, cost in costs.items()}
    parts += ["", "## Costs", "", *_costs(costs)]
    comparison = _compared(
        costs, machine, [run for run in runs if not run.get("listeners")], document["settings"]
    )
    model["compared"] = comparison
    parts += ["", "## The model beside it", "", *_comparison(comparison)]
    quick = document["settings"].get("quick", False)
    model["larger"] = larger = _larger(
        costs, LARGER[:1] if quick else LARGER, _FLIGHTS[:1] if quick else _FLIGHTS
    )
    parts += ["", "## Larger machines", "", *_predictions(larger)]
    return "\n".join(parts) + "\n", model


def _about(machine: Mapping[str, Any]) -> str:
    low, high = machine["load"]
    flush = machine["flush_ms"]
    disk = "" if flush is None else f", a flush takes {flush[0]:.2f} ms (99th percentile {flush[1]:.2f})"
    alone, with_notify = machine["commits_abreast"]
    return (
        f"{machine['cores']} cores, PostgreSQL {machine['postgres']}, Python {machine['python']}{disk}, "
        f"an empty commit {machine['commit_ms']:.2f} ms, load {low:g} to {high:g}\n"
        f"\nEight connections that commit an empty record at once: {alone:,.0f} commits/s, {with_notify:,.0f} when each notifies.\n"
    )


def _measured(runs: Sequence[Run]) -> list[str]:
    head = [
        "shape", "processes", "in flight", "tasks/s", "spread", "p50 ms", "p99 ms", "client µs/step", "server µs/step",
        "commits/task", "commits/s", "flushes/s", "WAL B/step", "connections", "MiB", "foreign cores",
    ]  # fmt: skip
    body = []
    for run in runs:
        rates = run["rates"]
        body.append([
            run["shape"], f"{run['processes']:.0f}", f"{run['flight']:.0f}", f"{run['tasks_per_second']:,.0f}",
            f"{(max(rates) - min(rates)) / run['tasks_per_second']:.0%}", f"{run['p50_ms']:.1f}", f"{run['p99_ms']:.1f}",
            " + ".join(f"{value:.0f}" for value in run["client_us"].values()),
            f"{run['server_us']:.0f}" if "server_us" in run else "–", f"{run['commits_per_task']:.2f}",
            f"{run['commits_per_second']:,.0f}", f"{run.get('flushes_per_second', 0):,.0f}", f"{run['wal_bytes_per_step']:,.0f}",
            " + ".join(f"{value:.1f}" for value in run["connections"].values()),
            " + ".join(f"{value:.0f}" for value in run["memory_mib"].values()),
            f"{run['foreign_cores']:.2f}" if "foreign_cores" in run else "–",
        ])  # fmt: skip
    return lines(head, body)


def _waits(runs: Sequence[Run]) -> list[str]:
    most = max(run["flight"] for run in runs)
    body = [
        [
            f"{run['shape']}, {run['processes']:.0f}",
            ", ".join(f"{what} {n:.2f}" for what, n in run["waits"].items()),
        ]
        for run in runs
        if run["flight"] == most
    ]
    return lines(["shape, processes", "backends"], body)


def _told(costs: Costs) -> dict[str, Any]:
    return {
        "client": {kind: [cost.fixed, cost.each] for kind, cost in costs.client.items()},
        "server": {kind: [cost.fixed, cost.each] for kind, cost in costs.server.items()},
        "wal_bytes": costs.wal_bytes,
    }


def _costs(costs: Mapping[str, Costs]) -> list[str]:
    body = [
        [
            f"{shape}: {kind}",
            f"{cost.client[kind].fixed * 1e6:.0f}", f"{cost.client[kind].each * 1e6:.0f}",
            f"{cost.server[kind].fixed * 1e6:.0f}", f"{cost.server[kind].each * 1e6:.0f}",
        ]
        for shape, cost in costs.items() for kind in cost.client
    ]  # fmt: skip
    head = ["CPU in µs", "client: a batch", "each in it", "server: a batch", "each in it"]
    return lines(head, body)


def _here(machine: Mapping[str, Any], run: Run) -> Machines:
    """Return this machine as the model takes it. How long the disk took is told for each run, as it changes from minute to minute."""
    return Machines(
        machine["cores"], beside=True, trip=0.00005, flush=run.get("flush_ms", machine["commit_ms"]) / 1000
    )


def _compared(
    costs: Mapping[str, Costs], machine: Mapping[str, Any], runs: Sequence[Run], settings: Mapping[str, Any]
) -> list[dict[str, Any]]:
    comparison = []
    for run in runs:
        shape = run["shape"]
        if shape not in costs:
            continue
        processes, flight = int(run["processes"]), int(run["flight"])
        here = _here(machine, run)
        network = Network(costs[shape], here, processes, flight, submitters=settings["submitters"])
        forecast = network.run(rounds=30.0, warm=3.0)
        comparison.append({
            "shape": shape, "processes": processes, "flight": flight, "fitted": processes == 1,
            "measured": run["tasks_per_second"], "measured_p50_ms": run["p50_ms"], **forecast,
            "error": forecast["tasks_per_second"] / run["tasks_per_second"] - 1,
            "error_p50": forecast["p50_ms"] / run["p50_ms"] - 1 if run["p50_ms"] else 0.0,
        })  # fmt: skip
    return comparison


def _comparison(comparison: Sequence[Run]) -> list[str]:
    head = [
        "shape", "processes", "in flight", "measured tasks/s", "model", "error", "measured p50 ms", "model p50", "error p50", "costs from here",
    ]  # fmt: skip
    body = [
        [
            row["shape"], f"{row['processes']}", f"{row['flight']}", f"{row['measured']:,.0f}", f"{row['tasks_per_second']:,.0f}",
            f"{row['error']:+.0%}", f"{row['measured_p50_ms']:.1f}", f"{row['p50_ms']:.1f}", f"{row['error_p50']:+.0%}",
            "yes" if row["fitted"] else "no",
        ]
        for row in comparison
    ]  # fmt: skip
    unseen = [row for row in comparison if not row["fitted"]]
    text = []
    if unseen:
        errors = sorted(abs(row["error"]) for row in unseen)
        text = [
            "",
            f"Of rows that the model was told nothing of, the error in tasks/s is {errors[len(errors) // 2]:.0%} in the median, {errors[-1]:.0%} at most.",
        ]
    return lines(head, body) + text


def _larger(
    costs: Mapping[str, Costs], several: Sequence[Machines], flights: Sequence[int]
) -> list[dict[str, Any]]:
    """Predict, for each machine, shape and flight, rising numbers of processes, up to where more bring less than a twentieth."""
    rows: list[dict[str, Any]] = []
    for shape, cost in costs.items():
        for machines in several:
            for flight in flights:
                best = 0.0
                for processes in _ENGINES:
                    submitters = processes if shape == "apart" else max(1, processes // 2)
                    network = Network(cost, machines, processes, processes * flight, submitters=submitters)
                    figures = network.run(rounds=6.0)
                    rows.append({
                        "shape": shape, "cores": machines.cores, "flush_ms": machines.flush * 1000, "processes": processes,
                        "submitters": 0 if shape == "inside" else submitters, "flight": processes * flight, "each": flight,
                        **figures, "first": _first(figures), "bounds": limit(cost, machines, processes),
                    })  # fmt: skip
                    if figures["tasks_per_second"] < best * 1.05:
                        break
                    best = figures["tasks_per_second"]
    return rows


def _first(figures: Mapping[str, float]) -> str:
    """Return what was busiest: what would limit first."""
    names = {
        "server_cpu": "server's CPU", "disk": "disk", "notify_lock": "notify lock", "busiest_process": "a process of makegood",
    }  # fmt: skip
    most = max(names, key=lambda name: figures[name])
    return f"{names[most]} {figures[most]:.0%}"


def _predictions(larger: Sequence[Run]) -> list[str]:
    head = [
        "shape", "server's cores", "flush ms", "in flight each", "processes", "tasks/s", "p50 ms", "p99 ms", "commits/s",
        "server's CPU", "busiest",
    ]  # fmt: skip
    body = []
    cells = dict.fromkeys((row["shape"], row["cores"], row["flush_ms"], row["each"]) for row in larger)
    for cell in cells:
        rows = [row for row in larger if (row["shape"], row["cores"], row["flush_ms"], row["each"]) == cell]
        most = max(row["tasks_per_second"] for row in rows)
        row = next(row for row in rows if row["tasks_per_second"] >= most * _NEAR)
        body.append([
            row["shape"], f"{row['cores']}", f"{row['flush_ms']:g}", f"{row['each']}", f"{row['processes']}",
            f"{row['tasks_per_second']:,.0f}", f"{row['p50_ms']:.0f}", f"{row['p99_ms']:.0f}", f"{row['commits_per_second']:,.0f}",
            f"{row['server_cpu']:.0%}", row["first"],
        ])  # fmt: skip
    text = (
        "Predictions, not measurements: the server alone on its machine, processes with a core each elsewhere, 0.5 ms of round trip, "
        f"a disk of 250 MB/s, processors as fast as here. The smallest fleet that does {_NEAR:.0%} of what the best one does."
    )
    return [text, "", *lines(head, body)]
