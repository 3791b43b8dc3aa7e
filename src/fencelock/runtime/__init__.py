"""Where the core's effects happen: on the caller's thread, on an asyncio loop, or in a simulation."""
