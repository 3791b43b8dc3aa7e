"""The plain-language sentence: "With this set-up fencelock promises …", made from the guarantees."""

from __future__ import annotations

from fencelock.guarantees import Guarantees

__all__ = ["promise"]

SCOPES = {
    "process": "among the threads and tasks of one process",
    "host": "among all processes of this host",
    "cluster": "among all machines that reach this backend",
}
FENCING = {
    "durable": "tokens rise across crashes and power loss",
    "until-restart": "tokens rise until the backend is restarted",
    "best-effort": "tokens rise as well as clocks and replicas allow, and no better",
}
CRASHES = {
    "ttl": "a holder that crashes keeps its lock for at most its ttl",
    "session": "a holder that crashes keeps its lock until its session ends",
    "connection": "a holder that crashes keeps its lock until its connection is found dead",
}


def promise(guarantees: Guarantees, because: str = "") -> str:
    """Return one sentence that a person can rely on; `because` says why no lock can be acquired at all."""
    if because:
        return f"With this set-up fencelock promises nothing: no lock can be acquired ({because})."
    where = SCOPES[guarantees.scope]
    order = ", first come first served" if guarantees.fairness == "fifo" else ", in no particular order"
    if guarantees.use_for == "correctness":
        core = f"that a lock has one holder at a time {where}{order}, given that the resource checks tokens"
    else:
        core = f"that a lock nearly always has one holder at a time {where}{order}"
    tail = f"{FENCING[guarantees.fencing]}, and {CRASHES[guarantees.crash_release]}"
    end = (
        "it may guard data"
        if guarantees.use_for == "correctness"
        else "a rare double grant is possible: use it to save work, not to guard data"
    )
    return f"With this set-up fencelock promises {core}; {tail}; {end}."
