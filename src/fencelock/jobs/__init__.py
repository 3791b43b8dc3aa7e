"""Jobs that are done once, by as many workers as there are, in a table of your own database.

    table = jobs.Table(engine)                               the ready-made table, or yours by columns={…}
    table.enqueue("send_email", {"to": "alice"}, conn=conn)  as part of your transaction, if you like
    jobs.Worker(locks, table, {"send_email": send}).run()    under a lock for each job, on any backend
    jobs.Worker(None, table, {"send_email": send}).run()     without locks: the row is the lease

Each attempt has a token that is higher than that of every earlier one, and whatever ends it names that
token: a worker that crashed is followed by another, and one that was paused and overtaken cannot report
success. An effect in the same database happens exactly once in `with job.finish() as conn`; one elsewhere is
done at least once, with `job.token` and `job.key` for whoever wants to know a repetition.

`shape.py` says what the columns mean, `ways.py` how workers come to their jobs, `loop.py` what a worker does.
"""

from fencelock.jobs.base import Running
from fencelock.jobs.job import AsyncJob, Job
from fencelock.jobs.leases import RowLease
from fencelock.jobs.outcomes import Reject, Retry, Tally
from fencelock.jobs.records import JobState
from fencelock.jobs.table import AsyncTable, Table
from fencelock.jobs.worker import AsyncWorker, Worker

__all__ = [
    "AsyncJob",
    "AsyncTable",
    "AsyncWorker",
    "Job",
    "JobState",
    "Reject",
    "Retry",
    "RowLease",
    "Running",
    "Table",
    "Tally",
    "Worker",
]
