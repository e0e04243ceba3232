"""Builds the site of the documentation: `make docs`."""

import os
import re
import sys
from pathlib import Path

import django
from sphinx.application import Sphinx

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
os.environ["DJANGO_SETTINGS_MODULE"] = "tests.settings"
django.setup()

from turns import __version__  # noqa: E402

project = "Turnkeeper"
author = "the django-turnkeeper contributors"
version = release = __version__
html_title = f"Turnkeeper {release}"
html_theme = "furo"
html_favicon = "../static/webchat/img/favicon.svg"
html_copy_source = False
html_show_copyright = False

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
myst_heading_anchors = 4

# Docstrings are written as Markdown writes code: `like this`.
default_role = "code"
add_module_names = False
maximum_signature_line_length = 90
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True

_LINK = re.compile(r"\[[^\]]+\]\(([\w./-]+\.md)\)")
_NO_PAGE = re.compile(r"\[([^\]]+)\]\((?:\.\./)+(?:deploy|examples|[A-Z])[^)\s]*\)")
_PROMISES = re.compile(
    r" \((?:[A-HPTV]\d+|invariants? \d+|acceptance \d+)(?:, [A-HPTV]\d+)*\)"
)  # ids for readers of the code
_HUBS = {
    "settings": "settings/",
    "reference/index": "",
}  # the pages that list others, by the folder of those


def prepare(_app: Sphinx, page: str, source: list[str]) -> None:
    """Make the site's navigation from the links of the index, and drop links to files that are no pages."""
    text = source[0] = _NO_PAGE.sub(r"\1", source[0])
    if page == "index":
        for section in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
            source[0] += _navigation(section, caption=section.partition("\n")[0])
    elif page in _HUBS:
        source[0] += _navigation(text, folder=_HUBS[page])


def _navigation(text: str, *, folder: str = "", caption: str = "") -> str:
    targets = [
        target for target in dict.fromkeys(_LINK.findall(text)) if not target.startswith("..")
    ]
    entries = "\n".join(target for target in targets if target.startswith(folder))
    options = f":hidden:\n:caption: {caption}\n" if caption else ":hidden:\n"
    return f"\n```{{toctree}}\n{options}\n{entries}\n```\n"


def without_ids(
    _app: Sphinx, _what: str, _name: str, _object: object, _options: object, lines: list[str]
) -> None:
    """Drop the ids of requirements, which help only readers of the code."""
    lines[:] = [_PROMISES.sub("", line) for line in lines]


def setup(app: Sphinx) -> None:
    """Register what prepares the pages."""
    app.connect("autodoc-process-docstring", without_ids)
    app.connect("source-read", prepare)
