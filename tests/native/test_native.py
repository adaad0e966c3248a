"""The compiled loops: the same as plain torch in double precision, for any shape, on any number of threads."""

from __future__ import annotations

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel

from orbitgp import _native
from orbitgp.kernels.covariance import Covariance
from orbitgp.kernels.dispatch import covariance
from orbitgp.orbits import Affine, LocalDeformation, Pairing, Rotation

pytestmark = pytest.mark.skipif(not _native.serves(torch.ones(1)), reason="the loops were not compiled here")


@pytest.fixture(params=[1, 2, 3])
def threads(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def torch_alone(monkeypatch):
    monkeypatch.setattr(_native, "_library", None)


# ---- Interpolation

SHAPES = [(1, 28, 28), (3, 5, 9), (1, 1, 1), (2, 1, 6), (1, 17, 19)]  # one tile and several, whole fours and not


def problem(shape, terms, rows=5, samples=7, spread=1.0):
    """Images, coefficients in cells from the corner of the border, and functions of the pixel, in double precision."""
    generator = torch.Generator().manual_seed(0)

    def normal(*size):
        return torch.randn(*size, generator=generator, dtype=torch.float64)

    _, height, width = shape
    y, x = torch.meshgrid(*(torch.arange(n, dtype=torch.float64) - (n - 1) / 2 for n in (height, width)), indexing="ij")
    basis = torch.cat([torch.stack([torch.ones_like(x), x, y]).flatten(1), normal(terms - 3, height * width)])
    cx, cy = (normal(rows, samples, terms) * spread for _ in range(2))
    cx[..., 0] += (width - 1) / 2 + 2
    cy[..., 0] += (height - 1) / 2 + 2
    return normal(rows, *shape), cx, cy, basis


def by_hand(images, cx, cy, basis):
    """Each point looks at its four neighbours, each with its weight; there are none outside of the image."""
    rows, channels, height, width = images.shape
    x, y = (cx @ basis - 2).expand(rows, -1, -1), (cy @ basis - 2).expand(rows, -1, -1)
    found = torch.zeros(rows, x.shape[1], channels, height * width, dtype=images.dtype)
    for right in (0, 1):
        for below in (0, 1):
            column, row = x.detach().floor() + right, y.detach().floor() + below
            weight = (1 - (x - column).abs()) * (1 - (y - row).abs())
            inside = (column >= 0) & (column < width) & (row >= 0) & (row < height)
            index = (row.clamp(0, height - 1) * width + column.clamp(0, width - 1)).long()
            for channel in range(channels):
                values = images[:, channel].flatten(1)[:, None].expand(-1, x.shape[1], -1).gather(2, index)
                found[:, :, channel] += values * weight * inside
    return found.view(rows, -1, channels, height, width)


@pytest.mark.parametrize("terms", [3, 4, 9, 14])
@pytest.mark.parametrize("shape", SHAPES)
def test_interpolation_and_its_gradients_by_hand(shape, terms, threads):
    images, cx, cy, basis = problem(shape, terms, spread=0.4)
    # Single precision moves points a little; those that it moves into another cell have another slope: keep away from these.
    single = [t.float() for t in (images, cx, cy, basis)]
    ends = [t.float().double().requires_grad_() for t in (images, cx, cy)]
    truth = by_hand(*ends, basis.float().double())
    x, y = ends[1] @ basis, ends[2] @ basis
    away = ((x - x.round()).abs() > 1e-4) & ((y - y.round()).abs() > 1e-4)
    upstream = torch.randn_like(truth) * away.view(*away.shape[:2], 1, *shape[1:])
    torch.testing.assert_close(_native.interpolate(*single).double(), truth, rtol=1e-4, atol=1e-4)
    want = torch.autograd.grad(truth, ends, upstream)
    to_x, to_y, to_images = _native.interpolate_back(upstream.float(), *single, True)
    assert to_images is not None
    for found, wanted in zip((to_images, to_x, to_y), want, strict=True):
        assert (found.double() - wanted).norm() <= 1e-5 * wanted.norm() + 1e-6
    again = _native.interpolate_back(upstream.float(), *single, False)
    assert again[2] is None
    assert torch.equal(again[0], to_x)
    assert torch.equal(again[1], to_y)


def test_points_that_all_images_share(threads):
    images, cx, cy, basis = (t.float() for t in problem((2, 6, 7), 3))
    shared = _native.interpolate(images, cx[:1], cy[:1], basis)
    apart = _native.interpolate(images, cx[:1].expand_as(cx), cy[:1].expand_as(cy), basis)
    assert torch.equal(shared, apart)


@pytest.mark.parametrize("far", [1e3, 1e9, 1e30, -1e3, -1e30])
def test_points_far_outside_are_zero_and_have_no_slope(far):
    images, cx, cy, basis = (t.float() for t in problem((1, 6, 7), 3))
    cx[..., 0] += far
    assert not _native.interpolate(images, cx, cy, basis).any()
    for gradient in _native.interpolate_back(torch.ones(5, 7, 1, 6, 7), images, cx, cy, basis, True):
        assert gradient is not None
        assert not gradient.any()


@pytest.mark.parametrize("warp", [Rotation(60), Affine(), Affine() * LocalDeformation(1.0)], ids=["turn", "affine", "bent"])
def test_a_warp_with_and_without(warp, monkeypatch):
    x, generator = torch.rand(4, 9, 11), torch.Generator().manual_seed(0)
    u = torch.rand(4, 6, warp.draws_for(x.shape[1:]), generator=generator)
    weight = torch.rand(4, 6, 9, 11, generator=generator)

    def found():
        images = x.clone().requires_grad_()
        samples = warp.transform(images, u)
        return samples.detach(), *torch.autograd.grad((samples * weight).sum(), [images, *warp.parameters()])

    compiled = found()
    torch_alone(monkeypatch)
    for a, b in zip(compiled, found(), strict=True):
        assert (a - b).norm() <= 1e-4 * (1 + b.norm())


# ---- Kernels


@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 5, 7), (4, 20, 64), (2, 3, 1001)])
def test_powers_of_two_and_their_means(shape, threads):
    h = -40 * torch.rand(shape)
    h[0, 0, 0] = 0.0
    truth = h.double().exp2()
    out = torch.empty(shape[0], shape[2])
    _native.exp2_means(h, out)
    torch.testing.assert_close(h.double(), truth, rtol=4e-7, atol=0)
    torch.testing.assert_close(out.double(), truth.mean(1), rtol=2e-6, atol=0)


