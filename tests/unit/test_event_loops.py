"""Where fencelock does not work it says what to do: under trio, and under eventlet's monkey patching."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import anyio
import pytest
import trio

from fencelock import AsyncClient, Client, ConfigurationError

WHAT_TO_DO = r"asyncio's event loop.*under trio use Client in a thread"

UNDER_EVENTLET = """
import warnings
warnings.simplefilter("ignore")
import eventlet
eventlet.monkey_patch()
import sys
import fencelock
try:
    fencelock.Client(sys.argv[1])
except fencelock.ConfigurationError as error:
    print(error)
"""


def test_under_trio_an_async_client_says_what_to_do() -> None:
    async def entered() -> None:
        async with AsyncClient("memory://trio"):
            raise AssertionError

    async def used() -> None:
        await AsyncClient("memory://trio").lock("x").acquire()

    async def tried() -> None:
        await AsyncClient("memory://trio").lock("x").try_acquire()

    async def block() -> None:
        async with AsyncClient("memory://trio").lock("x"):
            raise AssertionError

    async def looked() -> None:
        await AsyncClient("memory://trio").inspect("x")

    async def closed() -> None:
        await AsyncClient("memory://trio").close()

    for main in (entered, used, tried, block, looked, closed):
        with pytest.raises(ConfigurationError, match=WHAT_TO_DO) as raised:
            trio.run(main)
        assert "\n" not in str(raised.value)


def test_under_trio_a_client_in_a_thread_works() -> None:
    def work() -> int:
        with Client("memory://trio") as client, client.lock("x") as lease:
            return lease.token

    async def main() -> int:
        return await trio.to_thread.run_sync(work)

    assert trio.run(main) > 0


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_anyio_works_on_its_asyncio_backend(backend: str) -> None:
    async def main() -> bool:
        async with AsyncClient("memory://anyio") as client, client.lock("x") as lease:
            return lease.is_held()

    if backend == "asyncio":
        assert anyio.run(main, backend=backend)
    else:
        with pytest.raises(ConfigurationError, match=WHAT_TO_DO):
            anyio.run(main, backend=backend)


def test_closing_outside_of_the_loop_says_what_to_do() -> None:
    client = AsyncClient("memory://closing")
    with pytest.raises(ConfigurationError, match=WHAT_TO_DO):
        client.close().send(None)
    asyncio.run(client.close())


@pytest.mark.parametrize("scheme", ["redis", "postgresql", "mysql", "zookeeper", "etcd", "consul"])
def test_under_eventlet_a_client_of_a_server_says_what_to_do(scheme: str) -> None:
    path = "/locks" if scheme == "mysql" else ""
    done = subprocess.run(
        [sys.executable, "-c", UNDER_EVENTLET, f"{scheme}://127.0.0.1:1{path}"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    (line,) = done.stdout.splitlines()
    assert "eventlet's monkey_patch()" in line and "use threads, gevent or asyncio" in line
