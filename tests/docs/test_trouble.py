"""The page for trouble leads to a remedy for every check and every stable code."""

import re

import pytest

from governance import ErrorType
from tests.docs.pages import DOCS, links_of, text_of
from tests.docs.test_docs import PACKAGES, found_in_code
from turns.chat_models.failures import FailureKind
from turns.exceptions import TurnsError

PAGE = DOCS / "trouble.md"
CODES = {
    "system checks": found_in_code(rf"\b((?:console|{'|'.join(PACKAGES)})\.[EWI]\d{{3}})\b"),
    "tool calls": {*ErrorType},
    "services": {error.code for error in TurnsError.__subclasses__()},
    "chat models": {*FailureKind} | found_in_code(r'ChatModelError\(\s*"(\w+)"'),
    "turns": found_in_code(r'error_code="(\w+)"'),
    "notes": found_in_code(r'Notice\(\s*code="(\w+)"'),
    "the API and the socket": found_in_code(
        r'(?:\berror\(\s*\d+,|Refused\(\s*\d+,|ProtocolError\(|refusal\()\s*"(\w+)"'
    ),
}


@pytest.mark.parametrize("kind", CODES)
def test_every_code_is_explained_on_the_page_or_one_that_it_links(kind):
    pages = {PAGE, *(link.target for link in links_of(PAGE))}
    explained = {code for page in pages for code in re.findall(r"`([\w.]+)`", text_of(page))}
    assert CODES[kind]
    assert set(map(str, CODES[kind])) <= explained
