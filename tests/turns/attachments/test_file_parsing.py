"""What people attach is what its bytes say, and a worker process opens it under limits."""

import socket
from io import BytesIO

import pytest
from PIL import Image

from governance.toolbox import ToolboxSettings
from governance.toolbox.sandbox import Mode, find_sandbox
from tests import files_to_attach as files
from turns.attachments import file_parsing
from turns.attachments.file_parsing import ReadFile, read_file
from turns.attachments.media_types import clean_name, media_type_of, saved_name
from turns.exceptions import AttachmentRejected


def read(content: bytes) -> ReadFile:
    return read_file(BytesIO(content))


def why(content: bytes) -> str:
    with pytest.raises(AttachmentRejected) as refused:
        read(content)
    return refused.value.sentence


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP"])
def test_image_keeps_its_type_and_its_pixels(kind):
    file = read(files.image(kind))
    assert file.media_type == f"image/{kind.lower()}"
    assert (file.width, file.height) == (40, 30)
    with Image.open(BytesIO(file.content)) as painted:
        red, green, blue = painted.convert("RGB").getpixel((20, 15))
    assert red > 240
    assert max(green, blue) < 20


def test_first_picture_of_a_gif_becomes_a_png():
    frames = [Image.new("RGB", (8, 8), colour) for colour in ("red", "blue")]
    content = files.image("GIF", save_all=True, append_images=frames)
    file = read(content)
    assert file.media_type == "image/png"


def test_photo_is_turned_upright_and_loses_where_it_was_taken():
    photo = files.located_photo()
    assert b"Elm Street" in photo
    file = read(photo)
    assert (file.width, file.height) == (30, 40)
    with Image.open(BytesIO(file.content)) as painted:
        assert dict(painted.getexif()) == {}
        assert "comment" not in painted.info
    for secret in (b"Elm Street", b"Exif", b"secret comment"):
        assert secret not in file.content


def test_what_is_hidden_behind_an_image_is_gone():
    polyglot = files.image("JPEG") + files.HTML
    assert media_type_of(polyglot) == "image/jpeg"
    assert b"<script>" not in read(polyglot).content


def test_text_chunk_of_an_image_is_gone():
    from PIL.PngImagePlugin import PngInfo

    words = PngInfo()
    words.add_text("Comment", "<script>alert(1)</script>")
    content = files.image("PNG", pnginfo=words)
    assert b"<script>" in content
    assert b"<script>" not in read(content).content


def test_large_image_is_made_smaller():
    file = read(files.image("PNG", (5_000, 100)))
    assert file.width == 2_000


def test_noisy_image_becomes_small_enough_for_providers():
    content = BytesIO()
    Image.effect_noise((2_048, 2_048), 200).convert("RGBA").save(content, "PNG")
    file = read(content.getvalue())
    assert len(file.content) < 3_500_000
    assert file.media_type == "image/jpeg"


def test_bomb_is_refused_before_it_is_unpacked():
    assert "50 million pixels" in why(files.bomb())


def test_bomb_within_the_pixels_ends_at_the_limit_of_memory(monkeypatch, settings):
    settings.TURNS_ATTACHMENT_MAX_PIXELS = 1_000_000_000
    monkeypatch.setattr(file_parsing, "MEMORY", 400_000_000)
    assert "cannot be read" in why(files.bomb(30_000, 30_000))


def test_worker_that_takes_too_long_is_ended(settings):
    settings.TURNS_ATTACHMENT_TIMEOUT = 0.01
    assert "too long" in why(files.image())


@pytest.mark.parametrize("content", [files.image()[:60], b"\x89PNG\r\n\x1a\n" + b"\0" * 100])
def test_damaged_image_is_refused(content):
    assert "damaged" in why(content)


def test_pdf_is_kept_as_it_is_with_its_text():
    content = files.pdf("Hello from a page")
    file = read(content)
    assert (file.media_type, file.content) == ("application/pdf", content)
    assert "Hello from a page" in file.text


def test_pdf_that_cannot_be_read_here_is_kept_without_a_text():
    file = read(b"%PDF-1.7\n" + b"\0garbage" * 50)
    assert (file.media_type, file.text) == ("application/pdf", "")


def test_pages_of_a_pdf_are_known_if_it_can_be_opened():
    assert read(files.pdf()).pages == 1
    assert read(files.locked_pdf()).pages == 0
    assert read(b"%PDF-1.4 x").pages == 0


