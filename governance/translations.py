"""Sentences that rows keep in English, in the language of whoever reads them.

A row is written once, and read by people with several languages. So it keeps the sentence as it is in the source. The
reader's sentence is made from the same template, with the values of the stored one.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TypeAlias

from django.utils.translation import gettext, ngettext

_NAME = re.compile(r"%\((\w+)\)s")
_TEXT, _NUMBER = ".+?", "[0-9]{1,18}"
_Template: TypeAlias = str | tuple[str, str]


class StoredSentences:
    """Templates that stored sentences were made from, with names such as `%(tool)s`.

    A pair is one sentence: for one thing, and for any other number of them. Its first name is that number.
    """

    def __init__(self, templates: Iterable[_Template]) -> None:
        self._patterns: dict[re.Pattern[str], _Template] = {}
        for template in templates:
            if isinstance(template, str):
                self._patterns[_pattern(template, _TEXT)] = template
            else:
                self._patterns |= {_pattern(form, _NUMBER): template for form in template}

    def __iter__(self) -> Iterator[str]:
        for template in self._patterns.values():
            yield template if isinstance(template, str) else template[0]

    def translate(self, stored: str) -> str:
        """Return a sentence in the active language; what is not known stays as it is."""
        for pattern, template in self._patterns.items():
            if found := pattern.fullmatch(stored):
                names = {name: self.translate(said) for name, said in found.groupdict().items()}
                text = _translated(template, names)
                return text % names if names else text
        return stored


def _translated(template: _Template, names: Mapping[str, str]) -> str:
    if isinstance(template, str):
        return gettext(template)
    number = next(iter(names.values()))
    return ngettext(*template, int(number))


def _pattern(template: str, value: str) -> re.Pattern[str]:
    """Return what fits all sentences made from a template; a name that comes twice is the same twice."""
    pattern, end, seen = "", 0, set[str]()
    for found in _NAME.finditer(template):
        name = found[1]
        pattern += re.escape(template[end : found.start()])
        pattern += f"(?P={name})" if name in seen else f"(?P<{name}>{value})"
        seen.add(name)
        end = found.end()
    return re.compile(pattern + re.escape(template[end:]), re.DOTALL)
