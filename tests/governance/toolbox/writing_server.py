"""An MCP server whose one tool writes a file: what any server with tools for files offers."""

from pathlib import Path

from mcp.server.mcpserver import MCPServer

server = MCPServer("files")


@server.tool()
def put(path: str, content: str) -> str:
    """Write a file, with the directories above it."""
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(content)
    return "written"


if __name__ == "__main__":
    server.run("stdio")
