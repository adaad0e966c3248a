"""Policies keep what they should; draws respect ranges and weights; the table and the claims are about all sets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from experiments import networks
from experiments.learned_policy import advised, drawn, enlarged, halved, mixed
from experiments.networks import LEARNED, POLICIES, check, table
from experiments.policies import OPERATIONS, rand_augment, trivial_augment
from orbitgp.datasets import DatasetError
from orbitgp.orbits import Brightness, Contrast, Flip, Identity, LocalDeformation, Rotation, Translation, Weighted
from tests.estimators.test_planted_flips import strokes


@pytest.mark.parametrize("number", range(len(OPERATIONS)))
def test_operations_stay_within_black_and_white(number: int) -> None:
    images = torch.rand(31, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    operation, *largest = OPERATIONS[number]
    for most in largest:
        done = operation(images, most * torch.linspace(-1, 1, 31))
        assert done.shape == images.shape
        assert 0 <= done.min() <= done.max() <= 1
        if most:  # in the middle, a value of zero, nothing happens
            assert torch.allclose(done[15], images[15], atol=1 / 255)
            assert not torch.allclose(done[30], images[30], atol=0.05)


def test_shifts_and_turns_are_as_far_as_they_say() -> None:
    images = torch.rand(1, 1, 8, 8)
    shift, turn = (
        OPERATIONS[number][0](images, torch.tensor([value])) for number, value in ((3, 0.25), (5, torch.pi / 2))
    )
    assert torch.equal(shift[..., :6], images[..., 2:])
    assert torch.equal(turn, images.rot90(1, (2, 3))) or torch.equal(turn, images.rot90(-1, (2, 3)))


def test_policies_change_most_images() -> None:
    torch.manual_seed(0)
    images = torch.rand(1000, 1, 28, 28)
    for policy in (rand_augment, trivial_augment):
        same = (policy(images) == images).flatten(1).all(1)
        assert 0 < same.sum() < 400


def test_draws_respect_ranges_and_weights() -> None:
    torch.manual_seed(0)
    ramp = torch.arange(8.0).expand(2000, 1, 8, 8)
    mirrored = drawn(Weighted(Flip(), 0.1), ramp)[:, 0, 0, 0] > 0
    assert 0.07 < mirrored.float().mean() < 0.13
    assert drawn(Identity(), ramp).equal(ramp)
    whole = Flip() * Rotation(30) * Contrast(2.0)
    assert drawn(whole, ramp).shape == ramp.shape
    found = dict(halved(whole).describe())
    assert found["degrees"] == pytest.approx(15)
    assert found["contrast"] == pytest.approx((2**-0.5, 2**0.5))
    assert dict(whole.describe())["degrees"] == pytest.approx(30)


def test_a_mixture_changes_each_image_by_one_family_as_often_as_its_share_says() -> None:
    torch.manual_seed(0)
    ramp = torch.arange(8.0).expand(4000, 1, 8, 8)
    assert mixed([], [], ramp).equal(ramp)
    found = mixed([Flip(), Brightness(0.1)], [1.0, 3.0], ramp)
    mirrored = (found == ramp.flip(-1)).flatten(1).all(1)
    same = (found == ramp).flatten(1).all(1)
    shifts = (found - ramp)[~mirrored & ~same]
    assert 0.10 < mirrored.float().mean() < 0.15
    assert 0.10 < same.float().mean() < 0.15
    assert 0.08 < shifts.abs().max() <= 0.1001
    torch.testing.assert_close(shifts.flatten(1).std(1), torch.zeros(len(shifts)), atol=1e-5, rtol=0)
    assert ramp.equal(torch.arange(8.0).expand(4000, 1, 8, 8))


@pytest.mark.slow
@pytest.mark.parametrize("sided", [True, False])
def test_what_is_learned_has_evidence(sided: bool) -> None:
    """Both mirror images turn rising strokes into falling ones, which are two classes or none."""
    families = ["none", "flip", "flip(False, True)", "translation"]
    orbit, parts, said = advised(*strokes(60, sided), families, 12.0, 0)
    nats = said["nats"]
    assert ({"flip", "flip(False, True)"} & set(parts) == set()) if sided else ("flip" in parts)
    assert [nats[name] for name in parts] == sorted((nats[name] for name in parts), reverse=True)
    assert all(nats[name] > 0 for name in parts)
    assert isinstance(orbit, Identity) == (not parts)
    if parts:
        assert nats[" * ".join(said["chosen"])] == max(nats.values())


def test_an_orbit_of_smaller_images_does_the_same_to_larger_ones() -> None:
    orbit = Translation(1.5) * LocalDeformation(0.4, smoothness=3.0)
    large = enlarged(orbit, 2)
    found = dict(large.describe())
    assert found["shift_x"] == pytest.approx((-3, 3))
    assert [found[name] for name in ("amplitude", "smoothness")] == pytest.approx([0.8, 6.0])
    u = torch.rand(1, 5, orbit.draws_for(torch.Size([8, 8])))
    ramp = torch.arange(16.0).expand(1, 16, 16) / 16  # its slope shows shifts as shares of the side
    small = orbit.transform(ramp.unflatten(1, (8, 2)).unflatten(3, (8, 2)).mean((2, 4)), u)
    shown = large.transform(ramp, u).unflatten(2, (8, 2)).unflatten(4, (8, 2)).mean((3, 5))
    assert torch.allclose(small[..., 3:5, 3:5], shown[..., 3:5, 3:5], atol=0.02)


def test_sets_without_data_are_left_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def absent(**_: Any) -> None:
        raise DatasetError("not here")

    monkeypatch.setattr(networks, "mnist", absent)
    monkeypatch.setattr(
        networks, "advised", lambda *_: (Flip(), {"flip": Flip()}, {"nats": {"flip": 9.0}, "supported": ["flip"]})
    )
    options = networks.EXPERIMENT.parser().parse_args(["--quick", "--seeds", "1", "--folder", str(tmp_path)])
    runs = networks.plan(options)
    assert {run.dataset for run in runs} == {"stained cells", "embedded digits"}
    records = [run.run() for run in runs if run.dataset == "embedded digits"]
    assert table(records).count("|") == 3 * (len(POLICIES) + 4)
    assert "| flip 9 |" in table(records)


def test_claims_are_about_all_sets() -> None:
    def record(dataset: str, accuracies: list[float]) -> dict[str, Any]:
        return {"settings": {"dataset": dataset}, "accuracy": dict(zip(POLICIES, accuracies, strict=True))}

    claims = check([record("a", [0.5, 0.4, 0.6, 0.7, 0.5, 0.4]), record("b", [0.5, 0.4, 0.6, 0.55, 0.7, 0.5])])
    assert claims[f"{LEARNED[0]}: better than none on all 2 sets"]
    assert not claims[f"{LEARNED[1]}: better than none on all 2 sets"]
    over_both = [claims[f"{policy}: better than both defaults on all sets but one"] for policy in LEARNED]
    assert over_both == [True, True, False]
