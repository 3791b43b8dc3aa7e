"""Write the pages that are derived from the package, or check that they are current.

    python tools/apidocs.py            write them
    python tools/apidocs.py --check    change nothing; exit 1 if one is stale, and say which

Derived are docs/reference/api.md as a whole, and whatever stands between the markers
`<!-- generated: KEY -->` and `<!-- /generated -->` in the pages of `REGIONS`. Everything is
read from the installed package: names from `__all__`, signatures from the functions, meanings
from the first line of each docstring. The same package gives the same text.
"""

from __future__ import annotations

import argparse
import ast
import dataclasses
import enum
import importlib
import inspect
import itertools
import re
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin

import fencelock
from fencelock.backends import OWN, backend_from_url
from fencelock.contrib.metrics import METRICS
from fencelock.guarantees import Guarantees

ROOT = Path(__file__).resolve().parent.parent
API = ROOT / "docs" / "reference" / "api.md"
REGIONS = (
    ROOT / "README.md",
    ROOT / "docs" / "reference" / "guarantees.md",
    ROOT / "docs" / "reference" / "metrics.md",
)
MARKED = re.compile(r"(<!-- generated: ([a-z-]+) -->\n).*?(<!-- /generated -->)", re.DOTALL)
WIDTH = 100

HEAD = """# The public API

Every public name, with its signature and one line on what it means. This page is written by
`tools/apidocs.py` from the package itself; a test fails when it is stale. The [errors](errors.md), the
[guarantees](guarantees.md) and the [command line](cli.md) have pages of their own.

`Client` and `AsyncClient` have the same methods with the same arguments. What does I/O is a
coroutine in the asyncio flavour. A *Duration* is a number of seconds or a `timedelta`.
"""

GROUPS: dict[str, tuple[str, ...]] = {
    "Clients": ("Client", "AsyncClient"),
    "Locks": ("Lock", "AsyncLock", "RWLock", "AsyncRWLock", "MultiLock", "AsyncMultiLock"),
    "Leases": ("Lease", "AsyncLease", "MultiLease", "AsyncMultiLease"),
    "Elections": ("Election", "AsyncElection"),
    "The end of a program": ("release_on_exit",),
    "What is shown": ("LockState", "Entry", "Guarantees"),
    "Errors": (
        "FencelockError",
        "AcquireTimeout",
        "AcquireCancelled",
        "LeaseLost",
        "NotHeld",
        "StaleToken",
        "Conflict",
        "BackendError",
        "BackendUnavailable",
        "QuorumNotReached",
        "Unsupported",
        "ConfigurationError",
    ),
    "Version": ("__version__",),
}

MODULES = {
    "fencelock.backends.base": "For those who write one: see [write a backend](../howto/write-a-backend.md).",
    "fencelock.contrib.apscheduler": "Jobs that run once in the fleet: see "
    "[the how-to](../howto/use-with-apscheduler.md).",
    "fencelock.contrib.celery": "Tasks that run once: see [the how-to](../howto/use-with-celery.md).",
    "fencelock.contrib.django": "Views, functions and commands under a lock: see "
    "[the how-to](../howto/use-with-django.md).",
    "fencelock.contrib.fastapi": "A lock for the duration of a request: see "
    "[the how-to](../howto/use-with-fastapi.md).",
    "fencelock.contrib.opentelemetry": "Spans and metrics: see [the how-to](../howto/measure-and-trace.md).",
    "fencelock.contrib.prometheus": "The same metrics for Prometheus.",
    "fencelock.contrib.starlette": "The same for Starlette, as a decorator.",
    "fencelock.crdt": "Values that merge: see [CRDTs](../explanation/crdts.md) and "
    "[replicate a value](../howto/replicate-a-value.md).",
    "fencelock.dashboard": "The dashboard as an application: see [the how-to](../howto/dashboard.md).",
    "fencelock.events": "What happens to locks, as it happens: see "
    "[measure and trace](../howto/measure-and-trace.md).",
    "fencelock.fencing": "For the resource's side: see [refuse old tokens](../howto/refuse-old-tokens.md).",
    "fencelock.flight": "For values that many ask for at once: see "
    "[cache without a stampede](../howto/cache-without-a-stampede.md).",
    "fencelock.idempotency": "For work that is to be done once however often it is asked for: see "
    "[the how-to](../howto/do-it-once.md).",
    "fencelock.jobs": "For work that waits in a table: see [the how-to](../howto/run-jobs.md).",
    "fencelock.optimistic": "For writes that need no lock: see "
    "[the how-to](../howto/update-without-a-lock.md).",
    "fencelock.schedule": "For work that runs once in the whole fleet at its times: see "
    "[the how-to](../howto/run-on-a-schedule.md).",
    "fencelock.sql": "For locks that end with your own transaction: see "
    "[the how-to](../howto/lock-inside-a-transaction.md).",
    "fencelock.testing": "For those who test one: see [test your code](../howto/test-your-code.md).",
    "fencelock.testing.conformance": "The conformance suite; `fencelock conform` is the same from the shell.",
}

