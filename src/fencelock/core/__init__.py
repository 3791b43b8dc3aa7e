"""The logic of fencelock, written once: coroutines whose every effect goes through a `Runtime`.

Nothing in this package imports asyncio, threading, time, socket or a driver; a test sees to it.
"""
