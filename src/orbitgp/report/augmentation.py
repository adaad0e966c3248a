"""What an orbit of images has learned, as code or configuration of the tools in which networks are augmented.

Angles, shears, shifts and brightness become ranges around zero that hold the learned one, as tools differ in their
signs. Tools draw factors uniformly, where orbits are uniform in the logarithm. What a tool cannot express is a comment.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import atan, degrees, radians
from typing import Any

from orbitgp import orbits
from orbitgp.orbits import Orbit
from orbitgp.orbits.base import Parts

Values = dict[str, Any]
Step = tuple[str, Values]  # what is done, and how far

_HEAD = "# Learned by orbitgp from the marginal likelihood. Pixels between 0 and 1."
_PLAIN = {
    orbits.Brightness: "brightness",
    orbits.Contrast: "contrast",
    orbits.Saturation: "saturation",
    orbits.Hue: "hue",
    orbits.Gamma: "gamma",
    orbits.Blur: "blur",
}
_BORDERS = {  # in kornia, and in OpenCV
    "zero": {"padding": '"zeros"', "mode": "0"},
    "edge": {"padding": '"border"', "mode": "1"},
    "reflect": {"padding": '"reflection"', "mode": "4"},
}
_IN_CODE: dict[str, dict[str, str]] = {
    "torchvision": {
        "geometry": (
            "v2.RandomAffine({angle}, translate=({x}, {y}), scale=({low}, {high}), shear={shear}, "
            "interpolation=v2.InterpolationMode.BILINEAR)"
        ),
        "flip": "v2.RandomHorizontalFlip({p})",
        "vertical flip": "v2.RandomVerticalFlip({p})",
        "quarter turns": "v2.RandomChoice([v2.RandomRotation((a, a)) for a in (0, 90, 180, 270)])",
        "brightness": "v2.Lambda(lambda x: x + torch.empty(1).uniform_({low}, {high}))",
        "contrast": "v2.ColorJitter(contrast=({low}, {high}))",
        "saturation": "v2.ColorJitter(saturation=({low}, {high}))",
        "hue": "v2.ColorJitter(hue=({low}, {high}))",
        "gamma": "v2.Lambda(lambda x: x.clamp(0, 1) ** torch.empty(1).uniform_({low}, {high}))",
        "blur": "v2.GaussianBlur({kernel}, sigma=(0.1, {high}))",
    },
    "kornia": {
        "geometry": (
            "K.RandomAffine({angle}, translate=({x}, {y}), scale={scale}, shear={shear}, padding_mode={padding}, p=1.0)"
        ),
        "flip": "K.RandomHorizontalFlip(p={p})",
        "vertical flip": "K.RandomVerticalFlip(p={p})",
        "quarter turns": "K.RandomRotation90(times=(0, 3), p=1.0)",
        "brightness": "K.RandomBrightness(brightness=({above_low}, {above_high}), p=1.0)",
        "contrast": "K.RandomContrast(contrast=({low}, {high}), p=1.0)",
        "saturation": "K.RandomSaturation(saturation=({low}, {high}), p=1.0)",
        "hue": "K.RandomHue(hue=({low}, {high}), p=1.0)",
        "gamma": "K.RandomGamma(gamma=({low}, {high}), p=1.0)",
        "blur": "K.RandomGaussianBlur({kernel}, sigma=(0.1, {high}), p=1.0)",
    },
    "albumentations": {
        "geometry": (
            'A.Affine(rotate=(-{angle}, {angle}), translate_percent={{"x": (-{x}, {x}), "y": (-{y}, {y})}}, '
            'scale={{"x": ({low_x}, {high_x}), "y": ({low_y}, {high_y})}}, '
            'shear={{"x": (-{shear}, {shear}), "y": (0, 0)}}, keep_ratio={together}, border_mode={mode}, p=1.0)'
        ),
        "flip": "A.HorizontalFlip(p={p})",
        "vertical flip": "A.VerticalFlip(p={p})",
        "quarter turns": "A.RandomRotate90(p=1.0)",
        "brightness": "A.RandomBrightnessContrast(brightness_limit=({low}, {high}), contrast_limit=0, p=1.0)",
        "contrast": "A.RandomBrightnessContrast(brightness_limit=0, contrast_limit=({below_low}, {below_high}), p=1.0)",
        "saturation": "A.ColorJitter(brightness=0, contrast=0, hue=0, saturation=({low}, {high}), p=1.0)",
        "hue": "A.ColorJitter(brightness=0, contrast=0, saturation=0, hue=({low}, {high}), p=1.0)",
        "gamma": "A.RandomGamma(gamma_limit=({percent_low}, {percent_high}), p=1.0)",
        "blur": "A.GaussianBlur(blur_limit=0, sigma_limit=(0.1, {high}), p=1.0)",
    },
    "ultralytics": {
        "geometry": "degrees: {angle}\ntranslate: {shift}\nscale: {gain}\nshear: {shear}",
        "flip": "fliplr: {p}",
        "vertical flip": "flipud: {p}",
        "saturation": "hsv_s: {gain}",
        "hue": "hsv_h: {high}",
        "brightness": "hsv_v: {high}  # a factor there",
    },
    "nnunet": {"geometry": "{radians}", "flip": "1", "vertical flip": "0"},
}
_FRAMES = {
    "torchvision": "import torch\nfrom torchvision.transforms import v2\n\ntransform = v2.Compose([\n{}])\n",
    "kornia": "import kornia.augmentation as K\n\ntransform = K.AugmentationSequential(\n{})\n",
    "albumentations": "import albumentations as A\n\ntransform = A.Compose([\n{}])\n",
}
_NOTHING = {"torchvision": "v2.Identity()"}  # it refuses an empty list
_NNUNET = """from nnunetv2.training.nnUNetTrainer.nnUNetTrainer import nnUNetTrainer


