"""A member as a process: ``preference_process.py ALGORITHM ME MEMBERS`` (JSON: addresses by name); it prints whom it takes for the leader."""

import asyncio
import json
import sys

from makegood.election.preference import Bully, LowestId, Ring, TcpTransport


async def main(algorithm: str, me: str, members: dict[str, str]) -> None:
    """Take part until killed."""
    kind = {"lowest": LowestId, "bully": Bully, "ring": Ring}[algorithm]
    async for leader in kind(TcpTransport(me, members), interval=0.2).leaders():
        print(json.dumps(leader), flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], json.loads(sys.argv[3])))