def test_page_that_cannot_be_read_takes_nothing_from_the_others():
    file = read(files.pdf("Hello", "from two pages").replace(b"(Hello) Tj", b"[[[[Hello Tj"))
    assert file.pages == 2
    assert "from two pages" in file.text


def test_text_is_cut_for_models_and_kept_whole(settings):
    settings.TURNS_ATTACHMENT_TEXT_LENGTH = 5
    file = read("äöü and more".encode())
    assert file.text == "äöü a\n… the rest of the text is left out …"
    assert file.content.decode() == "äöü and more"


def test_text_of_a_pdf_that_is_cut_says_so(settings):
    settings.TURNS_ATTACHMENT_TEXT_LENGTH = len("Hello")
    assert read(files.pdf("Hello")).text.strip() == "Hello"
    assert read(files.pdf("Hello you")).text == "Hello\n… the rest of the text is left out …"


@pytest.mark.parametrize("content", [files.SVG, files.HTML, b"GIF89a"[:4] + b" text"])
def test_markup_is_only_text(content):
    assert read(content).media_type == "text/plain"


@pytest.mark.parametrize(
    "content", [b"MZ\x90\0\3", b"\x7fELF\2\1", b"PK\3\4zip", b"\xff\xfe\0t", b"caf\xe9", b"  \n"]
)
def test_other_files_are_refused(content):
    assert "type is not supported" in why(content)


def test_nothing_and_too_much_are_refused(settings):
    settings.TURNS_ATTACHMENT_MAX_BYTES = 10
    assert "empty" in why(b"")
    assert "too large" in why(b"x" * 11)
    assert read(b"x" * 10).content == b"x" * 10


def test_type_that_is_switched_off_is_refused(settings):
    settings.TURNS_ATTACHMENT_TYPES = ["text/plain"]
    assert "Supported types: TXT." in why(files.image())


NOSY = """
import json, os, socket, sys
sys.stdin.buffer.read()
seen = {"environment": sorted(os.environ), "readable": os.path.exists("SECRET")}
try:
    socket.create_connection(("127.0.0.1", PORT), timeout=1).close()
    seen["connected"] = True
except OSError:
    seen["connected"] = False
print(json.dumps(seen))
"""


def test_worker_has_no_secrets_and_reaches_nothing(monkeypatch, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as server:
        secret, worker = tmp_path / "secret", tmp_path / "program" / "file_worker.py"
        secret.touch()
        worker.parent.mkdir()
        program = NOSY.replace("SECRET", str(secret))
        worker.write_text(program.replace("PORT", str(server.getsockname()[1])))
        monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
        monkeypatch.setattr(file_parsing, "_WORKER", worker)
        seen, _data = file_parsing._ask_worker("image", b"x" * 100_000, None)
    assert set(seen["environment"]) - {"PWD"} == {"PYTHONPATH", "LC_ALL"}
    is_free = find_sandbox(ToolboxSettings()).mode is Mode.NONE
    assert (seen["readable"], seen["connected"]) == (is_free, is_free)


@pytest.mark.parametrize(
    ("name", "clean"),
    [
        ("../../etc/passwd", "passwd"),
        ("C:\\Users\\ada\\photo.jpg", "photo.jpg"),
        ("a\u202egnp.exe", "agnp.exe"),
        ("a\x00b\nc.txt", "abc.txt"),
        ("..", "file"),
        ("", "file"),
        (".env", "env"),
        ("x" * 500 + ".pdf", "x" * 146 + ".pdf"),
        ("ж" * 500 + ".pdf", "ж" * 98 + ".pdf"),
        ("語" * 500, "語" * 66),
    ],
)
def test_names_lead_nowhere_and_hide_nothing(name, clean):
    assert clean_name(name) == clean


@pytest.mark.parametrize(
    ("name", "media_type", "saved"),
    [
        ("page.html", "text/plain", "page.html.txt"),
        ("run.js", "text/plain", "run.js.txt"),
        ("image.svg", "text/plain", "image.svg.txt"),
        ("notes.MD", "text/plain", "notes.MD"),
        ("photo.exe", "image/jpeg", "photo.exe.jpg"),
        ("report.pdf", "application/pdf", "report.pdf"),
    ],
)
def test_saved_files_have_endings_that_fit(name, media_type, saved):
    assert saved_name(name, media_type) == saved