MADE_BY_CLIENTS = {name for title in ("Locks", "Leases", "Elections") for name in GROUPS[title]}
"""Nobody calls the constructors of these: a client makes them."""

WORDS = {
    "client": "The program, or the `client_name` it gave.",
    "holders": "Who holds it, oldest first.",
    "host": "The host's name.",
    "metadata": "What the holder or waiter said of itself.",
    "name": "The lock's name.",
    "operations": "What was done, in order.",
    "pid": "The process id on that host.",
    "token": "The fencing token.",
    "waiters": "Who waits, in the order in which they will be served.",
}
"""What fields mean that are called by one of the words every page uses."""


def main(arguments: list[str] | None = None) -> int:
    """Write or check; return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="change nothing, exit 1 if a page is stale")
    options = parser.parse_args(arguments)
    stale = []
    for path, text in pages().items():
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        stale.append(path)
        if not options.check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    for path in stale:
        print(f"{path.relative_to(ROOT)} {'is stale: run tools/apidocs.py' if options.check else 'written'}")
    return 1 if stale and options.check else 0


def pages() -> dict[Path, str]:
    """Return the text of every derived page."""
    return {API: api_page(), **{path: with_regions(path.read_text(encoding="utf-8")) for path in REGIONS}}


# The API page -----------------------------------------------------------------------------


def api_page() -> str:
    """Return docs/reference/api.md."""
    grouped = [name for names in GROUPS.values() for name in names]
    missing = set(fencelock.__all__) ^ set(grouped)
    if missing:
        raise SystemExit(f"tools/apidocs.py: GROUPS and fencelock.__all__ differ in {sorted(missing)}")
    parts = [HEAD]
    for title, names in GROUPS.items():
        parts.append(f"## {title}\n")
        parts += [described(name, getattr(fencelock, name), "fencelock") for name in names]
    for module, about in MODULES.items():
        parts.append(f"## {module}\n\n{about}\n")
        loaded = importlib.import_module(module)
        parts += [described(name, getattr(loaded, name), module) for name in sorted(loaded.__all__)]
    return "\n".join(parts)


def described(name: str, thing: Any, module: str) -> str:
    """Return the section on one public name."""
    title = f"### {name}\n"
    if inspect.isclass(thing):
        return f"{title}\n{class_section(name, thing)}"
    if inspect.isfunction(thing):
        return f"{title}\n{code(call(name, thing, {}))}\n{meaning(thing)}\n"
    return f"{title}\n{constant_section(name, module)}"


def constant_section(name: str, module: str) -> str:
    """Return what the source says of a constant: the string below it."""
    if name == "__version__":
        return "The version of fencelock, a string.\n"
    loaded = importlib.import_module(module)
    homes = {getattr(other, "__module__", None) or "" for other in vars(loaded).values()}
    homes = {module, *(home for home in homes if home.startswith("fencelock."))}
    docs = [attribute_docs(importlib.import_module(home)).get(name, "") for home in sorted(homes)]
    about = next((text for text in docs if text), "")
    block = code(textwrap.fill(value_text(name, getattr(loaded, name)), WIDTH, subsequent_indent="    "))
    return f"{block}\n{about}\n" if about else block


def value_text(name: str, value: Any) -> str:
    """Return a constant as it is written, sets in the order of the alphabet."""
    if isinstance(value, frozenset):
        return f"{name} = {{{', '.join(sorted(map(repr, value)))}}}"
    return f"{name} = {str(value).replace('typing.', '') if get_origin(value) else repr(value)}"


def class_section(name: str, cls: type) -> str:
    """Return how a class is made, what it means, its fields and its methods."""
    lines = []
    if issubclass(cls, enum.Enum):
        members = ", ".join(f"`{member.name}`" for member in cls)
        return f"{meaning(cls)} One of {members}.\n"
    if getattr(fencelock, name, None) is not cls or name not in MADE_BY_CLIENTS:
        lines.append(code(constructor(name, cls)))
    lines.append(f"{meaning(cls)}\n")
    rows = [*field_rows(cls), *member_rows(cls)]
    if rows:
        lines += ["| member | meaning |", "|---|---|", *rows, ""]
    return "\n".join(lines)


def constructor(name: str, cls: type) -> str:
    """Return the class as it is called."""
    bound = typevars(cls)
    made_by: Any = inspect.getattr_static(cls, "__init__")
    if hasattr(cls, "_fields"):  # a named tuple
        made_by = inspect.getattr_static(cls, "__new__")
    if made_by is object.__init__ or is_protocol(cls) or inspect.isabstract(cls):
        return f"class {name}"
    if issubclass(cls, BaseException) and "__init__" not in cls.__dict__:
        return f"class {name}"
    return call(name, made_by, bound, method=True)


def field_rows(cls: type) -> Iterator[str]:
    """Return a row for each field of a dataclass or named tuple that its own source explains."""
    names = [field.name for field in dataclasses.fields(cls)] if dataclasses.is_dataclass(cls) else []
    names = names or list(getattr(cls, "_fields", ()))
    docs = attribute_docs(cls)
    for name in names:
        about = docs.get(name) or (WORDS.get(name) if cls in (fencelock.Entry, fencelock.LockState) else "")
        if about:  # the rest is seen in the constructor
            yield row(f"{name}: {annotation(cls, name)}", about)


def member_rows(cls: type) -> Iterator[str]:
    """Return a row for each public method and property, in the order of the alphabet."""
    bound = typevars(cls)
    for name in sorted(dir(cls)):
        if name.startswith("_") or name in getattr(cls, "__dataclass_fields__", {}):
            continue
        raw = inspect.getattr_static(cls, name)
        owner = next((base for base in cls.__mro__ if name in vars(base)), None)
        if owner is None or not module_of(owner).startswith("fencelock"):
            continue
        yield from _member_row(cls, name, raw, bound)


def _member_row(cls: type, name: str, raw: Any, bound: dict[str, str]) -> Iterator[str]:
    if isinstance(raw, property) and raw.fget is not None and meaning(raw.fget):
        kind = substituted(str(raw.fget.__annotations__.get("return", "")), bound)
        yield row(f"{name}: {kind}" if kind else name, meaning(raw.fget))
    elif isinstance(raw, classmethod | staticmethod):
        yield row(call(name, raw.__func__, bound, method=isinstance(raw, classmethod)), meaning(raw.__func__))
    elif inspect.isfunction(raw):
        about = meaning(raw) or inherited_meaning(cls, name)
        if about:
            yield row(call(name, raw, bound, method=True), about)


def inherited_meaning(cls: type, name: str) -> str:
    """Return the meaning of a method that only its base class explains."""
    return next((text for base in cls.__mro__ if (text := meaning(vars(base).get(name)))), "")


# Signatures -------------------------------------------------------------------------------


def call(name: str, function: Callable[..., Any], bound: dict[str, str], *, method: bool = False) -> str:
    """Return how a function is called: its name, parameters and result."""
    signature = inspect.signature(function)
    parameters = list(signature.parameters.values())[1 if method else 0 :]
    shown: list[str] = []
    star = False
    for parameter in parameters:
        if parameter.kind is parameter.VAR_POSITIONAL:
            star = True
        elif parameter.kind is parameter.KEYWORD_ONLY and not star:
            shown.append("*")
            star = True
        shown.append(parameter_text(parameter, bound))
    result = "" if signature.return_annotation is signature.empty else str(signature.return_annotation)
    arrow = f" -> {substituted(result, bound)}" if result and name != "__init__" and result != "None" else ""
    prefix = "async " if is_coroutine(function) else ""
    return f"{prefix}{name}({', '.join(shown)}){arrow}"


def parameter_text(parameter: inspect.Parameter, bound: dict[str, str]) -> str:
    """Return one parameter as it is written in a signature."""
    text = parameter.name
    if parameter.kind in {parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD}:
        text = ("*" if parameter.kind is parameter.VAR_POSITIONAL else "**") + text
    if parameter.annotation is not parameter.empty:
        text += f": {substituted(str(parameter.annotation), bound)}"
    if parameter.default is not parameter.empty:
        default = parameter.default
        value = str(getattr(default, "__name__", "")) if callable(default) else repr(default)
        if value.startswith("<"):
            value = "…"
        text += f" = {value}" if ":" in text else f"={value}"
    return text


def is_coroutine(function: Callable[..., Any]) -> bool:
    """Whether it is to be awaited or iterated with `async`."""
    return inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)


def typevars(cls: type) -> dict[str, str]:
    """Return what the type variables of a class's bases stand for: `T` is `Lease`."""
    found: dict[str, str] = {}
    for base in cls.__mro__:
        for generic in getattr(base, "__orig_bases__", ()):
            origin = get_origin(generic)
            for variable, argument in zip(
                getattr(origin, "__parameters__", ()), get_args(generic), strict=False
            ):
                if not isinstance(argument, TypeVar):
                    found.setdefault(variable.__name__, argument.__name__)
    return found


