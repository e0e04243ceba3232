"""Prints the measures of the code's structure, one column for each checkout: python -m scripts.measures [--markdown] [PATH…]

Run it in a checkout and it measures that one. The decision record `docs/decisions/house-measures.md` holds its output.
"""

import argparse
import ast
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

APPS = ("governance", "turns", "webchat")
MAX_MODULE = 350  # lines
MAX_FUNCTION = 45
LONG_FUNCTION = 25
_WORDS = """
acquaintance anew arrive attendance became board came carrier carry cascade cascades cast casting clearance concluding
crossing deaf deliveries depart door doors ear elsewhere errand errands families family following goodbye gone heard
hurry lane lookout marks means moment moments news nobody nudge obey orders outliving overviews owed pacer
pacing patience place places props quiet rounds said seen sharing somebody standing storable surroundings
tell tether tour told whoever wind wish wishes word words workplace
"""
PRIVATE_WORDS = frozenset(_WORDS.split())  # of our own, where the field has a usual one

Graph = Mapping[str, frozenset[str]]
Arrow = tuple[str, str]


@dataclass(frozen=True)
class Module:
    """One Python file of the product; `imports` names what it imports, whether that is a module or not."""

    name: str
    text: str
    tree: ast.Module

    @property
    def lines(self) -> int:
        """How many lines it has."""
        return self.text.count("\n")

    @property
    def imports(self) -> Iterator[tuple[str, str]]:
        """Each imported module, and the name that is taken from it."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                yield from ((alias.name, "") for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                yield from ((node.module, alias.name) for alias in node.names)


def read_modules(root: Path) -> dict[str, Module]:
    """Return the modules of the product by their dotted names, without migrations."""
    modules = {}
    for path in sorted(path for app in APPS for path in (root / app).rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        if "migrations" in parts:
            continue
        name = ".".join(part for part in parts if part != "__init__")
        text = path.read_text(encoding="utf-8")
        modules[name] = Module(name=name, text=text, tree=ast.parse(text))
    return modules


def import_graph(modules: Mapping[str, Module]) -> Graph:
    """Return what each module imports of the product, at any depth of its code and for types, too."""
    graph = {}
    for name, module in modules.items():
        found = {
            full if (full := f"{source}.{taken}") in modules else source
            for source, taken in module.imports
        }
        graph[name] = frozenset(found & modules.keys()) - {name}
    return graph


def room_of(module: str) -> str:
    """Return the folder or the top-level file of its app that a module is in."""
    return ".".join(module.split(".")[:2])


def room_graph(graph: Graph, app: str) -> Graph:
    """Return which rooms of an app import which; the facade itself is none."""
    rooms: dict[str, set[str]] = {
        room_of(name): set() for name in graph if name.startswith(f"{app}.")
    }
    for name, imported in graph.items():
        if room_of(name) in rooms:
            rooms[room_of(name)] |= {room_of(other) for other in imported} & rooms.keys()
    return {room: frozenset(imported - {room}) for room, imported in rooms.items()}


def circles(graph: Graph) -> list[list[str]]:
    """Return the groups of nodes that reach each other."""
    reached = {node: _reachable(graph, node) for node in graph}
    groups = {
        frozenset(other for other in reached[node] if node in reached[other])
        for node in graph
        if node in reached[node]
    }
    return sorted(sorted(group) for group in groups)


def _reachable(graph: Graph, start: str) -> set[str]:
    found: set[str] = set()
    frontier = set(graph[start])
    while frontier:
        found |= frontier
        frontier = {further for node in frontier for further in graph[node]} - found
    return found


def upward_arrows(root: Path, rooms: Graph, app: str) -> list[Arrow] | None:
    """Return the imports against the layers that import-linter's contract names; None without such a contract."""
    settings = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    for contract in settings["tool"]["importlinter"]["contracts"]:
        if contract["type"] == "layers" and contract.get("containers") == [app]:
            return list(_upward(contract["layers"], rooms, app))
    return None


