"""A fence on Redis or Valkey: comparison and write are one script, on your own client of redis-py.

    fence = RedisFence(redis.Redis())
    fence.set("document:1", text, token=lease.token)       # StaleToken if a newer one was seen

Beside each data key stands a fence key with the newest token, in the same slot of a Cluster: the hash tag
of the data key, or the whole of it, is the tag of the fence key. A script reads it, refuses an older token,
writes the token down and then does the write; Redis runs it as one step. The token comes first: if the
write itself fails (a wrong type, say), nothing but the mark has risen. Tokens are compared as digits, since
a number in Lua is exact to 53 bits only.

`delete` leaves the fence key: what was deleted must not be brought back by an older holder. So a key stays
for each data key until `forget`, or for `keep` after it was last used, if you say so: a holder that sleeps
longer gets through then.

Not promised, and for you to know:

- *Eviction*: with a policy `allkeys-*` the server may throw a fence away, and an older token passes again.
  Use `noeviction` or `volatile-*`; without `keep` fences have no expiry, and the latter leaves them alone.
- *A restart or failover* that loses the latest writes (no AOF, `everysec`, a replica that lags behind) loses
  fence and data together. They agree, but a stale holder may then write where the newer one was forgotten.
- *Other writers*: who writes the data key without its token is not stopped.

Errors of redis-py are raised as they are.
"""

from __future__ import annotations

import binascii
import hashlib
import inspect
import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib.resources import files
from typing import Any, NamedTuple

from fencelock.durations import Duration, duration
from fencelock.errors import ConfigurationError
from fencelock.fencing.rule import check_token, judge
from fencelock.names import shown

__all__ = ["AsyncFencedScript", "AsyncRedisFence", "FencedScript", "RedisFence"]

Key = str | bytes
Value = str | bytes | int | float

PREFIX = b"fencelock:fence:"
SLOTS = 16384
HEAD, TAIL = (files(__package__).joinpath("lua", name).read_text() for name in ("head.lua", "tail.lua"))


class Lua(NamedTuple):
    """A script between our head and tail, and its hash."""

    source: str
    sha: str


def fenced(body: str) -> Lua:
    """Wrap a script. The head has no line of its own, so lines in errors are those of the body."""
    head = " ".join(line for line in HEAD.splitlines() if not line.lstrip().startswith("--"))
    source = f"{head} {body}\n{TAIL}"
    return Lua(source, hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest())


ADMIT = fenced("return 1")
SET = fenced(
    "if ARGV[2] then return redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2]) end "
    "return redis.call('SET', KEYS[1], ARGV[1])"
)
HSET = fenced(  # in parts: Lua takes some thousands of arguments for one call
    "local new = 0 for i = 1, #ARGV, 1000 do "
    "new = new + redis.call('HSET', KEYS[1], unpack(ARGV, i, math.min(i + 999, #ARGV))) end return new"
)
INCR = fenced("return redis.call('INCRBY', KEYS[1], ARGV[1])")
DELETE = fenced("return redis.call('DEL', KEYS[1])")


class Plan(NamedTuple):
    """One call: what to run, and how to understand the answer."""

    lua: Lua
    keys: list[Key]
    args: list[Value]
    resource: str
    token: int

    def words(self) -> list[Any]:
        return [len(self.keys), *self.keys, *self.args]

    def result(self, answer: Any) -> Any:
        """Return what the script's body gave, or raise `StaleToken`."""
        passed = answer[0]
        told: Any = answer[1] if len(answer) == 2 else None
        if not passed:
            judge(self.resource, self.token, int(told))
        if isinstance(told, Exception):
            raise told
        return told


