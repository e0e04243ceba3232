"""A separate program that reads one untrusted file under resource limits.

It receives the file on standard input and the task as JSON in its argument. It writes a line of JSON and then bytes to
standard output. It imports nothing from this project.
"""

import io
import json
import resource
import sys
from contextlib import suppress
from typing import Any

LONGEST_SIDE = 2_000  # pixels; Anthropic rejects requests with more than 20 images if one is larger
MOST_BYTES = 3_500_000  # maximum of an image; providers accept 5 MB of base64
MOST_PAGES = 1_000
QUALITY = 85
FORMATS = {"PNG": "image/png", "JPEG": "image/jpeg", "WEBP": "image/webp"}


class Refused(Exception):
    """The file is rejected; the text of the exception is a code for the reason."""


def limit(*, seconds: int, memory: int) -> None:
    """Limit this process before it opens the file."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))


def read_image(content: bytes, *, max_pixels: int) -> tuple[dict[str, Any], bytes]:
    """Return the re-encoded image without metadata, such as the place where it was taken."""
    from PIL import Image, ImageOps  # noqa: PLC0415 - under the limits

    Image.MAX_IMAGE_PIXELS = None  # the limit is checked below, before decoding
    with Image.open(io.BytesIO(content), formats=["PNG", "JPEG", "GIF", "WEBP"]) as image:
        if image.width * image.height > max_pixels:
            raise Refused("too_many_pixels")
        kind = image.format if image.format in ("JPEG", "WEBP") else "PNG"
        image.draft("RGB", (LONGEST_SIDE, LONGEST_SIDE))
        upright = ImageOps.exif_transpose(image)
        upright.thumbnail((LONGEST_SIDE, LONGEST_SIDE))
        has_alpha = upright.mode in ("RGBA", "LA", "PA") or "transparency" in upright.info
        result = upright.convert("RGBA" if has_alpha and kind != "JPEG" else "RGB")
    result.info.clear()
    data = encoded(result, kind)
    if len(data) > MOST_BYTES:
        kind, data = "JPEG", encoded(on_white(result), "JPEG")
    facts = {"media_type": FORMATS[kind], "width": result.width, "height": result.height}
    return facts, data


def encoded(image: Any, kind: str) -> bytes:
    target = io.BytesIO()
    image.save(target, kind, **({} if kind == "PNG" else {"quality": QUALITY}))
    return target.getvalue()


def on_white(image: Any) -> Any:
    """Return the image on a white background instead of a transparent one."""
    from PIL import Image  # noqa: PLC0415 - under the limits

    if image.mode != "RGBA":
        return image
    ground = Image.new("RGB", image.size, "white")
    ground.paste(image, mask=image.getchannel("A"))
    return ground


def read_pdf(content: bytes, *, max_characters: int) -> tuple[dict[str, Any], bytes]:
    """Return the text of a PDF file up to the limit, plus one character if there is more.

    Unreadable pages have no text.
    """
    from pypdf import PdfReader  # noqa: PLC0415 - under the limits

    reader = PdfReader(io.BytesIO(content))
    if reader.is_encrypted and not reader.decrypt(""):
        raise Refused("encrypted")
    parts: list[str] = []
    remaining = max_characters + 1
    for page in reader.pages[:MOST_PAGES]:
        if remaining <= 0:
            break
        with suppress(Exception):
            parts.append(page.extract_text()[:remaining])
            remaining -= len(parts[-1])
    text = "\n\n".join(parts).encode("utf-8", "replace")
    return {"pages": min(len(reader.pages), MOST_PAGES)}, text


def main() -> None:
    task = json.loads(sys.argv[1])
    limit(seconds=task["seconds"], memory=task["memory"])
    content = sys.stdin.buffer.read()
    try:
        if task["kind"] == "image":
            facts, data = read_image(content, max_pixels=task["max_pixels"])
        else:
            facts, data = read_pdf(content, max_characters=task["max_characters"])
    except Refused as refused:
        facts, data = {"refused": str(refused)}, b""
    except ImportError:
        facts, data = {"refused": "not_installed"}, b""
    except Exception:  # noqa: BLE001 - a hostile file may make the libraries raise anything
        facts, data = {"refused": "unreadable"}, b""
    sys.stdout.buffer.write(json.dumps(facts).encode() + b"\n" + data)


if __name__ == "__main__":
    main()
