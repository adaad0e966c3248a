"""Many classes: known values, the stick by hand, encodings, names."""

from __future__ import annotations

import math
import re

import pytest
import torch

from experiments.stick_breaking import StickBreaking
from orbitgp.likelihoods import Bernoulli, Classification, make_likelihood
from tests.likelihoods.own import gaussian_moments, make_classes

NAMES = ["stick-breaking", "gaussian", "dirichlet"]


def bound_at(likelihood: Classification, label: int, f: torch.Tensor, variance: float = 0.0) -> float:
    y, f = likelihood.encode(torch.tensor([label])), f[None].double()
    moments = gaussian_moments(f, torch.full_like(f, variance))
    return float(likelihood.quadratic(y, likelihood.local(y, moments)).expectation(moments))


@pytest.mark.parametrize("label", [0, 4, 9])
def test_ten_classes_at_zero(label: int) -> None:
    assert bound_at(StickBreaking(10), label, torch.zeros(9)) == pytest.approx(-math.log(10), abs=1e-9)


def test_stick_by_hand() -> None:
    likelihood = StickBreaking(3)
    f = torch.tensor([[0.7, -1.1]], dtype=torch.float64)
    first = 1 / (1 + math.exp(-(0.7 - math.log(2))))
    second = 1 / (1 + math.exp(1.1))
    expected = torch.tensor([[first, (1 - first) * second, (1 - first) * (1 - second)]], dtype=torch.float64)
    torch.testing.assert_close(likelihood.log_probs(f).exp(), expected)


def test_decisions_after_its_class_do_not_concern_a_datum() -> None:
    likelihood = StickBreaking(4)
    y = likelihood.encode(torch.tensor([0, 1, 3]))
    quadratic = likelihood.quadratic(y, torch.ones(3, 3, dtype=torch.float64))
    assert (quadratic.lam > 0).tolist() == [[True, False, False], [True, True, False], [True, True, True]]
    assert (quadratic.eta == 0).tolist() == [[False, True, True], [False, False, True], [False, False, False]]


@pytest.mark.parametrize("name", NAMES)
def test_two_classes_agree_with_bernoulli(name: str) -> None:
    """The exact law of two classes is a logistic function of one number, whatever the name."""
    if name == "gaussian":
        pytest.skip("another law")
    likelihood = make_classes(name, 2)
    f = torch.randn(20, likelihood.num_latents, dtype=torch.float64)
    one = f[:, :1] * -1 if likelihood.num_latents == 1 else f[:, 1:] - f[:, :1]
    torch.testing.assert_close(likelihood.log_probs(f), Bernoulli().log_probs(one))


@pytest.mark.parametrize("name", [*NAMES, "bernoulli"])
def test_encoding_picks_its_own_class(name: str) -> None:
    """log_prob of an encoded class is the column of log_probs of that class."""
    likelihood = make_classes(name, 2 if name == "bernoulli" else 5)
    labels = torch.arange(likelihood.num_classes)
    f = torch.randn(3, len(labels), likelihood.num_latents, dtype=torch.float64)
    table = likelihood.log_probs(f)
    torch.testing.assert_close(table.exp().sum(-1), torch.ones(3, len(labels), dtype=torch.float64))
    if name == "dirichlet":
        return  # a density over targets, which its own test looks at
    if name == "gaussian":
        # a density over targets: the probabilities are its ratios
        each = torch.stack(
            [likelihood.log_prob(likelihood.encode(torch.full_like(labels, k)), f) for k in labels.tolist()], -1
        )
        torch.testing.assert_close(torch.log_softmax(each, -1), table)
        return
    picked = table.gather(-1, labels.expand(3, -1)[..., None])[..., 0]
    torch.testing.assert_close(likelihood.log_prob(likelihood.encode(labels), f), picked)


def test_names() -> None:
    assert make_likelihood("gaussian", num_outputs=3).num_latents == 3
    assert make_likelihood("dirichlet", num_classes=3).num_latents == 3
    for wrong, classes in (("bernoulli", 3), ("dirichlet", 1)):
        with pytest.raises(ValueError, match="classes"):
            make_likelihood(wrong, num_classes=classes)


@pytest.mark.parametrize(
    "name", ["softmax", "stick-breaking", "bohning", "one-vs-each", "logistic-softmax", "student-t"]
)
def test_an_unknown_name_is_answered_with_the_known_ones(name: str) -> None:
    message = f"a likelihood for classification is one of bernoulli, gaussian, dirichlet, got {name!r}"
    with pytest.raises(ValueError, match=re.escape(message)):
        make_likelihood(name, num_classes=3)


def test_classes_are_no_regression() -> None:
    known = "gaussian, heteroscedastic, student-t, negative-binomial"
    with pytest.raises(ValueError, match=f"regression is one of {known}, got 'dirichlet'"):
        make_likelihood("dirichlet")
