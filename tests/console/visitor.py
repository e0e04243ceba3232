"""Somebody who uses the admin without JavaScript: follows links and sends forms that stand on the page, and counts both."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any
from urllib.parse import urljoin

from django.http import HttpResponse
from django.test import Client

VOID = {"input", "img", "br", "hr", "meta", "link", "source", "col", "path", "rect", "line"}


def plain(words: str) -> str:
    return " ".join(words.split())


@dataclass(slots=True)
class Form:
    """One form: what it would send, and its buttons by what stands on them."""

    action: str
    method: str
    values: dict[str, list[str]] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)
    buttons: dict[str, tuple[str, str]] = field(default_factory=dict)


class Page(HTMLParser):
    """The links, the forms and the words of a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.links: dict[str, list[str]] = {}
        self.forms: list[Form] = []
        self._said: list[str] = []
        self._open: list[tuple[str, dict[str, str], int]] = []
        self._select = ""
        self.feed(html)
        self.text = plain(" ".join(self._said))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        has = {name: value or "" for name, value in attrs}
        if tag == "form":
            self.forms.append(Form(has.get("action", ""), has.get("method", "get").lower()))
        elif tag == "input":
            self._take_input(has)
        elif tag == "select":
            self._select = has.get("name", "")
            self._names.add(self._select)
        elif tag == "option" and "selected" in has and self.forms:
            self.forms[-1].values[self._select] = [has.get("value", "")]
        elif tag == "textarea":
            self._names.add(has.get("name", ""))
        if tag not in VOID:
            self._open.append((tag, has, len(self._said)))

    def handle_endtag(self, tag: str) -> None:
        while self._open:
            name, has, since = self._open.pop()
            if name == tag:
                self._close(tag, has, plain(" ".join(self._said[since:])))
                return

    def handle_data(self, data: str) -> None:
        if not any(name in ("script", "style", "noscript") for name, _has, _since in self._open):
            self._said.append(data)

    @property
    def _names(self) -> set[str]:
        return self.forms[-1].names if self.forms else set()

    def _take_input(self, has: dict[str, str]) -> None:
        kind, name, value = has.get("type", "text"), has.get("name", ""), has.get("value", "")
        if not self.forms:
            return
        if kind == "submit":
            self.forms[-1].buttons[plain(value)] = (name, value)
            return
        self._names.add(name)
        if kind not in ("checkbox", "radio") or "checked" in has:
            self.forms[-1].values.setdefault(name, []).append(value or "on" * (kind == "checkbox"))

    def _close(self, tag: str, has: dict[str, str], words: str) -> None:
        if tag == "a" and "href" in has:
            self.links.setdefault(words, []).append(has["href"])
        elif tag == "button" and has.get("type", "submit") == "submit" and self.forms:
            known = has.get("name", ""), has.get("value", "")
            self.forms[-1].buttons[plain(has.get("aria-label", words))] = known


class Visitor:
    """One browser. It goes only where a page leads."""

    def __init__(self, client: Client, start: str) -> None:
        self._client = client
        self._start = start
        self.clicks = 0
        self.body = b""
        self.begin()

    def begin(self) -> None:
        """Open the first page, and count from zero."""
        self.clicks = 0
        self._show(self._client.get(self._start), self._start)

    def follow(self, words: str = "", *, to: str = "") -> None:
        """Click the one link with these words, or that leads there: several have to lead to the same place."""
        links = self.page.links
        on_page = (
            links.get(words, []) if words else [link for each in links.values() for link in each]
        )
        found = {link for link in on_page if to in link}
        assert found, f"no link “{words}” to “{to}” on {self.path}: {sorted(links)}"
        assert len(found) == 1, f"“{words}” leads to {sorted(found)}"
        address = urljoin(self.path, found.pop())
        self._click(self._client.get(address), address)

    def send(self, button: str, **typed: str) -> None:
        """Type into the fields of a form, and press one of its buttons."""
        form = next(self._with(button), None)
        assert form is not None, f"no button “{button}” on {self.path}"
        assert typed.keys() <= form.names, f"{typed.keys() - form.names} is no field beside it"
        name, value = form.buttons[button]
        sent: dict[str, Any] = {**form.values, **typed, **({name: value} if name else {})}
        address = urljoin(self.path, form.action)
        send = self._client.post if form.method == "post" else self._client.get
        answer: Any = send(address, sent, follow=True)
        self._click(answer, answer.redirect_chain[-1][0] if answer.redirect_chain else address)

    @property
    def buttons(self) -> list[str]:
        return [button for form in self.page.forms for button in form.buttons]

    def _with(self, button: str) -> Iterator[Form]:
        return (form for form in self.page.forms if button in form.buttons)

    def _click(self, answer: Any, path: str) -> None:
        self.clicks += 1
        self._show(answer, path)

    def _show(self, answer: HttpResponse, path: str) -> None:
        assert answer.status_code == 200, (path, answer.status_code)
        self.path = path
        self.body = answer.getvalue()
        is_page = answer["Content-Type"].startswith("text/html")
        self.page = Page(self.body.decode() if is_page else "")
