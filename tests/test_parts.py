"""`make test` and the parts of `make test-all` leave nothing out, and run nothing twice."""

from collections import Counter

import pytest

from tests import parts

FILES = sorted(parts.TESTS.rglob("test_*.py"))


def test_no_path_is_in_two_parts():
    named = Counter(path for paths in parts.PARTS.values() for path in paths)
    assert [path for path, times in named.items() if times > 1] == []


@pytest.mark.parametrize(
    ("test", "part"),
    [
        ("tests/turns/test_new.py::test_it", "quick"),
        ("tests/e2e/test_new.py::test_it", "browser"),
        ("tests/e2e/test_newcomer.py::test_new", "quick"),
        ("tests/setup/test_start.py::test_new[a/b::c]", "hosts"),
        (
            "tests/faults/test_kill_embedded.py::"
            "test_g03_g04_g07_after_a_kill_at_any_place_the_successor_ends_the_turn[often]",
            "quick",
        ),
    ],
)
def test_the_longest_path_decides(test, part):
    assert parts.part_of(test) == part


def test_a_part_imports_the_file_of_each_of_its_tests():
    """Else a test would be in a part that does not collect it."""
    named = {path for paths in parts.PARTS.values() for path in paths if "::" in path}
    tests = [file.relative_to(parts.TESTS).as_posix() for file in FILES]
    for test in (*tests, *named):
        file = parts.TESTS / test.partition("::")[0]
        for path in (file, *file.parents[: len(file.relative_to(parts.TESTS).parts)]):
            assert parts.holds(parts.part_of(test), path), (test, path)
