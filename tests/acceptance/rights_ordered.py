"""etcd, Consul and ZooKeeper, with the users and access lists of docs/reference/permissions.md."""

from __future__ import annotations

import base64
import hashlib
import http.client
import json
import re
import shlex
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import consul_desk
from kazoo.client import KazooClient  # type: ignore[import-untyped]
from kazoo.exceptions import NodeExistsError  # type: ignore[import-untyped]
from kazoo.security import ACL, Id, Permissions  # type: ignore[import-untyped]
from rights_page import block, section
from rights_site import Site
from tools.servers import start

from fencelock.backends.etcd.keys import end_of

PASSWORD = "marlinspike"
MASTER = "6d617374-6572-0000-0000-000000000000"
ACLS = {
    "enabled": True,
    "default_policy": "deny",
    "tokens": {"master": MASTER, "default": MASTER},  # without a token comes only who starts the server
}


class Place:
    """A server, and how to come to it in a role of the page."""

    title: str
    other: str
    """A path of the URL where the roles have no rights."""
    ttl = 5.0

    def __init__(self, server: Any) -> None:
        self.server = server
        self.keys: set[str] = set()

    def lines(self, role: str, without: str = "") -> list[str]:
        """Return the lines of a role's block, but for those that contain this."""
        lines = block(f"{self.title} {role}").replace("PASSWORD", PASSWORD).splitlines()
        kept = [line for line in lines if not without or without not in line]
        assert not without or len(kept) < len(lines)
        return kept

    def url(self, role: str, without: str = "") -> str:
        """Make the user of a role; return its URL."""
        raise NotImplementedError

    def see(self) -> None:
        """Note which keys there are."""
        raise NotImplementedError

    def site(self, role: str, flavour: str, folder: Path, without: str = "") -> Site:
        return Site(self.url(role, without), flavour, folder, ttl=self.ttl, see=self.see)


class Etcd(Place):
    """Users and roles, by the JSON gateway."""

    title = "etcd"
    other = "/other"

    def __init__(self, server: Any) -> None:
        super().__init__(server)
        self.ask = self._asking("")
        self.ask("auth/user/add", {"name": "root", "password": PASSWORD})
        self.ask("auth/user/grant", {"user": "root", "role": "root"})
        self.ask("auth/enable", {})
        self.ask = self.as_user("root")

    def as_user(self, name: str) -> Callable[[str, Any], Any]:
        """Return what asks the JSON gateway as a user."""
        login = self._asking("")("auth/authenticate", {"name": name, "password": PASSWORD})
        return self._asking(login["token"])

    def _asking(self, token: str) -> Callable[[str, Any], Any]:
        def ask(path: str, body: Any) -> Any:
            with closing(http.client.HTTPConnection(self.server.host, self.server.port, timeout=20)) as conn:
                headers = {"Authorization": token} if token else {}
                conn.request("POST", f"/v3/{path}", json.dumps(body), headers)
                return json.loads(conn.getresponse().read())

        return ask

    def url(self, role: str, without: str = "") -> str:
        self.ask("auth/role/delete", {"role": role})
        self.ask("auth/user/delete", {"name": role})
        for line in self.lines(role, without):
            self._run(*shlex.split(line)[2:])
        return f"etcd://{role}:{PASSWORD}@{self.server.address}"

    def _run(self, what: str, verb: str, *words: str) -> None:
        """Do what a command of etcdctl does."""
        if (what, verb) == ("role", "add"):
            self.ask("auth/role/add", {"name": words[0]})
        elif (what, verb) == ("user", "add"):
            name, _, password = words[0].partition(":")
            self.ask("auth/user/add", {"name": name, "password": password})
        elif (what, verb) == ("user", "grant-role"):
            self.ask("auth/user/grant", {"user": words[0], "role": words[1]})
        else:
            role, kind, option, prefix = words
            assert (what, verb, option) == ("role", "grant-permission", "--prefix=true")
            self.grant(role, kind, prefix)

    def grant(self, role: str, kind: str, prefix: str) -> None:
        ends = {"key": _coded(prefix.encode()), "range_end": _coded(end_of(prefix.encode()))}
        self.ask("auth/role/grant", {"name": role, "perm": {"permType": kind.upper(), **ends}})

    def see(self) -> None:
        everything = {"key": _coded(b"\0"), "range_end": _coded(b"\0"), "keys_only": True}
        found = self.ask("kv/range", everything).get("kvs", [])
        self.keys.update(base64.b64decode(one["key"]).decode() for one in found)