class nnUNetTrainerLearned(nnUNetTrainer):
    def configure_rotation_dummyDA_data_aug_and_initial_patch_size(self):
        _, dummy, size, _ = super().configure_rotation_dummyDA_data_aug_and_initial_patch_size()
        mirrored = {mirrored}  # axes
        self.inference_allowed_mirroring_axes = mirrored
        return (-{angle}, {angle}), dummy, size, mirrored
"""
TOOLS = tuple(_IN_CODE)
TESTED = ("albumentations", "kornia", "torchvision")  # against the libraries themselves


def augmentation(orbit: Orbit, shape: tuple[int, ...], tool: str) -> str:
    """Code or configuration that augments images of this shape by what the orbit has learned."""
    if tool not in _IN_CODE:
        raise ValueError(f"there is no export to {tool!r}: there are {', '.join(TOOLS)}.")
    if len(shape) not in (2, 3):
        raise ValueError(f"export is for images, but the inputs of this model have shape {tuple(shape)}.")
    steps = _steps(orbit, shape)
    said, lines, found = _IN_CODE[tool], [_HEAD, *_remarks(tool, steps)], []
    if tool in ("nnunet", "ultralytics"):
        steps = _with_one_geometry(steps)
    for name, values in steps:
        if name in said:
            found.append((name, said[name].format(**values)))
        else:
            lines.append(f"# {tool} cannot express {name}: {values or 'learned'}.")
    if tool == "nnunet":
        angle = next((text for name, text in found if name == "geometry"), "0.0")
        if any(float(values[k]) for name, values in steps if name == "geometry" for k in ("shift", "gain", "shear")):
            lines.append("# nnunet cannot express geometry but for the angle: shifts, scales and shears are left out.")
        axes = sorted(int(text) for name, text in found if name != "geometry")
        frame = _NNUNET.format(angle=angle, mirrored=(*axes,))
    elif tool == "ultralytics":
        frame = "".join(f"{text}\n" for _, text in found)
    else:
        texts = [text for _, text in found] or [_NOTHING.get(tool, "")]
        frame = _FRAMES[tool].format("".join(f"    {text},\n" for text in texts if text))
    return "\n".join([*lines, frame])


def _steps(orbit: Orbit, shape: tuple[int, ...]) -> list[Step]:
    """What each part of an orbit does, in the numbers that tools take."""
    if isinstance(orbit, Parts):
        return [step for part in orbit.parts for step in _steps(part, shape)]
    learned: Values = dict(orbit.describe())
    if isinstance(orbit, orbits.Identity):
        return []
    if isinstance(orbit, orbits.Affine | orbits.Translation | orbits.Scale | orbits.Shear | orbits.Rotation):
        return [("geometry", _geometry(learned, shape) | {"border": orbit.outside, **_BORDERS[orbit.outside]})]
    if isinstance(orbit, orbits.Weighted) and isinstance(orbit.orbit, orbits.Flip) and orbit.size == 2:
        return _flips(orbit.orbit, learned["weight"])
    if isinstance(orbit, orbits.Flip):
        return _flips(orbit, 0.5)
    if isinstance(orbit, orbits.Rotate90):
        return [("quarter turns", {})]
    kind = _PLAIN.get(type(orbit))
    if kind is None:
        return [(type(orbit).__name__, learned)]
    (value,) = learned.values()
    return [(kind, _ends(kind, *(value if isinstance(value, tuple) else (-value, value))))]


def _remarks(tool: str, steps: list[Step]) -> list[str]:
    """Comments on a text for a tool: that it was not tried, and that the tool has no choice of borders."""
    lines = [] if tool in TESTED else [f"# This text was not tried with {tool}."]
    if any(word in _IN_CODE[tool]["geometry"] for word in ("{padding}", "{mode}")):
        return lines
    borders = {values["border"] for name, values in steps if name == "geometry"} - {"zero"}
    return lines + [f"# {tool} has a border of its own, and this was learned with {border}." for border in borders]


def _with_one_geometry(steps: list[Step]) -> list[Step]:
    """The same, with the farthest of several warps for each setting, as a configuration has each of them once."""
    warps = [values for name, values in steps if name == "geometry"]
    if not warps:
        return steps
    settings = ("angle", "radians", "shift", "gain", "shear")
    farthest = {key: max((values[key] for values in warps), key=float) for key in settings}
    return [("geometry", farthest), *(step for step in steps if step[0] != "geometry")]


def _flips(orbit: orbits.Flip, p: float) -> list[Step]:
    sides = (("flip", orbit.horizontal), ("vertical flip", orbit.vertical))
    return [(name, _written({"p": p})) for name, there in sides if there]


def _geometry(learned: Values, shape: tuple[int, ...]) -> Values:
    """Degrees, shares of the image, and factors."""

    def most(name: str) -> float:
        value = learned.get(name, 0.0)
        return max(map(abs, value)) if isinstance(value, tuple) else abs(value)

    together = "scale" in learned  # one factor for both axes
    none = (1.0, 1.0)
    low_x, high_x = learned["scale"] if together else learned.get("scale_x", none)
    low_y, high_y = learned["scale"] if together else learned.get("scale_y", none)
    low, high = (low_x * low_y) ** 0.5, (high_x * high_y) ** 0.5
    angle, x, y = most("angle") or most("degrees"), most("shift_x") / shape[-1], most("shift_y") / shape[-2]
    found = {"angle": angle, "radians": radians(angle), "x": x, "y": y, "shift": max(x, y)}
    found |= {"shear": degrees(atan(most("shear"))), "gain": max(high - 1, 1 - low)}
    found |= {"low": low, "high": high, "low_x": low_x, "high_x": high_x, "low_y": low_y, "high_y": high_y}
    ends = ", ".join(f"{end:.4g}" for end in ((low, high) if together else (low_x, high_x, low_y, high_y)))
    return _written(found) | {"scale": f"({ends})", "together": together}


def _ends(kind: str, low: float, high: float) -> Values:
    """The ends of a range of values, as each tool counts them."""
    if kind == "hue":
        low, high = low / 360, high / 360  # of the circle
    if kind in ("hue", "brightness"):
        low, high = -max(-low, high), max(-low, high)
    found = {"above_low": 1 + low, "above_high": 1 + high, "below_low": low - 1, "below_high": high - 1}
    found |= {"percent_low": 100 * low, "percent_high": 100 * high}
    found |= {"low": low, "high": high, "gain": max(high - 1, 1 - low), "kernel": 2 * max(1, round(3 * high)) + 1}
    return _written(found)


def _written(values: Mapping[str, float]) -> Values:
    """Numbers with four digits."""
    return {name: f"{value:.4g}" for name, value in values.items()}
