"""The measurements of `fencelock bench`: what is done, and what the figures mean.

    pairs.py        round trip; acquire and release, blocking and under asyncio, one task and many
    race.py         one name, many threads: handoffs
    processes.py    the same with processes; contender.py is one of them
    sweeps.py       many leases held at once: renewals
    course.py       what all of them need: the backend, names, the time they have, the signal to stop
    row.py          what each of them gives
    report.py       the tables, the distributions, the JSON

No signal interrupts a step. It is noted, every loop looks for it between two steps, and whatever is held
is given back on the ordinary way. So nothing is left behind, however it ends.

Not promised: that a figure means anything on another machine, at another time, or beside another load.
Compare figures of one run, or runs that took turns.
"""
