"""How fast a device is follows from what it is. Peaks are those of the makers' data sheets."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from gpytorch.kernels import RBFKernel
from torch import nn

from orbitgp.inference.exact import ExactGP
from orbitgp.inference.streamed import held_elements
from orbitgp.kernels import Backbone, FeatureMapKernel
from orbitgp.likelihoods import Gaussian
from orbitgp.orbits import Flip, Identity, Orbit, Rotate90, Rotation
from orbitgp.planning.cost import CPU, GPU, Workload, nominal_speed, workload

CUDA = torch.device("cuda")
# Compute capability, multiprocessors and clock (kHz); operations a second in single and double precision.
CARDS = {
    "H200": ((9, 0), 132, 1_980_000, 66.9e12, 66.9e12),
    "A100": ((8, 0), 108, 1_410_000, 19.5e12, 19.5e12),
    "V100": ((7, 0), 80, 1_530_000, 15.7e12, 7.8e12),
    "RTX 4090": ((8, 9), 128, 2_520_000, 82.6e12, 1.29e12),
}


@pytest.fixture
def card(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> tuple[float, float]:
    """A machine with such a GPU; its peaks."""
    (major, minor), count, clock, *peaks = CARDS[request.param]
    properties = SimpleNamespace(
        major=major, minor=minor, multi_processor_count=count, clock_rate=clock, total_memory=24 << 30
    )
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    return peaks[0], peaks[1]


@pytest.mark.parametrize("card", CARDS, indirect=True)
def test_three_fifths_of_the_peak(card: tuple[float, float]) -> None:
    assert nominal_speed(CUDA) == pytest.approx([min(0.6 * card[0], 30e12), min(0.6 * card[1], 20e12)], rel=0.01)


@pytest.mark.parametrize("card", ["RTX 4090", "A100"], indirect=True)
def test_a_slower_one_is_reckoned_slower(card: tuple[float, float]) -> None:
    factor = Workload(1, 1, CUDA, one_noise=True).conditioning(20_000).seconds
    assert factor == pytest.approx(20_000**3 / 2 / (0.6 * card[1]), rel=0.05)


def test_elsewhere_the_speed_is_nominal(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu = torch.device("cpu")
    assert nominal_speed(cpu) == CPU
    monkeypatch.setattr(torch.version, "cuda", None)  # a GPU of another maker, or none
    assert nominal_speed(CUDA) == GPU


def test_a_feature_map_costs_its_products() -> None:
    """Of one row: a convolution of 6 x 6 places, 3 x 3 pixels and 5 channels, and a product with 180 x 7 numbers."""
    seen = nn.Sequential(nn.Conv2d(1, 5, 3), nn.Flatten(), nn.Linear(180, 7))
    model = ExactGP(FeatureMapKernel(RBFKernel(), seen, (1, 8, 8)), Identity(), torch.rand(4, 64))
    work = Workload.of(model, Gaussian(), model.x, 1)
    assert (work.mapping, work.dim) == (2 * 36 * 9 * 5 + 2 * 180 * 7, 7)
    other = Workload.of(ExactGP(RBFKernel(), Identity(), torch.rand(4, 7)), Gaussian(), torch.rand(4, 7), 1)
    assert other.mapping == 0
    more = work.evaluation(100).seconds - other.evaluation(100).seconds
    assert more == pytest.approx(4 * 100 * work.mapping / CPU.single)


def test_a_network_that_keeps_its_output_costs_as_much_again() -> None:
    seen = Backbone(nn.Sequential(nn.Flatten(), nn.Linear(64, 7)), mean=[0.0], std=[1.0])
    model = ExactGP(FeatureMapKernel(RBFKernel(), seen, (1, 8, 8)), Identity(), torch.rand(4, 64))
    seen(model.x[:1].reshape(1, 1, 8, 8))
    assert [Workload.of(model, Gaussian(), model.x, 1).mapping for _ in range(2)] == [2 * 64 * 7] * 2


@pytest.mark.parametrize(
    "orbit", [Flip(), Rotation(20.0), Flip() * Rotation(20.0), Rotation(20.0) * Flip() * Rotate90()]
)
def test_each_draw_has_all_elements_of_the_finite_parts(orbit: Orbit) -> None:
    model = ExactGP(RBFKernel(), orbit, torch.rand(2, 8, 8), num_samples=6)
    work = workload(model, Gaussian(), None if model.is_enumerated else 6)
    assert work.points == model.samples(model.x).shape[1]


def test_rows_that_do_not_fit_are_mapped_again() -> None:
    cpu = torch.device("cpu")
    rows, dim = 4000, 4 * held_elements(cpu) // 4000  # four blocks: the first is mapped four times, the last one once
    plain, mapped = Workload(1, dim, cpu), Workload(1, dim, cpu, mapping=1e6)
    more = mapped.conditioning(rows).seconds - plain.conditioning(rows).seconds
    assert more == pytest.approx(2.5 * 1e6 * rows / CPU.single, rel=0.01)