class Planner:
    """What both flavours have in common: everything but the call."""

    asynchronous = False

    def __init__(self, client: Any, *, keep: Duration | None = None) -> None:
        if not callable(getattr(client, "evalsha", None)) or hasattr(client, "command_stack"):
            raise ConfigurationError(f"client={shown(client)} is not a client of redis-py")
        if inspect.iscoroutinefunction(client.execute_command) is not self.asynchronous:
            other = "RedisFence" if self.asynchronous else "AsyncRedisFence"
            raise ConfigurationError(f"client={shown(client)} is of the other flavour: use {other}")
        self._client = client
        self._keep = _milliseconds(keep, "keep")

    def _plan(self, lua: Lua, keys: Sequence[Key], args: Sequence[Value], token: int) -> Plan:
        check_token(token)
        resource = _shown_key(keys[0])
        fence = fence_key(keys[0])
        return Plan(lua, [*keys, fence], [*args, token, self._keep], resource, token)

    def _plan_set(self, key: Key, value: Value, token: int, ttl: Duration | None) -> Plan:
        expiry = _milliseconds(ttl, "ttl")
        return self._plan(SET, [key], [_value(value), expiry] if expiry else [_value(value)], token)

    def _plan_hset(self, key: Key, mapping: Mapping[Any, Value], token: int) -> Plan:
        if not isinstance(mapping, Mapping) or not mapping:
            raise ConfigurationError(f"mapping={shown(mapping)} has no field to write")
        return self._plan(HSET, [key], [_value(word) for pair in mapping.items() for word in pair], token)

    def _plan_incr(self, key: Key, amount: int, token: int) -> Plan:
        if isinstance(amount, bool) or not isinstance(amount, int) or not -(2**63) <= amount < 2**63:
            raise ConfigurationError(f"amount={shown(amount)} is not a whole number of 64 bits")
        return self._plan(INCR, [key], [amount], token)


class RedisFence(Planner):
    """Writes to Redis or Valkey that an older token cannot do. `client` is redis-py's, Cluster too."""

    def admit(self, resource: Key, token: int) -> None:
        """Let `token` pass and remember it, or raise `StaleToken`. Begin with it, then read."""
        self._run(self._plan(ADMIT, [resource], [], token))

    def set(self, key: Key, value: Value, *, token: int, ttl: Duration | None = None) -> None:
        """Set a key; with `ttl` it expires, its fence does not."""
        self._run(self._plan_set(key, value, token, ttl))

    def hset(self, key: Key, mapping: Mapping[Any, Value], *, token: int) -> int:
        """Set fields of a hash; return how many are new."""
        return int(self._run(self._plan_hset(key, mapping, token)))

    def incr(self, key: Key, amount: int = 1, *, token: int) -> int:
        """Add to a number; return the sum."""
        return int(self._run(self._plan_incr(key, amount, token)))

    def delete(self, key: Key, *, token: int) -> bool:
        """Delete a key; say whether it was there. Its fence stays."""
        return bool(self._run(self._plan(DELETE, [key], [], token)))

    def script(self, source: str) -> FencedScript:
        """Wrap a Lua script of your own: it runs if the token passes."""
        return FencedScript(self, _checked(source))

    def newest(self, resource: Key) -> int:
        """Return the newest token that was seen; 0 if none was."""
        return int(self._client.get(fence_key(resource)) or 0)

    def forget(self, resource: Key) -> None:
        """Forget a resource that is no more: any token passes again."""
        self._client.delete(fence_key(resource))

    def _run(self, plan: Plan) -> Any:
        from redis.exceptions import NoScriptError

        try:
            answer = self._client.evalsha(plan.lua.sha, *plan.words())
        except NoScriptError:
            answer = self._client.eval(plan.lua.source, *plan.words())
        return plan.result(answer)


class AsyncRedisFence(Planner):
    """Does the same as `RedisFence`, over a client of `redis.asyncio`."""

    asynchronous = True

    async def admit(self, resource: Key, token: int) -> None:
        """Let `token` pass and remember it, or raise `StaleToken`. Begin with it, then read."""
        await self._run(self._plan(ADMIT, [resource], [], token))

    async def set(self, key: Key, value: Value, *, token: int, ttl: Duration | None = None) -> None:
        """Set a key; with `ttl` it expires, its fence does not."""
        await self._run(self._plan_set(key, value, token, ttl))

    async def hset(self, key: Key, mapping: Mapping[Any, Value], *, token: int) -> int:
        """Set fields of a hash; return how many are new."""
        return int(await self._run(self._plan_hset(key, mapping, token)))

    async def incr(self, key: Key, amount: int = 1, *, token: int) -> int:
        """Add to a number; return the sum."""
        return int(await self._run(self._plan_incr(key, amount, token)))

    async def delete(self, key: Key, *, token: int) -> bool:
        """Delete a key; say whether it was there. Its fence stays."""
        return bool(await self._run(self._plan(DELETE, [key], [], token)))

    def script(self, source: str) -> AsyncFencedScript:
        """Wrap a Lua script of your own: it runs if the token passes."""
        return AsyncFencedScript(self, _checked(source))

    async def newest(self, resource: Key) -> int:
        """Return the newest token that was seen; 0 if none was."""
        return int(await self._client.get(fence_key(resource)) or 0)

    async def forget(self, resource: Key) -> None:
        """Forget a resource that is no more: any token passes again."""
        await self._client.delete(fence_key(resource))

    async def _run(self, plan: Plan) -> Any:
        from redis.exceptions import NoScriptError

        try:
            answer = await self._client.evalsha(plan.lua.sha, *plan.words())
        except NoScriptError:
            answer = await self._client.eval(plan.lua.source, *plan.words())
        return plan.result(answer)


