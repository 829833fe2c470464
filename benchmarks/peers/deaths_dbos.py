"""DBOS for ``benchmarks.deaths``: a workflow of one step, in a process that is killed and started again."""

import os
import sys
import time
from pathlib import Path

from dbos import DBOS, SetWorkflowID

LONG = 600.0


@DBOS.step()
def work(folder: str) -> None:
    """Note the beginning; the first time, take long."""
    file = Path(folder, "begun")
    with file.open("a", encoding="utf-8") as notes:
        notes.write(f"{os.getpid()} {time.monotonic()}\n")
    if len(file.read_text(encoding="utf-8").splitlines()) == 1:
        time.sleep(LONG)


@DBOS.workflow()
def once(folder: str) -> None:
    """One step."""
    work(folder)


if __name__ == "__main__":
    place = sys.argv[1]
    DBOS(
        config={
            "name": "deaths", "system_database_url": f"sqlite:///{place}/dbos.db", "log_level": "CRITICAL",
            "application_version": "deaths", "executor_id": "deaths",
        }
    )  # fmt: skip
    DBOS.launch()
    if sys.argv[2] == "first":
        with SetWorkflowID("once"):
            DBOS.start_workflow(once, place)
    print("ready", flush=True)
    time.sleep(LONG)
