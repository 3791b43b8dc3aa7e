"""What `module:name` on a command line means: something of the user's, imported from where one stands."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

from fencelock.errors import ConfigurationError, FencelockError
from fencelock.names import shown

__all__ = ["imported", "made"]


def made(target: str, what: str, kinds: tuple[type, ...]) -> Any:
    """Return what `module:name` stands for; what is none of `kinds` may be a function that makes one."""
    found = imported(target, what)
    if not isinstance(found, kinds) and callable(found):
        try:
            found = found()
        except FencelockError:
            raise
        except Exception as error:
            raise ConfigurationError(f"{target}() failed: {type(error).__name__}: {error}") from error
    if not isinstance(found, kinds):
        wanted = " or ".join(kind.__name__ for kind in kinds)
        raise ConfigurationError(
            f"{target} is {type(found).__name__}: give {wanted}, or a function that makes one"
        )
    return found


def imported(target: str, what: str) -> Any:
    """Return what `module:name` is. Raises `ConfigurationError` that says what is wrong with it."""
    module, colon, path = target.partition(":")
    if not colon or not module or not path or module.endswith(".py") or "/" in module:
        raise ConfigurationError(f"{shown(target)} is no target: write module:name, as in myapp.jobs:{what}")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found: Any = importlib.import_module(module)
    except FencelockError:
        raise
    except ModuleNotFoundError as error:
        if error.name is not None and (module == error.name or module.startswith(f"{error.name}.")):
            raise ConfigurationError(f"there is no module {module!r} (looked from {here})") from error
        raise ConfigurationError(f"importing {module!r} failed: {error}") from error
    except Exception as error:
        raise ConfigurationError(f"importing {module!r} failed: {type(error).__name__}: {error}") from error
    for name in path.split("."):
        try:
            found = getattr(found, name)
        except AttributeError:
            raise ConfigurationError(f"module {module!r} has no {path!r}") from None
    return found
