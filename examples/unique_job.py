"""Once per job: many workers find the same jobs, and each e-mail is sent once.

The lock's name says what must not happen twice: `<job-uuid>#send_email`. There is a new name for each
job, for ever, and that is fine: nothing is kept of a name that is not in use.

The lock alone does not remember that a job was done. Look again under the lock: what was open when
the worker chose the job may have been done before its turn came.
"""

from __future__ import annotations

import os
import random
import tempfile
import uuid
from concurrent.futures import ThreadPoolExecutor

from fencelock import Client, release_on_exit


def work(url: str, jobs: list[str], sent: list[str], seed: int) -> None:
    with Client(url, client_name=f"worker-{seed}") as locks:
        for job in random.Random(seed).sample(jobs, len(jobs)):
            lease = locks.lock(f"{job}#send_email", ttl=10).try_acquire()
            if lease is None:
                continue  # somebody is at it right now
            try:
                if job not in sent:
                    sent.append(job)
            finally:
                lease.release()


def main() -> None:
    jobs = [str(uuid.uuid4()) for _ in range(50)]
    sent: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        url = os.environ.get("FENCELOCK_URL") or f"sqlite://{folder}/locks.db"
        with ThreadPoolExecutor(6) as pool:
            list(pool.map(lambda seed: work(url, jobs, sent, seed), range(6)))
        with Client(url) as locks:
            print(f"{len(jobs)} jobs, 6 workers, {len(sent)} e-mails, {len(locks.list(jobs[0]))} locks left")
    assert sorted(sent) == sorted(jobs)


if __name__ == "__main__":
    release_on_exit()  # SIGTERM releases what is held
    main()
