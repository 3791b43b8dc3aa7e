"""Celery: a task that runs once for its key, among all workers.

    app.conf.fencelock_url = "redis://localhost"        # else $FENCELOCK_URL, else an embedded file

    @app.task(base=Once, bind=True, acks_late=True, once={"key": "invoice:{invoice}"})
    def pay(self, invoice): ...                        # self.lease.token, self.lease.check()

A task runs under the lock that its key names; without a key, its name and all its arguments do. The lease is
renewed while it runs. If it is lost the task fails with `LeaseLost` instead of reporting a result, and learns
of it before that only by `self.lease.check()`.

What becomes of a task that finds its lock taken is said by `busy`:

    skip     it is not run: its state is REVOKED, with the reason, and no callback of it runs (the default)
    retry    it is sent again, to come in `countdown` seconds; that costs none of its retries
    wait     it waits in the worker for at most `timeout` seconds, then it fails with `AcquireTimeout`

A message that was delivered again (its worker died, or was slow beyond the broker's visibility timeout) is
never skipped, but sent again as with `retry`: to skip it would be to acknowledge it while the first one may
still die, and then nobody would do it. So is every task while the backend of the locks cannot be reached.

With `store`, the result of a finished task is kept (`fencelock.idempotency`), and a message that is delivered
again after that gets it instead of a second run. `per="key"` goes further: for as long as the store keeps
it, nothing with the same key is run again, whoever sends it. The lock comes first, so an attempt that takes
longer than the store's ttl is not begun twice.

Not promised: a task that died in the middle is begun again (with `acks_late` and
`task_reject_on_worker_lost`), when its lease has run out. Whether its effect had happened nobody knows but
the resource: give it the token, or use `once` of `fencelock.idempotency` in the transaction of the effect.
"""

from __future__ import annotations

import inspect
import logging
import weakref
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Literal, NoReturn

from fencelock.client import Client
from fencelock.contrib.calls import Call, current_lease, held, missing
from fencelock.durations import Duration, duration, optional_duration
from fencelock.errors import AcquireTimeout, BackendError, ConfigurationError, FencelockError
from fencelock.extras import refuse_old
from fencelock.idempotency import InProgress, Store, fingerprint
from fencelock.lease import Lease
from fencelock.names import shown
from fencelock.templates import Template

try:
    refuse_old("celery", "fencelock.contrib.celery")
    from celery import Task  # type: ignore[import-untyped]
    from celery.exceptions import Ignore, Reject, Retry  # type: ignore[import-untyped]
except ModuleNotFoundError as error:
    raise missing(error, "celery") from error

__all__ = ["Once", "Policy", "current_lease", "locks_of"]

log = logging.getLogger("fencelock")

_clients: weakref.WeakKeyDictionary[Any, Client] = weakref.WeakKeyDictionary()


def locks_of(app: Any) -> Client:
    """Return the client of a Celery app: of `fencelock_url` and `fencelock_namespace` in its settings.

    It is made at the first use and shared by the threads of a process; a forked worker connects for itself.
    """
    found = _clients.get(app)
    if found is None:  # two threads may come here at once: then one client is forgotten, unopened
        found = Client(app.conf.get("fencelock_url"), namespace=app.conf.get("fencelock_namespace"))
        found = _clients.setdefault(app, found)
    return found


@dataclass(frozen=True)
class Policy:
    """How a task is run once: what names it, and what becomes of one that finds its lock taken."""

    key: str | None = None
    """A template of the task's arguments; without it the task's name and all its arguments."""
    busy: Literal["skip", "retry", "wait"] = "skip"
    ttl: Duration = 30.0
    timeout: Duration | None = None
    """Of `busy="wait"`."""
    countdown: Duration = 5.0
    """Seconds until a task that was sent again comes."""
    store: Store | None = None
    """Where results are kept."""
    per: Literal["task", "key"] = "task"
    """What is not run again once it was done: a task that was delivered again, or whatever has its key."""

    def __post_init__(self) -> None:
        """Check it: a task is refused when it is made."""
        if self.key is not None:
            Template(self.key)
        if self.busy not in {"skip", "retry", "wait"}:
            raise ConfigurationError(f"busy={shown(self.busy)} is not known: give skip, retry or wait")
        if self.per not in {"task", "key"}:
            raise ConfigurationError(f"per={shown(self.per)} is not known: give task or key")
        if self.store is not None and not isinstance(self.store, Store):
            raise ConfigurationError(f"store={shown(self.store)} is no fencelock.idempotency.Store")
        duration(self.ttl, "ttl")
        duration(self.countdown, "countdown")
        optional_duration(self.timeout, "timeout")

    @classmethod
    def of(cls, given: Policy | Mapping[str, Any] | None) -> Policy:
        """Return what a task's `once` says."""
        if given is None or isinstance(given, Policy):
            return given or cls()
        if not isinstance(given, Mapping):
            raise ConfigurationError(f"once={shown(given)} is no policy: give a dict, such as {{'key': …}}")
        unknown = [key for key in given if key not in cls.__dataclass_fields__]
        if unknown:
            known = ", ".join(cls.__dataclass_fields__)
            raise ConfigurationError(f"once={shown(given)} has {unknown[0]!r}, which is none of {known}")
        return cls(**given)


