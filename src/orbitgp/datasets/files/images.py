"""Folders of images: one folder for each class, the name of the folder is the label."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import UInt8

from orbitgp.datasets.base import DatasetError
from orbitgp.datasets.files.data import Raw, ReadOptions
from orbitgp.inference.cost import free_memory

if TYPE_CHECKING:
    from PIL.Image import Image

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".pgm", ".ppm")
MAX_PIXELS = 1 << 24  # of one image: 4096 x 4096
_BYTES = 3 * 4 * 3  # of a pixel: three channels in single precision, three times: as read, as trained on, as saved
_GREY = ("1", "L", "LA", "I", "I;16", "F")


def read_image_files(path: Path, options: ReadOptions, training: bool) -> Raw:
    """A folder of class folders, alone or as ``train`` and ``test``; to predict, also one image or a folder of them."""
    if path.is_file() and training:
        raise DatasetError(f"{path} is a single image: give a folder of class folders of images.")
    if path.is_dir() and _class_folders(path / "train") and training:
        train = _read_classes(path / "train", options)
        if not (path / "test").is_dir():
            return train
        test = _read_classes(path / "test", train.options)
        return train._replace(test=(test.x, test.y), test_rows=test.rows)
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
    first = _open(files[0], options)
    _check_size(first.width, first.height, len(files), files[0], free_memory(torch.device("cpu")))
    images = [first, *(_open(path, options) for path in files[1:])]
    colour = options.colour or ("L" if all(image.mode == "L" for image in images) else "RGB")
    for path, image in zip(files, images, strict=True):
        if image.size != images[0].size:
            raise DatasetError(
                f"{path} has {image.width}x{image.height} pixels and {files[0]} has {images[0].width}x{images[0].height}: "
                "bring them to one size with --resize, as in --resize 28x28."
            )
    stacked = np.stack([np.asarray(image.convert(colour)) for image in images])
    return (np.moveaxis(stacked, -1, 1) if colour == "RGB" else stacked), replace(options, colour=colour)


def _check_size(width: int, height: int, count: int, path: Path, memory: float) -> None:
    """Refuse images that would not fit into memory as numbers, before they are read."""
    needed = _BYTES * width * height * count
    if needed > 0.5 * memory:
        raise DatasetError(
            f"{count:,} images of {width}x{height} pixels, as {path} has, need about {needed / 1e9:,.1f} GB of memory, and "
            f"{memory / 1e9:,.1f} GB are free: make them smaller, as with --resize 64x64."
        )


def _open(path: Path, options: ReadOptions) -> Image:
    """One image, grey or RGB, in the size that was asked for."""
    try:
        from PIL import Image, ImageOps
    except ImportError:
        raise DatasetError("image files need the package Pillow: pip install pillow.") from None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(path) as file:
                if file.width * file.height > MAX_PIXELS:
                    raise DatasetError(f"{path} has {file.width}x{file.height} pixels, more than {MAX_PIXELS:,} in all.")
                mode = "L" if file.mode in _GREY else "RGB"
                if file.has_transparency_data:  # shown on white, as in a viewer
                    image = Image.alpha_composite(Image.new("RGBA", file.size, "white"), file.convert("RGBA")).convert(mode)
                elif file.mode.startswith("I"):  # sixteen bits become eight
                    image = Image.fromarray((np.asarray(file).astype(np.float64) / 257).clip(0, 255).astype(np.uint8))
                else:
                    image = file.convert(mode)
    except DatasetError:
        raise
    except FileNotFoundError:
        raise DatasetError(f"there is no file {path}.") from None
    except Exception as error:  # damaged files make Pillow raise nearly anything
        reason = (str(error).splitlines() or ["it is damaged"])[0].rstrip(".")
        raise DatasetError(f"{path} cannot be read as an image: {reason}.") from None
    if options.resize is None:
        return image
    # Bars keep the aspect ratio; they are 0 in the end, as is everything outside an image.
    return ImageOps.pad(image, options.resize[::-1], color="white" if options.invert else "black")
