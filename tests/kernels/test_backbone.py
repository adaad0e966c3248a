"""A frozen network: what it sees, what is kept, and that a file refuses another one. The oracle is the network
itself."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from orbitgp import InvariantGPRegressor
from orbitgp.kernels import Backbone


class Small(nn.Module):
    """Counts how many images it has seen."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(), nn.Flatten())
        self.images = 0

    def forward(self, x: Tensor) -> Tensor:
        self.images += len(x)
        return self.layers(x)


class Pair(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x, x


def seen(backbone: Backbone) -> int:
    return int(backbone._network.module.images)


def test_it_is_the_network_in_evaluation_mode_on_standardised_images() -> None:
    network = Small()
    x, mean, std = torch.rand(5, 3, 8, 8), torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    expected = deepcopy(network).eval()((x - mean[:, None, None]) / std[:, None, None])
    found = Backbone(network)(x)
    torch.testing.assert_close(found, expected / expected.norm(dim=1, keepdim=True))
    assert network.training  # the user's own is left alone
    assert all(parameter.requires_grad for parameter in network.parameters())
    assert not list(Backbone(network).parameters())
    torch.testing.assert_close(Backbone(network)(x.double()).float(), found)


def test_grey_images_are_repeated_and_all_are_resized() -> None:
    grey = torch.rand(2, 8, 8)
    network = Small()
    expected = Backbone(network)(grey[:, None].expand(-1, 3, -1, -1))
    torch.testing.assert_close(Backbone(network)(grey), expected)
    assert Backbone(network, size=12)(grey).shape == (2, 4 * 10 * 10)
    flat = torch.full((1, 3, 4, 4), 0.3)
    torch.testing.assert_close(Backbone(network, size=8)(flat), Backbone(network)(torch.full((1, 3, 8, 8), 0.3)))


def test_images_that_come_again_are_not_mapped_again() -> None:
    x, backbone = torch.rand(5, 3, 8, 8), Backbone(Small())
    first = backbone(x)
    torch.testing.assert_close(backbone(x.clone()), first, rtol=0, atol=0)
    assert seen(backbone) == 5
    swapped = x.clone()
    swapped[0, 0, 0, :2] = x[0, 0, 0, :2].flip(0)  # the same sum
    assert not torch.equal(backbone(swapped), first)
    assert seen(backbone) == 10
    copied = deepcopy(backbone)
    copied(x)
    assert seen(copied) == 15
    small = Backbone(Small(), cache=100)
    small(x), small(x)
    assert seen(small) == 10


def test_a_gradient_goes_through_it() -> None:
    x = torch.rand(1, 3, 4, 4, dtype=torch.float64, requires_grad=True)
    backbone = Backbone(nn.Sequential(nn.Conv2d(3, 2, 2), nn.Tanh(), nn.Flatten()))
    (found,) = torch.autograd.grad(backbone(x)[0, 0], x)
    step = torch.zeros_like(x)
    step[0, 1, 1, 0] = 1e-2
    with torch.no_grad():
        slope = (backbone(x + step)[0, 0] - backbone(x - step)[0, 0]) / 2e-2
    assert found[0, 1, 1, 0].item() == pytest.approx(slope.item(), rel=1e-2)


def test_a_file_refuses_a_network_with_other_weights(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.random((12, 3, 8, 8)), rng.normal(size=12)
    model = InvariantGPRegressor(feature_map=Backbone(Small()), inference="exact", max_steps=2, random_state=0).fit(
        x, y
    )
    model.save(path := tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match="hand it in"):
        InvariantGPRegressor.load(path)
    loaded = InvariantGPRegressor.load(path, feature_map=Backbone(Small()))
    np.testing.assert_allclose(loaded.predict(x), model.predict(x), rtol=1e-5)
    other = Small()
    with torch.no_grad():
        other.layers[0].bias[0] += 1e-6
    with pytest.raises(ValueError, match="other weights"):
        InvariantGPRegressor.load(path, feature_map=Backbone(other))
    assert path.stat().st_size < 60_000  # images, and no network


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: Backbone(torch.relu), "needs a torch.nn.Module, got builtin_function_or_method"),
        (lambda: Backbone(nn.Flatten(), std=(1.0, 0.0, 1.0)), "std above zero"),
        (lambda: Backbone(nn.Flatten(), size=0), "size must be at least 1"),
        (lambda: Backbone(nn.Flatten())(torch.rand(2, 5)), "set image_shape"),
        (lambda: Backbone(nn.Flatten())(torch.rand(2, 2, 5, 5)), "images have 2: set mean and std"),
        (lambda: Backbone(Pair())(torch.rand(2, 4, 4)), "must yield one tensor .* but yields tuple"),
        (lambda: Backbone(nn.Flatten(0))(torch.rand(2, 4, 4)), r"must yield one tensor .* but yields shape \(96,\)"),
    ],
)
def test_bad_input_gets_a_sentence(call: object, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        call()
