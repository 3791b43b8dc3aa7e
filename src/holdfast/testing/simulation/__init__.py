"""The simulator: the core, unchanged, in a world of virtual time where everything goes wrong.

    >>> from holdfast.testing.simulation import simulate
    >>> result = simulate(7, "asyncio")
    >>> result.ok, result.history == simulate(7, "asyncio").history
    (True, True)

`python -m holdfast.testing.simulation --help` runs seeds from the command line. Read
`run.py` first.
"""

from holdfast.testing.simulation.plan import FAULTS, Plan
from holdfast.testing.simulation.run import Result, simulate

__all__ = ["FAULTS", "Plan", "Result", "simulate"]
