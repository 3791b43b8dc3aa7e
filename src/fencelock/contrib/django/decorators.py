"""`lock`: views and functions under a lock that their arguments name.

A view that does not get its lock answers as `answers.py` has it: 423 when somebody else is at it, 503 when
the backend is down or the lease was lost, each with `Retry-After`. A plain function raises. `async def` is
cancelled when its lease is lost; `def` is not, and learns of it by `lease.check()`.

*Transactions.* A lock that is released before the transaction commits guards nothing: the next holder reads
what was before. So with `ATOMIC_REQUESTS` the transaction is opened inside of the lock, and a lease that was
lost by the end of the view rolls it back. And inside of an open `atomic()` a lock is refused, but for those
of Django's `TestCase`, unless `durable=False` says that you know better.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from contextlib import AsyncExitStack, ExitStack
from typing import Any, TypeVar

from fencelock.contrib.answers import LOCKED, RETRY_AFTER, TIMEOUT, TTL, Terms
from fencelock.contrib.calls import Call, held, held_async
from fencelock.contrib.django.conf import DEFAULT, alocks, locks
from fencelock.durations import Duration
from fencelock.errors import AcquireTimeout, BackendError, ConfigurationError, LeaseLost
from fencelock.lease import Lease
from fencelock.templates import Template

__all__ = ["lock"]

F = TypeVar("F", bound=Callable[..., Any])


def lock(
    name: str,
    *,
    using: str = DEFAULT,
    ttl: Duration = TTL,
    timeout: Duration | None = TIMEOUT,
    status: int = LOCKED,
    retry_after: Duration = RETRY_AFTER,
    durable: bool = True,
) -> Callable[[F], F]:
    """Run a view or a function, `def` or `async def`, under the lock that its arguments name.

    A parameter `lease` gets the lease. Of a class-based view decorate `dispatch`, by `method_decorator`.
    """
    template, terms = Template(name), Terms(ttl, timeout, status, retry_after)

    def decorate(function: F) -> F:
        call = Call(function, template)
        make = _async if inspect.iscoroutinefunction(function) else _blocking
        locked: Any = functools.wraps(function)(make(function, call, terms, using, durable))
        locked._non_atomic_requests = Everywhere()
        return locked  # type: ignore[no-any-return]

    return decorate


class Everywhere(frozenset[str]):
    """All databases: Django is not to wrap a view in a transaction that would end after its lock."""

    def __contains__(self, alias: object) -> bool:
        return True


def _blocking(
    function: Callable[..., Any], call: Call, terms: Terms, using: str, durable: bool
) -> Callable[..., Any]:
    def locked(*args: Any, **kwargs: Any) -> Any:
        wanted = call.name(args, kwargs)
        is_view = _is_view(args)
        if durable:
            _check_transactions(wanted)
        lock = locks(using).lock(wanted, ttl=terms.ttl, timeout=terms.timeout)
        try:
            with ExitStack() as stack:
                try:
                    lease = stack.enter_context(held(lock))
                except (AcquireTimeout, BackendError) as error:
                    if not is_view:
                        raise
                    return _answer(terms, error)
                given = call.given(kwargs, lease)
                if is_view:
                    return _in_transactions(function, lease)(*args, **given)
                return function(*args, **given)
        except LeaseLost as error:
            if not is_view:
                raise
            return _answer(terms, error)

    return locked


def _async(
    function: Callable[..., Any], call: Call, terms: Terms, using: str, durable: bool
) -> Callable[..., Any]:
    async def locked(*args: Any, **kwargs: Any) -> Any:
        wanted = call.name(args, kwargs)
        is_view = _is_view(args)
        lock = (await alocks(using)).lock(wanted, ttl=terms.ttl, timeout=terms.timeout)
        try:
            async with AsyncExitStack() as stack:
                try:
                    lease = await stack.enter_async_context(held_async(lock))
                except (AcquireTimeout, BackendError) as error:
                    if not is_view:
                        raise
                    return _answer(terms, error)
                return await function(*args, **call.given(kwargs, lease))
        except LeaseLost as error:
            if not is_view:
                raise
            return _answer(terms, error)

    return locked


def _is_view(args: tuple[Any, ...]) -> bool:
    from django.http import HttpRequest  # type: ignore[import-untyped]

    return any(isinstance(arg, HttpRequest) for arg in args[:2])  # the second one of a method


def _answer(terms: Terms, error: AcquireTimeout | BackendError | LeaseLost) -> Any:
    from django.http import JsonResponse

    refusal = terms.refusal(error)
    return JsonResponse({"detail": refusal.detail}, status=refusal.status, headers=refusal.headers)


# Transactions ---------------------------------------------------------------------------------


def _check_transactions(name: str) -> None:
    from django.db import connections  # type: ignore[import-untyped]

    for connection in connections.all(initialized_only=True):
        blocks = connection.atomic_blocks
        if blocks and not blocks[-1]._from_testcase:  # as atomic(durable=True) does
            raise ConfigurationError(
                f"lock {name!r} would be released before the transaction on {connection.alias!r} commits: "
                "take it outside of atomic(), or give durable=False"
            )


def _in_transactions(view: Callable[..., Any], lease: Lease) -> Callable[..., Any]:
    """Do for a view what `ATOMIC_REQUESTS` asks for, inside of the lock."""
    from django.db import connections, transaction

    not_here = getattr(view, "_non_atomic_requests", ())
    wanted = [
        alias
        for alias, settings in connections.settings.items()
        if settings["ATOMIC_REQUESTS"] and alias not in not_here
    ]
    if not wanted:
        return view

    def checked(*args: Any, **kwargs: Any) -> Any:
        answer = view(*args, **kwargs)
        lease.check()
        return answer

    for alias in wanted:
        checked = transaction.atomic(using=alias)(checked)
    return checked