class Once(Task):  # type: ignore[misc]
    """The base of tasks that run once for their key: `@app.task(base=Once, once={"key": "invoice:{id}"})`."""

    abstract = True
    once: Policy | Mapping[str, Any] | None = None
    """The task's policy, or a dict of its fields."""

    @classmethod
    def on_bound(cls, app: Any) -> None:
        """Check the policy when the application is made ready."""
        policy = Policy.of(cls.once)
        if policy.key is not None:
            Call(cls.run, Template(policy.key))
        super().on_bound(app)

    @property
    def lease(self) -> Lease:
        """The lease that this task runs under."""
        lease = current_lease()
        assert isinstance(lease, Lease)
        return lease

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the task under its lock, or do what its policy says."""
        policy = Policy.of(self.once)
        name, contents = self._named(policy, args, kwargs)
        lock = locks_of(self.app).lock(
            name,
            ttl=policy.ttl,
            timeout=policy.timeout if policy.busy == "wait" else 0,
            metadata={"task": self.request.id},
        )
        with ExitStack() as stack:
            try:
                stack.enter_context(held(lock))
            except AcquireTimeout as error:
                self._busy(policy, error)
            except BackendError as error:
                self._unavailable(policy, error)
            return self._done(policy, name, contents, args, kwargs)

    def _named(self, policy: Policy, args: Any, kwargs: Any) -> tuple[str, str]:
        """Return the lock's name, and a fingerprint of what the task was asked for."""
        contents = ""
        if policy.key is None or policy.store is not None:
            bound = inspect.signature(self.run).bind(*args, **kwargs)
            bound.apply_defaults()
            try:
                contents = fingerprint(self.name, bound.arguments)
            except ConfigurationError as error:
                raise ConfigurationError(
                    f"arguments of task {self.name} cannot be compared, give once a key: {error}"
                ) from error
        if policy.key is None:
            return f"{self.name}:{contents}", contents
        return Call(self.run, Template(policy.key)).name(tuple(args), dict(kwargs)), contents

    def _done(self, policy: Policy, name: str, contents: str, args: Any, kwargs: Any) -> Any:
        if policy.store is None or (policy.per == "task" and not self.request.id):
            return self._worked(args, kwargs)
        key = name if policy.per == "key" else f"{self.name}:{self.request.id}"
        try:
            return policy.store.run(key, contents, lambda _: self._worked(args, kwargs), timeout=0)
        except InProgress as error:  # of one that died, or has lost its lease
            self._busy(policy, error, is_same=True)

    def _worked(self, args: Any, kwargs: Any) -> Any:
        if self.request.called_directly:
            return super().__call__(*args, **kwargs)
        return self.run(*args, **kwargs)  # the tracer has pushed the request already

    def _busy(self, policy: Policy, error: AcquireTimeout | InProgress, *, is_same: bool = False) -> NoReturn:
        request = self.request
        if request.called_directly or request.is_eager or (policy.busy == "wait" and not is_same):
            raise error
        if policy.busy == "retry" or is_same or self._is_delivered_again(error):
            self._send_again(policy, error)
        log.info("task %s[%s] is skipped: %s", self.name, request.id, error)
        is_kept = not (request.ignore_result or self.ignore_result)
        self.backend.mark_as_revoked(request.id, str(error), request=request, store_result=is_kept)
        raise Ignore(str(error))

    def _unavailable(self, policy: Policy, error: BackendError) -> NoReturn:
        """Without locks a task is not run, and not given up either."""
        if self.request.called_directly or self.request.is_eager:
            raise error
        log.warning("task %s[%s] is sent again: %s", self.name, self.request.id, error)
        self._send_again(policy, error)

    def _is_delivered_again(self, error: FencelockError) -> bool:
        holder = getattr(error, "holder", None)
        metadata = getattr(holder, "metadata", None)
        by_itself = isinstance(metadata, dict) and metadata.get("task") == self.request.id
        return by_itself or bool((self.request.delivery_info or {}).get("redelivered"))

    def _send_again(self, policy: Policy, error: FencelockError) -> NoReturn:
        countdown = duration(policy.countdown, "countdown")
        again = self.signature_from_request(self.request, countdown=countdown, retries=self.request.retries)
        try:
            again.apply_async()
        except Exception as failure:
            raise Reject(failure, requeue=True) from failure
        raise Retry(str(error), exc=error, when=countdown, sig=again)
