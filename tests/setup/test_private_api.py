"""Private API of other packages: each use that is left has a reason why there is no public way, and a new one fails here."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
APPS = ("console", "governance", "turns", "webchat", "config")

REASONS = {
    "governance/db.py: AsyncToSync.executors": (
        "asgiref does not say in public whether a thread waits in `async_to_sync` for this coroutine. The thread may be"
        " in a transaction, whose rows only its own connection sees."
    ),
    "governance/toolbox/chromium.py: manager._client._transport._proc": (
        "Playwright does not give out the process of its driver, which has to be killed when it does not end."
    ),
    "webchat/routing.py: django.core.handlers": (
        "Django finds the host and the scheme behind proxies for requests alone, and has no other way to make one of an"
        " ASGI scope."
    ),
}

# Public, although they begin with an underscore: their packages document them.
DOCUMENTED = {
    "_meta", "_state", "_default_manager", "_base_manager",  # of Django's models
    "_fields", "_replace", "_asdict", "_make",  # of named tuples
    "_value_",  # of an enum's member
    "_exit",  # of `os`
    "_current_frames",  # of `sys`
    "_thread",  # a module
}  # fmt: skip

# Private, although they do not begin with one: their packages document none of it.
UNDOCUMENTED_MODULES = ("django.core.handlers", "django.db.models.sql", "uvicorn.protocols")
UNDOCUMENTED_NAMES = {"in_atomic_block", "atomic_blocks", "needs_rollback", "run_on_commit"}
BRIDGES = {"AsyncToSync", "SyncToAsync"}  # whose attributes asgiref documents none of


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name not in {"_", *DOCUMENTED}


def names_defined_in(tree: ast.AST) -> set[str]:
    names = set()
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                names.add(node.name)
            case ast.Name(ctx=ast.Store()):
                names.add(node.id)
            case ast.Attribute(value=ast.Name("self" | "cls"), ctx=ast.Store()):
                names.add(node.attr)
    return names


def attribute_uses(tree: ast.AST, *, own: set[str]) -> Iterator[str]:
    """Yield private attributes of objects whose class stands elsewhere. `own` has the names of all our modules."""
    here = names_defined_in(tree)
    inner: set[ast.AST] = set()
    for node in ast.walk(tree):  # from the outside inwards: of `a._b._c` the whole is one use
        if not isinstance(node, ast.Attribute) or node in inner:
            continue
        match node.value:
            case ast.Name("self" | "cls") | ast.Call(ast.Name("super")):
                is_foreign = is_private(node.attr) and node.attr not in own
            case ast.Name(bridge) if bridge in BRIDGES:
                is_foreign = True
            case _:
                is_foreign = is_private(node.attr) and node.attr not in here
        if is_foreign or node.attr in UNDOCUMENTED_NAMES:
            inner.update(ast.walk(node))
            yield ast.unparse(node)


def named_uses(tree: ast.AST, *, own: set[str]) -> Iterator[str]:
    """Yield private attributes that are read or set by their name as text."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(
                ast.Name("getattr" | "setattr" | "hasattr" | "delattr") | ast.Attribute(),
                [_, ast.Constant(str(name)), *_],
            ) if is_private(name) and name.isidentifier() and name not in own:
                yield ast.unparse(node)


def import_uses(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Import(names):
                modules, imported = [alias.name for alias in names], []
            case ast.ImportFrom(module=str(module), names=names, level=0):
                modules, imported = [module], [alias.name for alias in names]
            case _:
                continue
        for module in modules:
            for place in UNDOCUMENTED_MODULES:
                if f"{module}.".startswith(f"{place}."):
                    yield place
            if any(map(is_private, module.split("."))):
                yield module
            yield from (f"{module}.{name}" for name in imported if is_private(name))


def private_uses(tree: ast.AST, *, own: set[str]) -> set[str]:
    return {*attribute_uses(tree, own=own), *named_uses(tree, own=own), *import_uses(tree)}


def test_private_api_is_used_only_where_there_is_no_public_way():
    trees = {
        path.relative_to(ROOT).as_posix(): ast.parse(path.read_text("utf-8"))
        for app in APPS
        for path in sorted((ROOT / app).rglob("*.py"))
    }
    own = set().union(*map(names_defined_in, trees.values()))
    uses = {
        f"{place}: {use}" for place, tree in trees.items() for use in private_uses(tree, own=own)
    }
    assert uses == set(REASONS)


@pytest.mark.parametrize(
    ("code", "uses"),
    [
        ("row._meta.pk", set()),
        ("self._mine = 1; self._mine; other._mine", set()),
        ("self._theirs", {"self._theirs"}),
        ("super()._theirs()", {"super()._theirs"}),
        ("loop._run_once", {"loop._run_once"}),
        ("client._client._transport.kill()", {"client._client._transport"}),
        ("connection.in_atomic_block", {"connection.in_atomic_block"}),
        ("SyncToAsync.deadlock_context.get()", {"SyncToAsync.deadlock_context"}),
        ("getattr(settings, '_wrapped')", {"getattr(settings, '_wrapped')"}),
        (
            "object.__getattribute__(settings, '_wrapped')",
            {"object.__getattribute__(settings, '_wrapped')"},
        ),
        (
            "from asyncio.events import _get_running_loop, Handle",
            {"asyncio.events._get_running_loop"},
        ),
        ("import uvicorn._types", {"uvicorn._types"}),
        ("import _thread", set()),
        ("from django.db.models.sql.compiler import SQLCompiler", {"django.db.models.sql"}),
        ("from django.db.models import F", set()),
    ],
)
def test_a_use_is_recognised(code: str, uses: set[str]):
    tree = ast.parse(code)
    assert private_uses(tree, own=names_defined_in(tree)) == uses
