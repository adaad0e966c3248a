"""A user's own orbit in ten lines, of each kind: it samples, learns, composes and describes itself like ours."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from orbitgp.orbits import Affine, FiniteOrbit, Flip, Orbit, Warp


class Jitter(Orbit):
    num_draws = 1

    def __init__(self) -> None:
        super().__init__()
        self.width = torch.nn.Parameter(torch.tensor(0.1))

    def transform(self, x: torch.Tensor, u: Any) -> Any:  # (N, D), (N, S, 1) -> (N, S, D)
        return x[:, None] + self.width * (2 * u - 1)


class Swirl(Warp):
    num_draws = 1

    def __init__(self) -> None:
        super().__init__()
        self.strength = torch.nn.Parameter(torch.tensor(0.5))

    def points(self, p: Any, u: Any) -> Any:
        angle = self.strength * (2 * u[..., 0] - 1) * torch.exp(-(p.x**2 + p.y**2) / 50)
        return p.at(angle.cos() * p.x - angle.sin() * p.y, angle.sin() * p.x + angle.cos() * p.y)


class Rolls(FiniteOrbit):
    size = 3

    def elements(self, x: torch.Tensor) -> torch.Tensor:
        return torch.stack([x.roll(step, -1) for step in range(3)], dim=1)


class TimeReversal(FiniteOrbit):
    size = 2

    def elements(self, x: torch.Tensor) -> torch.Tensor:
        return torch.stack([x, x.flip(-1)], dim=1)


def test_an_orbit_of_vectors() -> None:
    x, orbit = torch.rand(4, 3), Jitter()
    samples = orbit.sample(x, 8)
    assert samples.points.shape == (4, 2, 4, 3)
    assert (samples.points - x[:, None, None]).abs().max() <= 0.1
    samples.points.square().sum().backward()
    assert orbit.width.grad is not None
    assert orbit.shared_samples(x, 5).points.shape == (4, 1, 5, 3)
    assert orbit.describe()["width"] == pytest.approx(0.1)
    assert (TimeReversal() * orbit).sample(x, 4).points.shape == (4, 2, 4, 3)


def test_a_warp() -> None:
    x, swirl = torch.rand(3, 2, 10, 7), Swirl()
    xa = swirl.transform(x, torch.full((3, 2, 1), 0.5))
    assert torch.equal(xa, x[:, None].expand_as(xa))
    whole = Flip() * Affine() * swirl
    samples = whole.sample(x, 4).points
    assert samples.shape == (3, 2, 4, 2, 10, 7)
    samples.square().sum().backward()
    assert swirl.strength.grad.abs() > 0
    assert whole.describe()["strength"] == pytest.approx(0.5)
    # A swirl turns the middle and leaves the far corners.
    image = torch.rand(1, 41, 41)
    turned = swirl.transform(image, torch.ones(1, 1, 1))[0, 0]
    torch.testing.assert_close(turned[0, 0], image[0, 0, 0], atol=1e-3, rtol=0)
    assert (turned[16:25, 16:25] - image[0, 16:25, 16:25]).abs().max() > 0.1


def test_a_finite_orbit() -> None:
    x = torch.rand(4, 6)
    samples = TimeReversal().sample(x, None)
    assert samples.points.shape == (4, 1, 2, 6)
    assert TimeReversal().describe()["elements"] == 2


def test_without_its_hook_an_orbit_says_so() -> None:
    with pytest.raises(NotImplementedError, match="must define transform"):
        Orbit().sample(torch.rand(2, 3), 4)
    with pytest.raises(NotImplementedError, match="must define elements"):
        FiniteOrbit().elements(torch.rand(2, 3))


@pytest.mark.parametrize("orbit", [Jitter(), Jitter() * TimeReversal(), TimeReversal() * Jitter(), Rolls()])
def test_samples_of_several_seeds_are_those_of_each(orbit: Orbit) -> None:
    x = torch.rand(4, 3)
    each = [orbit.shared_samples(x, 2, seed).points for seed in (0, 1)]
    torch.testing.assert_close(orbit.shared_samples(x, 2, 0, 1).points, torch.cat(each, 2))
    assert not torch.equal(*each)
    assert torch.equal(orbit.shared_samples(x, 2).points, orbit.shared_samples(x, 2, 0).points)
