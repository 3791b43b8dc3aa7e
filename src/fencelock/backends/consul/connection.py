"""How fencelock talks to Consul: requests to any agent that answers, transactions, reads, and long queries.

Every request may be repeated: what it does, it does once, by the owner's id, the session's id or the session
that it compares with. (Beginning a session is the exception: `sessions.py` looks after that.) So one that got
no answer is made again, to the next agent, until its deadline.

A request that was given up may still be done. Its answer is waited for by its tag (`settle`) before anything
undoes it; when even that was in vain, the tag is remembered as a *doubt*.
"""

from __future__ import annotations

import base64
import json
import ssl
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from fencelock.backends.consul.address import Address
from fencelock.backends.consul.failures import FAILURES, no_consul, refused, said
from fencelock.backends.consul.protocol import Answer, Http, Question
from fencelock.net.connecting import Connector, Target
from fencelock.net.exchange import Connection
from fencelock.net.failures import Disconnected
from fencelock.net.pool import Call, Pool
from fencelock.net.retry import Servers
from fencelock.runtime import clock
from fencelock.runtime.base import Runtime

__all__ = ["MOST", "MOST_OPERATIONS", "NO_NODE", "Call", "Consul", "Refused", "kv"]

MOST = 8
"""Connections for requests, and as many for queries. Consul takes 200 from one host, of all its programs."""
MOST_OF_THREADS = 32
"""Connections for requests of threads: to wait for another thread costs them more than a connection."""
IDLE = 4
"""So many of them are kept for later."""
IDLE_QUERIES = 1
UNDERSTOOD = {200, 404, 409}
NO_NODE = b"Missing node registration"
MOST_OPERATIONS = 64
OURS = ("invalid session", "failed to", "doesn't exist", "failed session check")
"""What Consul says when something in a transaction did not hold."""


class Refused(Exception):
    """A transaction was not done: something in it did not hold."""

    def __init__(self, what: str, again: bool) -> None:
        super().__init__(what)
        self.what = what
        self.again = again
        """It may have been done before by its own sending."""


class Consul:
    """The agents, as one client sees them."""

    def __init__(self, runtime: Runtime, address: Address) -> None:
        self.address = address
        self.doubts: dict[str, float] = {}
        """Of which tags a request was given up, and when: it may be done yet."""
        self._runtime = runtime
        self._dc = f"dc={quote(address.dc, safe='')}" if address.dc else ""
        self._token = f"X-Consul-Token: {address.token}\r\n" if address.token else ""
        self._tls: ssl.SSLContext | None = None
        self._connector = Connector(runtime)
        self._servers = Servers(runtime, FAILURES, address.endpoints, tls=address.tls)
        most = MOST if runtime.flavour == "asyncio" else MOST_OF_THREADS
        self._pool = Pool(runtime, FAILURES, self._connection, most=most, idle=IDLE)
        self._queries = Pool(runtime, FAILURES, self._connection, most=MOST, idle=IDLE_QUERIES)

    def _connection(self, endpoint: str) -> Connection[Question, Answer]:
        if self._tls is None:
            self._tls = self.address.context()  # reads the files, once
        target = Target(endpoint, self._tls, self.address.server_name)
        return Connection(self._runtime, self._connector, target, self.protocol(endpoint))

    def protocol(self, endpoint: str) -> Http:
        """Return how a new connection to an agent is spoken on."""
        return Http(f"Host: {endpoint}\r\n{self._token}")

    def question(self, method: str, path: str, body: bytes = b"") -> Question:
        """Return a request, to the datacentre of this client."""
        if self._dc:
            path = f"{path}{'&' if '?' in path else '?'}{self._dc}"
        return Question(method, path, body)

    async def ask(self, method: str, path: str, deadline: float, body: bytes = b"") -> Answer:
        """Return the answer of whichever agent gives one that is understood: done, not there, or refused."""
        return (await self.ask_counted(method, path, deadline, body))[0]

    async def ask_counted(
        self, method: str, path: str, deadline: float, body: bytes = b"", tag: str = ""
    ) -> tuple[Answer, bool]:
        """The same, and whether it may have been done before by its own sending. See `settle` for `tag`."""
        question = self.question(method, path, body)

        async def attempt(endpoint: str, until: float) -> Answer:
            answer = await self._pool.ask(endpoint, question, until, tag)
            if answer.status in UNDERSTOOD or (answer.status == 500 and NO_NODE in answer.body):
                return answer
            raise said(endpoint, answer)

        again = True
        try:
            answer, again = await self._servers.ask(attempt, deadline)
            return answer, again
        finally:
            if again and tag:
                self.doubts[tag] = clock.now()

    async def settle(self, tag: str, deadline: float) -> Answer | None:
        """Wait for the answer to the request of this tag that was given up.

        `None` if there was none, or its answer does not come any more.
        """
        return await self._pool.settle(tag, deadline, self.address.label)

    async def query(self, path: str, call: Call, deadline: float) -> Answer:
        """Ask one agent something that takes long, or until `call` is hung up."""
        endpoint = self._servers.current
        try:
            return await self._queries.ask(endpoint, self.question("GET", path), deadline, call=call)
        except (Disconnected, OSError) as error:
            raise FAILURES.unreachable(endpoint, error, tls=self.address.tls) from error

    async def read(self, path: str, deadline: float) -> tuple[list[Any], int]:
        """Return what a read found, which may be nothing, and the index that it is of."""
        answer = await self.ask("GET", path, deadline)
        found = self.parsed(answer) if answer.status == 200 else []
        if not isinstance(found, list) or b"x-consul-index" not in answer.headers:
            raise no_consul(self.address.label)
        return found, answer.moment

    async def transact(
        self, operations: Sequence[dict[str, Any]], deadline: float, tag: str = ""
    ) -> list[dict[str, Any]]:
        """Do operations on keys at one index of Consul's log, all or none, and return what they read.

        Raises `Refused`. See `settle` for `tag`.
        """
        body = json.dumps(operations).encode()
        answer, again = await self.ask_counted("PUT", "/v1/txn?consistent", deadline, body, tag)
        told = self.parsed(answer)
        try:
            if answer.status == 200:
                return [one["KV"] for one in told["Results"] or ()]
            what = "; ".join(error["What"] for error in told["Errors"])
        except (TypeError, KeyError) as error:
            raise no_consul(self.address.label) from error
        if any(words in what for words in OURS):
            raise Refused(what, again)
        raise refused(self.address.label, what)

    def parsed(self, answer: Answer) -> Any:
        """Return the JSON of an answer."""
        try:
            return json.loads(answer.body)
        except ValueError as error:
            raise no_consul(self.address.label) from error

    async def close(self) -> None:
        """Close every connection."""
        self._servers.close()
        await self._pool.close()
        await self._queries.close()

    def drop(self) -> None:
        """In a forked child: let go of every connection, without a word to the server."""
        self._pool.drop()
        self._queries.drop()


def kv(
    verb: str, key: str, *, session: str = "", value: bytes | None = None, index: int = 0
) -> dict[str, Any]:
    """Return one operation on a key."""
    operation: dict[str, Any] = {"Verb": verb, "Key": key}
    if session:
        operation["Session"] = session
    if value is not None:
        operation["Value"] = base64.b64encode(value).decode("ascii")
    if index:
        operation["Index"] = index
    return {"KV": operation}
