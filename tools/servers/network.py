"""Where members live: all on the loopback address, or each in a network namespace of its own.

    this process (.1) ── bridge ─┬─ veth ── namespace of member 1 (.11)
                                 ├─ veth ── namespace of member 2 (.12)
                                 └─ …

In namespaces any path can be cut, one way or both: packets from A are dropped where they arrive at B, by a
rule in B's namespace, so that the rest of the machine never notices. Namespaces need root, iproute2 and
iptables. The addresses are of a private /24 that no interface of the machine uses.
"""

from __future__ import annotations

import contextlib
import os
import random
import secrets
import subprocess

from .errors import ServerError
from .keeper import keeper
from .packages import IPROUTE, IPTABLES, install, program

NO_CUTS = "on the loopback address no path can be cut: start(..., netns=True)"

_random = random.SystemRandom()


class Network:
    """Gives each member an address, and the name of the namespace to run in."""

    clients = "127.0.0.1"
    """The address from which this process talks to the members."""

    def join(self, name: str) -> tuple[str, str]:
        """The host and the namespace (empty: none) of a new member."""
        raise NotImplementedError

    def cut(self, source: str, namespace: str) -> None:
        """What the host `source` sends no longer reaches the namespace."""
        raise ServerError(NO_CUTS)

    def mute(self, namespace: str) -> None:
        """What the namespace sends no longer reaches this process."""
        raise ServerError(NO_CUTS)

    def hinder(self, namespace: str, *rule: str) -> None:
        """A rule of iptables for what reaches the namespace: `-s`, an address, `-j`, `DROP`."""
        raise ServerError(NO_CUTS)

    def lift(self, namespace: str, *rule: str) -> None:
        """Takes back a rule that hinders."""
        raise ServerError(NO_CUTS)

    def heal(self) -> None:
        """Undoes every cut, and lifts every rule."""

    def close(self) -> None:
        """Takes the network down."""


class Loopback(Network):
    """Everybody at 127.0.0.1, told apart by ports."""

    def join(self, name: str) -> tuple[str, str]:
        return "127.0.0.1", ""


class Namespaces(Network):
    """A namespace for each member, on one bridge."""

    def __init__(self) -> None:
        if os.geteuid() != 0:
            raise ServerError("network namespaces need root")
        install([IPROUTE, IPTABLES])
        self.tag = secrets.token_hex(3)
        self.subnet = _unused_subnet()
        self.clients = f"{self.subnet}.1"
        self.bridge = f"flb{self.tag}"
        self.cables: dict[str, str] = {}
        keeper().add("link", self.bridge)
        _ip("link", "add", self.bridge, "type", "bridge")
        _ip("address", "add", f"{self.clients}/24", "dev", self.bridge)
        _ip("link", "set", self.bridge, "up")

    def join(self, name: str) -> tuple[str, str]:
        number = len(self.cables) + 1
        namespace, cable = f"fl-{self.tag}-{number}", f"flv{self.tag}{number}"
        host = f"{self.subnet}.{10 + number}"
        keeper().add("netns", namespace)
        self.cables[namespace] = cable
        _ip("netns", "add", namespace)
        _ip("link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", namespace)
        _ip("link", "set", cable, "master", self.bridge, "up")
        _ip("-n", namespace, "address", "add", f"{host}/24", "dev", "eth0")
        for inside in ("lo", "eth0"):
            _ip("-n", namespace, "link", "set", inside, "up")
        return host, namespace

    def cut(self, source: str, namespace: str) -> None:
        self.hinder(namespace, "-s", source, "-j", "DROP")

    def hinder(self, namespace: str, *rule: str) -> None:
        _iptables(namespace, "-A", "INPUT", *rule)

    def lift(self, namespace: str, *rule: str) -> None:
        _iptables(namespace, "-D", "INPUT", *rule)

    def mute(self, namespace: str) -> None:
        # The only path that is cut where it begins: the rules of the machine itself are not ours to change.
        _iptables(namespace, "-A", "OUTPUT", "-d", self.clients, "-j", "DROP")

    def heal(self) -> None:
        for namespace in self.cables:
            _iptables(namespace, "-F")

    def close(self) -> None:
        for namespace, cable in self.cables.items():
            # The cable would go with its namespace, but only at some later moment.
            _remove("link", cable)
            _remove("netns", namespace)
            keeper().remove("netns", namespace)
        self.cables.clear()
        _remove("link", self.bridge)
        keeper().remove("link", self.bridge)


def _unused_subnet() -> str:
    """Three numbers of a private network that nobody here has an address in or a route to."""
    known = _ip("-4", "address") + _ip("-4", "route")
    while True:
        subnet = f"10.{_random.randrange(128, 255)}.{_random.randrange(256)}"
        if f" {subnet}." not in known:
            return subnet


def _ip(*words: str) -> str:
    return _run([program("ip"), *words])


def _remove(kind: str, name: str) -> None:
    with contextlib.suppress(ServerError):
        _ip(kind, "delete", name)


def _iptables(namespace: str, *words: str) -> None:
    _run([program("ip"), "netns", "exec", namespace, program("iptables"), "-w", *words])


def _run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ServerError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout
