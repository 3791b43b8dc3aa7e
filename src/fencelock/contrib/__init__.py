"""Locks inside of frameworks: thin, and each imported only by those who have the framework.

    fencelock.contrib.fastapi       a dependency that holds a lock for the duration of a request
    fencelock.contrib.starlette     the same as a decorator, and a client that lives as long as the app
    fencelock.contrib.django        settings, a decorator, `manage.py fencelock`, commands that run once
    fencelock.contrib.celery        tasks that run once for their key
    fencelock.contrib.apscheduler   jobs that are configured on every host and run on one, for each run time
    fencelock.contrib.prometheus    counters, histograms and gauges of the locks of this process
    fencelock.contrib.opentelemetry spans for waits and holds, and the same metrics

`calls.py` has what they share; `fencelock.templates` makes names of a request's or a call's values.
"""
