"""The table *Which limit applies* says what the code does: each source of a limit beside each weaker one (T2, D1)."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import combinations, permutations
from typing import Any

import pytest

from governance import services
from governance.conf import setting_limits, tool_setting_limits
from governance.core.policy import ApprovalRule, Hint, ToolLimits, resolve, stricter
from governance.core.registry import make_tool, registry
from governance.durations import parse_duration
from governance.policies import read_policies
from tests.docs.pages import DOCS, section

FIELDS = {
    "Total limit": "timeout",
    "Idle limit": "idle_timeout",
    "Approval": "approval",
    "Approval limit": "approval_timeout",
    "Ceiling for requested limits": "ceiling",
    "Concurrent calls": "max_running",
}
CALL, TOOL_LIMITS, TOOL_SETTING = "the call itself", "*Tool limits*", "settings, for this tool"
DECLARED, DEFAULT_LIMITS = "the tool's declaration", "*Default limits*"
SETTING, BUILT_IN = "settings, for every tool", "built in"
AT_LEAST = "at least this strict"
VALUES: Mapping[str, list[Any]] = {field: [40, 30] for field in FIELDS.values()} | {
    "approval": list(ApprovalRule)
}
TOOL = "the_tool"

Table = dict[str, dict[str, str]]


def read_table() -> Table:
    """Return the cells by column, then by source, strongest first."""
    text = section(DOCS / "settings" / "governance.md", "Which limit applies")
    rows = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("|")]
    head, _rule, *body = [[cell.strip() for cell in row] for row in rows]
    names = [re.sub(r"^\d ", "", row[0]) for row in body]
    return {
        column: {name: row[place] for name, row in zip(names, body, strict=True)}
        for place, column in enumerate(head)
        if place
    }


TABLE = read_table()


def speaking(column: str) -> list[str]:
    """Return the sources that may say something, strongest first; what is built in says it when no other one does."""
    return [name for name, cell in TABLE[column].items() if cell and name != BUILT_IN]


def pairs() -> Iterator[Any]:
    for column in TABLE:
        for strong, weak in combinations(speaking(column), 2):
            yield pytest.param(column, strong, weak, id=f"{column}: {strong} > {weak}")


@pytest.fixture(autouse=True)
def tool(db, settings):
    settings.GOVERNANCE_APPROVAL = {}

    def work() -> str:
        return "done"

    registry.register(made := make_tool(work, name=TOOL))
    yield made
    registry.unregister(TOOL)


@pytest.fixture
def in_force(tool, settings):
    """Return what a call obeys where these sources say this."""

    def ask(column: str, words: Mapping[str, Any]) -> Any:
        field, hint = FIELDS[column], None
        asked = tool
        for source, word in words.items():
            if source.startswith(CALL):
                hint = Hint(timeout=word)
            elif source.startswith(TOOL_LIMITS):
                values = columns(field, word)
                services.save_tool_policy(tool_name=TOOL, values=values, by=None)
            elif source.startswith(DEFAULT_LIMITS):
                services.save_default_policy(values=columns(field, word), by=None)
            elif source.startswith(DECLARED):
                asked = replace(asked, **{field: word})
            else:
                [name] = re.findall(r"`(GOVERNANCE_\w+)`", TABLE[column][source])
                setattr(settings, name, word if source == SETTING else {TOOL: word})
        return getattr(resolve(read_policies().levels(asked), hint=hint), field)

    return ask


def columns(field: str, word: Any) -> dict[str, Any]:
    """Return a limit as an administrator saves it."""
    if field == "approval":
        return {field: str(word)}
    return {field: word} if field == "max_running" else {f"{field}_ms": word * 1000}


def test_the_table_has_the_sources_and_the_limits_that_the_code_knows():
    known = [CALL, TOOL_LIMITS, TOOL_SETTING, DECLARED, DEFAULT_LIMITS, SETTING, BUILT_IN]
    for column in TABLE.values():
        assert all(map(str.startswith, column, known))
        assert len(column) == len(known)
    assert list(TABLE) == list(FIELDS)
    assert set(ToolLimits.__annotations__) - set(FIELDS.values()) == {"enabled", "error_text"}


@pytest.mark.parametrize(("column", "strong", "weak"), list(pairs()))
def test_of_two_sources_the_higher_one_counts(in_force, column, strong, weak):
    for higher, lower in permutations(VALUES[FIELDS[column]], 2):
        wins = higher
        if TABLE[column][weak] == AT_LEAST and not strong.startswith(TOOL_LIMITS):
            wins = stricter(higher, lower)
        assert in_force(column, {strong: higher, weak: lower}) == wins


@pytest.mark.parametrize(
    ("column", "source"), [(column, source) for column in TABLE for source in speaking(column)]
)
def test_each_source_counts_where_no_other_one_speaks(in_force, column, source):
    for word in VALUES[FIELDS[column]]:
        assert in_force(column, {source: word}) == word


@pytest.mark.parametrize("column", TABLE)
def test_what_is_built_in_counts_where_nobody_speaks(in_force, column):
    said = TABLE[column][next(name for name in TABLE[column] if name == BUILT_IN)]
    silent = {"none": None, "no limit": None, "never": ApprovalRule.NEVER}
    expected = silent[said] if said in silent else parse_duration(said) / 1000
    assert in_force(column, {}) == expected


@pytest.mark.parametrize("column", TABLE)
def test_an_empty_cell_has_nowhere_to_be_said(tool, settings, column):
    settings.GOVERNANCE_TOOL_TIMEOUTS = {TOOL: 30}
    settings.GOVERNANCE_APPROVAL = {TOOL: "always"}
    settings.GOVERNANCE_DEFAULT_TIMEOUT = 30
    field = FIELDS[column]
    saved = next(iter(columns(field, 1)))
    places = {
        CALL: field == "timeout",
        TOOL_LIMITS: saved in services.TOOL_FIELDS,
        TOOL_SETTING: getattr(tool_setting_limits(TOOL), field) is not None,
        DECLARED: hasattr(tool, field),
        DEFAULT_LIMITS: saved in services.DEFAULT_FIELDS,
        SETTING: getattr(setting_limits(), field) is not None,
        BUILT_IN: True,
    }
    assert [bool(cell) for cell in TABLE[column].values()] == list(places.values())


@pytest.mark.parametrize("column", ["Total limit", "Idle limit", "Approval limit"])
def test_a_zero_means_no_limit_at_every_level(in_force, column):
    sources = speaking(column)
    for place, source in enumerate(sources):
        if source.startswith(CALL):
            continue  # what a call asks for is at most the ceiling
        weaker = dict.fromkeys(sources[place + 1 :], 30)
        assert in_force(column, {source: 0, **weaker}) is None


def test_the_ceiling_caps_what_a_call_asks_for_and_nothing_else(in_force, tool, settings):
    settings.GOVERNANCE_TIMEOUT_CEILING = 10
    column, (call, *others) = "Total limit", speaking("Total limit")
    assert in_force(column, {call: 40}) == in_force(column, {call: 0}) == 10
    for source in others:
        if "admin" not in source:  # which cannot be saved
            assert in_force(column, {source: 40}) == 40
    settings.GOVERNANCE_TIMEOUT_CEILING = 0
    assert in_force(column, {call: 4000}) == 4000
    assert in_force(column, {call: 0}) is None


def test_an_approval_by_name_counts_before_that_of_every_other_tool(in_force, settings):
    declared = speaking("Approval")[2]
    settings.GOVERNANCE_APPROVAL = {"*": "never"}
    assert in_force("Approval", {declared: ApprovalRule.ALWAYS}) is ApprovalRule.NEVER
    settings.GOVERNANCE_APPROVAL = {"*": "never", TOOL: "always"}
    assert in_force("Approval", {}) is ApprovalRule.ALWAYS
