"""An election: one of three servers does the work, and when it steps down another goes on.

`run` is the whole life of a service: it campaigns, calls the function while this server leads, and
campaigns again when the lead was lost. It returns what the function returns, if it returns while it
still leads. Each server has a client of its own, as it would on a machine of its own.
"""

from __future__ import annotations

import os
import tempfile
import threading

from holdfast import Client, Lease


def serve(url: str, name: str, terms: list[str]) -> None:
    with Client(url, client_name=name) as locks:
        election = locks.election("scheduler", ttl=10)

        def lead(lease: Lease) -> str:
            leader = election.leader()
            assert leader is not None
            print(f"{leader.client} leads, term {lease.token}")
            terms.append(leader.client)
            for _ in range(3):
                if lease.lost.wait(0.1):  # a thread cannot be cancelled: it has to look
                    break
            return f"{name} has done its part"

        print(election.run(lead))


def main() -> None:
    terms: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        url = os.environ.get("HOLDFAST_URL") or f"sqlite://{folder}/locks.db"
        names = ("north", "south", "west")
        servers = [threading.Thread(target=serve, args=(url, name, terms)) for name in names]
        for server in servers:
            server.start()
        for server in servers:
            server.join()
    assert sorted(terms) == sorted(names)


if __name__ == "__main__":
    main()
