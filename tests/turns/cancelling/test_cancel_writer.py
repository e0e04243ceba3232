"""One function writes a cancel, whoever asks for it (C2), and one the end of a turn (invariant 4): shown of the code."""

import ast
from collections.abc import Iterator
from pathlib import Path

import governance
import turns
import webchat
from turns.core.turns import TurnStatus

PACKAGES = [Path(package.__file__).parent for package in (governance, turns, webchat)]
MAKERS = {
    "create",
    "acreate",
    "get_or_create",
    "update_or_create",
}  # `bulk_create` is given rows, which were made before


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
    """Whether it stores the status."""
    if isinstance(node, ast.Dict):
        pairs = zip(map(str_of, node.keys), map(str_of, node.values), strict=True)
        return ("'status'", "TurnStatus.CANCELLING") in pairs
    if not isinstance(node, ast.Call):
        return False
    is_write = ast.unparse(node.func).rpartition(".")[2] == "update"
    return is_write and "status=TurnStatus.CANCELLING" in map(ast.unparse, node.keywords)


def gives_a_final_status(node: ast.AST) -> bool:
    """Whether it stores who ended a turn or a call, or a final status of a turn."""
    if isinstance(node, ast.Assign):
        return any(ast.unparse(it).endswith(".ended_by_reason") for it in node.targets)
    if isinstance(node, ast.Dict):
        pairs = zip(map(str_of, node.keys), map(str_of, node.values), strict=True)
        return any(key == "'ended_by_reason'" and key[1:-1] not in value for key, value in pairs)
    if not isinstance(node, ast.Call):
        return False
    called = ast.unparse(node.func)
    writes = called == "Turn" or called.rpartition(".")[2] in {"update", *MAKERS}
    return writes and any(map(is_final, node.keywords))


def str_of(node: ast.expr | None) -> str:
    return ast.unparse(node) if node is not None else ""


def is_final(keyword: ast.keyword) -> bool:
    value = ast.unparse(keyword.value)
    if keyword.arg == "status":
        return any(
            f"TurnStatus.{status.name}" in value for status in TurnStatus if status.is_terminal
        )
    return keyword.arg in {"ended_by_reason", "ended_by_source"}


def where(is_meant) -> set[str]:
    return {name for name, function in functions() if any(map(is_meant, ast.walk(function)))}


def test_one_function_makes_the_rows_of_cancel_requests():
    assert len(where(makes_a_request)) == 1


def test_one_function_marks_a_running_turn_as_being_cancelled():
    assert len(where(marks_a_turn)) == 1


def test_one_function_ends_a_turn_and_one_ends_a_call():
    assert where(gives_a_final_status) == {"turn_rows.write_final", "recorder._ended"}
