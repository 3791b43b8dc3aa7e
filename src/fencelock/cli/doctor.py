"""`fencelock doctor`: what a set-up promises, how fast it is, what is wrong with it.

1. The backend looks at its servers' settings, and at their clocks (`fencelock.backends.checkup`).
2. Locks are taken and released under one random name, and one lease is renewed: how long that takes.
3. The guarantees, refined by the findings, become one sentence.

It changes nothing else. A set-up in which no lock can be acquired is told by its findings.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import click

from fencelock.backends import hide_password
from fencelock.backends.checkup import Checkup, Latency, examine, quantiles
from fencelock.cli import status
from fencelock.cli.options import as_json_option, backend_options, one_url, open_client, statuses
from fencelock.cli.table import on_terminal, print_table
from fencelock.cli.text import shown, to_json
from fencelock.client import Client
from fencelock.connect import default_url
from fencelock.errors import AcquireTimeout, BackendError, BackendUnavailable
from fencelock.findings import SEVERITIES, Finding, Pulse, worst
from fencelock.guarantees import Guarantees
from fencelock.lock import Lock
from fencelock.promise import promise
from fencelock.runtime.blocking import run

__all__ = ["doctor", "verdict"]

ROUNDS = 50
LONGEST = 10.0
"""Seconds after which measuring stops: a slow backend is known by then."""

WORDS = {"clock": "a clock jump breaks", "failover": "a failover breaks", "restart": "a restart breaks"}
"""What a field is called in the table, where its name does not say it."""

HELP = """Say what a set-up promises, and measure it.

Connects, reads the server's settings, and says what they mean for a lock, what is wrong first.
Measures a round trip, how long it takes to acquire and release a lock and to renew a lease, and by
how much the server's clock differs from this machine's. Ends with what this set-up promises.

\b
Findings are of four severities:
  critical  locks do not work here, or do not do what they should
  warning   sooner or later they will not
  notice    worth knowing
  ok        looked at, and well

\b
Examples:
  fencelock doctor
  fencelock doctor sqlite:///var/lib/app/locks.db
  fencelock doctor --fail-on warning postgresql://app@db/prod     # in CI
  fencelock doctor --json redis://localhost | jq '.findings[] | select(.severity == "critical")'

"""

STATUSES = statuses(
    ("0", "nothing is as bad as what --fail-on names"),
    ("1", "warnings, with --fail-on warning"),
    ("2", "something is critical"),
    ("69", "the backend is unavailable"),
    ("64", "wrong usage"),
)


class Report(NamedTuple):
    """Everything that is shown."""

    url: str
    checkup: Checkup
    latency: Mapping[str, Latency]
    promise: str


@click.command("doctor", help=HELP + STATUSES, short_help="Say what a set-up promises, and measure it.")
@click.argument("target", metavar="[URL]", required=False)
@backend_options
@click.option(
    "--fail-on",
    type=click.Choice(["warning", "critical"]),
    default="critical",
    help="From which severity on the exit status tells. Default: critical.",
)
@as_json_option
def doctor(target: str | None, url: str | None, namespace: str | None, fail_on: str, as_json: bool) -> int:
    chosen = one_url(target, url) or default_url()
    with open_client(chosen, namespace) as locks:
        report = _look(locks, chosen)
    if as_json:
        print(to_json(_plain(report)))
    else:
        _show(report)
    return verdict(report.checkup.findings, fail_on)


def verdict(findings: Sequence[Finding], fail_on: str) -> int:
    """Return the exit status: that of the worst finding, if it is as bad as `fail_on`."""
    found = worst(findings)
    if SEVERITIES.index(found) > SEVERITIES.index(fail_on):
        return status.OK
    return status.CRITICAL if found == "critical" else status.WARNINGS


def _look(locks: Client, url: str) -> Report:
    checkup = run(examine(locks._session.backend))
    latency = {"round_trip": quantiles(checkup.trips)} if checkup.trips else {}
    because = ""
    try:
        latency |= measure(locks)
    except (BackendError, AcquireTimeout) as error:
        # The findings say why, if one of them is critical: they are what the user needs then.
        if worst(checkup.findings) != "critical":
            if not isinstance(error, BackendUnavailable) or error.transient:
                raise
            cannot = Finding("critical", "locks", f"none can be taken: {error.detail}")
            checkup = replace(checkup, findings=[cannot, *checkup.findings])
        because = f"{checkup.findings[0].subject}: {checkup.findings[0].detail}"
    return Report(url, checkup, latency, promise(checkup.guarantees, because))


def measure(locks: Client) -> dict[str, Latency]:
    """Return how long a pair of acquire and release takes, and a renewal, in seconds."""
    guarantees = locks.guarantees
    ttl = min(max(30.0, guarantees.min_ttl), guarantees.max_ttl)
    lock = locks.lock(f"fencelock-doctor-{os.urandom(8).hex()}", ttl=ttl, timeout=5)
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


def _plain(report: Report) -> dict[str, Any]:
    checkup = report.checkup
    return {
        "url": hide_password(report.url),
        "worst": worst(checkup.findings),
        "promise": report.promise,
        "guarantees": checkup.guarantees.as_dict(),
        "latency_seconds": report.latency,
        "clocks": [
            {"server": each.server, "offset_seconds": each.offset, "uncertainty_seconds": each.uncertainty}
            for each in checkup.clocks
        ],
        "findings": [finding.as_dict() for finding in checkup.findings],
    }


def _show(report: Report) -> None:
    checkup = report.checkup
    _heading(shown(hide_password(report.url)))
    if checkup.findings:
        header = ("SEVERITY", "SUBJECT", "SETTING", "FINDING", "ADVICE")
        print_table(header, [_finding_row(each) for each in checkup.findings])
    if report.latency:
        _heading("Latency")
        rows = [_latency_row(*item) for item in report.latency.items()]
        print_table(("STEP", "MIN", "MEDIAN", "P95", "P99"), rows)
    if checkup.clocks:
        _heading("Clocks, beside this machine's")
        print_table(("SERVER", "OFFSET", "UNCERTAINTY"), [_clock_row(each) for each in checkup.clocks])
    _heading("Guarantees")
    print_table(("WHAT", "PROMISE"), _guarantee_rows(checkup.guarantees))
    _heading(report.promise)


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
    fields["max_ttl"] = f"{guarantees.max_ttl:g}s"
    rows = [(WORDS.get(key, key.replace("_", " ")), shown(str(value))) for key, value in fields.items()]
    return [*rows, *(("caveat", shown(caveat)) for caveat in caveats)]


def _latency_row(step: str, latency: Latency) -> tuple[str, ...]:
    name = "round trip" if step == "round_trip" else step.replace("_", " + ")
    return (name, *(f"{latency[key] * 1000:.3f} ms" for key in ("min", "median", "p95", "p99")))


def _clock_row(pulse: Pulse) -> tuple[str, ...]:
    offset, sure = pulse.offset or 0.0, pulse.uncertainty
    return (shown(pulse.server), f"{offset * 1000:+.1f} ms", f"± {sure * 1000:.1f} ms")


def _finding_row(finding: Finding) -> tuple[str, ...]:
    texts = (finding.subject, finding.setting, finding.detail, finding.advice)
    return (finding.severity, *(shown(text) for text in texts))
