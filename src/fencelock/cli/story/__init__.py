"""The story that `fencelock demo` tells: real workers, real faults, and a ledger that tells the truth.

worker.py    one worker process: look for an open job, do it, write it down
ledger.py    the job list and what was done, in a file of its own; guards itself with tokens
troupe.py    the worker processes: started, heard, stopped, killed
act.py       a run from the first job to the last, and the troubles in it
picture.py   what there is to see at one moment
live.py      the picture on a terminal
verdict.py   whether the promise held, by the ledger alone
"""
