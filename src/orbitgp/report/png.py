"""Small images as PNG in a data: address, so that a page needs no other file."""

from __future__ import annotations

import struct
import zlib
from base64 import b64encode

import numpy as np
from jaxtyping import Float, UInt8

_GREY, _RGB = 0, 2


def png(pixels: UInt8[np.ndarray, "height width *channels"]) -> bytes:
    """A PNG file: grey for (H, W), colour for (H, W, 3)."""
    height, width = pixels.shape[:2]
    colour = _GREY if pixels.ndim == 2 else _RGB
    # Each row begins with the number of its filter: 0, none.
    rows = np.concatenate([np.zeros((height, 1), np.uint8), pixels.reshape(height, -1)], axis=1)
    header = struct.pack(">IIBBBBB", width, height, 8, colour, 0, 0, 0)
    parts = [(b"IHDR", header), (b"IDAT", zlib.compress(rows.tobytes(), 9)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, data) for kind, data in parts)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def data_uri(image: Float[np.ndarray, "*shape"], low: float, high: float) -> str:
    """An image (H, W) or (C, H, W) as an address, black at ``low`` and white at ``high``."""
    scaled = (np.asarray(image, dtype=np.float64) - low) / ((high - low) or 1.0)
    pixels = np.round(255 * scaled.clip(0, 1)).astype(np.uint8)
    if pixels.ndim == 3:
        pixels = np.moveaxis(pixels, 0, -1) if len(pixels) == 3 else np.round(pixels.mean(0)).astype(np.uint8)
    return "data:image/png;base64," + b64encode(png(pixels)).decode("ascii")
