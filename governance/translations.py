"""Translates sentences that rows store in English into the reader's language.

A row is written once but read in several languages, so it stores the untranslated sentence. The reader's sentence is
built from the same template, with the values of the stored sentence.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TypeAlias

from django.utils.translation import gettext, ngettext

_NAME = re.compile(r"%\((\w+)\)s")
_TEXT, _NUMBER = ".+?", "[0-9]{1,18}"
_Template: TypeAlias = str | tuple[str, str]


class StoredSentences:
    """Templates of stored sentences, with placeholders such as `%(tool)s`.

    A pair is the singular and the plural of one sentence. Its first placeholder is the number.
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

    def translate(self, sentence: str) -> str:
        """Return a sentence in the active language; unknown sentences stay unchanged."""
        for pattern, template in self._patterns.items():
            if match := pattern.fullmatch(sentence):
                names = {name: self.translate(part) for name, part in match.groupdict().items()}
                text = _translated(template, names)
                return text % names if names else text
        return sentence


def _translated(template: _Template, names: Mapping[str, str]) -> str:
    if isinstance(template, str):
        return gettext(template)
    number = next(iter(names.values()))
    return ngettext(*template, int(number))


def _pattern(template: str, value: str) -> re.Pattern[str]:
    """Return a pattern that matches all sentences of a template; a repeated name must have the same value."""
    pattern, end, names = "", 0, set[str]()
    for match in _NAME.finditer(template):
        name = match[1]
        pattern += re.escape(template[end : match.start()])
        pattern += f"(?P={name})" if name in names else f"(?P<{name}>{value})"
        names.add(name)
        end = match.end()
    return re.compile(pattern + re.escape(template[end:]), re.DOTALL)
