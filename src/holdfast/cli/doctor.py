"""`holdfast doctor`: what a set-up promises, how fast it is, what is wrong with it.

It takes and releases locks under one random name and changes nothing else.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import click

from holdfast.backends import hide_password
from holdfast.backends.base import Finding
from holdfast.cli.options import as_json_option, backend_options, one_url, open_client, statuses
from holdfast.cli.promise import promise
from holdfast.cli.table import on_terminal, print_table
from holdfast.cli.text import shown, to_json
from holdfast.client import Client
from holdfast.connect import default_url
from holdfast.errors import BackendError
from holdfast.guarantees import Guarantees
from holdfast.lock import Lock
from holdfast.runtime.blocking import run

__all__ = ["doctor", "quantiles"]

ROUNDS = 50
LONGEST = 10.0
"""Seconds after which measuring stops: a slow backend is known by then."""
SEVERITIES = {"ok": 0, "note": 0, "warning": 1, "danger": 2}

HELP = """Say what a set-up promises, and measure it.

Connects, measures how long it takes to acquire and release a lock and to renew a lease, shows
what the backend guarantees, and reports what its settings change about that.

\b
Examples:
  holdfast doctor
  holdfast doctor sqlite:///var/lib/app/locks.db
  holdfast doctor --json redis://localhost | jq '.findings[] | select(.severity == "danger")'

"""

STATUSES = statuses(
    ("0", "all is well, perhaps with notes"),
    ("1", "warnings"),
    ("2", "danger: locks may not do here what they should"),
    ("69", "the backend is unavailable"),
    ("64", "wrong usage"),
)

Latency = dict[str, float]


@click.command("doctor", help=HELP + STATUSES, short_help="Say what a set-up promises, and measure it.")
@click.argument("target", metavar="[URL]", required=False)
@backend_options
@as_json_option
def doctor(target: str | None, url: str | None, namespace: str | None, as_json: bool) -> int:
    chosen = one_url(target, url) or default_url()
    with open_client(chosen, namespace) as locks:
        findings = list(run(locks._session.backend.doctor()))
        latency = _measured(locks, findings)
        guarantees = locks.guarantees
    if as_json:
        print(to_json(_plain(chosen, guarantees, latency, findings)))
    else:
        _report(chosen, guarantees, latency, findings)
    return max((SEVERITIES[finding.severity] for finding in findings), default=0)


def _measured(locks: Client, findings: Sequence[Finding]) -> dict[str, Latency]:
    """Measure, unless the findings say why nothing can be acquired: they are what the user needs then."""
    try:
        return measure(locks)
    except BackendError:
        if any(finding.severity == "danger" for finding in findings):
            return {}
        raise


def measure(locks: Client) -> dict[str, Latency]:
    """Return how long a pair of acquire and release takes, and a renewal, in seconds."""
    ttl = max(30.0, locks.guarantees.min_ttl)
    lock = locks.lock(f"holdfast-doctor-{os.urandom(8).hex()}", ttl=ttl, timeout=5)
    lock.acquire().release()  # connecting is not what is measured
    pairs = _rounds(lambda: _pair(lock))
    with lock as lease:
        renewals = _rounds(lambda: lease.extend(ttl))
    return {"acquire_release": quantiles(pairs), "renew": quantiles(renewals)}


def _pair(lock: Lock) -> None:
    lock.acquire().release()


def _rounds(step: Callable[[], object]) -> list[float]:
    times: list[float] = []
    began = time.perf_counter()
    while len(times) < ROUNDS and time.perf_counter() - began < LONGEST:
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)
    return times


def quantiles(times: Sequence[float]) -> Latency:
    """Return minimum, median and 99th percentile of at least one time."""
    ordered = sorted(times)
    last = len(ordered) - 1
    return {
        "min": ordered[0],
        "median": ordered[round(last * 0.5)],
        "p99": ordered[round(last * 0.99)],
        "rounds": len(ordered),
    }


def _plain(
    url: str, guarantees: Guarantees, latency: dict[str, Latency], findings: Sequence[Finding]
) -> dict[str, Any]:
    return {
        "url": hide_password(url),
        "promise": promise(guarantees),
        "guarantees": guarantees.as_dict(),
        "latency_seconds": latency,
        "findings": [
            {
                "severity": finding.severity,
                "subject": finding.subject,
                "detail": finding.detail,
                "advice": finding.advice,
            }
            for finding in findings
        ],
    }


def _report(
    url: str, guarantees: Guarantees, latency: dict[str, Latency], findings: Sequence[Finding]
) -> None:
    _heading(shown(hide_password(url)))
    print(promise(guarantees))
    _heading("Guarantees")
    print_table(("WHAT", "PROMISE"), _guarantee_rows(guarantees))
    if latency:
        _heading("Latency")
        print_table(("STEP", "MIN", "MEDIAN", "P99"), [_latency_row(*item) for item in latency.items()])
    if findings:
        _heading("Findings")
        print_table(("SEVERITY", "SUBJECT", "FINDING", "ADVICE"), [_finding_row(each) for each in findings])


def _heading(text: str) -> None:
    if on_terminal():
        from rich.console import Console
        from rich.text import Text

        Console(highlight=False).print(Text(f"\n{text}", style="bold"))
    else:
        print(f"\n{text}\n")
    sys.stdout.flush()


def _guarantee_rows(guarantees: Guarantees) -> list[tuple[str, str]]:
    fields = guarantees.as_dict()
    caveats = fields.pop("caveats")
    fields["min_ttl"] = f"{guarantees.min_ttl:g}s"
    rows = [(key.replace("_", " "), shown(str(value))) for key, value in fields.items()]
    return [*rows, *(("caveat", shown(caveat)) for caveat in caveats)]


def _latency_row(step: str, latency: Latency) -> tuple[str, ...]:
    figures = (f"{latency[key] * 1000:.3f} ms" for key in ("min", "median", "p99"))
    return (step.replace("_", " + "), *figures)


def _finding_row(finding: Finding) -> tuple[str, ...]:
    return (finding.severity, shown(finding.subject), shown(finding.detail), shown(finding.advice))
