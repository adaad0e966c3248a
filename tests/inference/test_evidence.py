"""The evidence: its standard error is honest, enumerated orbits have none, and what was fitted is scored on fresh
draws."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel
from torch._C import Generator

from orbitgp.inference.elbo import elbo
from orbitgp.inference.evidence import Evidence, measure_evidence
from orbitgp.inference.model import InvariantGP
from orbitgp.likelihoods import Bernoulli, Gaussian, Likelihood, StudentT
from orbitgp.orbits import GaussianNoise, Identity, Orbit, Permutation

CYCLE = [[0, 1, 2], [1, 2, 0], [2, 0, 1]]


pytestmark = pytest.mark.usefixtures("double")


def make_model(orbit: Orbit, dim: int, latents: int = 1, shared: bool = True) -> InvariantGP:
    kernel = ScaleKernel(RBFKernel())
    kernel.outputscale = 1.5
    model = InvariantGP(kernel, orbit.double(), torch.randn(4, dim), latents, "constant", shared)
    with torch.no_grad():
        model.q_mean.normal_()
        model.q_sqrt.mul_(0.5)
    return model


def generator(seed: int = 0) -> Generator:
    return torch.Generator().manual_seed(seed)


def test_enumerated_orbits_have_the_bound_and_no_error() -> None:
    model = make_model(Permutation(CYCLE), 3, 2)
    x, y = torch.randn(10, 3), torch.randn(10, 2)
    likelihood = Gaussian(2)
    truth = elbo(model, likelihood, model.orbit.sample(x, None), y, 10).item()
    for num_samples in (None, 3, 64):
        evidence = measure_evidence(model, likelihood, x, y, num_samples, passes=2)
        assert evidence.value == pytest.approx(truth, rel=1e-12)
        assert evidence.stderr == 0.0
        assert evidence.num_samples is None
    assert float(evidence) == evidence.value
    assert str(evidence).startswith("≥ ")  # an enumerated orbit does not make a bound exact
    assert "±" not in str(evidence)


def test_some_rows_stand_for_all_and_their_choice_is_the_error() -> None:
    """Without an orbit nothing else is drawn. Means of n of N terms vary by (1 - n/N) / n of the variance of the
    terms."""
    model, likelihood = make_model(Identity(), 2), Gaussian(1, noise=0.3)
    x, y = torch.randn(12, 2), torch.randn(12, 1)
    rows = zip(x.split(1), y.split(1), strict=True)
    terms = torch.stack([elbo(model, likelihood, model.orbit.sample(row, None), t, 12).detach() for row, t in rows])
    some, passes = 5, 200
    found = measure_evidence(model, likelihood, x, y, None, passes=passes, most_rows=some, generator=generator())
    assert found.stderr == pytest.approx(math.sqrt((1 - some / 12) / some * terms.var().item() / passes), rel=0.25)
    assert found.value == pytest.approx(terms.mean().item(), abs=4 * found.stderr)
    for enough in (12, 20):
        assert measure_evidence(model, likelihood, x, y, None, passes=2, most_rows=enough).stderr == 0.0


def test_all_digits_of_a_large_value_are_kept() -> None:
    """Nats of many data: single precision would round a bound of ten million nats to whole ones."""
    model = make_model(Identity(), 1)
    x, y = torch.randn(50, 1), 3000 * torch.randn(50, 1)
    likelihood = Gaussian(1, noise=1e-2)
    truth = elbo(model, likelihood, model.orbit.sample(x, None), y, 50).item()
    assert abs(truth) > 1e9
    torch.set_default_dtype(torch.float32)  # as it is for most users
    assert measure_evidence(model, likelihood, x, y, None, passes=1).value == pytest.approx(truth, rel=1e-13)


@pytest.mark.slow
@pytest.mark.parametrize(("orbit", "samples", "draws"), [("noise", 8, "qmc"), ("subset", 2, "iid")])
def test_the_standard_error_is_honest(orbit: str, samples: int, draws: str) -> None:
    """Over many measurements, (value - truth) / stderr has the scale of a t distribution with passes - 1 degrees of
    freedom."""
    some = GaussianNoise(0.5) if orbit == "noise" else Permutation([*CYCLE, [0, 2, 1], [1, 0, 2], [2, 1, 0]])
    model = make_model(some, 3)
    x, y = torch.randn(4, 3), torch.randn(4, 1)
    likelihood = Gaussian(1, noise=0.3)
    rounds, passes = 40, 8
    shared = generator(1)
    found = [
        measure_evidence(model, likelihood, x, y, samples, sampler=draws, passes=passes, generator=shared)
        for _ in range(rounds)
    ]
    # The truth, from many more draws than any of them sees.
    copies = 4000
    with torch.no_grad():
        many = model.orbit.sample(x.repeat(copies, 1), samples, 2, draws, generator(2))
        truth = elbo(model, likelihood, many, y.repeat(copies, 1), 4).item()
    values = torch.tensor([f.value for f in found])
    errors = torch.tensor([f.stderr for f in found])
    z = (values - truth) / errors
    assert 0.5 < z.square().mean() / (7 / 5) < 1.8
    assert z.mean().abs() < 0.7
    assert values.std().item() == pytest.approx(errors.square().mean().sqrt().item(), rel=0.35)
    assert all(f.num_samples == samples and f.num_data == 4 and f.likelihood == "Gaussian" for f in found)


@pytest.mark.slow
def test_more_passes_and_more_samples_mean_less_error() -> None:
    model = make_model(GaussianNoise(0.5), 2)
    x, y = torch.randn(10, 2), torch.randn(10, 1)

    def error(samples: int, passes: int) -> float:
        return measure_evidence(
            model, Gaussian(1), x, y, samples, sampler="iid", passes=passes, generator=generator()
        ).stderr

    assert error(4, 64) < 0.7 * error(4, 16)
    assert error(32, 16) < 0.7 * error(4, 16)


def test_the_generator_decides_and_passes_differ() -> None:
    model = make_model(GaussianNoise(0.5), 2)
    x, y = torch.randn(6, 2), torch.randn(6, 1)
    first, again, other = (
        measure_evidence(model, Gaussian(1), x, y, 8, passes=8, generator=generator(s)) for s in (0, 0, 1)
    )
    assert first == again
    assert first.value != other.value
    assert first.stderr > 0
    assert "± " in str(first)
    assert "8 fresh draws" in str(first)


def test_rows_in_pieces_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    import orbitgp.inference.model

    model = make_model(Permutation(CYCLE), 3, 2)
    x, y = torch.randn(10, 3), torch.randn(10, 2)
    whole = measure_evidence(model, Gaussian(2), x, y, None, passes=1)
    monkeypatch.setattr(orbitgp.inference.model, "chunk_elements", lambda device: 40)
    assert model.rows_at_once(x, None) < 4
    assert measure_evidence(model, Gaussian(2), x, y, None, passes=1).value == pytest.approx(whole.value, rel=1e-12)


# Local parameters: fitted to draws, so scored on others


@pytest.mark.slow
@pytest.mark.parametrize("likelihood", [Bernoulli(), StudentT()], ids=lambda one: type(one).__name__)
def test_the_evidence_is_not_optimistic_about_its_local_parameters(likelihood: Likelihood) -> None:
    """With few, noisy draws: below the bound at the best local parameters, whose value many draws give.

    Local parameters that come from the very draws that they are scored with would lie above it: that is shown too.
    """
    model = make_model(GaussianNoise(1.0), 1, likelihood.num_latents, shared=False)
    with torch.no_grad():
        model.q_mean.mul_(4.0)  # a posterior that differs between samples
    x = torch.randn(150, 1)
    y = torch.randn(150, 1) if isinstance(likelihood, StudentT) else likelihood.encode(torch.randint(2, (150,)))

    with torch.no_grad():
        shared = generator(3)

        def moments(num_samples: Any, draws: str) -> tuple[Any, Any]:
            samples = model.orbit.sample(x, num_samples, 2, draws, shared)
            return samples, model.moments(model.whitened_means(samples))

        # Moments that are as good as exact, the best local parameters, and the bound there.
        samples, exact = moments(256, "qmc")
        local = likelihood.local(y, exact)
        best = elbo(model, likelihood, samples, y, 150, local).item()
        excess = []
        for _ in range(30):
            samples, noisy = moments(2, "iid")
            plugged, fair = (elbo(model, likelihood, samples, y, 150, c) for c in (likelihood.local(y, noisy), local))
            excess.append(plugged - fair)
    optimism = torch.stack(excess)
    assert optimism.mean() > 4 * optimism.std() / 30**0.5

    found = [
        measure_evidence(model, likelihood, x, y, 2, sampler="iid", passes=3, local_passes=1, generator=generator(i))
        for i in range(15)
    ]
    values = torch.tensor([f.value for f in found])
    assert values.mean() < best + 3 * values.std() / 15**0.5
    # And many passes for the local parameters find them.
    good = measure_evidence(model, likelihood, x, y, 64, passes=8, local_passes=8, generator=generator(9))
    assert good.value == pytest.approx(best, abs=4 * good.stderr + 0.02 * abs(best))


def test_an_evidence_prints_well() -> None:
    bound = Evidence(-1234.56, 0.4, 1000, 64, "Gaussian")
    of = "1,000 data, Gaussian likelihood, 64 fresh draws"
    assert str(bound) == f"≥ -1,234.6 ± 0.4 nats ({of})"
    assert str(replace(bound, slack=440.2)) == f"≥ -1,234.6 ± 0.4 nats (slack about 440, {of})"
    assert str(replace(bound, upper=-1200.0)) == f"between -1,235 and -1,200 nats ({of})"
    assert str(replace(bound, upper=-1200.0, converged=False)) == str(bound)  # better parameters may have more
    # The error is said where it is not small beside the distance of the ends, or beside a nat.
    narrow, noisy = replace(bound, upper=-1232.0), replace(bound, upper=-1200.0, stderr=12.3)
    assert str(narrow) == f"between -1,235 ± 0.4 and -1,232 ± 0.4 nats ({of})"
    assert str(noisy) == f"between -1,235 ± 12 and -1,200 ± 12 nats ({of})"
    for error, said in ((0.09, ""), (0.15, " ± 0.15")):
        assert (
            str(replace(narrow, upper=-1234.5, stderr=error))
            == f"between -1,234.6{said} and -1,234.5{said} nats ({of})"
        )
    assert str(replace(bound, exact=True)) == f"-1,234.6 ± 0.4 nats (exact, {of})"
    exact = Evidence(1171.42, 0.0, 200, None, "Gaussian", exact=True)
    assert str(replace(exact, stderr=3.5e-5)) == str(exact)
    assert str(exact) == "1,171.4 nats (exact, 200 data, Gaussian likelihood)"
    propagated = Evidence(-10.0, 0.0, 9, None, "Bernoulli", propagated=True)
    for slack, low in ((None, ""), (0.04, ""), (0.06, ", about 0.1 too low"), (0.3, ", about 0.3 too low")):
        said = f"-10.0 nats (by expectation propagation{low}, 9 data, Bernoulli likelihood)"
        assert str(replace(propagated, slack=slack)) == said
    assert [one.is_bound for one in (bound, exact, propagated)] == [True, False, False]
    some = replace(exact, num_learned=50)
    assert str(some).endswith("nats (exact, learned on 50 of 200 data, Gaussian likelihood)")
    assert str(replace(some, num_learned=200)) == str(exact)


def test_where_the_log_marginal_likelihood_lies() -> None:
    bound = Evidence(-10.0, 0.5, 9, 64, "Gaussian")
    assert bound.interval == bound.interval_of_best == (-11.0, math.inf)
    assert replace(bound, upper=-8.0).interval_of_best == (-11.0, -7.0)
    assert replace(bound, slack=3.0).interval == (-11.0, -3.0)
    assert replace(bound, upper=-8.0).interval == (-11.0, -7.0)
    assert replace(bound, exact=True).interval == (-11.0, -9.0)
    assert replace(bound, upper=-8.0).shifted(2.0).interval == (-9.0, -5.0)
    some = replace(bound, exact=True, shortfall=4.0)  # parameters learned from all data might have so many more
    assert some.interval == (-11.0, -9.0)
    assert some.interval_of_best == (-11.0, -5.0)
    assert replace(some, converged=False).interval_of_best == (-11.0, math.inf)
