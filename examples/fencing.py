"""Fencing: a holder that slept through its lease writes too late, and the resource refuses.

No lock can stop a process that was paused (by the scheduler, a debugger, a laptop lid) between its
last check and its write. The resource can: every lease has a token, and tokens only rise. It
remembers the highest token it has seen, and refuses a lower one.

The pause is played here: a lease that is not renewed, and a sleep that is longer than its ttl.
"""

from __future__ import annotations

import os
import tempfile
import time

from fencelock import Client, StaleToken, release_on_exit
from fencelock.fencing import Gate


class Account:
    """A resource that knows tokens. In a database: `fencing.admit`, in your own transaction."""

    def __init__(self) -> None:
        self.balance = 100
        self._gate = Gate()

    def read(self, token: int) -> int:
        with self._gate.turn("account", token):  # from the first read on: nobody older may write any more
            return self.balance

    def write(self, balance: int, token: int) -> None:
        with self._gate.turn("account", token):
            self.balance = balance


def main() -> None:
    account = Account()
    with tempfile.TemporaryDirectory() as folder:
        url = os.environ.get("FENCELOCK_URL") or f"sqlite://{folder}/locks.db"
        with Client(url) as locks:
            slow = locks.lock("account", ttl=0.3, renew=False).acquire()
            balance = account.read(slow.token)
            time.sleep(0.5)  # the pause

            with locks.lock("account") as quick:  # the lease has run out, so this one is granted
                account.write(account.read(quick.token) + 50, quick.token)
                print(f"deposited 50 under token {quick.token}")

            try:
                account.write(balance - 30, slow.token)  # would wipe out the deposit
            except StaleToken as error:
                print(f"refused: {error}")
    print(f"balance {account.balance}")
    assert account.balance == 150


if __name__ == "__main__":
    release_on_exit()  # SIGTERM releases what is held
    main()
