"""Tools as MCP servers bring them in, without a server."""

from contextlib import contextmanager

from governance import make_tool, registry


async def serve_nothing() -> str:
    """Do one of many things that a server offers."""
    return ""


@contextmanager
def many_tools(number, *, server="aaa"):
    """Have that many tools of a server, and give their names."""
    names = [f"{server}_{place:03}" for place in range(number)]
    for name in names:
        registry.register(make_tool(serve_nothing, name=name, server=server))
    try:
        yield names
    finally:
        for name in names:
            registry.unregister(name)
