"""Ways to run a tool's body: on the loop, in a thread, in a worker process."""
