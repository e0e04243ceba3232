"""The structure that `docs/decisions/house-measures.md` promises, counted by the script that prints its measures."""

import ast
from pathlib import Path

from scripts import measures

ROOT = Path(__file__).resolve().parent.parent.parent
MOST_ROOMS = 27
MOST_PRIVATE_NAMES = 6  # those whose word has an ordinary meaning, such as a cancel word


def test_no_module_imports_itself_through_others():
    graph = measures.import_graph(measures.read_modules(ROOT))
    assert measures.circles(graph) == []


def test_the_rooms_of_turns_are_few_and_stand_in_layers():
    rooms = measures.room_graph(measures.import_graph(measures.read_modules(ROOT)), "turns")
    assert len(rooms) <= MOST_ROOMS
    assert measures.circles(rooms) == []
    assert measures.upward_arrows(ROOT, rooms, "turns") == []


def test_no_package_hides_code_in_its_init():
    packages = [
        path for top in (*measures.APPS, "scripts") for path in (ROOT / top).rglob("__init__.py")
    ]
    code = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    hidden = {
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in packages
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, code)
    }
    assert hidden == set()


def test_few_names_have_a_word_of_our_own():
    names = sorted(measures.private_names(measures.read_modules(ROOT).values()))
    assert len(names) <= MOST_PRIVATE_NAMES, names


def test_no_module_and_no_function_is_longer_than_it_may_be():
    modules = measures.read_modules(ROOT)
    long = {
        name: module.lines for name, module in modules.items() if module.lines > measures.MAX_MODULE
    }
    for name, module in modules.items():
        for node in measures.functions([module]):
            if (lines := (node.end_lineno or 0) - node.lineno + 1) > measures.MAX_FUNCTION:
                long[f"{name}.{node.name}"] = lines
    assert long == {}


def test_no_script_of_the_chat_page_is_longer_than_a_module_may_be():
    scripts = (ROOT / "static" / "webchat" / "js").rglob("*.js")
    written = [path for path in scripts if path.name != "wire.js"]  # that one is generated
    lines = {path.name: path.read_text("utf-8").count("\n") for path in written}
    assert {name: n for name, n in lines.items() if n > measures.MAX_MODULE} == {}


def test_a_circle_is_found():
    graph = {
        "a": frozenset({"b"}),
        "b": frozenset({"c"}),
        "c": frozenset({"a"}),
        "d": frozenset({"a"}),
    }
    assert measures.circles(graph) == [["a", "b", "c"]]
