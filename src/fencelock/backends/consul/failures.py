"""What Consul says when something is wrong, in fencelock's words. Never a token.

`BackendUnavailable` is what may pass: no connection, no leader, an election. It is not transient where
asking again in a second cannot help: a wrong token, a missing right, a server that is no Consul.
"""

from __future__ import annotations

from fencelock.backends import RIGHTS
from fencelock.backends.consul.protocol import Answer
from fencelock.errors import BackendUnavailable
from fencelock.net.failures import Failures

__all__ = ["BACKEND", "FAILURES", "NO_RIGHT", "no_consul", "refused", "said"]

BACKEND = "consul"
LONGEST = 200

NO_CONSUL = "it does not speak Consul's protocol: is this the port of its HTTP interface?"
NO_RIGHT = (
    "this token may not do that: it needs key_prefix write on the prefixes of its keys, "
    f"and session write and node write on the node fencelock (see {RIGHTS})"
)
FAILURES = Failures(BACKEND, NO_CONSUL, ", or has too many from here (http_max_conns_per_client)")
LASTING = {
    "ACL not found": "it does not know this token",
    "Permission denied": NO_RIGHT,
    "HTTP request to an HTTPS server": "it wants TLS: add tls=yes, or cacert=…",
    "No path to datacenter": "it knows no such datacentre: leave out dc=…, or give the right one",
    "Invalid Session TTL": "it does not take so short or so long a session: see its session_ttl_min",
    "too large": "the record is larger than it takes (kv_max_value_size)",
}
PASSING = {
    "No cluster leader": "it has no leader: too few of its servers are up, or they elect one",
    "No known Consul servers": "it knows no server",
    "leadership lost": "its leader has changed",
    "node is not the leader": "its leader has changed",
    "Too Many Requests": "it takes no more connections from here (http_max_conns_per_client)",
    "rpc error getting client": "it does not reach its leader",
    "rate limit": "it is overloaded",
}


def _meaning(text: str) -> tuple[str | None, bool]:
    """Return what words of Consul's mean, and whether that may pass."""
    for words, told in LASTING.items():
        if words in text:
            return told, False
    return next((told for words, told in PASSING.items() if words in text), None), True


def said(label: str, answer: Answer) -> BackendUnavailable:
    """Return a refusal in one line."""
    text = " ".join(answer.body.decode("utf-8", "replace").split())
    meaning, passing = _meaning(text)
    if meaning is None and answer.status == 403:
        meaning, passing = NO_RIGHT, False
    if meaning is None and answer.status == 429:
        meaning = PASSING["Too Many Requests"]
    if meaning is None and answer.status < 500:
        meaning, passing = NO_CONSUL, False
    if meaning is None:
        meaning = text[:LONGEST] if text.isprintable() and "<" not in text else f"status {answer.status}"
    return FAILURES.unavailable(f"{label}: {meaning}", transient=passing)


def refused(label: str, what: str) -> BackendUnavailable:
    """A transaction that was not done, for no reason of ours."""
    meaning, passing = _meaning(what)
    what = " ".join(what.split())[:LONGEST]
    return FAILURES.unavailable(f"{label}: {meaning or what}", transient=passing)


def no_consul(label: str) -> BackendUnavailable:
    """It is something else."""
    return FAILURES.unavailable(f"{label}: {NO_CONSUL}", transient=False)
