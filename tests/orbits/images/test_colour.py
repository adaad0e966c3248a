"""Colour orbits, against NumPy and SciPy, pixel by pixel."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy.ndimage import gaussian_filter
from scipy.spatial.transform import Rotation as Turn
from torch import Tensor
from torch.autograd import gradcheck

from orbitgp import InvariantGPRegressor
from orbitgp.orbits import Blur, Cutout, Gamma, Hue, Orbit, Saturation, Stain
from orbitgp.orbits.parse import make_orbit
from orbitgp.report.words import learned

ORBITS: dict[str, Any] = {
    "saturation": lambda: Saturation((0.5, 1.6)),
    "hue": lambda: Hue((-20, 50)),
    "gamma": lambda: Gamma((0.7, 1.9)),
    "blur": lambda: Blur(1.4),
    "stain": lambda: Stain(1.5, (0.6, 1.2)),
    "cutout": lambda: Cutout(3.5),
}


def rand(*shape: int) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def samples(orbit: Orbit, x: Tensor, u: Tensor) -> np.ndarray:
    return orbit.double().transform(x, u.expand(len(x), -1, -1)).detach().numpy()


U = torch.tensor([0.1, 0.5, 0.93], dtype=torch.float64)[None, :, None]  # three draws


def drawn(low: float, high: float, factor: bool = False) -> np.ndarray:
    if factor:
        low, high = np.log(low), np.log(high)
    values = low + (high - low) * U[0, :, 0].numpy()
    return np.exp(values) if factor else values


class TestOracles:
    def test_saturation(self) -> None:
        x = rand(2, 3, 4, 5)
        grey = 0.299 * x[:, 0] + 0.587 * x[:, 1] + 0.114 * x[:, 2]
        for s, found in zip(drawn(0.5, 1.6, True), samples(Saturation((0.5, 1.6)), x, U).swapaxes(0, 1), strict=True):
            expected = s * x.numpy() + (1 - s) * grey[:, None].numpy()
            np.testing.assert_allclose(found, expected, rtol=1e-5)

    def test_hue_is_a_turn_about_the_axis_of_greys(self) -> None:
        x = rand(2, 3, 4, 5)
        for degrees, found in zip(drawn(-20, 50), samples(Hue((-20, 50)), x, U).swapaxes(0, 1), strict=True):
            matrix = Turn.from_rotvec(np.radians(degrees) * np.ones(3) / np.sqrt(3)).as_matrix()
            np.testing.assert_allclose(found, np.einsum("dc,nchw->ndhw", matrix, x.numpy()), rtol=1e-5, atol=1e-8)
        red = torch.zeros(1, 3, 1, 1).double()
        red[0, 0] = 1.0
        green = samples(Hue((120, 120), learn=False), red, U)[0, 0, :, 0, 0]
        np.testing.assert_allclose(green, [0, 1, 0], atol=1e-6)

    @pytest.mark.parametrize(("shape", "white"), [((3, 4, 5), 1.0), ((6, 5), 255.0)])
    def test_gamma(self, shape: tuple[int, ...], white: float) -> None:
        x = white * (0.01 + 0.99 * rand(2, *shape))
        for g, found in zip(drawn(0.7, 1.9, True), samples(Gamma((0.7, 1.9), white), x, U).swapaxes(0, 1), strict=True):
            np.testing.assert_allclose(found, white * (x.numpy() / white) ** g, rtol=1e-5)

    def test_gamma_keeps_black_and_what_is_below(self) -> None:
        x = torch.tensor([[[0.0, -0.5, 1.0]]], dtype=torch.float64)
        found = samples(Gamma(2.0), x, U)[0, :, 0]
        assert (found[:, 0] == 0).all()
        assert (found[:, 1] < 0).all()
        np.testing.assert_allclose(found[:, 2], 1.0)

    @pytest.mark.parametrize("shape", [(7, 9), (2, 8, 6)], ids=str)
    def test_blur(self, shape: tuple[int, ...]) -> None:
        x = rand(2, *shape)
        for width, found in zip(drawn(0, 1.4), samples(Blur(1.4), x, U).swapaxes(0, 1), strict=True):
            axes = (0,) * (x.ndim - 2) + (width + 1e-3,) * 2
            np.testing.assert_allclose(
                found, gaussian_filter(x.numpy(), axes, mode="nearest", radius=8), rtol=1e-5, atol=1e-8
            )

    def test_stain_changes_the_amount_of_each_dye(self) -> None:
        amounts = np.array([0.8, 0.5])  # of haematoxylin and eosin, in one colour
        h, e = np.array([0.65, 0.70, 0.29]), np.array([0.07, 0.99, 0.11])
        dyes = np.stack([h / np.linalg.norm(h), e / np.linalg.norm(e)])
        x = torch.tensor(np.exp(-amounts @ dyes)).reshape(1, 3, 1, 1)
        u = torch.tensor([[[0.2, 0.9], [0.5, 0.5]]], dtype=torch.float64)
        found = samples(Stain(1.5, 2.0), x, u)[0, :, :, 0, 0]
        factors = np.array([[1.5 ** (2 * 0.2 - 1), 2.0 ** (2 * 0.9 - 1)], [1.0, 1.0]])
        np.testing.assert_allclose(found, np.exp(-(factors * amounts) @ dyes), rtol=1e-6)

    def test_three_dyes_are_those_of_scikit_image(self) -> None:
        """As ``skimage.color.rgb2hed`` and ``hed2rgb``: amounts by the inverse matrix, scaled, and back."""
        x = 0.05 + 0.9 * rand(2, 3, 4, 5)
        dyes = np.array([[0.65, 0.70, 0.29], [0.07, 0.99, 0.11], [0.27, 0.57, 0.78]])
        u = rand(1, 3, 3)
        found = samples(Stain(1.5, 2.0, dab=1.3), x, u)
        amounts = -np.log(np.moveaxis(x.numpy(), 1, -1)) @ np.linalg.inv(dyes)
        for s, factors in enumerate(np.array([1.5, 2.0, 1.3]) ** (2 * u[0].numpy() - 1)):
            expected = np.exp(-(factors * amounts) @ dyes)
            np.testing.assert_allclose(np.moveaxis(found[:, s], 1, -1), expected, rtol=1e-5)
        orbit = Stain(1.5, 2.0, dab=(0.7, 1.2)).double()
        assert list(orbit.describe()) == ["haematoxylin", "eosin", "dab"]
        assert gradcheck(lambda *_: orbit.transform(x, u.expand(2, -1, -1)), tuple(orbit.parameters()), fast_mode=True)

    def test_stain_leaves_what_no_dye_explains(self) -> None:
        x, u = 0.05 + 0.9 * rand(2, 3, 4, 5), rand(1, 3, 2)
        other = np.cross([0.65, 0.70, 0.29], [0.07, 0.99, 0.11])
        changes = np.log(samples(Stain(1.5, 2.0), x, u) / x[:, None].numpy())
        np.testing.assert_allclose(np.einsum("nschw,c->nshw", changes, other), 0, atol=1e-12)

    def test_cutout_covers_a_square(self) -> None:
        """Against the share of 40 by 40 points of each pixel that the square covers."""
        x, fine = rand(1, 6, 7), 40
        u = torch.tensor([[[0.4, 0.9, 0.8]]], dtype=torch.float64)
        found = samples(Cutout(3.5), x, u)[0, 0]
        side, centre = 0.8 * 3.5, (0.4 * 6, 0.9 * 7)
        inside = [
            np.abs((np.arange(n * fine) + 0.5) / fine - c) < side / 2 for n, c in zip((6, 7), centre, strict=True)
        ]
        share = np.outer(*inside).reshape(6, fine, 7, fine).mean((1, 3))
        expected = x[0].numpy() * (1 - share) + x.mean().item() * share
        np.testing.assert_allclose(found, expected, atol=0.05)
        assert (share == 1).any()
        assert ((share > 0) & (share < 1)).any()


@pytest.mark.parametrize("name", ORBITS)
class TestAll:
    def test_the_value_that_changes_nothing_returns_the_image_itself(self, name: str) -> None:
        x = rand(2, 3, 5, 6).float()
        neutral = {"blur": Blur(0.2, learn=False), "cutout": Cutout(1e-9, learn=False)}
        pairs = {"saturation": Saturation, "hue": Hue, "gamma": Gamma}
        orbit: Orbit = (
            Stain((1, 1), (1, 1), frozen=("haematoxylin", "eosin")) if name == "stain" else neutral.get(name, Blur())
        )
        if name in pairs:
            orbit = pairs[name]((0, 0) if name == "hue" else (1, 1), learn=False)
        found = orbit.transform(x, torch.rand(2, 4, orbit.draws_for(x.shape[1:])))
        torch.testing.assert_close(found, x[:, None].expand_as(found), rtol=0, atol=1e-3 if name == "blur" else 1e-7)

    def test_gradcheck(self, name: str) -> None:
        orbit, x = ORBITS[name]().double(), (0.1 + 0.8 * rand(2, 3, 4, 5)).requires_grad_()
        u = rand(2, 3, orbit.draws_for(x.shape[1:]))
        parameters = tuple(p for p in orbit.parameters() if p.requires_grad)
        assert gradcheck(lambda x, *_: orbit.transform(x, u), (x, *parameters), fast_mode=True)
        grads = torch.autograd.grad(orbit.transform(x, u).square().sum(), parameters)
        assert all((grad != 0).all() for grad in grads)

    def test_has_a_name_and_a_phrase(self, name: str) -> None:
        orbit = make_orbit(name, (3, 8, 8))
        assert type(orbit).__name__.lower() == name
        (phrase, *_) = learned(ORBITS[name]().describe())
        words = {
            "saturation": "changes of saturation by ×0.50 to ×1.60",
            "hue": "changes of hue from −20° to +50°",
            "gamma": "changes of gamma by ×0.70 to ×1.90",
            "blur": "blur up to 1.4 px",
            "stain": "changes of haematoxylin by ×0.67 to ×1.50",
            "cutout": "missing squares up to 3.5 px",
        }
        assert phrase == words[name]


def test_factors_of_a_dye_end_at_ten() -> None:
    orbit = Stain()
    with torch.no_grad():
        orbit.eosin.half_width.fill_(100.0)
    low, high = orbit.describe()["eosin"]
    assert 0.1 - 1e-6 <= low <= 1 <= high <= 10 + 1e-4
    assert orbit.widest_reaches() == pytest.approx([np.log(10)] * 2)
    x = torch.cat([torch.zeros(1, 3, 2, 2), torch.full((1, 3, 2, 2), 1.2)])  # black, and whiter than white
    assert Stain(10, 10).transform(x, torch.rand(2, 50, 2)).isfinite().all()


@pytest.mark.parametrize("name", ["saturation", "hue", "stain"])
def test_colour_needs_three_channels(name: str) -> None:
    with pytest.raises(ValueError, match=r"acts on colour images \(3, H, W\)"):
        make_orbit(name, (8, 8))


def test_refuses_what_is_not_possible() -> None:
    with pytest.raises(ValueError, match="white must be positive"):
        Gamma(white=0)
    with pytest.raises(ValueError, match="Stain has no parameter 'blood'"):
        Stain(frozen=("blood",))


def test_one_dye_can_be_held_while_the_other_is_learned() -> None:
    orbit = make_orbit("stain(eosin=1.4, frozen=('eosin',))")
    learns = {name for name, parameter in orbit.named_parameters() if parameter.requires_grad}
    assert learns == {"haematoxylin.half_width"}


@pytest.mark.usefixtures("one_start")
def test_saturation_is_learned_where_the_kind_of_colour_counts_and_not_its_strength() -> None:
    """Targets are a function of the angle in a plane of two colour patterns, and lengths there vary by up to three."""
    rng = np.random.default_rng(6)
    patterns = rng.normal(size=(2, 3, 4, 4))
    patterns -= np.einsum("c,kcij->kij", [0.299, 0.587, 0.114], patterns)[:, None]
    patterns /= np.sqrt((patterns**2).sum((1, 2, 3), keepdims=True))
    angle, length = rng.uniform(0, 2 * np.pi, 40), 3 ** rng.uniform(-1, 1, 40)
    plane = np.stack([np.cos(angle), np.sin(angle)], 1) * length[:, None]
    x, y = 0.5 + np.einsum("nk,kcij->ncij", plane, patterns), np.sin(2 * angle) + 0.05 * rng.normal(size=40)
    plain, learned = (
        InvariantGPRegressor(o, inference="exact", random_state=0).fit(x, y) for o in (None, Saturation(1.3))
    )
    assert learned.evidence_.value > plain.evidence_.value + 10
    assert learned.orbit_.describe()["saturation"][1] > 2
