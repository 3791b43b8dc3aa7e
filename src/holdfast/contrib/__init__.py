"""Locks inside of frameworks: thin, and each imported only by those who have the framework.

    holdfast.contrib.fastapi       a dependency that holds a lock for the duration of a request
    holdfast.contrib.starlette     the same as a decorator, and a client that lives as long as the application
    holdfast.contrib.django        settings, a decorator, `manage.py holdfast`, commands that run once
    holdfast.contrib.celery        tasks that run once for their key
    holdfast.contrib.apscheduler   jobs that are configured on every host and run on one, for each run time
    holdfast.contrib.prometheus    counters, histograms and gauges of the locks of this process
    holdfast.contrib.opentelemetry spans for waits and holds, and the same metrics

`calls.py` has what they share; `holdfast.templates` makes names of a request's or a call's values.
"""
