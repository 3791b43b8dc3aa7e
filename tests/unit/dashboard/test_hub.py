"""Listeners: everybody gets the same bytes, and one that does not read holds nobody up."""

from __future__ import annotations

import asyncio

from fencelock.dashboard.hub import BYTES, FRAMES, Hub, Listener, frame


async def read(listener: Listener) -> bytes:
    return await listener.get(30.0)


def test_everybody_gets_the_same_bytes() -> None:
    async def main() -> None:
        hub = Hub()
        hub.send("change", "{}")  # nobody listens: nothing happens
        listeners = [hub.join() for _ in range(3)]
        for listener in listeners:
            listener.begin(frame("picture", "{}"))
        hub.send("change", '{"a":1}')
        expected = frame("picture", "{}") + b'event: change\ndata: {"a":1}\n\n'
        await asyncio.sleep(0)
        assert [await read(listener) for listener in listeners] == [expected] * 3
        assert await listeners[0].get(0.0) == b"", "there is no more"
        hub.leave(listeners[0])
        hub.send("change", "{}")
        await asyncio.sleep(0)
        assert await listeners[0].get(0.0) == b""

    asyncio.run(main())


def test_nothing_is_kept_before_the_first_picture() -> None:
    async def main() -> None:
        hub = Hub()
        listener = hub.join()
        hub.send("change", "1")
        hub.deliver(lambda: listener.begin(b"picture"))
        hub.send("change", "2")
        await asyncio.sleep(0)
        assert await read(listener) == b"picture" + frame("change", "2")

    asyncio.run(main())


def test_one_that_does_not_read_falls_behind_and_begins_anew() -> None:
    async def main() -> None:
        hub = Hub()
        slow, quick = hub.join(), hub.join()
        for listener in (slow, quick):
            listener.begin(b"")
        for number in range(FRAMES + 10):
            hub.send("change", str(number))
            await asyncio.sleep(0)
            assert await read(quick) == frame("change", str(number))
        assert slow.behind and await read(slow) == b"", "nothing is kept for it"
        slow.begin(b"picture")
        assert not slow.behind and await read(slow) == b"picture"

    asyncio.run(main())


def test_a_box_is_bounded_in_bytes_but_for_a_single_frame() -> None:
    async def main() -> None:
        listener = Listener()
        listener.begin(b"x" * (BYTES + 1))
        assert not listener.behind
        listener.put(b"y")
        assert listener.behind

    asyncio.run(main())


def test_closing_wakes_those_who_wait() -> None:
    async def main() -> None:
        hub = Hub()
        listener = hub.join()
        waiting = asyncio.create_task(listener.get(60.0))
        await asyncio.sleep(0)
        hub.close()
        assert await waiting == b"" and listener.closed

    asyncio.run(main())


def test_a_loop_that_has_ended_has_no_listeners() -> None:
    hub = Hub()

    async def main() -> None:
        hub.join()

    asyncio.run(main())
    hub.send("change", "{}")
    assert not hub.listeners
