"""Mask secrets in text of unknown content, before a chat model or a person reads it.

No method finds every secret. This module masks values that the caller passes, that belong to environment variables with
names such as `API_KEY`, that have the form of a secret, or that follow a word such as `password`. It also masks text
that looks like a random key, because a false positive is better than a leak.
"""

import os
import re
from collections.abc import Iterable, Iterator

MASK = "***"
SHORTEST = 6  # characters of a value that is known to be secret; masking shorter values would mask ordinary words
_LONGEST = 20_000

_SECRET_NAME = re.compile(
    r"api_?key|auth|cookie|credential|dsn|key\b|_key|pass|pwd|secret|signature|token", re.IGNORECASE
)

_AFTER_A_NAME = re.compile(
    r"""((?:(?:api|account)[\s_-]?key|access[\s_-]?key|credentials?|dsn|passphrase|passw(?:or)?d|pwd|secret
    |session[\s_-]?id|signature|token)[\w-]{0,40}["']?\s*(?:=>|[:=])\s*(?:[\[({]?b?(?=["']))?|\b(?:key|sig|auth)=
    |--[\w-]{0,40}(?:key|passphrase|password|secret|token)(?:\s|["'],\s)\s*)
    ("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[^\s"',;&)\]}]+)""",
    re.IGNORECASE | re.VERBOSE,
)
_HEADER = re.compile(
    r"""((?:authorization|cookie)["']?\s*(?:=>|[:=])\s*)("(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|(?!\*\*\*)[^\n]+)""",
    re.IGNORECASE,
)
_FORMS = tuple(
    re.compile(pattern, flags)
    for pattern, flags in (
        (r"-----BEGIN [^-]{1,60}-----.*?(?:-----END [^-]{1,60}-----|\Z)", re.DOTALL),
        (r"""(?<=://)(?:[^\s/@:]{0,100}:[^\s"'<>]{1,200}|[^\s/@]+)(?=@)""", 0),
        (r"(?<=\bbearer )\S{6,}|(?<=\bbasic )\S{6,}", re.IGNORECASE),
        (
            r"\b(?:sk-|pk_|rk_|sk_|gh[pousr]_|github_pat_|glpat-|xox[a-z]-|AKIA|ASIA|AIza|ya29\.|eyJ)[\w.+/=*-]{8,}",
            0,
        ),
    )
)
# This pattern excludes parts of paths, and words that are joined by hyphens or underscores as in file names.
_RANDOM = re.compile(r"(?<![A-Za-z0-9+/=])(?=[A-Za-z+=]*\d)(?=[0-9+=]*[A-Za-z])[A-Za-z0-9+=]{20,}")


def mask(text: str, *, secrets: Iterable[str] = ()) -> str:
    """Return the text with `secrets` and other possible secrets masked. Very long texts are cut."""
    text = text[:_LONGEST]
    values = {value for value in (*secrets, *_environment_secrets()) if len(value) >= SHORTEST}
    for value in sorted(values, key=len, reverse=True):
        text = text.replace(value, MASK)
    for form in _FORMS:
        text = form.sub(MASK, text)
    for pattern in (_HEADER, _AFTER_A_NAME):
        text = pattern.sub(rf"\1{MASK}", text)
    return _RANDOM.sub(MASK, text)


def _environment_secrets() -> Iterator[str]:
    for name, value in os.environ.items():
        # Paths, such as that in PWD, are not secrets.
        if _SECRET_NAME.search(name) and not value.startswith("/"):
            yield value
