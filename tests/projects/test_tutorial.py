"""The tutorial, followed to the letter: its commands, its files, its clicks, and what it says that one sees."""

import os
import re
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from playwright.async_api import Locator, Page, expect

from tests.docs.pages import DOCS, text_of
from tests.e2e.chromium import started_chromium
from tests.projects.hosts import PASSWORD, HostProject
from tests.support import PATIENCE, run_program

ADDRESS = "http://127.0.0.1:8000"
# The package is there, and so is a virtual environment.
PREPARATION = ("mkdir ", "python3 -m venv ", ". .venv/", "pip install ")
SERVE = "python manage.py serve"

_STEP = re.compile(
    r"""
      ^(?:(?P<placing>Add\ to|Replace)\ .*`(?P<file>[\w/]+\.py)`.*:\n\n)?
       ```(?P<language>\w+)\n(?P<code>(?s:.*?))^```$
    | ^\d+\.\ Open\ <(?P<address>\S+)>(?:\ and\ sign\ in\ as\ `(?P<name>\w+)`)?
    | ^\d+\.\ Click\ \*\*(?P<button>.+?)\*\*
    | ^\d+\.\ Set\ \*\*(?P<field>.+?)\*\*\ to\ `(?P<value>.+?)`
    | ^\d+\.\ Send\ `(?P<message>.+?)`$
    | ^-\ \*\*(?P<seen>.+?)\*\*$
    """,
    re.MULTILINE | re.VERBOSE,
)


class Reader:
    """Somebody who follows the page, in an empty directory and a browser."""

    def __init__(self, page: Page, *, installed: Path, directory: Path, servers: ExitStack) -> None:
        self._page = page
        self._directory = directory
        self._servers = servers
        self._project = HostProject("bakery", path=(installed,), directory=directory)
        self._environment = {**os.environ, **self._project.environment}
        del self._environment["DJANGO_SETTINGS_MODULE"]  # manage.py knows them
        self._url = ""
        self._printed = ""

    async def follow(self, step: re.Match[str]) -> None:
        """Do one thing that the page says, or see what it shows."""
        match step.groupdict():
            case {"code": str(code)}:
                self._use_block(step, code)
            case {"address": str(address), "name": name}:
                await self._page.goto(address.replace(ADDRESS, self._url))
                if name:
                    await self._sign_in(name)
            case {"button": str(name)}:
                await self._button(name).click()
            case {"field": str(label), "value": value}:
                await self._fill(self._page.get_by_label(label).first, value)
            case {"message": str(words)}:
                await self._page.get_by_label("Message to the agent").fill(words)
                await self._page.keyboard.press("Enter")
            case {"seen": str(words)}:
                await expect(self._page.get_by_text(words).first).to_be_visible()

    def _use_block(self, step: re.Match[str], code: str) -> None:
        match step["language"]:
            case "sh":
                for command in code.splitlines():
                    self._run(command)
            case "text":
                assert code in self._printed
            case "python":
                file = self._directory / step["file"]
                self._write(file, code, replaces=step["placing"] == "Replace")

    def _run(self, command: str) -> None:
        if command.startswith(PREPARATION):
            return
        if command == SERVE:
            served = self._project.serving("django", "serve", "--port", "{port}")
            self._url = self._servers.enter_context(served).replace("localhost", "127.0.0.1")
            return
        program, _, arguments = command.partition(" ")
        known = {"django-admin": f"{sys.executable} -m django", "python": sys.executable}
        if "createsuperuser" in arguments:
            arguments += " --no-input"  # the password is in the environment
        done = run_program(
            f"{known[program]} {arguments}",
            shell=True,
            cwd=self._directory,
            env=self._environment,
        )
        assert done.returncode == 0, done.stderr
        self._printed = done.stdout

    @staticmethod
    def _write(file: Path, code: str, *, replaces: bool) -> None:
        before = "" if replaces or not file.exists() else f"{file.read_text('utf-8')}\n"
        file.write_text(before + code, "utf-8")

    async def _sign_in(self, name: str) -> None:
        await self._page.get_by_label("Username").fill(name)
        await self._page.get_by_label("Password").fill(PASSWORD)
        await self._button("Sign in").click()

    def _button(self, name: str) -> Locator:
        return self._page.get_by_role("button", name=name).first

    @staticmethod
    async def _fill(field: Locator, value: str) -> None:
        if await field.evaluate("field => field.localName") == "select":
            await field.select_option(value)
        else:
            await field.fill(value)


def steps() -> Iterator[re.Match[str]]:
    return _STEP.finditer(text_of(DOCS / "tutorial.md"))


@pytest.mark.browser
@pytest.mark.asyncio(loop_scope="session")
async def test_a_reader_sees_what_the_tutorial_says(installed, tmp_path):
    async with started_chromium() as browser:
        page = await browser.new_page(viewport={"width": 1280, "height": 900})
        page.set_default_timeout(PATIENCE * 1000)
        with ExitStack() as servers:
            reader = Reader(page, installed=installed, directory=tmp_path, servers=servers)
            for step in steps():
                await reader.follow(step)
            await page.close()


def test_no_instruction_of_the_tutorial_is_left_out():
    """Whatever is numbered, bold or code is something to do or to see."""
    text = text_of(DOCS / "tutorial.md")
    followed = _STEP.sub("", text)
    assert re.findall(r"^\d+\. .*|^- \*\*.*|^```.*", followed, re.MULTILINE) == []
    assert sum(1 for _ in steps()) > 50
