"""A program in bubblewrap's place."""

from pathlib import Path


def install_bubblewrap(directory: Path, script: str) -> None:
    program = directory / "bwrap"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
