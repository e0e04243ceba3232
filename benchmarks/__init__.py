"""The speed that users notice, measured on real server processes: `python -m benchmarks`."""
