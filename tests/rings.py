"""The rings of the suite: what `make check`, `make test` and `make proof` run. `docs/internals/proofs.md` says what each of them proves.

A test belongs to the ring of the longest entry that its id begins with, a folder, a file or a test.
"""

CHECK, TEST, PROOF = RINGS = ("check", "test", "proof")

RING_OF = {
    "unit": CHECK,
    "house": CHECK,
    "actors": TEST,
    "actors/test_outages.py::test_an_outage_that_six_processes_meet_undoes_nothing": PROOF,
    "actors/test_schedule_years.py": PROOF,
    "actors/test_schedule_years.py::test_a_year_of_schedules_is_what_cron_itself_would_do[Australia/Lord_Howe]": TEST,
    "conformance": TEST,
    "browser": PROOF,
    "browser/test_screens.py::test_the_first_screen_opens": TEST,
    "console": TEST,
    "console/test_api_examined.py": PROOF,
    "console/test_ladder_plans.py": PROOF,
    "console/test_large_tasks.py::test_pages_cost_the_same_statements_whatever_the_task": PROOF,
    "console/test_hostile_rows.py": PROOF,
    "console/test_hostile_rows.py::test_every_table_at_once[sqlite]": TEST,
    "console/test_hostile_rows.py::test_invisible_characters_are_shown_as_such": TEST,
    "conformance/test_fuzzed_rows.py": PROOF,
    "conformance/test_task_excerpts.py::test_statements_are_counted": PROOF,
    "brokers": PROOF,
    "docs": TEST,
    "docs/test_election_howto.py": PROOF,
    "docs/test_messages_howto.py::test_a_shop_learns_every_outcome_while_its_processes_are_killed": PROOF,
    "docs/test_messages_howto.py::test_the_listener_outlives_an_outage_of_the_database": PROOF,
    "docs/test_breaker_outages.py": PROOF,
    "docs/test_proof_howto.py": PROOF,
    "docs/test_rabbitmq_howto.py": PROOF,
    "docs/test_recorded_pictures.py": PROOF,
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
    "chaos": PROOF,
    "election": PROOF,
    "example": PROOF,
    "models": PROOF,
    "replicas": PROOF,
}


def ring_of(nodeid: str) -> str:
    """Return the ring of a test; one in a folder without an entry is in `make test`.

    >>> ring_of("tests/unit/test_ids.py::test_ids_rise")
    'check'
    """
    name = nodeid.removeprefix("tests/")
    entries = [entry for entry in RING_OF if name == entry or name.startswith(_beginning(entry))]
    return RING_OF[max(entries, key=len)] if entries else TEST


def _beginning(entry: str) -> str:
    """Return what the ids of an entry's tests begin with: a folder's go on with a slash, a file's with two colons."""
    if "::" in entry:
        return f"{entry}["
    return f"{entry}::" if entry.endswith(".py") else f"{entry}/"
