"""What a session is told when it begins: the settings of a role or a database must not get in its way."""

from __future__ import annotations

__all__ = ["settings_for"]

SETTINGS = {  # by the version of the server that knows them
    0: {
        "search_path": "pg_catalog",
        "default_transaction_isolation": "'read committed'",
        "statement_timeout": "0",
        "lock_timeout": "0",
        "idle_in_transaction_session_timeout": "0",
        # What touches unlogged tables only needs no flush; what must be on disk says so itself.
        "synchronous_commit": "off",
        "enable_seqscan": "off",
        "enable_bitmapscan": "off",
        "enable_nestloop": "off",  # looking at thousands of locks would take their square
        "plan_cache_mode": "force_generic_plan",
        "jit": "off",
    },
    140000: {
        "idle_session_timeout": "0",
        # A waiter whose process died leaves the queue, though the server has nothing to say to it.
        "client_connection_check_interval": "1000",
    },
    170000: {"transaction_timeout": "0"},
}


def settings_for(dead_after: int, version: int) -> str:
    """Return the script that makes a session fit: the server gives up a client that is silent for so long."""
    interval = max(1, dead_after // 6)
    chosen = {
        "tcp_keepalives_idle": str(max(1, dead_after // 3)),
        "tcp_keepalives_interval": str(interval),
        "tcp_keepalives_count": "10",  # the time below decides
        "tcp_user_timeout": str(max(1, dead_after - interval) * 1000),
    }
    for since, more in SETTINGS.items():
        if version >= since:
            chosen |= more
    return " ".join(f"SET {name} = {value};" for name, value in chosen.items())
