"""a * b across kinds: finite parts are enumerated inside each group, draws are shared out in order."""

from __future__ import annotations

import pytest
import torch

from orbitgp.orbits import (
    Affine,
    Brightness,
    Composition,
    Contrast,
    Flip,
    GaussianNoise,
    Identity,
    LocalDeformation,
    Rotate90,
    Rotation,
    Translation,
    WarpProduct,
)


def test_what_merges_and_what_does_not() -> None:
    assert isinstance(Affine() * LocalDeformation(), WarpProduct)
    mixed = Flip() * Affine() * LocalDeformation() * Contrast()
    assert isinstance(mixed, Composition)
    assert [type(part) for part in mixed.parts] == [Flip, WarpProduct, Contrast]
    assert isinstance(Identity() * Rotation(), Rotation)
    assert isinstance(Rotation() * Identity(), Rotation)


def test_finite_first_each_element_gets_every_draw() -> None:
    x, u = torch.rand(3, 8, 8), torch.rand(3, 4, 1)
    rotation = Rotation(40)
    xa = (Flip() * rotation).transform(x, u)
    assert xa.shape == (3, 8, 8, 8)
    torch.testing.assert_close(xa[:, 0::2], rotation.transform(x, u))
    torch.testing.assert_close(xa[:, 1::2], rotation.transform(x.flip(-1), u))


def test_finite_last_each_sample_is_flipped() -> None:
    x, u = torch.rand(3, 8, 8), torch.rand(3, 4, 1)
    rotation = Rotation(40)
    xa = (rotation * Flip()).transform(x, u)
    turned = rotation.transform(x, u)
    torch.testing.assert_close(xa[:, 0::2], turned)
    torch.testing.assert_close(xa[:, 1::2], turned.flip(-1))


def test_finite_in_the_middle_and_at_the_end() -> None:
    x, u = torch.rand(2, 6, 6), torch.rand(2, 3, 2)
    rotation, brightness = Rotation(40), Brightness(0.2)
    xa = (rotation * Rotate90() * brightness * Flip()).transform(x, u)
    assert xa.shape == (2, 3 * 4 * 2, 6, 6)
    sample, turn, mirror = 1, 2, 1
    by_hand = rotation.transform(x, u[..., :1])[:, sample].rot90(turn, (-2, -1))
    by_hand = brightness.transform(by_hand, u[:, sample : sample + 1, 1:])[:, 0].flip(-1)
    torch.testing.assert_close(xa[:, (sample * 4 + turn) * 2 + mirror], by_hand)


def test_groups_hold_whole_finite_orbits_and_stay_independent() -> None:
    x = torch.rand(1, 6, 6).expand(2000, 6, 6)
    samples = (Flip() * Translation(2, 2) * Flip(False, True)).sample(x, 8, num_groups=2)
    assert samples.points.shape == (2000, 2, 16, 6, 6)
    means = samples.points.detach()[..., 1, 2].mean(-1)
    assert abs(torch.corrcoef(means.T)[0, 1]) < 4 / 2000**0.5
    flipped = samples.points.flip(
        -1
    )  # closed under the last flip only, but the group mean under both orders of the first
    torch.testing.assert_close(samples.points.mean(2).sum((-1, -2)), flipped.mean(2).sum((-1, -2)))


def test_infinite_after_infinite_pairs_their_draws() -> None:
    x, u = torch.rand(2, 5, 5), torch.rand(2, 4, 2)
    contrast, brightness = Contrast(), Brightness()
    xa = (contrast * brightness).transform(x, u)
    for s in range(4):
        step = contrast.transform(x, u[:, s : s + 1, :1])[:, 0]
        torch.testing.assert_close(xa[:, s], brightness.transform(step, u[:, s : s + 1, 1:])[:, 0])


def test_order_matters_and_is_kept() -> None:
    x, u = torch.rand(1, 5, 5), torch.tensor([[[0.9, 0.8]]])
    one = (Contrast(1.5, pivot=0) * Brightness()).transform(x, u)
    other = (Brightness() * Contrast(1.5, pivot=0)).transform(x, u.flip(-1))
    assert not torch.allclose(one, other)


def test_noise_composes_with_warps_on_colour_images() -> None:
    x = torch.rand(2, 3, 6, 5)
    orbit = Rotation() * GaussianNoise(0.1) * Flip()
    assert orbit.draws_for(x.shape[1:]) == 1 + 90
    assert orbit.sample(x, 4).points.shape == (2, 2, 4, 3, 6, 5)
    orbit.sample(x, 4).points.sum().backward()
    assert all(p.grad is not None for p in orbit.parameters())


def test_descriptions_join_and_repeated_names_stay_apart() -> None:
    described = (Rotation(10) * Affine() * Rotation(20) * Flip()).describe()
    assert described.title == "Rotation * Affine * Rotation * Flip"
    assert described["rotation1.degrees"] == pytest.approx(10)
    assert described["rotation2.degrees"] == pytest.approx(20)
    assert described["angle"] == pytest.approx((-8.6, 8.6))
    assert described["elements"] == 2
    assert described.to_dict().keys() == set(described)


def test_copies_and_pickles() -> None:
    import copy
    import pickle

    x = torch.rand(2, 8, 8)
    orbit = Flip() * Affine() * LocalDeformation() * Contrast()
    for other in (copy.deepcopy(orbit), pickle.loads(pickle.dumps(orbit))):
        assert str(other.describe()) == str(orbit.describe())
        torch.testing.assert_close(other.shared_samples(x, 4).points, orbit.shared_samples(x, 4).points)
    fresh = Flip() * Affine(angle=30) * LocalDeformation(2.0) * Contrast()
    fresh.load_state_dict(orbit.state_dict())
    assert str(fresh.describe()) == str(orbit.describe())


def test_bad_sample_numbers_in_one_sentence() -> None:
    x = torch.rand(2, 8, 8)
    for arguments, message in (
        ({"num_samples": 1}, "at least 2 independent groups|multiple of num_groups"),
        ({"num_samples": 5}, "multiple of num_groups=2"),
        ({"num_samples": None}, "multiple of num_groups=2"),
        ({"num_samples": 4, "num_groups": 1}, "at least 2 independent groups"),
    ):
        with pytest.raises(ValueError, match=message):
            Rotation().sample(x, **arguments)
    with pytest.raises(ValueError, match="positive number of samples"):
        Rotation().shared_samples(x, None)
    with pytest.raises(TypeError):
        Rotation() * 3
