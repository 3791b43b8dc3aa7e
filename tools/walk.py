"""Walks an uncontended acquire and release: which functions of fencelock run, in which files, in order.

    python -m tools.walk redis                     start Redis, walk both flavours
    python -m tools.walk sqlite --flavour asyncio
    python -m tools.walk postgres --url postgresql://…   walk a server of yours
    python -m tools.walk --table                   count files, functions and steps up of all stores

Each line is a call, indented below its caller; what libraries do in between is left out. The client has taken
and released another lock before, so connections are open. Only the caller's thread is traced: a thread of
a driver's or of the renewer's is not on a request's path.

A *step up* is a call from a lower floor to a higher one: the house has `client`, `core`, `backends`, `net`
and the protocols (sans I/O, of the backends, called by `net`) from top to bottom, and a request goes down.
The runtime, which drives coroutines, is on no floor, and neither are errors, ports and the queue rule, which
all floors share. Destructors run when Python likes, and are left out.

Exit status: 0, 64 wrong usage, 69 a server could not be started.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tools.servers import ServerError, start  # noqa: E402

import fencelock  # noqa: E402

__all__ = ["Call", "Walk", "main", "walk"]

HOUSE = Path(fencelock.__file__).parent
STORES = {"sqlite": "", "redis": "redis", "postgres": "postgres", "etcd": "etcd", "zookeeper": "zookeeper"}
"""The stores of the table, and what `tools.servers` calls the server of each."""
FLAVOURS = ("blocking", "asyncio")
FLOORS = ("client", "core", "backends", "net", "protocol")
PROTOCOLS = {"protocol.py", "calls.py", "frames.py", "headers.py"}
"""Files of a backend that make bytes of questions, and answers of bytes."""
CLIENT = {"client", "aio", "lock", "lease", "blocks", "connect", "release"}
"""The modules beside the folders that users hold in their hands."""
SHARED = {"core/ports.py", "core/queue.py"}
USAGE, UNAVAILABLE = 64, 69


@dataclass(frozen=True)
class Call:
    """One call of a function of fencelock's."""

    file: str
    function: str
    depth: int
    floor: int | None
    goes_up: bool


@dataclass
class Walk:
    """The calls of an acquire and a release, in order."""

    calls: list[Call] = field(default_factory=list)

    @property
    def files(self) -> set[str]:
        return {call.file for call in self.calls}

    @property
    def functions(self) -> set[tuple[str, str]]:
        return {(call.file, call.function) for call in self.calls}

    @property
    def steps_up(self) -> list[Call]:
        return [call for call in self.calls if call.goes_up]

    def __str__(self) -> str:
        return (
            f"{len(self.calls)} calls of {len(self.functions)} functions in {len(self.files)} files, "
            f"{len(self.steps_up)} steps up"
        )


def floor_of(file: str) -> int | None:
    """Return the floor of a file of the package, counted from the top; None for what is on no floor."""
    folder, _, rest = file.partition("/")
    if file in SHARED:
        return None
    if folder == "backends" and Path(rest).name in PROTOCOLS:
        return FLOORS.index("protocol")
    if rest:
        return FLOORS.index(folder) if folder in FLOORS else None
    return 0 if folder.removesuffix(".py") in CLIENT else None


class Tracer:
    """Notes each call while it is entered. A coroutine counts once, however often it is resumed."""

    def __init__(self) -> None:
        self.walk = Walk()
        self._known: dict[FrameType, Call] = {}  # keeps the frames: no other frame gets their place

    @contextmanager
    def tracing(self) -> Iterator[None]:
        sys.setprofile(self._note)
        try:
            yield
        finally:
            sys.setprofile(None)

    def _note(self, frame: FrameType, event: str, _: object) -> None:
        path = frame.f_code.co_filename
        if event != "call" or frame in self._known or not path.startswith(f"{HOUSE}/"):
            return
        if frame.f_code.co_name == "__del__":
            return
        file = path[len(f"{HOUSE}/") :]
        floor = floor_of(file)
        caller, above = self._callers(frame)
        call = Call(
            file=file,
            function=frame.f_code.co_qualname,
            depth=caller.depth + 1 if caller else 0,
            floor=floor,
            goes_up=above is not None and floor is not None and floor < above,
        )
        self._known[frame] = call
        self.walk.calls.append(call)

    def _callers(self, frame: FrameType) -> tuple[Call | None, int | None]:
        """Return the nearest call that led here, and the floor of the nearest that is on one."""
        nearest: Call | None = None
        back = frame.f_back
        while back is not None:
            call = self._known.get(back)
            if call is not None:
                nearest = nearest or call
                if call.floor is not None:
                    return nearest, call.floor
            back = back.f_back
        return nearest, None


def walk(url: str, flavour: str) -> Walk:
    """Take and release one lock at `url`, and return what ran."""
    tracer = Tracer()
    if flavour == "blocking":
        with fencelock.Client(url) as client:
            with client.lock("before"):
                pass
            lock = client.lock("walked")
            with tracer.tracing():
                lock.acquire().release()
    else:
        asyncio.run(_walk(url, tracer))
    return tracer.walk


async def _walk(url: str, tracer: Tracer) -> None:
    async with fencelock.AsyncClient(url) as client:
        async with client.lock("before"):
            pass
        lock = client.lock("walked")
        with tracer.tracing():
            await (await lock.acquire()).release()


@contextmanager
def served(store: str) -> Iterator[str]:
    """Yield the URL of a store that runs until the block is over."""
    if STORES[store]:
        with start(STORES[store]) as group:
            yield group.url
    else:
        with tempfile.TemporaryDirectory(prefix="fencelock-walk-") as folder:
            yield f"sqlite://{folder}/locks.db"


def show(title: str, found: Walk) -> None:
    """Print the calls, each below its caller."""
    print(f"{title}: {found}")
    for call in found.calls:
        mark = "  <- a step up" if call.goes_up else ""
        print(f"  {'  ' * call.depth}{call.file}  {call.function}{mark}")
    print()


def table() -> None:
    """Print what each store costs in files and functions."""
    print("| store | flavour | files | functions | calls | steps up |")
    print("|---|---|---:|---:|---:|---:|")
    for store in STORES:
        with served(store) as url:
            for flavour in FLAVOURS:
                found = walk(url, flavour)
                counts = (found.files, found.functions, found.calls, found.steps_up)
                print(
                    f"| {store} | {flavour} | {' | '.join(str(len(each)) for each in counts)} |", flush=True
                )


def main(words: Sequence[str] | None = None) -> int:
    """Do it; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tools.walk", description=__doc__.partition("\n")[0])
    parser.add_argument("store", nargs="?", choices=STORES, help="the store to walk")
    parser.add_argument("--flavour", choices=FLAVOURS, help="only this one; both by default")
    parser.add_argument("--url", help="a server that runs already")
    parser.add_argument("--table", action="store_true", help="all stores, counts only")
    given = parser.parse_args(words)
    if given.table == bool(given.store):
        parser.print_usage(sys.stderr)
        print("walk: name a store, or --table for all of them", file=sys.stderr)
        return USAGE
    try:
        if given.table:
            table()
            return 0
        with served(given.store) if not given.url else _given(given.url) as url:
            for flavour in (given.flavour,) if given.flavour else FLAVOURS:
                show(f"{given.store}, {flavour}", walk(url, flavour))
    except (ServerError, fencelock.FencelockError) as error:
        print(f"walk: {error}", file=sys.stderr)
        return UNAVAILABLE
    return 0


@contextmanager
def _given(url: str) -> Iterator[str]:
    yield url


if __name__ == "__main__":
    sys.exit(main())
