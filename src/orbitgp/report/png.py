"""Small images as PNG in a data: address, so that a page needs no other file."""

from __future__ import annotations

from base64 import b64encode
from io import BytesIO

import numpy as np
from jaxtyping import Float, UInt8


def png(pixels: UInt8[np.ndarray, "height width *channels"]) -> bytes:
    """A PNG file: grey for (H, W), colour for (H, W, 3)."""
    try:
        from PIL import Image
    except ImportError:
        raise ImportError("pictures in a report need the package Pillow: pip install 'orbitgp[cli]'.") from None
    file = BytesIO()
    Image.fromarray(pixels).save(file, "PNG", optimize=True)
    return file.getvalue()


def data_uri(image: Float[np.ndarray, "*shape"], low: float, high: float) -> str:
    """An image (H, W) or (C, H, W) as an address, black at ``low`` and white at ``high``."""
    scaled = (np.asarray(image, dtype=np.float64) - low) / ((high - low) or 1.0)
    pixels = np.round(255 * scaled.clip(0, 1)).astype(np.uint8)
    if pixels.ndim == 3:
        pixels = np.moveaxis(pixels, 0, -1) if len(pixels) == 3 else np.round(pixels.mean(0)).astype(np.uint8)
    return "data:image/png;base64," + b64encode(png(pixels)).decode("ascii")
