"""What the members of one group share: a folder, a network, the caller's settings and environment."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from . import ports
from .errors import ServerError
from .keeper import keeper
from .network import Loopback, Network
from .suites import Root


class Site:
    """Made for one group, and gone with it: `close()` removes the folder and the network, frees the ports."""

    def __init__(
        self,
        kind: str,
        *,
        settings: Mapping[str, str] | None = None,
        env: Mapping[str, str] | None = None,
        network: Network | None = None,
        place: Callable[[str], Path] | None = None,
        root: Root | None = None,
    ) -> None:
        self.settings = dict(settings or {})
        self.env = dict(env or {})
        self.network = network or Loopback()
        self.place = place
        self.root = root
        self._ports: list[int] = []
        self.folder = Path(tempfile.mkdtemp(prefix=f"fencelock-{kind}-"))
        keeper().add("folder", self.folder)
        # Servers with an account of their own must be able to pass through.
        self.folder.chmod(0o711)

    def port(self) -> int:
        """A free port, never given out twice."""
        port = ports.take()
        self._ports.append(port)
        return port

    def close(self) -> None:
        """Forgets everything. Comes after the last process has ended."""
        if not self.folder.exists():
            return
        self.network.close()
        shutil.rmtree(self.folder, ignore_errors=True)
        if self.folder.exists():
            raise ServerError(f"{self.folder} could not be removed")
        keeper().remove("folder", self.folder)
        for port in self._ports:
            ports.give_back(port)
