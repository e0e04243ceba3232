"""What a setting declares beside its field's type, default and docstring: its check and its bounds.

    MAX_RUNNING: Annotated[int, Setting("governance.E006", 1, 100_000)] = 100
    \"\"\"Calls that run at once in one process.\"\"\"

The system check, the variable of the environment and the line in `docs/settings/` follow from the field.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

WEEK = 7 * 24 * 3600.0


@dataclass(frozen=True, slots=True)
class Setting:
    """The rule of one setting.

    `check` is the id of its system check, never used for anything else. Numbers lie from `least` to `most`; without
    bounds they are above zero. `zero` also allows 0, for no limit. `none` says what None stands for.
    `is_valid` is asked of values of the right type; `hint` says then what to write. `kind` names the type in the docs.
    """

    check: str
    least: float | None = None
    most: float | None = None
    zero: bool = False
    none: str = ""
    is_valid: Callable[[Any], bool] | None = None
    hint: str = ""
    kind: str = ""
