"""The file tools, which read, write, edit and list files in the conversation's workspace (G1)."""

import io
import os
from typing import Annotated

from pydantic import Field

from governance.core.exceptions import ToolFailed
from governance.core.excerpts import ExactText, spaced
from governance.core.registry import make_tool
from governance.core.tools import Concurrency, Tool, ToolContext
from governance.toolbox.settings import SettingsSource
from governance.toolbox.text_files import (
    not_text,
    open_for_reading,
    read_whole,
    read_window,
    refuse_binary,
    write_text,
)
from governance.toolbox.workspace import explained, find_workspace, shown

_TIMEOUT = 30.0
_LINES = 2000

WorkspacePath = Annotated[
    str, Field(min_length=1, description="A path relative to the top of the workspace.")
]


def make_file_tools(settings: SettingsSource) -> tuple[Tool, ...]:
    """Return the file tools. They run in threads, because they are fast, and harmless if they are abandoned (T7)."""
    files = Files(settings)
    return (
        make_tool(files.read_file, title="Read a file", timeout=_TIMEOUT),
        make_tool(files.list_files, title="List files", timeout=_TIMEOUT),
        *(
            make_tool(
                function,
                title=title,
                timeout=_TIMEOUT,
                concurrency=Concurrency.EXCLUSIVE,
                side_effects=True,
            )
            for function, title in (
                (files.write_file, "Write a file"),
                (files.edit_file, "Edit a file"),
            )
        ),
    )


class Files:
    """The file tools, which read the current settings for each call."""

    def __init__(self, settings: SettingsSource) -> None:
        self._settings = settings

    def read_file(
        self,
        context: ToolContext,
        path: WorkspacePath,
        offset: Annotated[int, Field(ge=0, description="The number of lines to skip.")] = 0,
        limit: Annotated[
            int, Field(ge=1, description="The maximum number of lines to return.")
        ] = _LINES,
    ) -> str:
        """Read a text file, or a range of its lines."""
        settings = self._settings()
        workspace = find_workspace(context, settings)
        with explained(path), open_for_reading(workspace, path) as binary:
            refuse_binary(binary, path)
            # Only \n ends a line here, so that the model sees exactly the text that edit_file compares.
            stream = io.TextIOWrapper(binary, encoding="utf-8", newline="\n")
            try:
                text = read_window(
                    stream, context, offset=offset, limit=limit, room=settings.file_read_limit
                )
            except UnicodeDecodeError:
                raise not_text(path) from None
        return ExactText(text)

    def list_files(self, context: ToolContext, path: WorkspacePath = ".") -> str:
        """List a directory: directories end with "/", symbolic links with "@", and files show their size in bytes."""
        settings = self._settings()
        workspace = find_workspace(context, settings)
        parts = workspace.locate(path)
        with explained(path), workspace.open_directory(parts) as directory:
            entries = sorted(os.scandir(directory), key=lambda entry: entry.name)
            lines = [_describe(entry) for entry in entries[: settings.list_limit]]
        if len(entries) > len(lines):
            lines.append(f"… {spaced(len(entries) - len(lines))} more entries left out …")
        return "\n".join(lines) or "The directory is empty."

    def write_file(
        self,
        context: ToolContext,
        path: WorkspacePath,
        content: Annotated[str, Field(description="The complete new text of the file.")],
    ) -> str:
        """Write a text file, and replace it if it exists. Missing directories are created."""
        settings = self._settings()
        existed = write_text(
            find_workspace(context, settings),
            path,
            text=content,
            token=context.token,
            settings=settings,
        )
        verb = "Replaced" if existed else "Created"
        return f"{verb} {shown(path)}: {spaced(len(content))} characters, {_count_lines(content)} lines."

    def edit_file(
        self,
        context: ToolContext,
        path: WorkspacePath,
        old: Annotated[str, Field(min_length=1, description="The exact text to replace.")],
        new: Annotated[str, Field(description="The text to replace it with.")],
        *,
        replace_all: Annotated[bool, Field(description="Replace every occurrence.")] = False,
    ) -> str:
        """Replace text that occurs exactly once in a file, or, with `replace_all`, every occurrence of it."""
        settings = self._settings()
        workspace = find_workspace(context, settings)
        text = read_whole(workspace, path, settings=settings)
        if "\r\n" in text and "\r" not in old:
            # Models write \n, but the file has to keep its own line endings.
            old, new = old.replace("\n", "\r\n"), new.replace("\r\n", "\n").replace("\n", "\r\n")
        count = text.count(old)
        _check_edit(path, count, same=old == new, replace_all=replace_all)
        write_text(
            workspace, path, text=text.replace(old, new), token=context.token, settings=settings
        )
        return f"Replaced {count} occurrence{'s' if count > 1 else ''} in {shown(path)}."


def _check_edit(path: str, count: int, *, same: bool, replace_all: bool) -> None:
    if same:
        raise ToolFailed("`old` and `new` are the same: nothing to do.")
    if count == 0:
        raise ToolFailed(
            f"The text to replace does not occur in {shown(path)!r}. Read the file and copy it exactly."
        )
    if count > 1 and not replace_all:
        raise ToolFailed(
            f"The text to replace occurs {count} times in {shown(path)!r}. "
            "Give more of the lines around it, or set replace_all."
        )


def _count_lines(text: str) -> int:
    return text.count("\n") + (bool(text) and not text.endswith("\n"))


def _describe(entry: os.DirEntry[str]) -> str:
    name = shown(entry.name)
    if entry.is_symlink():
        return f"{name}@"
    if entry.is_dir(follow_symlinks=False):
        return f"{name}/"
    try:
        return f"{name}  {spaced(entry.stat(follow_symlinks=False).st_size)}"
    except OSError:  # deleted in the meantime
        return name
