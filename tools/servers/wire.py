"""The least of each protocol that is needed to see whether a server answers; no driver is installed yet.

Whatever a server answers that is not the wanted answer is NotReady; no connection is an OSError.
"""

from __future__ import annotations

import http.client
import json
import socket
from typing import Any, BinaryIO

from .errors import NotReady

SECONDS = 3.0

Reply = str | int | None | list["Reply"]


def redis(host: str, port: int, *words: str | int) -> Reply:
    """One command to a Redis or Valkey server and its reply."""
    parts = [str(word).encode() for word in words]
    request = b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts)
    with socket.create_connection((host, port), SECONDS) as connection, connection.makefile("rb") as stream:
        connection.sendall(request)
        return _redis_reply(stream)


def _redis_reply(stream: BinaryIO) -> Reply:
    line = stream.readline()
    if not line.endswith(b"\r\n"):
        raise NotReady("the server closed the connection")
    mark, rest = line[:1], line[1:-2].decode(errors="replace")
    match mark:
        case b"+":
            return rest
        case b":":
            return int(rest)
        case b"-":
            raise NotReady(rest)
        case b"$":
            return None if rest == "-1" else stream.read(int(rest) + 2)[:-2].decode(errors="replace")
        case b"*":
            return None if rest == "-1" else [_redis_reply(stream) for _ in range(int(rest))]
    raise NotReady(f"this is no Redis reply: {line[:40]!r}")


def redis_info(host: str, port: int, *words: str) -> dict[str, str]:
    """A reply of `name:value` lines, as of INFO and CLUSTER INFO."""
    lines = str(redis(host, port, *words)).splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line)


def four_letters(host: str, port: int, word: str) -> str:
    """One of ZooKeeper's four-letter words and all that is said to it."""
    with socket.create_connection((host, port), SECONDS) as connection:
        connection.sendall(word.encode())
        said = b"".join(iter(lambda: connection.recv(65536), b""))
    return said.decode(errors="replace")


def call(host: str, port: int, path: str, body: object = None, method: str = "") -> Any:
    """One HTTP request; the JSON of its answer. `http.client` knows no proxies, which is wanted here."""
    connection = http.client.HTTPConnection(host, port, timeout=SECONDS)
    try:
        payload = None if body is None else body if isinstance(body, str) else json.dumps(body)
        connection.request(method or ("GET" if body is None else "POST"), path, payload)
        response = connection.getresponse()
        text = response.read().decode(errors="replace")
    except http.client.HTTPException as error:
        raise NotReady(f"{path}: {error!r}") from error
    finally:
        connection.close()
    if response.status != 200:
        raise NotReady(f"{path}: status {response.status} {text.strip()[:200]}")
    try:
        return json.loads(text)
    except ValueError:
        raise NotReady(f"{path}: this is no JSON: {text[:80]!r}") from None
