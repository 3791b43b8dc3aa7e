"""Sessions: one for each ttl in use, and one for those who wait.

Consul chooses a session's id, so asking twice makes two. One whose answer was lost is found by the name
that we gave it; one whose reader was cancelled, when its answer comes.

A session ends with its node, and those of agents come and go: autopilot removes a server that is cut off
within ten seconds, and its clients would not know. So ours have a node that is no agent's, and no health
checks: only their time ends them.
"""

from __future__ import annotations

import json
import math
import secrets
from typing import Any

from fencelock.backends.consul.connection import MOST_OPERATIONS, NO_NODE, Consul, Refused, kv
from fencelock.backends.consul.failures import no_consul
from fencelock.backends.consul.keys import Keys
from fencelock.backends.consul.protocol import Answer
from fencelock.backends.consul.rollcall import Roll
from fencelock.backends.ordered.tenures import Tenure
from fencelock.errors import BackendUnavailable
from fencelock.runtime import clock

__all__ = ["LONGEST", "SHORTEST", "WAITING", "Sessions", "class_of"]

SHORTEST, LONGEST = 10.0, 86_400.0
"""Seconds that a session may have."""
WAITING = 2.4
"""The class of the session for those who wait: a sign of life about once a second. In Consul it has 10 s."""
NODE = "fencelock"
"""The node in Consul's catalogue that all sessions belong to."""


def class_of(ttl: float) -> float:
    """Return how long the session for a ttl is."""
    return min(math.ceil(ttl) + 1.0, LONGEST)


class Sessions:
    """The sessions of a client."""

    def __init__(self, consul: Consul, keys: Keys, roll: Roll) -> None:
        self._consul = consul
        self._keys = keys
        self._roll = roll
        self.waits = False
        """Whether this client has ever waited for anybody."""
        self._begun: dict[float, tuple[str, float]] = {}
        """Those that were asked for: their names, and when."""
        self._made: dict[float, Tenure] = {}
        """Those that nobody has taken."""

    async def begin(self, class_: float, deadline: float) -> Tenure:
        """Begin one of this length, or take one that nobody has taken."""
        tenure = self._made.pop(class_, None)
        if tenure is None:
            tenure = await self._begin(class_, deadline)
        self.waits = self.waits or class_ == WAITING
        return tenure

    async def _begin(self, class_: float, deadline: float) -> Tenure:
        tag = _tag(class_)
        answer, repeated = await self._consul.settle(tag, deadline), class_ in self._begun
        if answer is None or answer.status != 200:
            name = self._begun[class_][0] if repeated else f"fencelock-{secrets.token_hex(8)}"
            self._begun[class_] = name, clock.now()
            answer, again = await self._create(name, max(SHORTEST, class_), deadline, tag)
            repeated = repeated or again
        else:
            repeated = False
        name, sent = self._begun.pop(class_)
        tenure = Tenure(class_, self._ident(answer), class_, sent)
        if repeated:
            try:
                await self._end_others(name, tenure.ident, deadline)
            except BackendUnavailable:
                return tenure  # the others end by themselves
            except BaseException:
                self._made[class_] = tenure
                raise
        return tenure

    async def _create(self, name: str, seconds: float, deadline: float, tag: str) -> tuple[Answer, bool]:
        asked = {
            "Name": name,
            "Node": NODE,
            "TTL": f"{seconds:.0f}s",
            "Behavior": "delete",
            "LockDelay": "0s",
        }
        body = json.dumps({**asked, "Checks": [], "NodeChecks": []}).encode()
        answer, again = await self._consul.ask_counted("PUT", "/v1/session/create", deadline, body, tag)
        if NO_NODE in answer.body:
            node = {"Node": NODE, "Address": f"{NODE}.invalid", "Datacenter": self._consul.address.dc or ""}
            await self._consul.ask("PUT", "/v1/catalog/register", deadline, json.dumps(node).encode())
            answer, again = await self._consul.ask_counted("PUT", "/v1/session/create", deadline, body, tag)
        return answer, again

    def _ident(self, answer: Answer) -> str:
        try:
            return str(json.loads(answer.body)["ID"])
        except (ValueError, TypeError, KeyError) as error:
            raise no_consul(self._consul.address.label) from error

    async def _end_others(self, name: str, ident: str, deadline: float) -> None:
        found, _ = await self._consul.read(f"/v1/session/node/{NODE}?consistent", deadline)
        for session in found:
            if session["Name"] == name and session["ID"] != ident:
                await self.end(session["ID"], deadline)

    async def keep(self, tenure: Tenure, deadline: float) -> bool:
        """Renew it; `False` if it is gone."""
        sent = clock.now()
        answer = await self._consul.ask("PUT", f"/v1/session/renew/{tenure.ident}", deadline)
        if answer.status != 200:
            return False
        if tenure.class_ == WAITING and not await self._live(tenure.ident, deadline):
            return False
        tenure.heard(sent)
        return True

    async def _live(self, ident: str, deadline: float) -> bool:
        """Give a sign of life, and look for those of others; `False` if the session is gone."""
        others = self._roll.members(MOST_OPERATIONS - 1, clock.now())
        reads = [kv("get-tree", self._keys.life(other)) for other in others]
        try:
            results = await self._consul.transact([self.sign(ident), *reads], deadline)
        except Refused:
            return False
        signs = {one["Session"]: one["ModifyIndex"] for one in results[1:] if one.get("Session")}
        self._roll.heard(others, signs, clock.now())
        return True

    def sign(self, ident: str) -> dict[str, Any]:
        """Return the operation that is a sign of life."""
        return kv("lock", self._keys.life(ident), session=ident, value=secrets.token_bytes(6))

    async def end_unclaimed(self, deadline: float) -> None:
        """End the sessions whose beginning was interrupted."""
        idents = [str(tenure.ident) for tenure in self._made.values()]
        for class_ in self._begun:
            answer = await self._consul.settle(_tag(class_), deadline)
            if answer is not None and answer.status == 200:
                idents.append(self._ident(answer))
        for ident in idents:
            await self.end(ident, deadline)

    async def end(self, ident: str, deadline: float) -> None:
        """End it, and with it every key that it holds."""
        await self._consul.ask("PUT", f"/v1/session/destroy/{ident}", deadline)


def _tag(class_: float) -> str:
    return f"session of {class_:g}s"