def substituted(text: str, bound: dict[str, str]) -> str:
    """Return an annotation with type variables replaced by what they stand for."""
    for variable, argument in bound.items():
        text = re.sub(rf"\b{variable}\b", argument, text)
    text = re.sub(r"^(?:ForwardRef\()?'(.*?)'\)?$", r"\1", text)
    return re.sub(r"\b(typing|collections\.abc)\.", "", text).replace("'", '"')


def annotation(cls: type, name: str) -> str:
    """Return the annotation of a field."""
    for base in cls.__mro__:
        if name in getattr(base, "__annotations__", {}):
            found = base.__annotations__[name]
            text = found if isinstance(found, str) else getattr(found, "__forward_arg__", "")
            return substituted(str(text or getattr(found, "__name__", found)), {})
    return "Any"


# Text -------------------------------------------------------------------------------------


def meaning(thing: Any) -> str:
    """Return the first paragraph of a docstring as one line, or ''."""
    text = getattr(thing, "__doc__", None) or ""
    if dataclasses.is_dataclass(thing) and text.startswith(f"{getattr(thing, '__name__', '')}("):
        return ""  # written by dataclass, not by a person
    first = inspect.cleandoc(text).partition("\n\n")[0]
    return re.sub(r"\s+", " ", first).replace("``", "`").strip()


