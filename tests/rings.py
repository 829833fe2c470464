"""The rings of the suite: what `make check`, `make test`, `make proof` and `make nightly` run. `docs/internals/proofs.md` says what each of
them proves.

A test belongs to the ring of the longest entry that its id begins with: a folder, a file, a test, or a test with the first of its
parameters.
"""

CHECK, TEST, PROOF, NIGHTLY = RINGS = ("check", "test", "proof", "nightly")

RING_OF = {
    "unit": CHECK,
    "house": CHECK,
    "actors": TEST,
    "actors/test_outages.py::test_an_outage_that_six_processes_meet_undoes_nothing": PROOF,
    "actors/test_schedule_years.py": PROOF,
    "actors/test_schedule_years.py::test_a_year_of_schedules_is_what_cron_itself_would_do[Australia/Lord_Howe]": TEST,
    "actors/test_schedule_years.py::test_a_year_of_schedules_is_what_cron_itself_would_do[America/Winnipeg]": NIGHTLY,
    "actors/test_schedule_years.py::test_a_year_of_schedules_is_what_cron_itself_would_do[America/Vancouver]": NIGHTLY,
    "actors/test_schedule_years.py::test_a_year_of_schedules_is_what_cron_itself_would_do[Europe/Berlin]": NIGHTLY,
    "conformance": TEST,
    "browser": PROOF,
    "browser/test_screens.py::test_the_first_screen_opens": TEST,
    "console": TEST,
    "console/test_api_examined.py": PROOF,
    "console/test_ladder_plans.py": PROOF,
    "console/test_large_tasks.py::test_pages_cost_the_same_statements_whatever_the_task": PROOF,
    "console/test_hostile_rows.py": PROOF,
    "console/test_hostile_rows.py::test_every_table_at_once[sqlite]": TEST,
    "console/test_hostile_rows.py::test_no_value_of_a_column_stops_a_command[postgres]": NIGHTLY,
    "console/test_hostile_rows.py::test_no_value_of_a_column_stops_a_page[postgres]": NIGHTLY,
    "console/test_hostile_rows.py::test_invisible_characters_are_shown_as_such": TEST,
    "conformance/test_fuzzed_rows.py": PROOF,
    "conformance/test_task_excerpts.py::test_statements_are_counted": PROOF,
    "brokers": PROOF,
    "brokers/test_orders.py::test_each_order_is_one_task_and_each_notice_comes_in_order[kafka-tansu]": PROOF,
    "docs": TEST,
    "docs/test_cloud_orders_howto.py": PROOF,
    "docs/test_election_howto.py": PROOF,
    "docs/test_messages_howto.py::test_a_shop_learns_every_outcome_while_its_processes_are_killed": PROOF,
    "docs/test_messages_howto.py::test_the_listener_outlives_an_outage_of_the_database": PROOF,
    "docs/test_breaker_outages.py": PROOF,
    "docs/test_proof_howto.py": PROOF,
    "docs/test_rabbitmq_howto.py": PROOF,
    "docs/test_recorded_pictures.py": PROOF,
    "docs/test_site.py::test_the_site_builds_without_a_warning": PROOF,
    "docs/test_breaker_howto.py": PROOF,
    "docs/test_tutorial.py": PROOF,
    "doors": TEST,
    "doors/test_grants.py": PROOF,
    "doors/test_grants.py::test_a_storm_with_a_role_for_each_process_ends_right": TEST,
    "doors/test_rate.py": PROOF,
    "doors/test_read_only_users.py": PROOF,
    "postgres": TEST,
    "postgres/test_pooling.py": PROOF,
    "submission": TEST,
    "telemetry": TEST,
    "telemetry/test_traces_sent.py::test_one_trace_over_all_processes_linked_across_a_death": PROOF,
    "typing": TEST,
    "processes": PROOF,
    "processes/test_agents.py::test_agent_killed_after_the_effect": TEST,
    "processes/test_inboxes.py::test_inboxes_killed_around_their_transactions": TEST,
    "processes/test_schedulers.py::test_scheduler_killed_after_the_claim": TEST,
    "processes/test_supervisors.py::test_supervisor_killed_in_mid_pass": TEST,
    "simulation": PROOF,
    "simulation/test_world.py::test_storms_over_everything": TEST,
    "benchmarks": PROOF,
    "benchmarks/test_console_cost.py::test_a_tiny_run_asks_every_page_and_lets_viewers_watch[sqlite]": NIGHTLY,
    "chaos": PROOF,
    "election": PROOF,
    "example": PROOF,
    "example/test_demo.py::test_ended_in_the_middle_it_leaves_no_process_behind[2-sqlite]": NIGHTLY,
    "example/test_demo.py::test_ended_in_the_middle_it_leaves_no_process_behind[9-sqlite]": NIGHTLY,
    "models": PROOF,
    "replicas": PROOF,
}


SELDOM_RIGS = (
    "rabbitmq-classic",
    "nats-2.9",
    "valkey",
    "servicebus",
    "azure-queue",
    "sqs",
    "kafka-tansu",
    "kafka-real",
)
"""Rigs whose suites belong to `make nightly`: they take minutes, and their kin, or a file of their own, is in `make proof`."""


def ring_of(nodeid: str) -> str:
    """Return the ring of a test; one in a folder without an entry is in `make test`.

    >>> ring_of("tests/unit/test_ids.py::test_ids_rise")
    'check'
    """
    name = nodeid.removeprefix("tests/")
    if (
        name.startswith("brokers/")
        and name not in RING_OF
        and any(rig in name.partition("[")[2] for rig in SELDOM_RIGS)
    ):
        return NIGHTLY
    entries = [entry for entry in RING_OF if name == entry or name.startswith(_beginning(entry))]
    return RING_OF[max(entries, key=len)] if entries else TEST


def rings_in(file: str) -> set[str]:
    """Return the rings that tests of a file may belong to; ``file``: its path from tests/.

    >>> sorted(rings_in("example/test_demo.py")), rings_in("example/test_waits.py")
    (['nightly', 'proof'], {'proof'})
    """
    seldom = {NIGHTLY} if file.startswith("brokers/") else set()
    return seldom | {
        ring_of(f"{file}::"),
        *(ring for entry, ring in RING_OF.items() if entry.startswith(f"{file}::")),
    }


def _beginning(entry: str) -> str:
    """Return what the ids of an entry's tests begin with: a folder's go on with a slash, a file's with two colons, a test's with its
    parameters, and those with the rest of them.
    """
    if "[" in entry:
        return f"{entry.removesuffix(']')}-"
    if "::" in entry:
        return f"{entry}["
    return f"{entry}::" if entry.endswith(".py") else f"{entry}/"
