"""What was learned as code of other tools. Oracles: kornia and albumentations, if they are there; else Python's
parser."""

from __future__ import annotations

import ast
import math

import numpy as np
import pytest
import torch

from orbitgp import orbits
from orbitgp.orbits.parse import make_orbit
from orbitgp.report.augmentation import TOOLS, augmentation

COLOUR = (3, 20, 40)
EVERYTHING = "affine(angle=10, scale_x=(0.9, 1.2), scale_y=(0.8, 1.1), shear=0.1, shift_x=(-2, 4), shift_y=1)"
EVERYTHING += "*brightness(0.2)*contrast((0.5, 2.0))*saturation(1.5)*hue(36)*gamma((0.8, 1.25))*blur(1.0)*deformation"


def test_numbers_are_in_the_units_of_the_tool() -> None:
    text = augmentation(make_orbit(EVERYTHING, COLOUR), COLOUR, "kornia")
    shear = math.degrees(math.atan(0.1))
    assert f"RandomAffine(10, translate=(0.1, 0.05), scale=(0.9, 1.2, 0.8, 1.1), shear={shear:.4g}, " in text
    assert "RandomBrightness(brightness=(0.8, 1.2), p=1.0)" in text
    assert "RandomContrast(contrast=(0.5, 2), p=1.0)" in text
    assert "RandomHue(hue=(-0.1, 0.1), p=1.0)" in text
    assert "kornia cannot express LocalDeformation" in text
    assert "contrast_limit=(-0.5, 1)" in augmentation(make_orbit(EVERYTHING, COLOUR), COLOUR, "albumentations")
    assert "gamma_limit=(80, 125)" in augmentation(make_orbit(EVERYTHING, COLOUR), COLOUR, "albumentations")
    assert "scale=(0.8, 1.25), shear" in augmentation(orbits.Scale(1.25), (8, 8), "kornia")


@pytest.mark.parametrize("tool", [name for name in TOOLS if name != "ultralytics"])
def test_code_can_be_parsed(tool: str) -> None:
    square = (3, 20, 20)
    for orbit in (EVERYTHING, "none", "flip", "rotate90", "weighted(flip, 0.3)", "rotation(20)*flip"):
        text = augmentation(make_orbit(orbit, square), square, tool)
        ast.parse(text)
        assert ("was not tried" in text) == (tool == "nnunet")


def test_a_learned_weight_is_the_probability_of_a_mirror_image() -> None:
    weighted = orbits.Weighted(orbits.Flip(), 0.3)
    assert "RandomHorizontalFlip(0.3)" in augmentation(weighted, (8, 8), "torchvision")
    assert "fliplr: 0.5" in augmentation(orbits.Flip(), (8, 8), "ultralytics")
    both = augmentation(orbits.Flip(horizontal=True, vertical=True), (8, 8), "nnunet")
    assert "mirrored = (0, 1)" in both
    assert "return (-0.3491, 0.3491)" in augmentation(orbits.Rotation(20), (8, 8), "nnunet")


def test_a_configuration_has_each_setting_of_a_product_once() -> None:
    moved = orbits.Translation(2.0) * orbits.Rotation(20)
    text = augmentation(moved, (20, 20), "ultralytics").splitlines()
    assert text[2:] == ["degrees: 20", "translate: 0.1", "scale: 0", "shear: 0"]
    assert "return (-0.3491, 0.3491)" in augmentation(moved, (20, 20), "nnunet")


def test_nnunet_says_what_it_leaves_out() -> None:
    said = "shifts, scales and shears are left out"
    assert said in augmentation(orbits.Translation(2.0), (20, 20), "nnunet")
    assert said not in augmentation(orbits.Rotation(20) * orbits.Flip(), (20, 20), "nnunet")


def test_the_border_is_that_of_the_model() -> None:
    mirrored = orbits.Rotation(20, border="reflect")
    assert 'padding_mode="reflection"' in augmentation(mirrored, (8, 8), "kornia")
    assert "border_mode=1" in augmentation(orbits.Shear(border="edge"), (8, 8), "albumentations")
    assert "torchvision has a border of its own, and this was learned with reflect" in augmentation(
        mirrored, (8, 8), "torchvision"
    )
    assert "border" not in augmentation(orbits.Rotation(20), (8, 8), "torchvision")


def test_what_cannot_be_exported_gets_a_sentence() -> None:
    with pytest.raises(ValueError, match="no export to 'keras'"):
        augmentation(orbits.Flip(), (8, 8), "keras")
    with pytest.raises(ValueError, match="is for images"):
        augmentation(orbits.Identity(), (5,), "kornia")