def attribute_docs(thing: Any) -> dict[str, str]:
    """Return the string that stands below each attribute in the source."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(thing)))
    body = tree.body[0].body if inspect.isclass(thing) else tree.body  # type: ignore[attr-defined]
    found: dict[str, str] = {}
    for target, below in itertools.pairwise(body):
        name = _assigned(target)
        if name and isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
            found[name] = re.sub(r"\s+", " ", str(below.value.value)).strip()
    return found


def _assigned(node: ast.stmt) -> str:
    target = node.target if isinstance(node, ast.AnnAssign) else None
    if isinstance(node, ast.Assign):
        target = node.targets[0]  # type: ignore[assignment]
    return target.id if isinstance(target, ast.Name) else ""


def row(left: str, right: str) -> str:
    """Return a row of a table."""
    return f"| `{_escaped(left)}` | {_escaped(right)} |"


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")


def code(text: str) -> str:
    """Return a signature as a block, broken at its parameters where it is long."""
    if len(text) > WIDTH and "(" in text:
        head, _, rest = text.partition("(")
        inside, _, tail = rest.rpartition(")")
        text = f"{head}(\n    " + ",\n    ".join(top_level(inside)) + f",\n){tail}"
    return f"```text\n{text}\n```\n"


def top_level(text: str) -> list[str]:
    """Split at the commas that stand in no bracket."""
    parts, depth = [""], 0
    for character in text:
        depth += (character in "[({") - (character in "])}")
        if character == "," and not depth:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts]


def module_of(cls: type) -> str:
    """Return the module that defines a class."""
    return str(cls.__module__)


def is_protocol(cls: type) -> bool:
    """Whether a class only describes others."""
    return bool(getattr(cls, "_is_protocol", False))


# Regions ----------------------------------------------------------------------------------


def with_regions(text: str) -> str:
    """Return a page with what stands between its markers made anew."""
    return MARKED.sub(lambda match: f"{match[1]}{REGION[match[2]]()}{match[3]}", text)


SAMPLES = {
    "memory": "memory://",
    "sqlite": "sqlite:///locks.db",
    "redis+sentinel": "redis+sentinel://localhost/service",
    "redlock": "redlock://one,two,three",
    "mysql": "mysql://localhost/locks",
    "mysql+getlock": "mysql+getlock://localhost/locks",
}


def promises() -> dict[str, Guarantees]:
    """Return what each backend promises, by the first of its URL schemes."""
    first = {target: scheme for scheme, target in reversed(OWN.items())}
    return {
        scheme: backend_from_url(SAMPLES.get(scheme, f"{scheme}://localhost")).guarantees
        for scheme, target in OWN.items()
        if first[target] == scheme
    }


def guarantees_short() -> str:
    """Return the table of the README: what can be said in a word."""
    fields = ("scope", "use_for", "fencing", "crash_release", "fairness", "wakeup", "min_ttl", "max_ttl")
    return guarantees_table(fields)


def guarantees_full() -> str:
    """Return the table of the reference, and the caveats below it."""
    fields = tuple(field.name for field in dataclasses.fields(Guarantees) if field.name != "caveats")
    lines = [guarantees_table(fields)]
    for scheme, found in promises().items():
        lines.append(f"Caveats of `{scheme}://`:\n\n" + "".join(f"- {text}\n" for text in found.caveats))
    return "\n".join(lines)


def guarantees_table(fields: tuple[str, ...]) -> str:
    """Return a column for each backend."""
    found = promises()
    lines = [
        "| | " + " | ".join(f"`{scheme}://`" for scheme in found) + " |",
        "|---" * (len(found) + 1) + "|",
    ]
    for field in fields:
        values = (getattr(each, field) for each in found.values())
        cells = (f"{value:g} s" if isinstance(value, float) else str(value) for value in values)
        lines.append(f"| `{field}` | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def metrics_table() -> str:
    """Return a row for each metric."""
    lines = ["| Prometheus | OpenTelemetry | kind | labels | meaning |", "|---|---|---|---|---|"]
    for metric in METRICS:
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        names = f"`{metric.prometheus}` | `{metric.opentelemetry}`"
        lines.append(f"| {names} | {metric.kind} | {labels} | {metric.about} |")
    return "\n".join(lines) + "\n"


REGION: dict[str, Callable[[], str]] = {
    "guarantees-short": guarantees_short,
    "guarantees-full": guarantees_full,
    "metrics": metrics_table,
}


if __name__ == "__main__":
    sys.exit(main())
