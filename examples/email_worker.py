"""E-mails from a table, by four workers: each is sent once, whoever crashes, fails or comes late.

An order and its e-mail are added in one transaction. A worker takes a job under the lock of that job and
completes it together with what it writes, if nobody has overtaken it. What fails is tried again; what can
never succeed is dead, with the reason. One worker died in the middle of its job: another takes over.
"""

from __future__ import annotations

import os
import tempfile
from concurrent.futures import ThreadPoolExecutor

from sqlalchemy import create_engine, text

from fencelock import Client, jobs

CRASHED = "UPDATE fencelock_jobs SET status = 'running', attempts = 1, due = 1 WHERE id = 1"


def send(job: jobs.Job) -> None:
    recipient = job.payload["to"]
    if "@" not in recipient:
        raise jobs.Reject(f"{recipient} is no address")
    if recipient == "slow@example.org" and job.attempt == 1:
        raise TimeoutError("the mail server does not answer")
    with job.finish() as conn:  # this and the completion are one transaction
        conn.execute(
            text("INSERT INTO sent VALUES (:to, :attempt)"), {"to": recipient, "attempt": job.attempt}
        )


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        engine = create_engine(f"sqlite:///{folder}/shop.db", connect_args={"timeout": 30})
        table = jobs.Table(engine)
        table.create()
        with engine.begin() as conn:
            conn.execute(text("CREATE TABLE orders (customer TEXT)"))
            conn.execute(text("CREATE TABLE sent (recipient TEXT, attempt INTEGER)"))
        for recipient in (*(f"{number}@example.org" for number in range(20)), "slow@example.org", "nobody"):
            with engine.begin() as conn:
                conn.execute(text("INSERT INTO orders VALUES (:customer)"), {"customer": recipient})
                table.enqueue("send_email", {"to": recipient}, conn=conn)
        with engine.begin() as conn:
            conn.execute(text(CRASHED))

        url = os.environ.get("FENCELOCK_URL") or f"sqlite://{folder}/locks.db"
        with Client(url) as locks, ThreadPoolExecutor(4) as pool:
            fleet = [jobs.Worker(locks, table, {"send_email": send}, backoff=0) for _ in range(4)]
            list(pool.map(jobs.Worker.run_once, fleet))
            fleet[0].run_once()  # what was due again after they had looked

        with engine.begin() as conn:
            sent = conn.execute(text("SELECT recipient, attempt FROM sent")).all()
        (dead,) = table.ls(status="dead")
        engine.dispose()
    again = sorted(recipient for recipient, attempt in sent if attempt == 2)
    print(f"22 jobs, 4 workers: {len(sent)} e-mails to {len({to for to, _ in sent})} recipients")
    print(f"at the second attempt: {', '.join(again)}; dead: {dead.reason}")


if __name__ == "__main__":
    main()
