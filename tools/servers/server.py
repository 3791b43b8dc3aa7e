"""One server process: started, asked whether it answers, killed, paused, stopped, started again.

A `Server` keeps its port, its data folder and its log for life, whatever happens to its process. It is ready
when the process that we started, and no other, listens on its port *and* gives a right answer in its own
protocol. Only processes that this one started, and their descendants, are ever signalled.

A family of servers says three things: how to prepare an empty data folder, the command, and the probe.
"""

from __future__ import annotations

import fcntl
import os
import pwd
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

from . import packages, proc
from .errors import NotReady, PortClash, ServerError
from .keeper import keeper
from .site import Site
from .waiting import until

START_SECONDS = 60.0
STOP_SECONDS = 10.0
NOBODY = "nobody"
TEMPLATES = "FENCELOCK_TEMPLATES"
IN_USE = ("address already in use", "address in use", "eaddrinuse", "in use by another")
TRACE = 60
"""Lines at the end of a log that may tell of that: Java's traces are long."""


class Server:
    """A member of a group. `env` may be changed before a `restart()`, to preload a library for example."""

    stop_signal = signal.SIGTERM
    account = ""
    """The user to run as where the program refuses to run as root."""
    can_be_wiped = True
    """Whether its group takes it back without its data."""

    def __init__(self, site: Site, name: str) -> None:
        self.name = name
        self.root = site.root
        self.settings = site.settings
        self.env = dict(site.env)
        self.host, self.netns = site.network.join(name)
        self.port = site.port()
        self.folder = site.folder / name
        self.data = (site.place(name) if site.place else self.folder) / "data"
        self.log = self.folder / "log"
        self._process: subprocess.Popen[bytes] | None = None
        self._identity = ""
        self._heard = ""  # the last process that was seen to listen

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name} {self.address}>"

    # What a family says.

    def prepare(self) -> None:
        """Fills the empty data folder: before the first start, and after the data was wiped."""

    def fill(self, kind: str, make: Callable[[Path], None]) -> None:
        """Fills the data folder with what `make` makes, or with a copy of it from `$FENCELOCK_TEMPLATES`.

        Making an empty database takes a second of a processor. Whoever sets that variable removes the folder.
        """
        shelf = os.environ.get(TEMPLATES)
        if not shelf or self.root or self.data.parent != self.folder:
            make(self.data)
            return
        template = Path(shelf) / kind
        with template.with_suffix(".lock").open("w") as latch:
            fcntl.flock(latch, fcntl.LOCK_EX)
            if not template.exists():
                draft = template.with_suffix(".draft")
                shutil.rmtree(draft, ignore_errors=True)
                self._make(draft)
                make(draft)
                draft.rename(template)
        self.run(["cp", "-a", "--sparse=always", f"{template}/.", str(self.data)])

    def command(self) -> list[str]:
        """The program and its arguments; it must stay in the foreground and log to its standard output."""
        raise NotImplementedError

    def probe(self) -> None:
        """Asks for a sign of life that needs no other member; raises NotReady or OSError if there is none."""
        raise NotImplementedError

    def version(self) -> str:
        """The version that the running server itself reports."""
        raise NotImplementedError

    def leave(self) -> None:
        """What the other members must be told before it starts again without its data."""

    def rejoin(self) -> None:
        """What it must be told, or the others, once it has started without its data."""

    # What everybody may call.

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def pid(self) -> int:
        """The id of the process that was started last."""
        if self._process is None:
            raise ServerError(f"{self.name} was never started")
        return self._process.pid

    def is_alive(self) -> bool:
        """Whether the process exists; true of a paused one."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Starts the process and returns at once."""
        if self.is_alive():
            raise ServerError(f"{self.name} runs already (pid {self.pid})")
        if not self.data.exists():
            self._make(self.data)
            self.prepare()
        self._process = self._spawn()
        # The pid alone could belong to a stranger by the time the keeper looks at it.
        self._identity = f"{self.pid} {proc.start_time(self.pid)}"
        keeper().add("process", self._identity)

    def wait(self, seconds: float = START_SECONDS) -> None:
        """Waits until it answers."""
        until(self.check, seconds, self.name, self.tail)

    def check(self) -> None:
        """Returns if it answers; raises NotReady or OSError if not yet, ServerError if it never will."""
        if not self.is_alive():
            raise self._death()
        if self._heard != self._identity:
            # The kernel's table of sockets takes long to read: not before there is something to find.
            socket.create_connection((self.host, self.port), timeout=3.0).close()
            if not proc.listens(self.pid, self.port):
                raise NotReady(f"{self.name} does not listen on port {self.port}")
            self._heard = self._identity
        self.probe()

    def kill(self) -> None:
        """SIGKILL to the process and its children; returns when they are gone and reaped."""
        if self._process is None or not self.is_alive():
            return
        gone = proc.signal_tree(self.pid, signal.SIGKILL)
        self._process.wait()
        proc.wait_gone(gone)
        keeper().remove("process", self._identity)

    def pause(self) -> None:
        """SIGSTOP to the process and its children; returns when they stand still."""
        self._signal(signal.SIGSTOP)
        if self.is_alive():
            proc.wait_stopped(self.pid)

    def resume(self) -> None:
        """SIGCONT to the process and its children."""
        self._signal(signal.SIGCONT)

    def stop(self, seconds: float = STOP_SECONDS) -> None:
        """Asks it to shut down in good order; kills it when it takes longer than `seconds`."""
        self.ask_to_stop()
        self.wait_stopped(seconds)

    def ask_to_stop(self) -> None:
        """The first half of `stop()`, for those who stop several at a time."""
        if self._process is not None and self.is_alive():
            self.resume()
            self._process.send_signal(self.stop_signal)

    def wait_stopped(self, seconds: float = STOP_SECONDS) -> None:
        """The second half of `stop()`."""
        if self._process is None:
            return
        try:
            self._process.wait(max(0.0, seconds))
        except subprocess.TimeoutExpired:
            self.kill()
        else:
            keeper().remove("process", self._identity)

    def restart(self, *, keep: bool = True, wait: bool = True) -> None:
        """Starts it again on the same port, with its data or, `keep=False`, without.

        A running process is killed first. `wait=False` returns at once, for a member that cannot answer
        before others are back too; `Group.wait()` then waits for all.
        """
        if not keep and not self.can_be_wiped:
            raise ServerError(f"{self.name} cannot be wiped: the others would take it for a stranger")
        self.kill()
        if not keep:
            self.leave()
            shutil.rmtree(self.data)
        self.start()
        if wait or not keep:
            self.wait()
        if not keep:
            self.rejoin()

    def tail(self, lines: int = 12) -> str:
        """The end of its log, indented."""
        if not self.log.exists():
            return ""
        last = self.log.read_text(errors="replace").splitlines()[-lines:]
        return "".join(f"\n  {line}" for line in last)

    # Machinery.

    def program(self, name: str) -> str:
        """The path of one of its programs, where its own commands find it."""
        return self.root.program(name) if self.root else packages.program(name)

    def run(self, command: list[str], *, stdin: str = "", **env: str) -> str:
        """Runs a helper program as the server's account, in its network, and returns what it printed."""
        try:
            done = subprocess.run(
                [*self._prefix(), *command],
                cwd=self.folder,
                env={**os.environ, "LC_ALL": "C.UTF-8", **env},
                input=stdin,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=START_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise NotReady(f"{Path(command[0]).name} did not end within {START_SECONDS:g}s") from None
        if done.returncode:
            said = (done.stderr.strip() or done.stdout.strip()).splitlines() or [f"status {done.returncode}"]
            blame = next((line for line in said if "ERROR" in line or "FATAL" in line), said[-1])
            raise NotReady(f"{Path(command[0]).name}: {blame}")
        return done.stdout

    def _spawn(self) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as log:
            return subprocess.Popen(
                [*self._prefix(), *self.command()],
                cwd=self.data,
                env={**os.environ, "LC_ALL": "C.UTF-8", **self.env},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _prefix(self) -> list[str]:
        """All programs replace themselves by the next, so the pid stays that of the server."""
        enter = ["ip", "netns", "exec", self.netns] if self.netns else []
        user = self._user()
        if self.root:
            return [*enter, *self.root.prefix(user, [self.folder, self.data])]
        become = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"] if user else []
        return [*enter, *become]

    def _user(self) -> str:
        if not self.account or os.geteuid() != 0:
            return ""
        # Packages of another suite run no scripts, so the machine may lack the account.
        return self.account if not self.root or _exists(self.account) else NOBODY

    def _make(self, folder: Path) -> None:
        self.folder.mkdir(mode=0o700, exist_ok=True)
        folder.mkdir(mode=0o700)
        if user := self._user():
            entry = pwd.getpwnam(user)
            for each in (folder, self.folder):
                os.chown(each, entry.pw_uid, entry.pw_gid)

    def _signal(self, number: signal.Signals) -> None:
        if self.is_alive():
            proc.signal_tree(self.pid, number)

    def _death(self) -> ServerError:
        status = None if self._process is None else self._process.returncode
        text = f"{self.name} ended with status {status}{self.tail()}"
        said = self.tail(TRACE).lower()
        clash = any(phrase in said for phrase in IN_USE)
        return PortClash(text) if clash else ServerError(text)


def _exists(account: str) -> bool:
    try:
        pwd.getpwnam(account)
    except KeyError:
        return False
    return True
