"""The invokers, which run a tool's body on the event loop, in a thread, or in a worker process."""
