"""Calls to members: logging in, moving on, how many at a time, and what may have been done before."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from fencelock.backends.etcd import connection
from fencelock.backends.etcd import rpc_pb2 as pb
from fencelock.backends.etcd.address import parse
from fencelock.backends.etcd.connection import Etcd, LeaseGone
from fencelock.backends.etcd.methods import DELETE
from fencelock.errors import BackendUnavailable
from fencelock.runtime import clock
from fencelock.runtime.asyncio import AsyncioRuntime
from unit.backends.etcd_server import Server

ANSWERS: dict[str, Any] = {
    "DeleteRange": pb.DeleteRangeResponse(deleted=1),
    "Authenticate": pb.AuthenticateResponse(token="fresh"),
}


class Member:
    """A member of a cluster, in the loop of the test."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, bytes | None]] = []
        """What was called, and the token that came along."""
        self.refusals: list[tuple[bytes, bytes]] = []
        """What the next calls are refused with."""
        self.answers = asyncio.Event()
        self.answers.set()
        self.connections = 0
        self.under_way = 0
        self.most = 0
        self.endpoint = ""
        self._writers: list[asyncio.StreamWriter] = []

    async def __aenter__(self) -> Member:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.endpoint = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()
        await asyncio.sleep(0.01)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.append(writer)
        server = Server()
        tasks = []
        while data := await reader.read(1 << 16):
            server.take(data)
            ended, server.ended = server.ended, []
            tasks += [asyncio.create_task(self._answer(server, call, writer)) for call in ended]

    async def _answer(self, server: Server, call: int, writer: asyncio.StreamWriter) -> None:
        path = server.headers[call][b":path"].decode().rpartition("/")[2]
        self.calls.append((path, server.headers[call].get(b"token")))
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        await asyncio.sleep(0.01)
        await self.answers.wait()
        self.under_way -= 1
        if self.refusals and path != "Authenticate":
            server.refuse(call, *self.refusals.pop(0))
        else:
            server.answer(call, ANSWERS[path].SerializeToString())
        writer.write(server.h2.data_to_send())


def play(scene: Callable[[Member, Member], Awaitable[None]]) -> None:
    async def main() -> None:
        async with Member() as one, Member() as two:
            await scene(one, two)

    asyncio.run(main())


def client(*members: Member, user: str = "") -> Etcd:
    return Etcd(AsyncioRuntime(), parse(f"etcd://{user}{','.join(member.endpoint for member in members)}"))


async def delete(etcd: Etcd, seconds: float = 10.0, tag: str = "") -> tuple[int, bool]:
    answer, again = await etcd.call_counted(
        DELETE, pb.DeleteRangeRequest(key=b"k"), clock.now() + seconds, tag
    )
    return answer.deleted, again


def test_tasks_share_a_connection_and_only_so_many_call_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "MOST_TASKS", 3)

    async def scene(one: Member, two: Member) -> None:
        etcd = client(one)
        assert await asyncio.gather(*[delete(etcd) for _ in range(20)]) == [(1, False)] * 20
        assert (one.connections, one.most, len(one.calls)) == (1, 3, 20)
        await etcd.close()

    play(scene)


def test_waiting_for_room_is_no_time_that_a_member_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "MOST_TASKS", 1)

    async def scene(one: Member, two: Member) -> None:
        etcd = client(one, two)
        one.answers.clear()
        first, second = asyncio.create_task(delete(etcd)), asyncio.create_task(delete(etcd))
        await asyncio.sleep(0.05)
        with pytest.raises(BackendUnavailable, match="no answer in time"):
            await delete(etcd, 0.1)
        second.cancel()
        third = asyncio.create_task(delete(etcd))
        one.answers.set()
        assert [await first, await third] == [(1, False)] * 2
        assert (len(one.calls), two.calls) == (2, [])
        await etcd.close()

    play(scene)


def test_a_token_that_has_expired_is_renewed_and_the_call_counts_once() -> None:
    async def scene(one: Member, two: Member) -> None:
        etcd = client(one, two, user="ann:s3cr3t@")
        one.refusals = [(b"16", b"etcdserver: invalid auth token")]
        assert await delete(etcd) == (1, False)
        assert await delete(etcd) == (1, False)
        login, call = ("Authenticate", None), ("DeleteRange", b"fresh")
        assert one.calls == [login, call, login, call, call]
        assert two.calls == []
        await etcd.close()

    play(scene)


def test_a_token_that_is_never_taken_is_said_in_the_end() -> None:
    async def scene(one: Member, two: Member) -> None:
        etcd = client(one, user="ann:s3cr3t@")
        one.refusals = [(b"16", b"etcdserver: invalid auth token")] * 1000
        with pytest.raises(BackendUnavailable, match="does not take the token") as raised:
            await delete(etcd, 0.5)
        assert "s3cr3t" not in str(raised.value)
        await etcd.close()

    play(scene)


def test_a_member_without_a_leader_is_left_and_the_call_may_have_been_done() -> None:
    async def scene(one: Member, two: Member) -> None:
        etcd = client(one, two)
        one.refusals = [(b"14", b"etcdserver: no leader")]
        assert await delete(etcd) == (1, True)
        assert etcd.current == two.endpoint
        assert await delete(etcd) == (1, False)
        assert (len(one.calls), len(two.calls)) == (1, 2)
        await etcd.close()

    play(scene)


def test_a_lease_that_is_gone_and_a_refusal_that_lasts() -> None:
    async def scene(one: Member, two: Member) -> None:
        etcd = client(one, two)
        one.refusals = [(b"5", b"etcdserver: requested lease not found"), (b"7", b"permission denied")]
        with pytest.raises(LeaseGone):
            await delete(etcd)
        with pytest.raises(BackendUnavailable, match="needs readwrite"):
            await delete(etcd)
        assert two.calls == []
        await etcd.close()

    play(scene)


def test_a_cancelled_call_is_settled() -> None:
    async def scene(one: Member, two: Member) -> None:
        etcd = client(one)
        await delete(etcd)
        one.answers.clear()
        call = asyncio.create_task(delete(etcd, tag="me"))
        await asyncio.sleep(0.05)
        call.cancel()
        settled = asyncio.create_task(etcd.settle("me", clock.now() + 10))
        await asyncio.sleep(0.05)
        assert not settled.done()
        one.answers.set()
        await settled
        assert await delete(etcd) == (1, False)
        assert one.connections == 1
        await etcd.close()

    play(scene)


def test_what_was_never_there_was_not_reached() -> None:
    async def scene(one: Member, two: Member) -> None:
        with socket.create_server(("127.0.0.1", 0)) as closed:
            port = closed.getsockname()[1]
        etcd = Etcd(AsyncioRuntime(), parse(f"etcd://127.0.0.1:{port}"))
        with pytest.raises(BackendUnavailable, match="connection refused"):
            await delete(etcd, 0.2)
        assert not etcd.was_reached
        await etcd.close()
        etcd = client(one)
        await delete(etcd)
        assert etcd.was_reached
        await etcd.close()
        with pytest.raises(BackendUnavailable, match="the client is closed"):
            await delete(etcd)

    play(scene)