class FencedScript:
    """A script of yours behind a fence. `RedisFence.script` makes it."""

    def __init__(self, fence: RedisFence, lua: Lua) -> None:
        self._fence = fence
        self._lua = lua

    def __call__(self, *, keys: Sequence[Key], args: Sequence[Value] = (), token: int) -> Any:
        """Run it with these KEYS and ARGV; the first key is the resource. Return what the script returns."""
        return self._fence._run(self._fence._plan(self._lua, _keys(keys), list(args), token))


class AsyncFencedScript:
    """A script of yours behind a fence. `AsyncRedisFence.script` makes it."""

    def __init__(self, fence: AsyncRedisFence, lua: Lua) -> None:
        self._fence = fence
        self._lua = lua

    async def __call__(self, *, keys: Sequence[Key], args: Sequence[Value] = (), token: int) -> Any:
        """Run it with these KEYS and ARGV; the first key is the resource. Return what the script returns."""
        return await self._fence._run(self._fence._plan(self._lua, _keys(keys), list(args), token))


# Keys and values ----------------------------------------------------------------------------


def fence_key(key: Key) -> bytes:
    """Return the key of the fence: in the same slot, and no two data keys share one."""
    raw = _raw(key)
    tag = _tag(raw)
    if tag:
        return PREFIX + b"{" + tag + b"}:" + raw
    if b"}" not in raw:
        return PREFIX + b"{" + raw + b"}"
    return PREFIX + b"{%d}:" % _number_in(_slot(raw)) + raw  # in braces it would end too early


def _tag(key: bytes) -> bytes:
    """What a Cluster takes for the hash tag: between the first brace and the next one that closes."""
    _, opened, rest = key.partition(b"{")
    inside, closed, _ = rest.partition(b"}")
    return inside if opened and closed else b""


def _slot(key: bytes) -> int:
    return binascii.crc_hqx(_tag(key) or key, 0) % SLOTS


@lru_cache(maxsize=SLOTS)
def _number_in(slot: int) -> int:
    number = 0
    while _slot(b"%d" % number) != slot:
        number += 1
    return number


def _raw(key: Key) -> bytes:
    if isinstance(key, str):
        key = key.encode("utf-8", "surrogateescape")
    if not isinstance(key, bytes) or not key:
        raise ConfigurationError(f"key={shown(key)} is not a key: give a string or bytes that are not empty")
    return key


def _shown_key(key: Key) -> str:
    return _raw(key).decode("utf-8", "backslashreplace")


def _keys(keys: Sequence[Key]) -> list[Key]:
    if isinstance(keys, str | bytes) or not keys:
        raise ConfigurationError(f"keys={shown(keys)} is not a list of keys: the first is the resource")
    return [key for key in keys if _raw(key)]


def _value(value: Value) -> Value:
    if isinstance(value, bool) or not isinstance(value, str | bytes | int | float):
        raise ConfigurationError(f"value={shown(value)} is not text, bytes or a number: encode it")
    return value


def _milliseconds(span: Duration | None, what: str) -> int:
    if span is None:
        return 0
    seconds = duration(span, what)
    if not 0.001 <= seconds < math.inf:
        raise ConfigurationError(f"{what}={shown(span)} is out of range: give at least a millisecond")
    return round(seconds * 1000)


def _checked(source: str) -> Lua:
    if not isinstance(source, str) or not source.strip():
        raise ConfigurationError(f"source={shown(source)} is no script: give Lua as a string")
    if source.startswith("#!"):
        raise ConfigurationError("source begins with '#!', and such a script cannot be wrapped: leave it out")
    return fenced(source)
