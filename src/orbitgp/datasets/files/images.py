"""Folders of images: one folder for each class, the name of the folder is the label."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import UInt8

from orbitgp.datasets.base import DatasetError
from orbitgp.datasets.files.data import Raw, ReadOptions

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".pgm", ".ppm")
MAX_PIXELS = 1 << 24  # of one image: 4096 x 4096
_GREY = ("1", "L", "LA", "I", "I;16", "F")


def read_image_files(path: Path, options: ReadOptions, training: bool) -> Raw:
    """A folder of class folders, alone or as ``train`` and ``test``; to predict, also one image or a folder of them."""
    if path.is_file() and training:
        raise DatasetError(f"{path} is a single image: give a folder of class folders of images.")
    if path.is_dir() and _class_folders(path / "train") and training:
        x, y, options, *_ = _read_classes(path / "train", options)
        test = _read_classes(path / "test", options)[:2] if (path / "test").is_dir() else None
        return Raw(x, y, options, test)
    if path.is_dir() and (training or _class_folders(path) or not _image_files(path)):
        return _read_classes(path, options)
    files = [path] if path.is_file() else _image_files(path)
    x, options = _read_images(files, options)
    return Raw(x, None, options, rows=[file.name for file in files])


def _image_files(folder: Path) -> list[Path]:
    """The images directly in this folder, by name, without hidden files."""
    return sorted(p for p in folder.iterdir() if p.suffix.lower() in SUFFIXES and not p.name.startswith(".") and p.is_file())


def _class_folders(folder: Path) -> list[Path]:
    """The folders within this one that hold images, by name."""
    if not folder.is_dir():
        return []
    return sorted(p for p in folder.iterdir() if p.is_dir() and not p.name.startswith(".") and _image_files(p))


def _read_classes(folder: Path, options: ReadOptions) -> Raw:
    """Images and labels, one class folder after the other."""
    classes = _class_folders(folder)
    if len(classes) < 2:
        raise DatasetError(
            f"{folder} must hold at least two folders of images, one for each class, got {len(classes)} "
            f"(images end in {', '.join(SUFFIXES)})."
        )
    files = [file for inner in classes for file in _image_files(inner)]
    x, options = _read_images(files, options)
    labels = [file.parent.name for file in files]
    return Raw(x, np.asarray(labels), options, rows=[f"{file.parent.name}/{file.name}" for file in files])


def _read_images(files: list[Path], options: ReadOptions) -> tuple[UInt8[np.ndarray, "rows *shape"], ReadOptions]:
    """Images of one size as bytes, (N, H, W) if all are grey and (N, 3, H, W) otherwise."""
    try:
        import PIL.Image
    except ImportError:
        raise DatasetError("image files need the package Pillow: pip install pillow.") from None
    images = [_open(PIL.Image, path, options) for path in files]
    colour = options.colour or ("L" if all(image.mode in _GREY for image in images) else "RGB")
    arrays: list[UInt8[np.ndarray, "..."]] = []
    for path, image in zip(files, images, strict=True):
        # Sixteen bits become eight.
        if image.mode.startswith("I"):
            image = PIL.Image.fromarray((np.asarray(image).astype(np.float64) / 257).clip(0, 255).astype(np.uint8))
        array = np.asarray(image.convert(colour))
        if arrays and array.shape != arrays[0].shape:
            raise DatasetError(
                f"{path} has {array.shape[1]}x{array.shape[0]} pixels and {files[0]} has "
                f"{arrays[0].shape[1]}x{arrays[0].shape[0]}: bring them to one size with --resize, as in --resize 28x28."
            )
        arrays.append(array)
    stacked = np.stack(arrays)
    return (np.moveaxis(stacked, -1, 1) if colour == "RGB" else stacked), replace(options, colour=colour)


def _open(pil: Any, path: Path, options: ReadOptions) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pil.DecompressionBombWarning)
            with pil.open(path) as image:
                if image.width * image.height > MAX_PIXELS:
                    raise DatasetError(f"{path} has {image.width}x{image.height} pixels, more than {MAX_PIXELS:,} in all.")
                image.load()
                return image.resize(options.resize[::-1]) if options.resize else image.copy()
    except DatasetError:
        raise
    except FileNotFoundError:
        raise DatasetError(f"there is no file {path}.") from None
    except (OSError, ValueError, SyntaxError, EOFError, pil.DecompressionBombWarning, pil.DecompressionBombError) as error:
        raise DatasetError(f"{path} cannot be read as an image: {str(error).splitlines()[0]}") from None
