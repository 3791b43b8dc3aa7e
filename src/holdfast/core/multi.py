"""Several locks as one: all of them or none, within one deadline.

They are taken one after the other in the order of their names. Every client uses that same
order, so no two can wait for each other in a circle. Whatever goes wrong half-way, those
already taken are released before the error travels on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from holdfast.core.acquire import acquire, release
from holdfast.core.hold import Hold, Terms
from holdfast.core.session import Session
from holdfast.errors import AcquireTimeout, BackendError

__all__ = ["acquire_all", "release_all"]

L = TypeVar("L")


async def acquire_all(
    session: Session, wanted: Sequence[tuple[Terms, Callable[[Hold], L]]], timeout: float
) -> list[L]:
    """Acquire every lock of `wanted`, in the order given, and return the leases."""
    runtime = session.runtime
    started = runtime.now()
    holds: list[Hold] = []
    leases: list[L] = []

    def keep(make: Callable[[Hold], L]) -> Callable[[Hold], L]:
        def lease(hold: Hold) -> L:
            holds.append(hold)
            return make(hold)

        return lease

    try:
        for terms, make in wanted:
            left = max(0.0, started + timeout - runtime.now()) if timeout else 0.0
            leases.append(await acquire(session, terms, left, keep(make)))
        return leases
    except BaseException as error:
        await runtime.finish(release_all(session, holds))
        if isinstance(error, AcquireTimeout):
            waited = runtime.now() - started
            raise AcquireTimeout(name=error.name, waited=waited, holder=error.holder) from None
        raise


async def release_all(session: Session, holds: Sequence[Hold]) -> bool:
    """Release in reverse order; say whether all were held. One failure does not keep the others."""
    failure: BackendError | None = None
    held = True
    for hold in reversed(holds):
        try:
            held = await release(session, hold) and held
        except BackendError as error:
            failure = failure or error
    if failure is not None:
        raise failure
    return held
