"""Whoever asks for a cancel, one function writes it down (C2): shown of the code itself."""

import ast
from collections.abc import Iterator
from pathlib import Path

import governance
import turns
import webchat

PACKAGES = [Path(package.__file__).parent for package in (governance, turns, webchat)]
MAKERS = {"create", "acreate", "get_or_create", "update_or_create", "bulk_create"}


def functions() -> Iterator[tuple[str, ast.AST]]:
    for package in PACKAGES:
        for path in sorted(package.rglob("*.py")):
            if "migrations" not in path.parts:
                for node in ast.walk(ast.parse(path.read_text())):
                    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                        yield f"{path.stem}.{node.name}", node


def makes_a_request(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    called = ast.unparse(node.func)
    is_made = called.rpartition(".")[2] in MAKERS
    return called == "CancelRequest" or (
        (is_made and called.startswith(("CancelRequest.objects", "CancelRequest._")))
        or ("cancel_requests." in called and is_made)
    )


def marks_a_turn(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Call)
        and ast.unparse(node.func).endswith(".update")
        and any(ast.unparse(keyword) == "status=TurnStatus.CANCELLING" for keyword in node.keywords)
    )


def where(is_meant) -> set[str]:
    return {name for name, function in functions() if any(map(is_meant, ast.walk(function)))}


def test_one_function_makes_the_rows_of_cancel_requests():
    assert len(where(makes_a_request)) == 1


def test_one_function_marks_a_running_turn_as_being_cancelled():
    assert len(where(marks_a_turn)) == 1