def _upward(layers: Iterable[str], rooms: Graph, app: str) -> Iterator[Arrow]:
    floor = {
        f"{app}.{room.strip(' ()')}": place
        for place, layer in enumerate(layers)
        for room in re.split(r"[|:]", layer)
    }
    for room, imported in rooms.items():
        for other in imported & floor.keys():
            if room in floor and floor[other] <= floor[room]:
                yield room, other


def functions(modules: Iterable[Module]) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Return every function and method."""
    for module in modules:
        for node in ast.walk(module.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield node


def docstring_lines(module: Module) -> int:
    """Return how many lines of a module are docstrings."""
    count = 0
    for node in ast.walk(module.tree):
        body = getattr(node, "body", None)
        for statement in body if isinstance(body, list) else ():
            if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
                count += (statement.end_lineno or statement.lineno) - statement.lineno + 1
    return count


def private_names(modules: Iterable[Module]) -> Iterator[tuple[str, str]]:
    """Return each private word in the name of a module, a class or a function, with that name."""
    for module in modules:
        names = [module.name.rpartition(".")[2]]
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
        names += [node.name for node in ast.walk(module.tree) if isinstance(node, kinds)]
        for name in names:
            split = re.findall(r"[A-Z]?[a-z]+", name)
            yield from ((word, name) for word in {part.lower() for part in split} & PRIVATE_WORDS)


def measure(root: Path) -> dict[str, str]:
    """Return the measures of a checkout, each with what it measures."""
    modules = read_modules(root)
    graph = import_graph(modules)
    rooms = room_graph(graph, "turns")
    upward = upward_arrows(root, rooms, "turns")
    lines = {
        app: sum(m.lines for m in modules.values() if m.name.split(".")[0] == app) for app in APPS
    }
    lengths = [(node.end_lineno or 0) - node.lineno + 1 for node in functions(modules.values())]
    documented = sum(map(docstring_lines, modules.values()))
    words = list(private_names(modules.values()))
    return {
        "rooms of `turns`": str(len(rooms)),
        "import arrows between them": str(sum(map(len, rooms.values()))),
        "arrows against the layers": "no layers" if upward is None else str(len(upward)),
        "rooms of `turns` in circles": str(sum(map(len, circles(rooms)))),
        "circles of modules (modules in them)": f"{len(found := circles(graph))} ({sum(map(len, found))})",
        **{f"lines of Python, `{app}`": f"{count:,}" for app, count in lines.items()},
        "lines of Python, all": f"{sum(lines.values()):,}",
        "modules": str(len(modules)),
        f"modules over {MAX_MODULE} lines": str(
            sum(m.lines > MAX_MODULE for m in modules.values())
        ),
        f"functions over {MAX_FUNCTION} lines": str(sum(n > MAX_FUNCTION for n in lengths)),
        f"functions over {LONG_FUNCTION} lines": str(sum(n > LONG_FUNCTION for n in lengths)),
        "share of docstrings in the lines": f"{documented / sum(lines.values()):.1%}",
        "private words in names": str(len({word for word, _name in words})),
        "names with a private word": str(len(words)),
    }


def main() -> None:
    """Print the measures, and what is against the layers or in a circle."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkouts", nargs="*", type=Path, default=[Path()])
    parser.add_argument("--markdown", action="store_true", help="print a table")
    arguments = parser.parse_args()
    columns = [measure(root) for root in arguments.checkouts]
    if arguments.markdown:
        print("| Measure |" + "".join(f" {root} |" for root in arguments.checkouts))
        print("|---|" + "--:|" * len(columns))
    for name in columns[0]:
        values = [column[name] for column in columns]
        print(
            f"| {name} | {' | '.join(values)} |"
            if arguments.markdown
            else f"{name:40}" + "".join(f"{value:>12}" for value in values)
        )
    if not arguments.markdown:
        _print_findings(arguments.checkouts[0])


def _print_findings(root: Path) -> None:
    graph = import_graph(read_modules(root))
    rooms = room_graph(graph, "turns")
    for group in (*circles(graph), *circles(rooms)):
        print("circle:", *group)
    for room, other in upward_arrows(root, rooms, "turns") or ():
        print("upward:", room, "imports", other)


if __name__ == "__main__":
    main()
