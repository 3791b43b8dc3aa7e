"""The simulator: the core, unchanged, in a world of virtual time where everything goes wrong.

    >>> from fencelock.testing.simulation import simulate
    >>> result = simulate(7, "asyncio")
    >>> result.ok, result.history == simulate(7, "asyncio").history
    (True, True)

`python -m fencelock.testing.simulation --help` runs seeds from the command line. Read
`run.py` first.
"""

from fencelock.testing.simulation.plan import FAULTS, Plan
from fencelock.testing.simulation.run import Result, simulate

__all__ = ["FAULTS", "Plan", "Result", "simulate"]
