"""Bytes to servers and back, written once for both flavours.

    stream      a non-blocking socket; `tls` encrypts in memory, `connecting` and `lookup` open one
    exchange    a connection: questions, and which answer belongs to which (`sansio`: the backend's part)
    channel     a connection on which both sides speak when they want to
    pool        a bounded number of connections, first come first served (`turns`)
    retry       several servers, until one answers or the deadline comes
    workers     questions that wait for long, in the background
    failures    what went wrong, in words for people

Everything here is `async def`. On the blocking runtime nothing suspends. The flavours differ only in how they
wait until a socket is ready, and that comes from the runtime (`runtime/readiness.py`).

Not promised: that a question was not done when its answer did not come. A question that was interrupted stays
under way, and cleanup waits for its answer first (`Pool.settle`).
"""
