"""Folders of images: one folder for each class, the name of the folder is the label."""

from __future__ import annotations

import warnings
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
from jaxtyping import Float32

from orbitgp.datasets.base import DatasetError
from orbitgp.datasets.files.data import Data, ReadOptions, check_memory
from orbitgp.orbits.description import listed

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".pgm", ".ppm")
MAX_PIXELS = 1 << 24  # of one image: 4096 x 4096
_BYTES = 3 * 4 * 3  # a pixel has three channels in single precision, and is held as read, as trained on and as saved
_WHITE = {"F": 1, "I": 65535, "I;16": 65535, "I;16B": 65535}  # modes of decimals and of sixteen bits; else 255
_GREY = ("1", "L", "LA", *_WHITE)


def read_image_files(path: Path, options: ReadOptions, training: bool) -> Data:
    """A folder of class folders, alone or as ``train`` and ``test``; to predict, also one image or a folder of them."""
    if path.is_file() and training:
        raise DatasetError(f"{path} is a single image: give a folder of class folders of images.")
    if training and _class_folders(path / "train"):
        train = _read_classes(path / "train", options)
        return replace(train, test=_read_classes(path / "test", train.options)) if (path / "test").is_dir() else train
    if path.is_dir() and (training or _class_folders(path) or not _image_files(path)):
        return _read_classes(path, options)
    files = [path] if path.is_file() else _image_files(path)
    return _read_images(files, replace(options, strict=options.strict or len(files) == 1))


def _image_files(folder: Path) -> list[Path]:
    """The images directly in this folder, by name, without hidden files."""
    return sorted(p for p in folder.iterdir() if p.suffix.lower() in SUFFIXES and not p.name.startswith(".") and p.is_file())


def _class_folders(folder: Path) -> list[Path]:
    """The folders within this one that hold images, by name."""
    if not folder.is_dir():
        return []
    return sorted(p for p in folder.iterdir() if p.is_dir() and not p.name.startswith(".") and _image_files(p))


def _read_classes(folder: Path, options: ReadOptions) -> Data:
    """Images and labels, one class folder after the other."""
    classes = _class_folders(folder)
    if len(classes) < 2:
        raise DatasetError(
            f"{_what_is_in(folder, classes)}: training takes a folder of images for each of two or more classes."
        )
    files = [file for inner in classes for file in _image_files(inner)]
    found = _read_images(files, options, within=folder)
    labels = [name.split("/")[0] for name in found.rows or ()]
    if len(set(labels)) < 2:
        raise DatasetError(f"only images of {labels[0]} are left: {found.notes[0]}")
    return replace(found, y=np.asarray(labels))


def _what_is_in(folder: Path, classes: list[Path]) -> str:
    """What a folder holds in place of classes, as a clause."""
    kinds = Counter(p.suffix.lower() for p in folder.rglob("*") if p.is_file() and not p.name.startswith("."))
    if classes:
        return f"{folder} holds images of one class only, {classes[0].name}"
    if _image_files(folder):
        return f"{folder} holds images, but no folder for each class"
    if not kinds:
        return f"{folder} is empty"
    signals = "; signals are read from one table, a row each, with --signal" * (kinds.keys() <= {".csv", ".tsv", ".txt"})
    said = [f"{count:,} {kind} file{'s' * (count > 1)}" for kind, count in kinds.most_common(3)]
    return f"{folder} holds no images, but {listed(said)}{signals}"


def _read_images(files: list[Path], options: ReadOptions, within: Path | None = None) -> Data:
    """Images of one size, (N, H, W) if all are grey and (N, 3, H, W) otherwise, from 0 to 1."""
    images: dict[Path, Float32[np.ndarray, "height width *colours"]] = {}
    lost: dict[Path, DatasetError] = {}
    for path in files:
        try:
            images[path] = _open(path, options)
        except DatasetError as error:
            if options.strict:
                raise
            lost[path] = error
        if len(images) == 1 and path in images:  # before the others are read
            height, width = images[path].shape[:2]
            what = f"{len(files):,} images of {width}x{height} pixels, as {path} has, need about"
            check_memory(_BYTES * height * width * len(files), what, ": make them smaller, as with --resize 64x64")
    if not images:
        raise DatasetError(f"none of {len(files):,} images can be read: {lost[files[0]]}")
    size, *others = {image.shape[:2]: path for path, image in images.items()}.items()
    if others:
        said = [f"{path} has {width}x{height} pixels" for (height, width), path in (size, others[0])]
        raise DatasetError(f"{listed(said)}: bring them to one size with --resize, as in --resize 28x28.")
    colour = options.colour or ("RGB" if any(image.ndim == 3 for image in images.values()) else "L")
    if colour == "RGB":  # a grey pixel has three equal colours
        images = {p: np.moveaxis(np.broadcast_to(np.atleast_3d(image), (*size[0], 3)), -1, 0) for p, image in images.items()}
    left_out = f"{len(lost):,} of {len(files):,} images cannot be read and are left out: {', '.join(map(str, lost))}."
    names = [path.name if within is None else path.relative_to(within).as_posix() for path in images]
    x, notes = np.stack(list(images.values())), [left_out] if lost else []
    return Data(x, None, names, notes, options=replace(options, colour=colour))


def _open(path: Path, options: ReadOptions) -> Float32[np.ndarray, "height width *colours"]:
    """One image from 0 to 1, grey or in colours, upright, in the size that was asked for."""
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
                image = ImageOps.exif_transpose(file)  # a camera says how it was held
                white = _WHITE.get(image.mode, 255)
                mode = "L" if options.colour == "L" or image.mode in _GREY else "RGB"
                if image.has_transparency_data:  # shown on white, as in a viewer
                    image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image.convert("RGBA"))
                image = image.convert(mode) if white == 255 else Image.fromarray(np.asarray(image, np.float32))
    except DatasetError:
        raise
    except FileNotFoundError:
        raise DatasetError(f"there is no file {path}.") from None
    except Exception as error:  # damaged files make Pillow raise nearly anything
        reason = (str(error).splitlines() or ["it is damaged"])[0].rstrip(".")
        raise DatasetError(f"{path} cannot be read as an image: {reason}.") from None
    pixels = np.asarray(image)
    if not (pixels.min() >= 0 and pixels.max() <= white):
        ends = f"{pixels.min():g} to {pixels.max():g}"
        raise DatasetError(f"{path} has pixels from {ends}, and not from 0 to {white}: bring them to 0 to 1.")
    if options.resize is not None:
        # Bars keep the aspect ratio; they are 0 in the end, as is everything outside an image.
        ground = white if options.invert else 0
        image = ImageOps.pad(image, options.resize[::-1], color=(ground,) * 3 if image.mode == "RGB" else ground)
    return (np.asarray(image, np.float32) / np.float32(white)).clip(0, 1)
