"""The structure that `docs/decisions/house-measures.md` promises, counted by the script that prints its measures."""

from pathlib import Path

from scripts import measures

ROOT = Path(__file__).resolve().parent.parent.parent
MOST_ROOMS = 27


def test_no_module_imports_itself_through_others():
    graph = measures.import_graph(measures.read_modules(ROOT))
    assert measures.circles(graph) == []


def test_the_rooms_of_turns_are_few_and_stand_in_layers():
    rooms = measures.room_graph(measures.import_graph(measures.read_modules(ROOT)), "turns")
    assert len(rooms) <= MOST_ROOMS
    assert measures.circles(rooms) == []
    assert measures.upward_arrows(ROOT, rooms, "turns") == []


def test_a_circle_is_found():
    graph = {
        "a": frozenset({"b"}),
        "b": frozenset({"c"}),
        "c": frozenset({"a"}),
        "d": frozenset({"a"}),
    }
    assert measures.circles(graph) == [["a", "b", "c"]]