def test_kornia_takes_it_and_goes_as_far() -> None:
    pytest.importorskip("kornia")
    torch.manual_seed(0)
    x = torch.rand(2, *COLOUR)
    for orbit in (EVERYTHING, "rotate90", "weighted(flip, 0.3)"):
        shape = COLOUR if orbit != "rotate90" else (3, 20, 20)
        scope: dict[str, object] = {}
        exec(augmentation(make_orbit(orbit, shape), shape, "kornia"), scope)
        assert scope["transform"](x[..., : shape[-1]]).shape == (2, *shape)
    for border, darkest in (("zero", 0.0), ("edge", 1.0), ("reflect", 1.0)):
        exec(augmentation(orbits.Rotation(45, border=border), COLOUR, "kornia"), scope)
        assert float(scope["transform"](torch.ones(20, *COLOUR)).min()) == pytest.approx(darkest)
    exec(augmentation(orbits.Brightness(0.1), COLOUR, "kornia"), scope)
    grey = torch.full((200, *COLOUR), 0.5)
    moved = scope["transform"](grey)[:, 0, 0, 0] - 0.5
    assert float(moved.abs().max()) == pytest.approx(0.1, rel=0.05)
    exec(augmentation(orbits.Weighted(orbits.Flip(), 0.25), (1, 1, 2), "kornia"), scope)
    pair = torch.tensor([0.0, 1.0]).expand(2000, 1, 1, 2)
    mirrored = scope["transform"](pair)[:, 0, 0, 0].mean()
    assert float(mirrored) == pytest.approx(0.25, abs=0.04)


def test_torchvision_takes_it_and_goes_as_far() -> None:
    pytest.importorskip("torchvision")
    torch.manual_seed(0)
    scope: dict[str, object] = {}
    x = torch.rand(3, 20, 20)
    for part in (*EVERYTHING.split("*"), "rotate90", "flip"):
        exec(augmentation(make_orbit(part, (3, 20, 20)), (3, 20, 20), "torchvision"), scope)
        assert scope["transform"](x).shape == x.shape

    def drawn(part: str, image: torch.Tensor, times: int) -> torch.Tensor:
        exec(augmentation(make_orbit(part, tuple(image.shape)), tuple(image.shape), "torchvision"), scope)
        return torch.stack([scope["transform"](image) for _ in range(times)])

    moved = drawn("brightness(0.1)", torch.full((3, 4, 4), 0.5), 300)[:, 0, 0, 0] - 0.5
    assert float(moved.abs().max()) == pytest.approx(0.1, rel=0.05)
    contrasts = (
        drawn("contrast((0.5, 2.0))", torch.tensor([0.4, 0.6]).expand(3, 2, 2), 300).diff(dim=-1)[:, 0, 0, 0] / 0.2
    )
    assert float(contrasts.min()) == pytest.approx(0.5, rel=0.1)
    assert float(contrasts.max()) == pytest.approx(2.0, rel=0.1)
    pair = torch.tensor([0.0, 1.0]).expand(1, 1, 2)
    assert float(drawn("weighted(flip, 0.25)", pair, 1000)[:, 0, 0, 0].mean()) == pytest.approx(0.25, abs=0.05)
    wedge = torch.zeros(1, 101, 101)  # bright to the right of the centre: its middle says how far it was turned
    wedge[0, 48:53, 50:] = 1.0
    down, across = torch.meshgrid(*(torch.arange(101.0) - 50,) * 2, indexing="ij")
    turned = drawn("rotation(20)", wedge, 100)[:, 0]
    angles = torch.rad2deg(torch.atan2((turned * down).sum((1, 2)), (turned * across).sum((1, 2))))
    assert float(angles.abs().max()) == pytest.approx(20, abs=1.5)
    shifts = (drawn("translation(shift_x=10, shift_y=1)", wedge, 100)[:, 0] * across).sum((1, 2)) / wedge.sum() - 25
    assert float(shifts.min()) == pytest.approx(-10, abs=1)


def test_albumentations_takes_it_and_goes_as_far() -> None:
    pytest.importorskip("albumentations")
    scope: dict[str, object] = {}
    picture = np.random.default_rng(0).random((20, 20, 3)).astype(np.float32)
    for part in (*EVERYTHING.split("*"), "rotate90", "weighted(flip, 0.3)"):
        exec(augmentation(make_orbit(part, (3, 20, 20)), (3, 20, 20), "albumentations"), scope)
        assert scope["transform"](image=picture)["image"].shape == picture.shape

    for border, darkest in (("zero", 0.0), ("edge", 1.0), ("reflect", 1.0)):
        exec(augmentation(orbits.Rotation(45, border=border), (3, 20, 20), "albumentations"), scope)
        white = [scope["transform"](image=np.ones_like(picture))["image"].min() for _ in range(9)]
        assert min(white) == pytest.approx(darkest)

    def corners(part: str, image: np.ndarray, times: int) -> np.ndarray:
        exec(augmentation(make_orbit(part, image.shape[::-1]), image.shape[::-1], "albumentations"), scope)
        return np.array([scope["transform"](image=image)["image"][0, 0, 0] for _ in range(times)])

    moved = corners("brightness(0.1)", np.full((20, 40, 3), 0.5, np.float32), 200)
    assert float(np.abs(moved - 0.5).max()) == pytest.approx(0.1, rel=0.05)
    pair = np.tile(np.array([0.0, 1.0], np.float32)[None, :, None], (2, 1, 3))
    assert corners("weighted(flip, 0.25)", pair, 1000).mean() == pytest.approx(0.25, abs=0.05)
