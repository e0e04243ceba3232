"""Token usage as text."""

from collections.abc import Mapping

from django.utils.formats import number_format
from django.utils.translation import gettext_lazy

from console.formats import NOTHING

_WORDS = {
    "requests": gettext_lazy("requests"),
    "input_tokens": gettext_lazy("tokens in"),
    "cache_read_tokens": gettext_lazy("of these read from the cache"),
    "cache_write_tokens": gettext_lazy("of these written to the cache"),
    "output_tokens": gettext_lazy("tokens out"),
    "reasoning_tokens": gettext_lazy("of these for thinking"),
}


def usage_words(counts: Mapping[str, int]) -> str:
    """Return the counts in one line, each with its name."""
    words = (
        f"{word}: {number_format(counts[name], force_grouping=True)}"
        for name, word in _WORDS.items()
        if name in counts
    )
    return ", ".join(words) or NOTHING
