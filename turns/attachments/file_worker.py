"""A program that reads one hostile file under limits, in a process of its own.

It gets the file on its standard input, and what to do as JSON in its argument. It writes its answer to its
standard output: a line of JSON, then bytes.
It imports nothing of this project.
"""

import io
import json
import resource
import sys
from contextlib import suppress
from typing import Any

LONGEST_SIDE = 2_000  # pixels: Anthropic refuses more than 20 images if one is larger
MOST_BYTES = 3_500_000  # of an image: providers take 5 MB, as base64
MOST_PAGES = 1_000
QUALITY = 85
FORMATS = {"PNG": "image/png", "JPEG": "image/jpeg", "WEBP": "image/webp"}


class Refused(Exception):
    """The file cannot be taken; the text is a code."""


def limit(*, seconds: int, memory: int) -> None:
    """Bound this process before it looks at the file."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))


def read_image(content: bytes, *, max_pixels: int) -> tuple[dict[str, Any], bytes]:
    """Return the image redrawn: nothing that stood beside the pixels is left, such as where it was taken."""
    from PIL import Image, ImageOps  # noqa: PLC0415 - under the limits

    Image.MAX_IMAGE_PIXELS = None  # the limit is asked below, before a pixel is read
    with Image.open(io.BytesIO(content), formats=["PNG", "JPEG", "GIF", "WEBP"]) as image:
        if image.width * image.height > max_pixels:
            raise Refused("too_many_pixels")
        kind = image.format if image.format in ("JPEG", "WEBP") else "PNG"
        image.draft("RGB", (LONGEST_SIDE, LONGEST_SIDE))
        turned = ImageOps.exif_transpose(image)
        turned.thumbnail((LONGEST_SIDE, LONGEST_SIDE))
        is_clear = turned.mode in ("RGBA", "LA", "PA") or "transparency" in turned.info
        painted = turned.convert("RGBA" if is_clear and kind != "JPEG" else "RGB")
    painted.info.clear()
    data = encoded(painted, kind)
    if len(data) > MOST_BYTES:
        kind, data = "JPEG", encoded(on_white(painted), "JPEG")
    facts = {"media_type": FORMATS[kind], "width": painted.width, "height": painted.height}
    return facts, data


def encoded(image: Any, kind: str) -> bytes:
    target = io.BytesIO()
    image.save(target, kind, **({} if kind == "PNG" else {"quality": QUALITY}))
    return target.getvalue()


def on_white(image: Any) -> Any:
    """Return the image without transparency."""
    from PIL import Image  # noqa: PLC0415 - under the limits

    if image.mode != "RGBA":
        return image
    ground = Image.new("RGB", image.size, "white")
    ground.paste(image, mask=image.getchannel("A"))
    return ground


def read_pdf(content: bytes, *, max_characters: int) -> tuple[dict[str, Any], bytes]:
    """Return the text of a PDF file up to the limit, and one character more if there is more.

    A page whose text cannot be read has none.
    """
    from pypdf import PdfReader  # noqa: PLC0415 - under the limits

    reader = PdfReader(io.BytesIO(content))
    if reader.is_encrypted and not reader.decrypt(""):
        raise Refused("encrypted")
    parts: list[str] = []
    left = max_characters + 1
    for page in reader.pages[:MOST_PAGES]:
        if left <= 0:
            break
        with suppress(Exception):
            parts.append(page.extract_text()[:left])
            left -= len(parts[-1])
    text = "\n\n".join(parts).encode("utf-8", "replace")
    return {"pages": min(len(reader.pages), MOST_PAGES)}, text


def main() -> None:
    """Read, answer, end."""
    asked = json.loads(sys.argv[1])
    limit(seconds=asked["seconds"], memory=asked["memory"])
    content = sys.stdin.buffer.read()
    try:
        if asked["kind"] == "image":
            facts, data = read_image(content, max_pixels=asked["max_pixels"])
        else:
            facts, data = read_pdf(content, max_characters=asked["max_characters"])
    except Refused as refused:
        facts, data = {"refused": str(refused)}, b""
    except ImportError:
        facts, data = {"refused": "not_installed"}, b""
    except Exception:  # noqa: BLE001 - whatever a hostile file makes the libraries do
        facts, data = {"refused": "unreadable"}, b""
    sys.stdout.buffer.write(json.dumps(facts).encode() + b"\n" + data)


if __name__ == "__main__":
    main()
