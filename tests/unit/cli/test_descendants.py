"""The process table: descendants are found wherever they went, and nobody else is signalled."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from fencelock.cli import descendants

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")


def test_whole_tree_is_found() -> None:
    script = "setsid sleep 100 & sleep 100 & echo $$; wait"
    with subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        root = int(process.stdout.readline())
        try:
            found = descendants.of(os.getpid())
            below = [each for each in found if each.parent == root]
            assert root in {each.pid for each in found}
            assert len(below) == 2
            positions = {each.pid: position for position, each in enumerate(found)}
            assert all(positions[root] < positions[each.pid] for each in below)
        finally:
            for each in descendants.of(root):
                descendants.send(each, signal.SIGKILL)


def test_name_of_a_process_cannot_confuse() -> None:
    code = "open('/proc/self/comm', 'w').write(') R 1 1 1 ('); print('ready', flush=True); input()"
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        found = [each for each in descendants.of(os.getpid()) if each.pid == process.pid]
        assert [each.parent for each in found] == [os.getpid()]
        process.communicate("\n")


def test_later_process_with_the_same_pid_is_left_alone() -> None:
    with subprocess.Popen(["sleep", "100"]) as process:
        now = next(each for each in descendants.of(os.getpid()) if each.pid == process.pid)
        descendants.send(now._replace(started=now.started - 1), signal.SIGKILL)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.2)
        descendants.send(now, signal.SIGKILL)
        assert process.wait(10) == -signal.SIGKILL
    descendants.send(now, signal.SIGKILL)  # gone: nothing happens
