"""`fencelock run` with real processes: exit statuses, signals, loss, and who is gone before what."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_helpers import (
    FENCELOCK,
    alive,
    environment,
    fencelock_command,
    kill_all,
    never_free_while_alive,
    pids_in,
    running,
    wait_held,
    wait_until,
)

import fencelock

STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
"""The beginning of a program that does not mind SIGTERM."""


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite://{tmp_path}/locks.db"


@pytest.fixture
def locks(url: str) -> Iterator[fencelock.Client]:
    with fencelock.Client(url) as client:
        yield client


def python(program: str) -> list[str]:
    return [sys.executable, "-c", program]


def note_pid(path: Path) -> str:
    """A statement that writes the process id down."""
    return f"import os; open({str(path)!r}, 'a').write(f'{{os.getpid()}}\\n')"


# Exit statuses --------------------------------------------------------------------------


@pytest.mark.parametrize("status", [0, 7, 255])
def test_status_of_command(url: str, status: int) -> None:
    assert fencelock_command(url, "run", "job", "--", "sh", "-c", f"exit {status}").returncode == status


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGKILL, signal.SIGINT])
def test_status_of_signalled_command(url: str, signum: signal.Signals) -> None:
    assert fencelock_command(url, "run", "job", "--", "sh", "-c", f"kill -{signum.value} $$").returncode == (
        128 + signum
    )


def test_not_acquired_is_75(url: str, locks: fencelock.Client) -> None:
    with locks.lock("job"):
        for options in (["--try"], ["--wait", "50ms"], ["--wait", "0"]):
            result = fencelock_command(url, "run", *options, "job", "--", "echo", "ran")
            assert (result.returncode, result.stdout) == (75, "")
            assert result.stderr.startswith("fencelock: lock 'job' not acquired within")
            assert len(result.stderr.splitlines()) == 1
        assert not locks.inspect("job").waiters


@pytest.mark.parametrize("option", ["-E", "--conflict-exit-code"])
def test_conflict_exit_code(url: str, locks: fencelock.Client, option: str) -> None:
    with locks.lock("job"):
        assert fencelock_command(url, "run", "--try", option, "0", "job", "--", "true").returncode == 0


def test_lost_is_76(url: str, locks: fencelock.Client) -> None:
    with running(url, "run", "--ttl", "1s", "job", "--", "sleep", "100") as process:
        wait_held(locks, "job")
        assert locks.force_release("job")
        _, stderr = process.communicate(timeout=30)
    assert process.returncode == 76
    assert "was lost" in stderr and "stopping the command" in stderr


def test_backend_unavailable_is_69(tmp_path: Path) -> None:
    (tmp_path / "locks.db").write_text("this is no database, and it is long enough to be sure of that\n" * 99)
    result = fencelock_command(f"sqlite://{tmp_path}/locks.db", "run", "job", "--", "echo", "ran")
    assert (result.returncode, result.stdout) == (69, "")
    assert result.stderr.startswith("fencelock: ") and len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    "args",
    [
        ["run"],
        ["run", "job"],
        ["run", "job", "--"],
        ["run", "job", "true"],
        ["run", "", "--", "true"],
        ["run", "--ttl", "soon", "job", "--", "true"],
        ["run", "--ttl", "0", "job", "--", "true"],
        ["run", "--wait", "-1", "job", "--", "true"],
        ["run", "--try", "--wait", "1", "job", "--", "true"],
        ["run", "--shared", "--slots", "2", "job", "--", "true"],
        ["run", "--slots", "0", "job", "--", "true"],
        ["run", "-E", "256", "job", "--", "true"],
        ["run", "--metadata", "{", "job", "--", "true"],
        ["run", "--url", "nonsense", "job", "--", "true"],
        ["run", "--url", "nosuch://x", "job", "--", "true"],
        ["run", "--bogus", "job", "--", "true"],
        ["frobnicate"],
    ],
)
def test_usage_is_64(url: str, args: list[str]) -> None:
    result = fencelock_command(url, *args)
    assert result.returncode == 64
    assert result.stderr.startswith("fencelock: ") and len(result.stderr.splitlines()) == 1


def test_slots_that_differ_are_64(url: str, locks: fencelock.Client) -> None:
    with locks.semaphore("job", 2):
        assert fencelock_command(url, "run", "--slots", "3", "job", "--", "true").returncode == 64


def test_command_not_found_is_127(url: str, tmp_path: Path, locks: fencelock.Client) -> None:
    with locks.lock("job"):  # found out without waiting for the lock
        for command in ("no-such-command", str(tmp_path / "nothing"), "./nothing"):
            result = fencelock_command(url, "run", "job", "--", command)
            assert result.returncode == 127
            assert len(result.stderr.splitlines()) == 1


def test_command_not_executable_is_126(url: str, tmp_path: Path, locks: fencelock.Client) -> None:
    plain = tmp_path / "plain.txt"
    plain.write_text("just text")
    with locks.lock("job"):
        for command in (str(plain), str(tmp_path)):
            assert fencelock_command(url, "run", "job", "--", command).returncode == 126


def test_exec_that_fails_only_then(url: str, tmp_path: Path, locks: fencelock.Client) -> None:
    script = tmp_path / "script"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    assert fencelock_command(url, "run", "job", "--", str(script)).returncode == 127
    assert locks.inspect("job").is_free


def test_script_without_interpreter_line(url: str, tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("echo hello $1\nexit 3\n")
    script.chmod(0o755)
    result = fencelock_command(url, "run", "job", "--", str(script), "world")
    assert (result.returncode, result.stdout) == (3, "hello world\n")


# What the command gets ------------------------------------------------------------------


def test_environment(url: str, locks: fencelock.Client) -> None:
    with locks.lock("a job") as lease:
        before = lease.token
    script = 'echo "$FENCELOCK_NAME"; echo $FENCELOCK_TOKEN; echo $FENCELOCK_OWNER'
    result = fencelock_command(url, "run", "a job", "--", "sh", "-c", script)
    name, token, owner = result.stdout.splitlines()
    assert name == "a job"
    assert int(token) > before
    assert len(owner) == 32


def test_owner_and_token_are_those_of_the_holder(url: str, locks: fencelock.Client) -> None:
    script = 'echo "$FENCELOCK_OWNER $FENCELOCK_TOKEN"; read line'
    with running(url, "run", "job", "--", "sh", "-c", script, stdin=subprocess.PIPE) as process:
        assert process.stdout is not None
        told = process.stdout.readline().split()
        holder = wait_held(locks, "job")
        assert told == [holder.owner, str(holder.token)]
        assert (holder.client, holder.pid) == ("sh", process.pid)
        process.communicate("\n", timeout=30)


def test_stdin_is_passed_through(url: str) -> None:
    data = "line\n" * 100_000
    result = fencelock_command(url, "run", "job", "--", "wc", "-c", input=data)
    assert int(result.stdout) == len(data)


def test_arguments_are_untouched(url: str) -> None:
    args = ["--try", "-E", "5", "--", "a b", "", "$HOME"]
    program = "import sys; print(sys.argv[1:])"
    result = fencelock_command(url, "run", "job", "--", *python(program), *args)
    assert result.stdout == f"{args}\n"


def test_name_that_begins_with_a_dash(url: str) -> None:
    result = fencelock_command(url, "run", "--", "-x", "--", "sh", "-c", "echo $FENCELOCK_NAME")
    assert result.stdout == "-x\n"


def test_own_process_group_and_clean_signals(url: str) -> None:
    program = (
        "import os, signal; print(os.getpgrp() == os.getpid(), signal.pthread_sigmask(0, ()), "
        "open('/proc/self/status').read().split('SigIgn:')[1].split()[0])"
    )
    result = fencelock_command(url, "run", "job", "--", *python(program))
    leader, mask, ignored = result.stdout.split()
    assert (leader, mask) == ("True", "set()")
    own = 0x1001000  # SIGPIPE and SIGXFSZ: the Python that runs as CMD ignores them
    internal = 3 << 31  # signals 32 and 33 are the C library's own: whoever it spawns may ignore them
    assert int(ignored, 16) & ~internal == own


def test_ignored_signals_stay_ignored(url: str, tmp_path: Path) -> None:
    script = f"trap '' HUP; exec {FENCELOCK} run job -- sh -c 'kill -HUP $$; echo survived'"
    result = subprocess.run(
        ["sh", "-c", script],
        env=environment(url),
        capture_output=True,
        text=True,
        timeout=30,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    assert (result.returncode, result.stdout) == (0, "survived\n")


def test_shared_and_slots(url: str, locks: fencelock.Client) -> None:
    with locks.rwlock("readers").read(), locks.semaphore("slots", 2):
        assert fencelock_command(url, "run", "--try", "--shared", "readers", "--", "true").returncode == 0
        assert fencelock_command(url, "run", "--try", "readers", "--", "true").returncode == 75
        assert fencelock_command(url, "run", "--try", "--slots", "2", "slots", "--", "true").returncode == 0
        with locks.semaphore("slots", 2):
            args = ["run", "--try", "--slots", "2", "slots", "--", "true"]
            assert fencelock_command(url, *args).returncode == 75


def test_namespace_and_metadata(url: str, locks: fencelock.Client) -> None:
    args = ["run", "--namespace", "other", "--metadata", '{"ticket": 17}', "job", "--", "sleep", "100"]
    with running(url, *args) as process, fencelock.Client(url, namespace="other") as others:
        assert wait_held(others, "job").metadata == {"ticket": 17}
        assert locks.inspect("job").is_free
        process.terminate()
        assert process.wait(30) == 143


def test_lock_is_renewed_while_the_command_runs(url: str, locks: fencelock.Client) -> None:
    with running(url, "run", "--ttl", "500ms", "job", "--", "sleep", "2") as process:
        owner = wait_held(locks, "job").owner
        while process.poll() is None:
            holders = locks.inspect("job").holders
            if holders and process.poll() is None:
                assert holders[0].owner == owner
            time.sleep(0.05)
    assert process.returncode == 0


# Signals --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["INT", "TERM", "HUP", "QUIT", "USR1", "USR2", "WINCH", "CONT", "ALRM"])
def test_signal_is_passed_on(url: str, name: str) -> None:
    program = (
        "import signal, sys, time\n"
        f"signal.signal(signal.SIG{name}, lambda *_: sys.exit(42))\n"
        "print('ready', flush=True)\n"
        "time.sleep(100)\n"
    )
    with running(url, "run", "job", "--", *python(program)) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(getattr(signal, f"SIG{name}"))
        assert process.wait(30) == 42


def test_terminated_command_is_143(url: str, locks: fencelock.Client) -> None:
    with running(url, "run", "job", "--", "sleep", "100") as process:
        wait_held(locks, "job")
        process.terminate()
        assert process.wait(30) == 143
    assert locks.inspect("job").is_free


def test_every_signal_counts(url: str) -> None:
    program = (
        "import signal, sys\n"
        "def count(*_):\n"
        "    print('int', flush=True)\n"
        "signal.signal(signal.SIGINT, count)\n"
        "print('ready', flush=True)\n"
        "while True: signal.pause()\n"
    )
    with running(url, "run", "job", "--", *python(program)) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        for _ in range(5):
            process.send_signal(signal.SIGINT)
            assert process.stdout.readline() == "int\n"
        process.terminate()
        assert process.wait(30) == 143


def test_signals_at_any_moment_leave_nothing(url: str, locks: fencelock.Client) -> None:
    """Also between fork and exec, between grant and start, and while fencelock starts up or ends."""
    for step in range(24):
        with running(url, "run", "job", "--", "sleep", "0.05") as process:
            time.sleep(0.01 * step)
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) in {-15, 143, 0}  # -15: before the handlers were there
            if process.returncode == -15:
                continue
        state = locks.inspect("job")
        assert state.is_free, state


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1])
def test_signal_ends_the_wait(url: str, locks: fencelock.Client, signum: signal.Signals) -> None:
    with locks.lock("job"), running(url, "run", "job", "--", "echo", "ran") as process:
        wait_until(lambda: locks.inspect("job").waiters, "a waiter")
        process.send_signal(signum)
        stdout, stderr = process.communicate(timeout=30)
        assert (process.returncode, stdout, stderr) == (128 + signum, "", "")
        assert not locks.inspect("job").waiters


def test_stopped_and_continued(url: str, locks: fencelock.Client) -> None:
    """Without a terminal, SIGTSTP stops the command, and the lock stays held."""
    with running(url, "run", "--ttl", "2s", "job", "--", "sleep", "100") as process:
        owner = wait_held(locks, "job").owner
        command = wait_until(lambda: child_named(process.pid, "sleep"), "the command")
        process.send_signal(signal.SIGTSTP)
        wait_until(lambda: state_of(command) == "T", "the command is stopped")
        time.sleep(2.5)
        assert [holder.owner for holder in locks.inspect("job").holders] == [owner]
        process.send_signal(signal.SIGCONT)
        wait_until(lambda: state_of(command) == "S", "the command goes on")
        process.terminate()
        assert process.wait(30) == 143


def state_of(pid: int) -> str:
    stat = Path(f"/proc/{pid}/stat").read_text()
    return stat[stat.rindex(")") + 2]


def child_named(root: int, name: str) -> int | None:
    """Return the grandchild of fencelock with that name: CMD, below its keeper."""
    from fencelock.cli import descendants

    for process in descendants.of(root):
        with contextlib.suppress(OSError):
            if Path(f"/proc/{process.pid}/comm").read_text().strip() == name:
                return process.pid
    return None


# Nothing survives -----------------------------------------------------------------------


def test_background_processes_are_gone_before_the_lock_is_free(
    url: str, locks: fencelock.Client, tmp_path: Path
) -> None:
    pids = tmp_path / "pids"
    script = f"sleep 100 & echo $! >> {pids}; sleep 100 & echo $! >> {pids}; exit 5"
    with running(url, "run", "job", "--", "sh", "-c", script) as process:
        never_free_while_alive(locks, "job", pids_in(pids, 2))
        assert process.wait(30) == 5


def test_stubborn_background_process_is_killed(url: str, locks: fencelock.Client, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    child = f"{STUBBORN}{note_pid(pids)}; time.sleep(100)"
    script = f'{sys.executable} -c "$CHILD" & while [ ! -s {pids} ]; do sleep 0.02; done; exit 0'
    started = time.monotonic()
    with running(
        url, "run", "--grace", "500ms", "job", "--", "env", f"CHILD={child}", "sh", "-c", script
    ) as process:
        never_free_while_alive(locks, "job", pids_in(pids))
        assert process.wait(30) == 0
    assert time.monotonic() - started >= 0.5  # it was given its grace


def test_process_in_a_session_of_its_own(url: str, locks: fencelock.Client, tmp_path: Path) -> None:
    """Daemons too: setsid, a double fork, and deaf to SIGTERM."""
    pids = tmp_path / "pids"
    daemon = (
        "import os, sys\n"
        "if os.fork(): os._exit(0)\n"
        "os.setsid()\n"
        "if os.fork(): os._exit(0)\n"
        f"{STUBBORN}\n"
        f"{note_pid(pids)}\n"
        "time.sleep(100)\n"
    )
    script = f'{sys.executable} -c "$DAEMON"; while [ ! -s {pids} ]; do sleep 0.02; done; exit 4'
    command = ["env", f"DAEMON={daemon}", "sh", "-c", script]
    with running(url, "run", "--grace", "300ms", "job", "--", *command) as process:
        never_free_while_alive(locks, "job", pids_in(pids))
        assert process.wait(30) == 4


def family(pids: Path) -> list[str]:
    """A command with a child in its group, one in another session, all deaf to SIGTERM."""
    child = f"{STUBBORN}{note_pid(pids)}; time.sleep(100)"
    script = '"$PY" -c "$CHILD" & setsid "$PY" -c "$CHILD" & exec "$PY" -c "$CHILD"'
    return ["env", f"PY={sys.executable}", f"CHILD={child}", "sh", "-c", script]


def test_everything_is_gone_after_a_loss(url: str, locks: fencelock.Client, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    with running(url, "run", "--ttl", "1s", "--grace", "500ms", "job", "--", *family(pids)) as process:
        found = pids_in(pids, 3)
        locks.force_release("job")
        try:
            assert process.wait(30) == 76
            assert not [pid for pid in found if alive(pid)]
        finally:
            kill_all(found)


def test_everything_is_gone_after_sigterm(url: str, locks: fencelock.Client, tmp_path: Path) -> None:
    """CMD dies of SIGKILL; what it leaves behind is ended before the lock is free."""
    pids = tmp_path / "pids"
    with running(url, "run", "--grace", "300ms", "job", "--", *family(pids)) as process:
        found = pids_in(pids, 3)
        command = [pid for pid in found if os.getpgid(pid) == pid and os.getsid(pid) != pid]
        os.kill(command[0], signal.SIGKILL)
        never_free_while_alive(locks, "job", found)
        assert process.wait(30) == 137


def test_kill_of_fencelock_kills_everything(url: str, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    with running(url, "run", "--ttl", "30s", "--grace", "300ms", "job", "--", *family(pids)) as process:
        found = pids_in(pids, 3)
        process.kill()
        try:
            wait_until(lambda: not any(alive(pid) for pid in found), "all are gone")
        finally:
            kill_all(found)


def test_kill_of_the_keeper_kills_everything(url: str, locks: fencelock.Client, tmp_path: Path) -> None:
    from fencelock.cli import descendants

    pids = tmp_path / "pids"
    with running(url, "run", "job", "--", *family(pids)) as process:
        found = pids_in(pids, 3)
        keeper = next(child.pid for child in descendants.of(process.pid) if child.parent == process.pid)
        os.kill(keeper, signal.SIGKILL)
        never_free_while_alive(locks, "job", found)
        assert process.wait(30) == 137


def test_stopped_fencelock_does_not_keep_the_command_running(
    url: str, locks: fencelock.Client, tmp_path: Path
) -> None:
    """A holder that is paused cannot renew: its command ends with the lease, not with the pause."""
    pids = tmp_path / "pids"
    with running(url, "run", "--ttl", "500ms", "--grace", "300ms", "job", "--", *family(pids)) as process:
        found = pids_in(pids, 3)
        wait_held(locks, "job")
        process.send_signal(signal.SIGSTOP)
        try:
            wait_until(
                lambda: not any(alive(pid) for pid in found), "all are gone while fencelock is stopped"
            )
            assert state_of(process.pid) == "T"
        finally:
            process.send_signal(signal.SIGCONT)
            kill_all(found)
        assert process.wait(30) == 76


def test_next_one_runs_after_a_kill(url: str, tmp_path: Path) -> None:
    with running(url, "run", "--ttl", "1s", "job", "--", "sleep", "100") as process:
        with fencelock.Client(url) as locks:
            wait_held(locks, "job")
        process.kill()
    assert fencelock_command(url, "run", "--wait", "20s", "job", "--", "true").returncode == 0


def test_release_that_fails_keeps_the_status(url: str, tmp_path: Path) -> None:
    """The file turns into garbage while the command runs: its status counts, one line tells the rest."""
    script = f"for f in {tmp_path}/locks.db*; do mv $f $f.away; mkdir $f; done; exit 9"
    result = fencelock_command(url, "run", "--ttl", "30s", "job", "--", "sh", "-c", script)
    assert result.returncode == 9, result.stderr
    assert result.stderr.startswith("fencelock: 'job' could not be released")
    assert len(result.stderr.splitlines()) == 1


def test_commands_take_turns(url: str, tmp_path: Path) -> None:
    counter = tmp_path / "counter"
    counter.write_text("0")
    script = f"n=$(cat {counter}); sleep 0.02; echo $((n + 1)) > {counter}"
    with contextlib.ExitStack() as stack:
        processes = [
            stack.enter_context(running(url, "run", "job", "--", "sh", "-c", script)) for _ in range(8)
        ]
        assert [process.wait(60) for process in processes] == [0] * 8
    assert counter.read_text().strip() == "8"
