"""The blocking and the asyncio form are one API: same names and parameters, and what does I/O is awaited."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

import fencelock

PAIRS = [
    (fencelock.Client, fencelock.AsyncClient),
    (fencelock.Lease, fencelock.AsyncLease),
    (fencelock.Lock, fencelock.AsyncLock),
    (fencelock.RWLock, fencelock.AsyncRWLock),
    (fencelock.MultiLock, fencelock.AsyncMultiLock),
    (fencelock.MultiLease, fencelock.AsyncMultiLease),
    (fencelock.Election, fencelock.AsyncElection),
]

AWAITED = {
    "AsyncClient": {"inspect", "list", "force_release", "close"},
    "AsyncLease": {"release", "extend", "verify"},
    "AsyncLock": {"try_acquire"},
    "AsyncRWLock": set(),
    "AsyncMultiLock": {"try_acquire"},
    "AsyncMultiLease": {"release", "extend", "verify"},
    "AsyncElection": {"run", "leader", "resign"},
}
ITERATED = {"AsyncElection": {"observe"}}
ENTERED = {"AsyncLock": {"acquire"}, "AsyncMultiLock": {"acquire"}}
"""What can be awaited or entered, so is no coroutine function."""

CONTRACT = {
    "Client": {
        "lock": "name, *, ttl=30, timeout=None, renew=True, max_hold=None, reentrant=False, "
        "metadata=None, on_lost=None",
        "rwlock": "name, *, ttl=30, timeout=None, renew=True, max_hold=None, reentrant=False, "
        "metadata=None, on_lost=None",
        "semaphore": "name, limit, *, ttl=30, timeout=None, renew=True, max_hold=None, reentrant=False, "
        "metadata=None, on_lost=None",
        "multi": "names, *, ttl=30, timeout=None, renew=True, max_hold=None, reentrant=False, "
        "metadata=None, on_lost=None",
        "election": "name, *, ttl=30, timeout=None, renew=True, max_hold=None, reentrant=False, "
        "metadata=None, on_lost=None",
        "inspect": "name",
        "list": "prefix=''",
        "force_release": "name, *, owner=None",
        "close": "",
    },
    "Lock": {"acquire": "*, timeout=UNSET", "try_acquire": ""},
    "MultiLock": {"acquire": "*, timeout=UNSET", "try_acquire": ""},
    "RWLock": {"read": "", "write": ""},
    "Lease": {"remaining": "", "is_held": "", "check": "", "verify": "", "extend": "ttl", "release": ""},
    "MultiLease": {"remaining": "", "is_held": "", "check": "", "verify": "", "extend": "ttl", "release": ""},
    "Election": {"lead": "", "run": "fn, *, margin=None", "leader": "", "observe": "", "resign": ""},
}
ATTRIBUTES = {
    "Client": {"guarantees"},
    "Lease": {"name", "token", "owner", "mode", "ttl", "lost"},
    "MultiLease": {"names", "tokens", "lost"},
    "Lock": {"name"},
    "RWLock": {"name"},
    "MultiLock": {"names"},
    "Election": {"name"},
}

both = pytest.mark.parametrize(("blocking", "aio"), PAIRS, ids=[pair[0].__name__ for pair in PAIRS])


def public(cls: type) -> dict[str, Any]:
    return {name: inspect.getattr_static(cls, name) for name in dir(cls) if not name.startswith("_")}


def methods(cls: type) -> dict[str, Any]:
    return {name: value for name, value in public(cls).items() if inspect.isfunction(value)}


def shape(function: Any) -> list[tuple[str, Any, Any]]:
    return [(p.name, p.kind, p.default) for p in inspect.signature(function).parameters.values()]


def written(function: Any) -> str:
    """The parameters, as the contract writes them."""
    parameters = [
        parameter.replace(annotation=inspect.Parameter.empty)
        for parameter in inspect.signature(function).parameters.values()
        if parameter.name != "self"
    ]
    return str(inspect.Signature(parameters))[1:-1]


@both
def test_both_have_the_same_public_members(blocking: type, aio: type) -> None:
    assert set(public(blocking)) == set(public(aio))
    assert set(methods(blocking)) == set(methods(aio))


@both
def test_each_method_has_the_same_parameters_defaults_and_kinds(blocking: type, aio: type) -> None:
    ours, theirs = methods(blocking), methods(aio)
    assert {name: shape(ours[name]) for name in ours} == {name: shape(theirs[name]) for name in theirs}
    assert shape(blocking.__init__) == shape(aio.__init__)  # type: ignore[misc]


@both
def test_what_does_io_is_a_coroutine_there_and_nothing_is_here(blocking: type, aio: type) -> None:
    assert {n for n, m in methods(aio).items() if inspect.iscoroutinefunction(m)} == AWAITED[aio.__name__]
    assert {n for n, m in methods(aio).items() if inspect.isasyncgenfunction(m)} == ITERATED.get(
        aio.__name__, set()
    )
    awaitable = {
        n for n, m in methods(aio).items() if "Acquiring" in str(inspect.signature(m).return_annotation)
    }
    assert awaitable == ENTERED.get(aio.__name__, set())
    assert not any(
        inspect.iscoroutinefunction(m) or inspect.isasyncgenfunction(m) for m in methods(blocking).values()
    )


@both
def test_the_documentation_is_the_same_up_to_the_flavour(blocking: type, aio: type) -> None:
    """Where only the word for the flavour could differ, a difference is a mistake in one of them."""
    same = {"lock", "rwlock", "semaphore", "multi", "acquire", "try_acquire", "verify", "extend", "release"}
    same |= {"inspect", "list", "force_release", "close", "leader", "observe", "remaining", "check"}
    ours, theirs = methods(blocking), methods(aio)
    for name in set(ours) & same:
        assert ours[name].__doc__ == theirs[name].__doc__, name


@pytest.mark.parametrize("name", CONTRACT)
def test_methods_are_as_the_contract_says(name: str) -> None:
    found = methods(getattr(fencelock, name))
    assert {method: written(found[method]) for method in CONTRACT[name]} == CONTRACT[name]


@pytest.mark.parametrize("name", ATTRIBUTES)
def test_attributes_are_plain_in_both(name: str) -> None:
    for cls in (getattr(fencelock, name), getattr(fencelock, f"Async{name}")):
        for attribute in ATTRIBUTES[name]:
            assert isinstance(inspect.getattr_static(cls, attribute), property), (cls, attribute)


def test_clients_are_made_alike() -> None:
    for cls in (fencelock.Client, fencelock.AsyncClient):
        assert written(cls.__init__) == "target=None, *, namespace=None, client_name=None"


def test_one_is_a_context_manager_the_other_an_async_one() -> None:
    for blocking, aio in PAIRS[:1] + PAIRS[2:3] + PAIRS[4:5]:
        assert hasattr(blocking, "__enter__")
        assert not hasattr(blocking, "__aenter__")
        assert hasattr(aio, "__aenter__")
        assert not hasattr(aio, "__enter__")
