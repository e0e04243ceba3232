"""The declaration of a setting's system check and bounds, next to its type, default and docstring.

    MAX_RUNNING: Annotated[int, Setting("governance.E006", 1, 100_000)] = 100
    \"\"\"Maximum number of concurrent calls in one process.\"\"\"

The system check, the environment variable and the line in `docs/settings/` are derived from the field.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

WEEK = 7 * 24 * 3600.0


@dataclass(frozen=True, slots=True)
class Setting:
    """The rule of one setting.

    `check` is the id of its system check; no other setting uses this id. Numbers must be between `least` and `most`;
    without these bounds, they must be above zero. `zero` also allows 0, which means no limit. `none` explains the value
    `None`. `is_valid` checks values of the right type, and `hint` describes valid values. `kind` names the type in the
    docs.
    """

    check: str
    least: float | None = None
    most: float | None = None
    zero: bool = False
    none: str = ""
    is_valid: Callable[[Any], bool] | None = None
    hint: str = ""
    kind: str = ""