def _coded(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


class Consul(Place):
    """Policies and tokens."""

    title, other, ttl = "Consul", "/other", 10.0

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        status, said = consul_desk.ask(self.server, method, path, body, MASTER)
        assert status == 200, said
        return said

    def token(self, rules: str) -> str:
        name = hashlib.sha256(rules.encode()).hexdigest()[:20]
        if all(one["Name"] != name for one in self.ask("GET", "acl/policies")):
            self.ask("PUT", "acl/policy", {"Name": name, "Rules": rules})
        return str(self.ask("PUT", "acl/token", {"Policies": [{"Name": name}]})["SecretID"])

    def register(self) -> None:
        """Do what the owner does, with the owner's rights."""
        (body,) = re.findall(r"/v1/catalog/register -d '(.*)'", section("Consul owner"))
        owner = self.token(block("Consul owner"))
        status, said = consul_desk.ask(self.server, "PUT", "catalog/register", json.loads(body), owner)
        assert (status, said) == (200, True)

    def url(self, role: str, without: str = "") -> str:
        return f"consul://:{self.token(chr(10).join(self.lines(role, without)))}@{self.server.address}"

    def see(self) -> None:
        self.keys.update(consul_desk.keys(self.server, MASTER))


class ZooKeeper(Place):
    """A chroot with an access list."""

    title = "ZooKeeper"
    other = "/apps/theirs"
    chroot = "/apps/billing"
    options = ""
    _is_made = False

    def __init__(self, server: Any) -> None:
        super().__init__(server)
        with self.client() as client:
            run_zkcli(client, 'create /apps ""')
            client.add_auth("digest", "stranger:password")
            run_zkcli(client, f'create {self.other} ""')
            run_zkcli(client, f"setAcl {self.other} auth::cdrw")

    @contextmanager
    def client(self) -> Iterator[KazooClient]:
        client = KazooClient(self.server.address, timeout=10)
        client.start(30)
        try:
            yield client
        finally:
            client.stop()
            client.close()

    def url(self, role: str, without: str = "") -> str:
        if not self._is_made:  # the user may not change the access list, and does not have to
            self._is_made = True
            with self.client() as client:
                for line in self.lines(role, without):
                    run_zkcli(client, line)
        return f"zookeeper://{role}:{PASSWORD}@{self.server.address}{self.chroot}{self.options}"

    def see(self) -> None:
        with self.client() as client:
            client.add_auth("digest", f"worker:{PASSWORD}")
            roots = [f"{self.chroot}/{name}" for name in ("fencelock", "fencelock-registers")]
            left = [root for root in roots if client.exists(root)]  # the user may not list the chroot itself
            while left:
                path = left.pop()
                self.keys.add(path.removeprefix(self.chroot))
                left += [f"{path}/{child}" for child in client.get_children(path)]


class ZooKeeperBySASL(ZooKeeper):
    """The same, for users that log in by SASL."""

    title = "ZooKeeper SASL"
    options = "?sasl=DIGEST-MD5"

    def see(self) -> None:
        """The znodes are the same."""


JAAS = f"""Server {{
    org.apache.zookeeper.server.auth.DigestLoginModule required
    user_worker="{PASSWORD}" user_other="{PASSWORD}";
}};
"""


@contextmanager
def zookeeper_by_sasl(folder: Path) -> Iterator[ZooKeeperBySASL]:
    """A ZooKeeper that knows users of SASL."""
    (folder / "jaas.conf").write_text(JAAS)
    settings = {"authProvider.1": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider"}
    java = {"JDK_JAVA_OPTIONS": f"-Djava.security.auth.login.config={folder / 'jaas.conf'}"}
    with start("zookeeper", settings=settings, env=java) as group:
        yield ZooKeeperBySASL(group.members[0])


def run_zkcli(client: KazooClient, line: str) -> None:
    """Do what a line of zkCli.sh does. What is there stays."""
    verb, *words = shlex.split(line)
    if verb == "create":
        try:
            client.create(words[0], words[1].encode())
        except NodeExistsError:
            return
    elif verb == "addauth":
        client.add_auth(*words)
    else:
        scheme, ident, letters = words[1].split(":")
        rights = {"c": "CREATE", "d": "DELETE", "r": "READ", "w": "WRITE", "a": "ADMIN"}
        mask = sum(getattr(Permissions, rights[letter]) for letter in letters)
        assert verb == "setAcl"
        client.set_acls(words[0], [ACL(mask, Id(scheme, ident))])


@contextmanager
def place_of(kind: str) -> Iterator[Place]:
    """A server that asks who comes."""
    settings = {"acl": json.dumps(ACLS)} if kind == "consul" else {}
    with start(kind, settings=settings) as group:
        place = {"etcd": Etcd, "consul": Consul, "zookeeper": ZooKeeper}[kind](group.members[0])
        if isinstance(place, Consul):
            place.register()
        yield place