def test_powers_of_two_at_the_ends():
    h = torch.tensor([0.0, 1.0, -1.0, -126.0, -127.0, -1e30, -torch.inf, 127.0, torch.inf, torch.nan, 1e-6, 0.5, -0.5])
    found, out = h.clone()[None, None], torch.empty(1, len(h))
    _native.exp2_means(found, out)
    truth = h.exp2()
    truth[h < -126] = 2.0**-126  # there is no smaller one
    torch.testing.assert_close(found[0, 0], truth, rtol=4e-7, atol=0, equal_nan=True)
    torch.testing.assert_close(out[0], truth, rtol=4e-7, atol=0, equal_nan=True)


@pytest.mark.parametrize("dim", [1, 4, 16, 33])
def test_columns_of_squared_norms(dim, threads):
    x, centre, wide = torch.randn(13, dim), torch.randn(dim), torch.full((13, dim + 2), 7.0)
    _native.augment(x, centre, wide)
    assert torch.equal(wide[:, :dim], x - centre)
    torch.testing.assert_close(wide[:, dim], (x - centre).double().square().sum(1).float(), rtol=1e-6, atol=1e-6)
    assert (wide[:, -1] == 7.0).all()


SIZES = [(3, 2, 1, 16), (3, 2, 3, 5), (3, 2, 10, 49), (1, 2, 7, 20), (2, 3, 5, 33), (4, 1, 6, 17), (5, 2, 4, 64)]
PAIRS = [(size, two_groups) for size in SIZES for two_groups in (True, False) if size[1] == 2 or not two_groups]


def augmented(rows, blocks, size, dim):
    x = torch.randn(rows, blocks, size, dim)
    return torch.cat([x, x.square().sum(-1, keepdim=True), torch.ones(rows, blocks, size, 1)], -1)


@pytest.mark.parametrize(("shape", "two_groups"), PAIRS)
def test_distances_between_pairs(shape, two_groups, threads):
    wide = augmented(*shape)
    x = wide[..., : shape[-1]].double()
    a, b = (x[:, 0], x[:, 1]) if two_groups else (x.flatten(1, 2), x.flatten(1, 2))
    truth = (a[:, :, None] - b[:, None]).square().sum(-1)
    torch.testing.assert_close(_native.pair_distances(wide, two_groups).double(), truth, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(("shape", "two_groups"), PAIRS)
def test_gradients_of_pairs(shape, two_groups, threads):
    rows, blocks, size, dim = shape
    wide, own, out = augmented(*shape), torch.randn(shape[:3]), torch.randn(shape)
    x = wide[..., :dim].double()
    if two_groups:
        between = torch.randn(rows, 2, size, size)
        others = between.double() @ x.flip(1)
    else:
        between = torch.randn(rows, blocks * size, blocks * size)
        others = (between.double() @ x.flatten(1, 2)).view(shape)
    truth = out.double() + own[..., None].double() * x + others
    _native.pair_gradients(wide, own, between, out)
    torch.testing.assert_close(out.double(), truth, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 5, 7), (4, 20, 64), (2, 3, 1001)])
