"""What commands take: durations, the URL, and a command line after `--`."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from typing import Any, TypeVar

import click

from fencelock.client import Client
from fencelock.connect import default_url
from fencelock.errors import ConfigurationError

__all__ = [
    "DURATION",
    "WrappedCommand",
    "as_json_option",
    "backend_options",
    "one_url",
    "open_client",
    "parse_duration",
    "parse_metadata",
    "statuses",
    "wait_option",
]

F = TypeVar("F", bound=Callable[..., Any])

UNITS = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*(ms|s|m|h)?", re.ASCII)


def parse_duration(text: str) -> float:
    """Return the seconds in `text`: plain seconds, or with one of the units ms, s, m, h.

    Example:
        >>> [parse_duration(text) for text in ("1.5", "500ms", "5m", "1h")]
        [1.5, 0.5, 300.0, 3600.0]
    """
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise ConfigurationError(f"{text!r} is not a duration: write seconds, or 500ms, 30s, 5m, 1h")
    return float(match[1]) * UNITS[match[2] or ""]


class DurationType(click.ParamType):  # type: ignore[type-arg]  # click 8.1 has no parameter to give
    """Seconds, or a number with a unit."""

    name = "seconds"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, int | float):
            return float(value)
        try:
            return parse_duration(value)
        except ConfigurationError as error:
            self.fail(str(error), param, ctx)


DURATION = DurationType()


def parse_metadata(text: str | None) -> Any:
    """Return the value of `--metadata`."""
    if text is None:
        return None
    try:
        return json.loads(text)
    except ValueError as error:
        hint = """write JSON, for example '{"ticket": 17}'"""
        raise ConfigurationError(f"--metadata {text[:40]!r} is not JSON ({error}): {hint}") from None


def backend_options(function: F) -> F:
    """Add `--url` and `--namespace`."""
    function = click.option(
        "--namespace", metavar="NAME", help="Keeps applications apart that share a backend."
    )(function)
    return click.option(
        "--url",
        metavar="URL",
        help="The backend. Default: $FENCELOCK_URL, else an embedded file of this user.",
    )(function)


def wait_option(text: str, default: float | None = None) -> Callable[[F], F]:
    """Return the option `--wait`, which is also called `--timeout`, as in Python."""
    return click.option("--wait", "--timeout", "wait", type=DURATION, default=default, help=text)


as_json_option = click.option("--json", "as_json", is_flag=True, help="Write JSON, for programs.")


def open_client(url: str | None, namespace: str | None = None, client_name: str | None = None) -> Client:
    """Return a client for what the options say. Nothing is opened yet."""
    if url == "":
        raise ConfigurationError("--url is empty: give a URL, or leave it out")
    url = url or default_url()
    if "://" not in url and "@" in url:  # it may have a password where nobody looks for one
        raise ConfigurationError("the URL has no scheme: write scheme://user:password@host/…")
    return Client(url, namespace=namespace, client_name=client_name)


def one_url(target: str | None, url: str | None) -> str | None:
    """Return the URL that was given, as argument or option."""
    if target is not None and url is not None and target != url:
        raise click.UsageError("two different URLs: give one, as argument or with --url")
    return target if target is not None else url


def statuses(*lines: tuple[str, str]) -> str:
    """Return the part of a help text that lists the exit statuses."""
    size = max(len(code) for code, _ in lines)
    return "Exit statuses:\n\n\b\n" + "\n".join(f"  {code:<{size}}  {text}" for code, text in lines)


class WrappedCommand(click.Command):
    """A command that runs another one: `fencelock run NAME -- CMD…`.

    Everything after the first `--` belongs to CMD, untouched, so that no option of CMD is ever
    taken for one of ours. A name that begins with a dash goes between two of them:
    `fencelock run -- -name -- CMD`.
    """

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "-- CMD…"]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        own, command = _split(args)
        try:
            rest = super().parse_args(ctx, list(args) if own is None else own)
        except click.UsageError as error:
            if hint := self._hint(ctx, args):
                raise click.UsageError(f"{error.format_message().rstrip('.')}; {hint}", ctx) from None
            raise
        if own is None:
            raise click.UsageError(f"no command: write fencelock {self.name} NAME -- CMD…", ctx)
        if not command:
            raise click.UsageError("no command after --: write what to run", ctx)
        ctx.params["command"] = tuple(command)
        return rest

    def _hint(self, ctx: click.Context, args: list[str]) -> str:
        """Return the command line as it was meant, if a word before `--` seems to begin the command."""
        before = args.index("--") if "--" in args else len(args)
        for end in range(1, before + 1):
            try:
                _, extra, _ = self.make_parser(ctx).parse_args(args[:end])
            except click.NoSuchOption:
                return ""
            except click.UsageError:
                continue  # an option whose value comes next
            if extra:
                line = shlex.join([*args[: end - 1], "--", *args[end - 1 :]])
                return f"if {args[end - 1]!r} begins the command, put -- before it: {ctx.command_path} {line}"
        return ""


def _split(args: list[str]) -> tuple[list[str] | None, list[str]]:
    if "--" not in args:
        return None, []
    cut = args.index("--")
    own, command = args[:cut], args[cut + 1 :]
    if command[1:2] == ["--"] and command[0].startswith("-"):
        return [*own, "--", command[0]], command[2:]
    return own, command
