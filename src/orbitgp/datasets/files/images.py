"""Folders of images: one folder for each class, the name of the folder is the label."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Shaped, UInt8

from orbitgp.datasets.files.data import LoadingError, Reading

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".pgm", ".ppm")
MAX_PIXELS = 1 << 24  # of one image: 4096 x 4096
_GREY = ("1", "L", "LA", "I", "I;16", "F")


def image_files(folder: Path) -> list[Path]:
    """The images right in this folder, by name; hidden files are none."""
    return sorted(p for p in folder.iterdir() if p.suffix.lower() in SUFFIXES and not p.name.startswith(".") and p.is_file())


def class_folders(folder: Path) -> list[Path]:
    """The folders within this one that hold images, by name."""
    return sorted(p for p in folder.iterdir() if p.is_dir() and not p.name.startswith(".") and image_files(p))


def read_classes(
    folder: Path, reading: Reading
) -> tuple[UInt8[np.ndarray, "rows *shape"], Shaped[np.ndarray, " rows"], Reading]:
    """Images and labels, one class folder after the other."""
    classes = class_folders(folder)
    if len(classes) < 2:
        raise LoadingError(
            f"{folder} must hold at least two folders of images, one for each class, got {len(classes)} "
            f"(images end in {', '.join(SUFFIXES)})."
        )
    files = [(path, inner.name) for inner in classes for path in image_files(inner)]
    x, reading = read_images([path for path, _ in files], reading)
    return x, np.asarray([label for _, label in files]), reading


def read_images(files: list[Path], reading: Reading) -> tuple[UInt8[np.ndarray, "rows *shape"], Reading]:
    """Images of one size as bytes, (N, H, W) if all are grey and (N, 3, H, W) otherwise."""
    try:
        import PIL.Image
    except ImportError:
        raise LoadingError("image files need the package Pillow: pip install pillow.") from None
    images = [_open(PIL.Image, path, reading) for path in files]
    colour = reading.colour or ("L" if all(image.mode in _GREY for image in images) else "RGB")
    arrays: list[UInt8[np.ndarray, "..."]] = []
    for path, image in zip(files, images, strict=True):
        # Sixteen bits and more are brought to eight, by the full range of the format.
        if image.mode.startswith("I"):
            image = PIL.Image.fromarray((np.asarray(image).astype(np.float64) / 257).clip(0, 255).astype(np.uint8))
        array = np.asarray(image.convert(colour))
        if arrays and array.shape != arrays[0].shape:
            raise LoadingError(
                f"{path} has {array.shape[1]}x{array.shape[0]} pixels and {files[0]} has "
                f"{arrays[0].shape[1]}x{arrays[0].shape[0]}: bring them to one size with --resize, as in --resize 28x28."
            )
        arrays.append(array)
    stacked = np.stack(arrays)
    return (np.moveaxis(stacked, -1, 1) if colour == "RGB" else stacked), replace(reading, colour=colour)


def _open(pil: Any, path: Path, reading: Reading) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pil.DecompressionBombWarning)
            with pil.open(path) as image:
                if image.width * image.height > MAX_PIXELS:
                    raise LoadingError(f"{path} has {image.width}x{image.height} pixels, more than {MAX_PIXELS:,} in all.")
                image.load()
                return image.resize(reading.resize[::-1]) if reading.resize else image.copy()
    except LoadingError:
        raise
    except FileNotFoundError:
        raise LoadingError(f"there is no file {path}.") from None
    except (OSError, ValueError, SyntaxError, EOFError, pil.DecompressionBombWarning, pil.DecompressionBombError) as error:
        raise LoadingError(f"{path} cannot be read as an image: {str(error).splitlines()[0]}") from None
