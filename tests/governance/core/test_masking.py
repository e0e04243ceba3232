"""What is, or may be, a secret is taken out of a text. What an agent has to know to go on is left in."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from governance.core.masking import MASK, mask

SECRET = "hunter2-and-more"


@pytest.mark.parametrize(
    "text",
    [
        f"connection to postgres://me:{SECRET}@db:5432/site failed",
        f"https://{SECRET}@example.org/ said no",
        f"401 for Authorization: Bearer {SECRET}",
        f"sent with bearer {SECRET}",
        f"password={SECRET} is wrong",
        f'{{"api_key": "{SECRET}", "city": "Rome"}}',
        f"{{'OPENAI_API_KEY': '{SECRET}'}}",
        f"GET /v1?key={SECRET}&city=Rome",
        f"token: {SECRET}",
        f"secret_value = '{SECRET} with words'",
        f"connection to postgres://me:before@{SECRET}@db:5432/site failed",
        f"connection to postgres://me:before/{SECRET}@db:5432/site failed",
        f"401 for Authorization: Token {SECRET}",
        f'401 for Authorization: Digest username="me", response="{SECRET}"',
        f"sent Cookie: theme=dark; sid={SECRET}",
        f"Command '['mysql', '--password', '{SECRET}']' failed",
        f"mysql --password {SECRET} failed",
        f"secret=b'{SECRET}' is wrong",
        f"{{'token': ['{SECRET}']}}",
        f'password: "with \\" and {SECRET}"',
        f"AccountKey={SECRET};EndpointSuffix=example.org",
        "invalid key sk-proj-abcDEF12345678",
        "ghp_abcdefghijklmnop1234567890 was revoked",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl is expired",
        "AKIAIOSFODNN7EXAMPLE may not",
        "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\nabc\n-----END RSA PRIVATE KEY----- cannot be read",
        "-----BEGIN PRIVATE KEY-----\nMIIEow and the rest is cut",
        "it was 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b",
        "it was dGhpcyBpcyBhIHNlY3JldCB0b2tlbjEy=",
    ],
)
def test_what_looks_like_a_secret_is_masked(text):
    masked = mask(text)
    assert MASK in masked
    for secret in (
        SECRET,
        "abcDEF12345678",
        "abcdefghijklmnop1234567890",
        "c2lnbmF0dXJl",
        "IOSFODNN7EXAMPLE",
        "MIIEow",
        "9f86d081",
        "dGhpcyBpcyB",
    ):
        assert secret not in masked


@pytest.mark.parametrize(
    "text",
    [
        "[Errno 2] No such file or directory: '/srv/data/reports/2026-11-22/summary-of-the-day.txt'",
        "invalid literal for int() with base 10: 'twelve'",
        "'customer_name'",
        "no such file: report_2026_11_22_final_version_3.txt",
        f"no such file: {os.getcwd()}/notes.txt",
        "no such column: orders.customer_identification_number",
        "time data '2026-11-22' does not match format '%d.%m.%Y'",
        "order 123e4567-e89b-12d3-a456-426614174000 is closed",
        "1 validation error for Order\namount\n  Input should be greater than 0",
        "HTTPConnectionPool(host='example.org', port=80): Max retries exceeded",
        "the request took longer than 30 seconds at https://example.org/a/b?page=2",
        "nobody at https://example.org/a answers; write to ada@example.org",
        "unknown option: --token-file (did you mean --tokens?)",
    ],
)
def test_what_an_agent_needs_is_left_in(text):
    assert mask(text) == text


def test_a_secret_that_begins_like_another_one_is_masked_to_its_end():
    assert (
        mask("the garden-gate is open", secrets=["garden", "garden-gate"]) == f"the {MASK} is open"
    )


def test_what_is_known_to_be_secret_is_masked_wherever_it_stands(monkeypatch):
    monkeypatch.setenv("SHOP_API_KEY", "tulip-mill")
    monkeypatch.setenv("PLAIN_NAME", "daffodil")
    monkeypatch.setenv("SHORT_TOKEN", "abc")
    masked = mask("tulip-mill, daffodil, abc, garden-gate", secrets=["garden-gate", ""])
    assert masked == f"{MASK}, daffodil, abc, {MASK}"


@given(st.text(max_size=300))
def test_any_text_can_be_masked_and_masking_it_again_changes_nothing(text):
    assert mask(mask(text)) == mask(text)


def test_a_long_text_costs_no_more_than_a_moment():
    for text in (
        "a" * 10**6,
        "token " * 10**5,
        "://" * 10**5,
        "-----BEGIN A-----" * 10**4,
        "1a" * 10**5,
        "token" * 10**5,
        "--" * 10**5,
        "://:" * 10**5,
    ):
        assert len(mask(text)) <= 20_000
