"""Sentences that rows keep in English, in the language of whoever reads them.

A row is written once, and read by people with several languages. So it keeps the sentence as it is in the source. The
reader's sentence is made from the same template, with the values of the stored one.
"""

import re
from collections.abc import Iterable

from django.utils.translation import gettext

_NAME = re.compile(r"%\((\w+)\)s")


class StoredSentences:
    """Templates that stored sentences were made from, with names such as `%(tool)s`."""

    def __init__(self, templates: Iterable[str]) -> None:
        self._patterns = {template: _pattern(template) for template in templates}

    def __iter__(self) -> Iterable[str]:
        return iter(self._patterns)

    def translate(self, stored: str) -> str:
        """Return a sentence in the active language; what is not known stays as it is."""
        for template, pattern in self._patterns.items():
            if found := pattern.fullmatch(stored):
                names = {name: self.translate(said) for name, said in found.groupdict().items()}
                return gettext(template) % names if names else gettext(template)
        return stored


def _pattern(template: str) -> re.Pattern[str]:
    """Return what fits all sentences made from a template; a name that comes twice is the same twice."""
    pattern, end, seen = "", 0, set[str]()
    for found in _NAME.finditer(template):
        name = found[1]
        pattern += re.escape(template[end : found.start()])
        pattern += f"(?P={name})" if name in seen else f"(?P<{name}>.+?)"
        seen.add(name)
        end = found.end()
    return re.compile(pattern + re.escape(template[end:]), re.DOTALL)
