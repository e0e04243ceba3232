"""The fault harness: real processes that are made to fail, and the checker of what they leave behind.

How a test works:

- `site.py` makes a site, its database and its processes, in embedded mode (SQLite) or in scaled mode (PostgreSQL, Redis).
  The fixtures `embedded` and `scaled` of `conftest.py` return the function that makes one.
- `tests/fork_server.py` starts the processes quickly: it forks from one process that has imported the libraries.
- `tests/processes.py` kills, freezes and ends a process. `checkpoints.py` lists the places in the code at which one can
  die; `governance/core/checkpoints.py` explains how.
- `faulty_layer.py` is a channel layer that loses, repeats and delays messages.
- `client.py` is a browser's side of a site: HTTP, the admin, and a WebSocket that reconnects.
- `database_snapshot.py` reads all rows of a site; `checker.py` checks them against the promises of docs/reliability.md.

The soak (`soak.py`, `make soak`) runs `load_generator.py` and `fault_injection.py` at the same time, then the checker.
The tests of a promise bear its number: `pytest tests/faults -k g05`. `make faults` includes the tests that take long.

This package is an installed app of the processes under test, so that they find the tools in `tools.py`.
"""
