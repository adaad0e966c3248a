"""What may be said of a run, and how much evidence it takes to say that data support an invariance.

The word is wrong in at most one case of twenty with as few as 40 rows. Two things make evidence rise by chance, where
there is no invariance:

- A fixed model: the probability that its evidence exceeds that of the true one by t nats is at most exp(-t) (Markov).
- A model whose orbit has k learned parameters: its evidence is maximised over these, and gains about half a chi-squared
  variable of k degrees of freedom (Wilks).

Where several orbits are tried, each has its share of the false cases (Bonferroni).
"""

from __future__ import annotations

import math
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np
from gpytorch.kernels import Kernel
from scipy.stats import chi2
from torch import nn

from orbitgp.inference.evidence import Evidence
from orbitgp.inference.exact import ExactGP
from orbitgp.inference.model import InvariantGP
from orbitgp.likelihoods import Likelihood
from orbitgp.orbits import Orbit
from orbitgp.orbits.description import Description
from orbitgp.report.words import learned_sentence, nats
from orbitgp.training.records import Record

# The probability of calling for an absent invariance, whatever the number of orbits. Both rules hold for many data:
# with 40 rows, a nominal 5 % gave false support in up to 2 of 24 data sets (experiments certainty, part null).
FALSE_SUPPORT = 0.02
FEW_DATA = 20


@runtime_checkable
class Fitted(Protocol):
    """A fitted estimator; the estimators document its attributes."""

    feature_map: nn.Module | None
    random_state: Any
    device: Any
    orbit_: Orbit
    kernel_: Kernel
    likelihood_: Likelihood
    model_: InvariantGP | ExactGP
    evidence_: Evidence
    inference_: Literal["exact", "sparse"]
    plausible_: dict[str, tuple[float, float] | None]
    input_shape_: tuple[int, ...]
    examples_: tuple[np.ndarray, np.ndarray]
    history_: list[Record]
    converged_: bool
    interrupted_: bool

    def describe(self) -> Description: ...


def nats_needed(learned: int, tried: int = 1) -> float:
    """Nats by which an orbit with as many learned parameters must lead, if ``tried`` orbits were compared with none."""
    share = FALSE_SUPPORT / tried
    return max(-math.log(share), 0.5 * float(chi2.isf(share, learned)) if learned else 0.0)


def is_certain(evidence: Evidence, plain: Evidence) -> bool:
    """Whether the better of two is better for certain: their intervals do not overlap."""
    better, worse = (evidence, plain) if evidence.value >= plain.value else (plain, evidence)
    return better.interval_of_best[0] > worse.interval_of_best[1]


class Finding(NamedTuple):
    """What may be said of a run: a sentence, and whether the evidence supports an invariance."""

    text: str
    supported: bool = False


def finding(
    description: Description,
    over_plain: float | int | None,
    *,
    num_data: int,
    certain: bool = True,
    needed: float = nats_needed(0),
    steps: int = 0,
    stopped: bool = False,
    converged: bool = True,
) -> Finding:
    """One rule for terminal, report and summary: nothing is called a finding that the evidence does not support.

    ``over_plain`` are nats over the same model without invariance (None: not trained), and ``certain`` whether they are
    known well (:func:`is_certain`, or the verdict of a comparison). ``needed`` are those that chance may give.
    """
    what = learned_sentence(description)
    if stopped or not converged:
        how = "Stopped" if stopped else "Not converged"
        so_far = f"so far {what}" if what else "a Gaussian process without invariance"
        return Finding(f"{how} after {steps:,} step{'' if steps == 1 else 's'}, so this is no result yet: {so_far}.")
    if not what:
        return Finding("No invariance: a plain Gaussian process.")
    few = f" There are only {num_data:,} data." if num_data < FEW_DATA else ""
    if over_plain is None:
        return Finding(f"Learned {what}; not compared with no invariance.{few}")
    if over_plain <= -needed and certain:
        return Finding(f"No invariance is better: with {what}, the evidence is {nats(-over_plain)} lower.{few}")
    if over_plain < needed or not certain:
        difference = f"{nats(abs(over_plain))} {'higher' if over_plain > 0 else 'lower'}"
        doubt = "" if abs(over_plain) < needed else ", which is not certain"
        said = f"with {what}, the evidence is {'the same' if round(over_plain, 1) == 0 else difference}{doubt}"
        return Finding(f"Cannot tell whether an invariance helps: {said}.{few}")
    gain = nats(over_plain, sign=True)
    return Finding(f"Insensitive to {what}; evidence {gain} over no invariance.{few}", supported=True)


def finding_of(model: Fitted, over_plain: float | int | None = None, certain: bool = True) -> Finding:
    """What may be said of a fitted estimator."""
    return finding(
        model.describe(),
        over_plain,
        num_data=model.evidence_.num_data,
        certain=certain,
        needed=nats_needed(sum(p.numel() for p in model.orbit_.parameters() if p.requires_grad)),
        steps=model.history_[-1]["step"],
        stopped=model.interrupted_,
        converged=model.converged_,
    )
