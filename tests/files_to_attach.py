"""Small files for tests, made here: images, a PDF file with a text, and what pretends to be one."""

import struct
import zlib
from io import BytesIO
from pathlib import Path
from typing import Any

from PIL import Image
from pypdf import PdfWriter

SVG = b'<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>'
HTML = b"<!doctype html><script>alert(1)</script>"


def image(kind: str = "PNG", size: tuple[int, int] = (40, 30), **more: Any) -> bytes:
    """Return a red image of a kind."""
    target = BytesIO()
    Image.new("RGB", size, "red").save(target, kind, **more)
    return target.getvalue()


def located_photo() -> bytes:
    """Return a JPEG that lies on its side, with the place where it was taken."""
    exif = Image.Exif()
    exif[0x0112] = 6  # turn it by a quarter
    exif.get_ifd(0x8825)[1] = "N"
    exif.get_ifd(0x8825)[2] = (52.0, 31.0, 12.0)
    exif[0x010E] = "at home in Elm Street"
    return image("JPEG", exif=exif, comment=b"a secret comment")


def bomb(width: int = 60_000, height: int = 60_000) -> bytes:
    """Return a PNG of a few kilobytes that says it has billions of pixels."""

    def chunk(name: bytes, data: bytes) -> bytes:
        check = zlib.crc32(name + data)
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", check)

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    pixels = zlib.compress(b"\0" * 3_000_000)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")
    )


def pdf(*pages: str) -> bytes:
    """Return a PDF file in which each page says a text."""
    texts = pages or ("The quick brown fox",)
    places_of_pages = range(4, 4 + 2 * len(texts), 2)
    kids = b" ".join(b"%d 0 R" % place for place in places_of_pages)
    bodies = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [%s] /Count %d >>" % (kids, len(texts)),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    for place, text in zip(places_of_pages, texts, strict=True):
        stream = f"BT /F1 12 Tf 20 100 Td ({text}) Tj ET".encode()
        bodies += [
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 300 200] /Contents %d 0 R"
            b" /Resources << /Font << /F1 3 0 R >> >> >>" % (place + 1),
            b"<< /Length %d >>\nstream\n%s\nendstream" % (len(stream), stream),
        ]
    made, places = b"%PDF-1.4\n", []
    for number, body in enumerate(bodies, 1):
        places.append(len(made))
        made += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    size = len(bodies) + 1
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    end = b"trailer\n<< /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (size, len(made))
    return made + b"xref\n0 %d\n0000000000 65535 f \n%s" % (size, table) + end


def slow_pdf() -> bytes:
    """Return a small PDF file whose text takes many seconds to extract."""
    drawn = zlib.compress(b"BT /F1 12 Tf " + b"(x) Tj " * 6_000_000 + b"ET")
    said = b"<< /Length %d /Filter /FlateDecode >>\nstream\n%s\nendstream" % (len(drawn), drawn)
    made = pdf("slow")
    begin = made.index(b"<< /Length", made.index(b"/Contents"))
    end = made.index(b"endstream", begin) + len(b"endstream")
    # The table at the end names other places now; readers find the objects all the same.
    return made[:begin] + said + made[end:]


def locked_pdf() -> bytes:
    """Return a PDF file that asks for a password."""
    writer = PdfWriter(clone_from=BytesIO(pdf()))
    writer.encrypt("secret")
    target = BytesIO()
    writer.write(target)
    return target.getvalue()


def keep_files(settings: Any, root: Path) -> Path:
    """Let attachments be stored below a directory of the test."""
    backend = "django.core.files.storage.FileSystemStorage"
    made = {"BACKEND": backend, "OPTIONS": {"location": root / "files"}}
    settings.STORAGES = {**settings.STORAGES, "attachments": made}
    settings.TURNS_ATTACHMENT_STORAGE = "attachments"
    return root / "files"