def test_products_and_the_sums_of_their_rows(shape, threads):
    slopes, grad, out = torch.randn(shape), torch.randn(shape[0], shape[2]), torch.empty(shape)
    sums = _native.scale(slopes, grad, out)
    assert torch.equal(out, slopes * grad[:, None])
    torch.testing.assert_close(sums.double(), out.double().sum(-1), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("size", [1, 31, 32, 33, 100])
def test_a_triangle_onto_the_other(size, threads):
    matrix = torch.randn(size, size)
    truth = matrix.tril() + matrix.tril(-1).mT
    _native.mirror(matrix)
    assert torch.equal(matrix, truth)


@pytest.mark.parametrize("dim", [3, 16, 20])
@pytest.mark.parametrize("base", [RBFKernel, MaternKernel])
@pytest.mark.parametrize("pairing", [Pairing.groups(2), Pairing.groups(3), Pairing.exact()], ids=["two", "three", "all"])
def test_sums_in_single_precision_equal_gpytorch_in_double(pairing, base, dim):
    kernel = ScaleKernel(base()).double()
    kernel.outputscale, kernel.base_kernel.lengthscale = 1.3, dim**0.5
    generator = torch.Generator().manual_seed(0)
    xa = torch.randn(6, pairing.blocks, 5, dim, generator=generator)
    z = torch.randn(9, dim, generator=generator)

    def found(module, dtype):
        ends = [t.to(dtype).requires_grad_() for t in (xa, z)]
        kfu, kff = module.expectations(*ends, pairing)
        weights = torch.linspace(-1, 1, kfu.numel(), dtype=dtype).view_as(kfu)
        loss = (kfu * weights).sum() + kff.square().sum()
        return kfu, kff, *torch.autograd.grad(loss, [*ends, *kernel.parameters()])

    for a, b in zip(found(covariance(kernel), torch.float32), found(Covariance(kernel), torch.float64), strict=True):
        assert (a.double() - b).norm() < 2e-6 * b.norm()


# ---- Where they serve


def test_only_single_precision_on_a_cpu():
    assert _native.serves(torch.ones(1), torch.ones(1))
    assert not _native.serves(torch.ones(1), torch.ones(1, dtype=torch.float64))
    assert not _native.serves(torch.ones(1, device="meta"))


# ---- Shapes of signals


@pytest.mark.parametrize(("directions", "scales", "windows"), [(6, 4, 4), (1, 2, 1), (8, 3, 2), (4, 2, 3)])
def test_pair_means_are_those_of_torch(directions, scales, windows, threads):
    generator = torch.Generator().manual_seed(0)
    terms, tuning, weights, grad = (
        torch.randn(*size, generator=generator, dtype=torch.float64, requires_grad=True)
        for size in (
            (3, scales, 5, 37),
            (directions, 3),
            (windows, 37),
            (5, scales - 1, windows, directions, directions),
        )
    )
    arrows = torch.einsum("dk,ksnt->sndt", tuning, terms).exp()
    expected = torch.einsum("wt,sndt,snet->nswde", weights, arrows[:-1], arrows[1:])
    torch.testing.assert_close(_native.pair_means(terms, tuning, weights), expected)
    gradients = torch.autograd.grad(expected, (terms, tuning, weights), grad)
    for found, one in zip(_native.pair_means_back(grad, terms, tuning, weights), gradients, strict=True):
        torch.testing.assert_close(found, one)


def test_arrows_have_a_least_and_a_largest_length_and_not_a_number_stays():
    terms = torch.tensor([-1e6, 1e6, float("nan"), -1.0], dtype=torch.float64).reshape(1, 1, 4, 1).expand(3, 2, 4, 1)
    tuning, weights = torch.tensor([[0.0, 0.0, 1.0]], dtype=torch.float64), torch.ones(1, 1, dtype=torch.float64)
    low, high, unknown, plain = _native.pair_means(terms, tuning, weights).flatten()
    assert 0 <= low < 1e-300 < 1e300 < high
    assert unknown.isnan()
    torch.testing.assert_close(plain, torch.tensor(-2.0, dtype=torch.float64).exp())


def test_tensors_with_gaps_or_of_another_kind_are_an_error():
    with pytest.raises(AssertionError, match="contiguous"):
        _native.exp2_means(torch.rand(4, 5, 6).mT, torch.rand(4, 5))
    with pytest.raises(AssertionError, match="float32"):
        _native.exp2_means(torch.rand(4, 5, 6).double(), torch.rand(4, 6))


def test_another_version_is_left_alone(monkeypatch):
    monkeypatch.setattr("orbitgp._native._loops", SimpleNamespace(VERSION=0), raising=False)
    assert _native._load() is None


@pytest.mark.slow
def test_can_be_switched_off():
    script = "import torch; from orbitgp import _native; print(_native.serves(torch.ones(1)))"
    environment = {**os.environ, "ORBITGP_NATIVE": "0"}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
