"""`fencelock elect` with real processes: one leads, losing it stops the command, then it stands again."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_helpers import alive, fencelock_command, pids_in, running, wait_held, wait_until
from redis_desk import proxied
from tools.servers import start

import fencelock


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite://{tmp_path}/locks.db"


@pytest.fixture
def locks(url: str) -> Iterator[fencelock.Client]:
    with fencelock.Client(url) as client:
        yield client


@pytest.mark.parametrize("status", [0, 7])
def test_command_that_ends_resigns(url: str, locks: fencelock.Client, status: int) -> None:
    script = f'test -n "$FENCELOCK_TOKEN" && test "$FENCELOCK_NAME" = boss && exit {status}; exit 99'
    assert fencelock_command(url, "elect", "boss", "--", "sh", "-c", script).returncode == status
    assert locks.inspect("boss").is_free


def test_campaigns_again_after_a_loss(url: str, locks: fencelock.Client, tmp_path: Path) -> None:
    terms = tmp_path / "terms"
    script = f"echo $$ >> {terms}; sleep 100"
    with running(url, "elect", "--ttl", "1s", "boss", "--", "sh", "-c", script) as process:
        tokens = []
        for term in range(1, 4):
            pids = pids_in(terms, term)
            assert not [pid for pid in pids[:-1] if alive(pid)]
            tokens.append(wait_held(locks, "boss").token)
            if term < 3:
                assert locks.force_release("boss")
        assert tokens == sorted(set(tokens))
        process.terminate()
        assert process.wait(30) == 143
        assert not [pid for pid in pids_in(terms, 3) if alive(pid)]
    assert locks.inspect("boss").is_free


def test_standby_takes_over(url: str, locks: fencelock.Client, tmp_path: Path) -> None:
    script = f"echo $$ >> {tmp_path}/terms; sleep 100"
    args = ["elect", "--ttl", "1s", "boss", "--", "sh", "-c", script]
    with running(url, *args) as first:
        wait_held(locks, "boss")
        with running(url, *args) as second:
            wait_until(lambda: locks.inspect("boss").waiters, "a standby")
            pids_in(tmp_path / "terms", 1)  # the first has come so far
            first.kill()
            old, new = pids_in(tmp_path / "terms", 2)
            assert wait_held(locks, "boss").pid == second.pid
            wait_until(lambda: not alive(old), "the old leader's command is gone")
            second.terminate()
            assert second.wait(30) == 143
            assert not alive(new)


def test_no_new_campaign_after_sigterm(url: str, locks: fencelock.Client, tmp_path: Path) -> None:
    """SIGTERM to a command that is deaf to it, then a loss: that is an end, not another term."""
    deaf = (
        "import os, signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
        f"open({str(tmp_path / 'terms')!r}, 'a').write(f'{{os.getpid()}}\\n'); time.sleep(100)"
    )
    args = ["elect", "--ttl", "1s", "--grace", "300ms", "boss", "--", sys.executable, "-c", deaf]
    with running(url, *args) as process:
        pids_in(tmp_path / "terms")
        process.send_signal(signal.SIGTERM)
        locks.force_release("boss")
        assert process.wait(30) == 143
    assert len(pids_in(tmp_path / "terms")) == 1


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_signal_ends_the_campaign(url: str, locks: fencelock.Client, signum: signal.Signals) -> None:
    with locks.lock("boss"), running(url, "elect", "boss", "--", "true") as process:
        wait_until(lambda: locks.inspect("boss").waiters, "a candidate")
        process.send_signal(signum)
        assert process.wait(30) == 128 + signum
        assert not locks.inspect("boss").waiters


def test_statuses(url: str, tmp_path: Path) -> None:
    assert fencelock_command(url, "elect", "boss", "--", "no-such-command").returncode == 127
    assert fencelock_command(url, "elect", "boss", "--", str(tmp_path)).returncode == 126
    assert fencelock_command(url, "elect", "boss").returncode == 64
    nowhere = f"sqlite://{tmp_path}/no/such/folder/locks.db"
    assert fencelock_command(nowhere, "elect", "boss", "--", "true").returncode == 69


@pytest.fixture(scope="module")
def redis() -> Iterator[str]:
    with start("redis") as group:
        yield group.url


def test_a_backend_that_is_away_at_the_beginning_is_waited_for(redis: str, tmp_path: Path) -> None:
    """One line when it is away, one when it is back; and a signal ends the campaign meanwhile."""
    with proxied(redis) as (proxy, url):
        proxy.refuse()
        with running(url, "elect", "late", "--", "true") as process, (tmp_path / "said").open("w") as said:
            other = running(url, "elect", "late", "--", "true", stderr=said)
            with other as interrupted:
                assert process.stderr is not None
                assert (
                    "the campaign for 'late' goes on, though the store is away: " in process.stderr.readline()
                )
                wait_until(lambda: "away" in (tmp_path / "said").read_text(), "the other campaigns as well")
                interrupted.send_signal(signal.SIGTERM)
                assert interrupted.wait(30) == 143
            proxy.accept()
            assert process.wait(60) == 0
            assert "the campaign for 'late': the store is back after " in process.stderr.readline()
            assert process.stderr.read() == ""


def test_a_command_that_is_deaf_is_gone_before_anyone_else_leads(redis: str, tmp_path: Path) -> None:
    """Cut off from the backend it gets SIGTERM a grace before the lease runs out, and SIGKILL in time."""
    terms, both = tmp_path / "terms", tmp_path / "both"
    deaf = (
        f"for old in $(cat {terms} 2>/dev/null); do kill -0 $old 2>/dev/null && echo $old >> {both}; done; "
        f"trap '' TERM; echo $$ >> {terms}; while :; do sleep 0.05; done"
    )
    args = ["elect", "--ttl", "6s", "--grace", "1s", "deaf", "--", "sh", "-c", deaf]
    with proxied(redis) as (proxy, url), running(url, *args), fencelock.Client(redis) as locks:
        (first,) = pids_in(terms, 1)
        with running(redis, *args):
            wait_until(lambda: locks.inspect("deaf").waiters, "a standby")
            with proxy.blackhole():
                assert pids_in(terms, 2)[0] == first
                assert not alive(first)
    assert not both.exists()
