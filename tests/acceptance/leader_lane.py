"""One election among real processes, whose leader is killed, stopped, cut off or asked to resign.

Each candidate is `workers/leader.py` behind a proxy of its own. What they write down is one history; who
leads, and who stands by, is asked of the store.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from crew import PATIENCE, Crew, Member, wait_until
from redis_desk import proxied

from fencelock import Client
from fencelock.testing import Event, History, HistoryFile, TCPProxy, boottime, pause, resume

TTL = 2.0
MOST = 3 * TTL + PATIENCE / 2
"""A fail-over takes about a ttl; a busy machine may add to it."""


class Candidate(NamedTuple):
    client: str
    member: Member
    proxy: TCPProxy
    url: str


class Loss(NamedTuple):
    kind: str
    client: str
    at: float
    took: float


class Lane:
    """One election and its candidates."""

    def __init__(self, url: str, name: str, path: Path, stack: ExitStack) -> None:
        self._url = url
        self.name = name
        self._stack = stack
        self._crew = stack.enter_context(Crew())
        self.locks = stack.enter_context(Client(url))
        self._diary = stack.enter_context(HistoryFile(path))
        self._lines = stack.enter_context(path.open())
        self._rest = ""
        self._granted: list[Event] = []
        self._candidates: dict[str, Candidate] = {}
        self._count = 0
        self.losses: list[Loss] = []

    def stand(self, *more: str, away: bool = False) -> Candidate:
        """Let one more candidate stand, behind a proxy of its own, which may refuse it at first."""
        proxy, url = self._stack.enter_context(proxied(self._url))
        if away:
            proxy.refuse()
        return self._start(proxy, url, *more)

    def _start(self, proxy: TCPProxy, url: str, *more: str) -> Candidate:
        self._count += 1
        client = f"{self.name}-{self._count}"
        flavour = "blocking" if self._count % 2 else "asyncio"
        arguments = url, self.name, client, self._diary.path, TTL, flavour
        member = self._crew.start("leader", *arguments, *more, name=client)
        self._candidates[client] = Candidate(client, member, proxy, url)
        return self._candidates[client]

    def history(self) -> History:
        return History.load(self._diary.path)

    def _grants(self) -> list[Event]:
        """Return the beginnings of leaderships so far."""
        for line in self._lines:
            self._rest += line
            if self._rest.endswith("\n"):
                event = Event.from_json(self._rest)
                self._rest = ""
                if event.kind == "granted":
                    self._granted.append(event)
        return self._granted

    def line_up(self) -> tuple[Candidate, list[str]]:
        """Wait until one leads and all others stand by; return who, and the order of the rest."""

        def complete() -> Any:
            state = self.locks.inspect(self.name)
            names = [entry.client for entry in (*state.holders, *state.waiters)]
            if sorted(names) != sorted(self._candidates) or not state.holders:
                return None
            is_known = any(event.token == state.holders[0].token for event in self._grants())
            return names if is_known else None

        first, *rest = wait_until(complete, f"all candidates for {self.name} are in line")
        return self._candidates[first], rest

    def next_after(self, at: float, client: str) -> Event:
        """Wait for the next leader and return its first word."""

        def found() -> Event | None:
            return next((grant for grant in self._grants() if grant.at > at and grant.client != client), None)

        answer: Event = wait_until(found, f"another leader of {self.name} after {client}", MOST + PATIENCE)
        return answer

    def strike(self, kind: str) -> None:
        """Take the lead away from whoever has it, and see who comes next."""
        victim, _ = self.line_up()
        client, pid = victim.client, victim.member.pid
        at = boottime()
        if kind == "kill":
            self._diary.crashed(client)
            victim.member.process.kill()
            del self._candidates[client]
            after = self.next_after(at, client)
            victim.proxy.reset()
            self._start(victim.proxy, victim.url)
        elif kind == "stop":
            self._diary.paused(client)
            pause(pid)
            try:
                after = self.next_after(at, client)
            finally:
                resume(pid)
            self._diary.resumed(client)
        else:
            with victim.proxy.blackhole():
                after = self.next_after(at, client)
        self.losses.append(Loss(kind, client, at, after.at - at))

    def resign(self) -> float:
        """Let the leader step down: the next in line leads at once, and it stands at the end of the line."""
        leader, (second, *others) = self.line_up()
        at = boottime()
        leader.member.tell("resign")
        took = self.next_after(at, leader.client).at - at
        now, rest = self.line_up()
        assert (now.client, rest) == (second, [*others, leader.client])
        return took
