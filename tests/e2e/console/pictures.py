"""Screenshots as small PNG files: 128 colours are enough for a user interface."""

from __future__ import annotations

import base64
import struct
import zlib
from pathlib import Path

import numpy as np
from playwright.sync_api import Browser

COLOURS_MAX = 128
AREAS_MAX = 24  # colours that fill areas
_SIMILAR = 0xF0F0F0  # colours that are equal in these bits

# Chromium decodes its own screenshots; the colours come back as one text.
_PIXELS = """async (png) => {
  const bytes = Uint8Array.from(atob(png), (one) => one.charCodeAt(0));
  const image = await createImageBitmap(new Blob([bytes]));
  const canvas = new OffscreenCanvas(image.width, image.height);
  const context = canvas.getContext("2d");
  context.drawImage(image, 0, 0);
  const { data } = context.getImageData(0, 0, image.width, image.height);
  let text = "";
  for (let at = 0; at < data.length; at += 8190)
    text += btoa(String.fromCharCode(...data.subarray(at, at + 8190)));
  return [image.width, image.height, text];
}"""


def write_small(browser: Browser, png: bytes, file: Path) -> None:
    """Write a screenshot with a palette of its most frequent colours."""
    page = browser.new_page()
    width, height, text = page.evaluate(_PIXELS, base64.b64encode(png).decode())
    page.close()
    pixels = np.frombuffer(base64.b64decode(text), np.uint8).reshape(-1, 4)[:, :3]
    palette, places = _indexed(pixels)
    rows = places.reshape(height, width)
    raw = b"".join(b"\0" + row.tobytes() for row in rows)
    head = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    parts = [(b"IHDR", head), (b"PLTE", palette.tobytes()), (b"IDAT", zlib.compress(raw, 9))]
    chunks = b"".join(_chunk(kind, data) for kind, data in [*parts, (b"IEND", b"")])
    file.write_bytes(b"\x89PNG\r\n\x1a\n" + chunks)


def _indexed(pixels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the palette, and for each pixel its place there."""
    wide = pixels.astype(np.uint32)
    packed = wide[:, 0] << 16 | wide[:, 1] << 8 | wide[:, 2]
    colours, places, counts = np.unique(packed, return_inverse=True, return_counts=True)
    # Areas keep their colours; of similar others one is chosen, so that a few red pixels are not
    # lost among many greys.
    order = np.argsort(-counts, kind="stable")
    _, firsts = np.unique(colours[order] & _SIMILAR, return_index=True)
    areas = np.arange(min(AREAS_MAX, len(order)))
    chosen = colours[order[np.union1d(areas, np.sort(firsts)[: COLOURS_MAX - AREAS_MAX])]]
    of_all = np.stack([colours >> 16, colours >> 8 & 255, colours & 255], 1).astype(np.int32)
    palette = np.stack([chosen >> 16, chosen >> 8 & 255, chosen & 255], 1).astype(np.int32)
    distances = ((of_all[:, None, :] - palette[None, :, :]) ** 2).sum(2)
    nearest = distances.argmin(1).astype(np.uint8)
    return palette.astype(np.uint8), nearest[places.reshape(-1)]


def _chunk(kind: bytes, data: bytes) -> bytes:
    checksum = zlib.crc32(kind + data)
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", checksum)
