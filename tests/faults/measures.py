"""What the fault tests have measured, for the table in docs/reliability.md: FAULTS_MEASURES names the file to add to."""

import json
import os
from pathlib import Path


def note(promise: str, what: str, seconds: float) -> None:
    """Keep one measured span."""
    file = os.environ.get("FAULTS_MEASURES")
    if file:
        line = json.dumps({"promise": promise, "what": what, "seconds": round(seconds, 3)})
        with Path(file).open("a", encoding="utf-8") as measures:
            measures.write(f"{line}\n")
