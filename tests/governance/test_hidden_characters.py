"""The server's pages write out the characters that the browser's do: tests/js/state/hidden_characters.test.js (D2)."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from governance.hidden_characters import visible
from tests.support import LONG_PATIENCE

ROOT = Path(__file__).resolve().parents[2]
OF_THE_BROWSER = """
import { visible } from "./static/webchat/js/state/hidden_characters.js";
const lone = Array.from({ length: 0x110000 }, (_, code) => code).filter((code) => {
  const text = `a${String.fromCodePoint(code)}b`;
  return visible(text) !== text && visible(String.fromCodePoint(code)) !== String.fromCodePoint(code);
});
process.stdout.write(JSON.stringify(lone));
"""


def test_what_cannot_be_seen_is_written_out():
    assert visible("rm\u3164-rf\u00a0\u202e/\U000e0020") == (
        "rm\\u{3164}-rf\\u{00a0}\\u{202e}/\\u{e0020}"
    )
    assert visible("if x:\n\tprint('ok')\n") == "if x:\n\tprint('ok')\n"
    assert visible("a" + "\u0301" * 6) == "a" + "\u0301" * 4 + "\\u{0301}" * 2


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
def test_no_character_is_shown_that_the_browser_writes_out():
    command = ["node", "--input-type=module", "--eval", OF_THE_BROWSER]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=LONG_PATIENCE, check=True
    )
    hidden = json.loads(done.stdout)
    assert len(hidden) > 1_000
    assert [code for code in hidden if visible(chr(code)) == chr(code)] == []


@pytest.mark.parametrize(
    "text",
    [
        "de\u0301ja\u0300 vu, cœur, naïveté",
        "Удали файл отчёт_v2.pdf из папки",
        "USB-кабель, п'ять, ещё 5й раз",
        "Αθήνα και Ελλάδα",
        "Größe, Straße, İstanbul, Łódź, Đà Nẵng",
        "東京タワーでTシャツを買う、データbase",
        "한국KBS 뉴스, 3D打印",
        "שלום עולם, السلام عليكم ۱۲۳",
        "नमस्ते दुनिया, สวัสดี, ᏣᎳᎩ",
        "5 µm ± 2 °C → 50 % … “quoted” – done ✓ 😀",
        "Việt กี่ שָׁ",
    ],
)
def test_plain_text_of_any_language_stays_plain(text):
    assert visible(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("https://p\u0430yp\u0430l.com/файл", "https://p\\u{0430}yp\\u{0430}l.com/файл"),
        ("\u03bfpen", "\\u{03bf}pen"),
        ("\u0430\u03bf", "\\u{0430}\\u{03bf}"),
        ("\u0410PI \u0410ПИ", "\\u{0410}PI АПИ"),
        ("\u13a0bc", "\\u{13a0}bc"),
        ("p\u200b\u0430", "p\\u{200b}\u0430"),
    ],
)
def test_look_alikes_are_written_out_in_words_that_mix_scripts(text, shown):
    assert visible(text) == shown
