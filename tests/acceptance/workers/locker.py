"""Keeps a lock file locked, as a stuck process or a backup would, until told to let go: locker.py FILE."""

from __future__ import annotations

import sqlite3
import sys

from resources import say

if __name__ == "__main__":
    db = sqlite3.connect(sys.argv[1], timeout=30, isolation_level=None)
    db.execute("BEGIN EXCLUSIVE")
    say(locked=True)
    sys.stdin.readline()
    db.execute("ROLLBACK")
    say(locked=False)
