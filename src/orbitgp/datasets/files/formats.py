"""One reader for each format: .npz and pairs of .npy files, and folders of images. Nothing is unpickled.

Images are in one folder for each class, and the name of the folder is the label.
"""

from __future__ import annotations

import warnings
import zipfile
from collections import Counter
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Float32

from orbitgp.datasets.base import DatasetError
from orbitgp.datasets.files.data import Data, ReadOptions, check_memory
from orbitgp.orbits.description import listed

Signals = Float[np.ndarray, "rows *signal"]

_LONGEST = 120  # characters of a reason that numpy gives
SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".pgm", ".ppm")
MAX_PIXELS = 1 << 24  # one image may have: 4096 x 4096
_BYTES = 3 * 4 * 3  # a pixel has three channels in single precision, and is held as read, as trained on and as saved
_WHITE = {"F": 1, "I": 65535, "I;16": 65535, "I;16B": 65535}  # modes of decimals and of sixteen bits; else 255
_GREY = ("1", "L", "LA", *_WHITE)


def read_npz(path: Path, options: ReadOptions, training: bool) -> Data:
    """Arrays x and y, or x_train, y_train, x_test and y_test. To predict, x_test or one array of any name will do."""
    loaded = _load(path)
    if isinstance(loaded, np.ndarray):
        raise DatasetError(f"{path} is a single array: call it .npy.")
    arrays = {name.lower(): array for name, array in loaded.items()}

    def pair(end: str) -> tuple[Any, Any] | None:
        x, y = arrays.get(f"x{end}"), arrays.get(f"y{end}")
        return None if x is None or (y is None and end) else (x, y)

    train, whole, test = pair("_train"), pair(""), pair("_test")
    found = train or whole if training else whole or test
    if found is None and not training and len(arrays) == 1:
        found = next(iter(arrays.values())), None
    if found is None:
        raise DatasetError(f"{path} must hold arrays x and y (or x_train, …), got {', '.join(arrays) or 'nothing'}.")
    if training and found[1] is None:
        raise DatasetError(f"{path} has no targets: it needs an array y as well as x.")
    return Data(*found, options=options, test=Data(*test) if train and test else None)


def read_npy(path: Path, options: ReadOptions, training: bool) -> Data:
    """Inputs, and the targets in the file of the same folder or in ``options.targets``."""
    targets = Path(options.targets) if training and options.targets else sibling_targets(path)
    if training and targets is None:
        raise DatasetError(f"{path} has inputs only: name the file of its targets, --targets FILE.npy.")
    return Data(_load(path), None if targets is None else _load(targets), options=options)


def sibling_targets(path: Path) -> Path | None:
    """The file of targets that goes with this file of inputs: x.npy and y.npy, x_train.npy and y_train.npy, …"""
    rest = path.stem[1:]
    files = [path.with_name(f"{y}{rest}.npy") for y in "yY" if path.stem[:1] in "xX" and rest[:1] in ("", "_")]
    return next((file for file in files if file.is_file()), None)


def _load(path: Path) -> Any:
    """The array in a .npy file, or a dictionary of those in a .npz file."""
    try:
        if zipfile.is_zipfile(path):  # unpacking stops at the sizes that it announces
            with zipfile.ZipFile(path) as packed:
                check_memory(sum(entry.file_size for entry in packed.infolist()), f"{path} unpacks to")
        with path.open("rb") as file:  # opened here, as numpy would leave a damaged file open
            loaded = np.load(file, allow_pickle=False)
            return loaded if isinstance(loaded, np.ndarray) else dict(loaded)
    except FileNotFoundError:
        raise DatasetError(f"there is no file {path}.") from None
    except DatasetError:
        raise
    except Exception as error:  # damaged files make numpy and zipfile raise nearly anything
        text = (str(error).splitlines() or ["it is damaged"])[0].rstrip(".")[:_LONGEST]
        if "pickle" in text.lower():  # numpy takes whatever is no file of arrays for a pickle
            text = "it holds Python objects, which are not read, or something else made it"
        raise DatasetError(f"{path} is not a {path.suffix} file of numbers or words: {text}.") from None


def without_gaps(x: Signals, where: str, options: ReadOptions, notes: list[str]) -> tuple[Signals, ReadOptions]:
    """Signals whose gaps are closed along time: by a straight line, and by the nearest value at the ends.

    With ``resample``, the time from the first sample to the last value of a signal is divided into ``length`` samples.
    """
    x = x[:, 0] if x.ndim == 3 and x.shape[1] == 1 else x
    shape = options.image_shape if x.ndim == 2 else None
    if shape is not None and prod(shape) != x.shape[1]:
        size = "x".join(str(n) for n in shape)
        raise DatasetError(f"--signal-shape {size} has {prod(shape)} samples, but rows of {where} have {x.shape[1]}.")
    signals = x.reshape(len(x), -1, (shape or x.shape)[-1])
    gaps = np.isnan(signals).any((1, 2))
    some = f"{int(gaps.sum()):,} of {len(x):,} signals"
    if not options.impute and not options.resample:
        if gaps.any():
            raise DatasetError(
                f"{some} in {where} have gaps or are shorter than others, first in row {int(np.argmax(gaps)) + 1}: "
                "--impute interpolates along time and repeats the last value, and --resample stretches all signals to "
                "one length."
            )
        return x, options
    length = options.length or signals.shape[-1]
    if gaps.any():
        notes.append(f"{some} have gaps or are short: they are interpolated along time.")
    closed = np.empty((*signals.shape[:-1], length if options.resample else max(length, signals.shape[-1])))
    for row, signal in enumerate(signals):
        known = ~np.isnan(signal)
        if not known.any(1).all():
            raise DatasetError(f"the signal in row {row + 1} of {where} has a channel without any value: leave it out.")
        end = np.flatnonzero(known.any(0))[-1] if options.resample else closed.shape[-1] - 1
        times = np.linspace(0, end, closed.shape[-1])
        closed[row] = [np.interp(times, np.flatnonzero(k), line[k]) for line, k in zip(signal, known, strict=True)]
    return closed if x.ndim == 3 else closed.reshape(len(x), -1), replace(options, length=length)


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
    return sorted(p for p in folder.iterdir() if p.suffix.lower() in SUFFIXES and p.name[0] != "." and p.is_file())


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
    signals = "; signals are read from one table, a row each, with --signal" * ({*kinds} <= {".csv", ".tsv", ".txt"})
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
        images = {p: np.moveaxis(np.broadcast_to(np.atleast_3d(i), (*size[0], 3)), -1, 0) for p, i in images.items()}
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
                    raise DatasetError(f"{path} has {file.width}x{file.height} pixels, more than {MAX_PIXELS:,}.")
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


READERS = {".npz": read_npz, ".npy": read_npy, **dict.fromkeys(SUFFIXES, read_image_files)}
