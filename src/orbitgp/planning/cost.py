"""What exact inference costs, and what of it can be afforded.

One evaluation of the evidence with its gradient computes k_g between all pairs of samples twice, and two products as
large for the gradient of the samples:

    8 D (N S)^2 / 2 operations in the precision of the inputs, and about 4 N^3 a covariance in double precision.

Where local parameters and the posterior take turns, each turn after the first takes 2/3 N^3: a factor, and the diagonal
of the inverse. Conditioning computes k_g once, and has no gradient. Bytes: K_f once in the precision of the inputs, and
matrices of N x N in double precision (the matrix and its factor; for a gradient its inverse, too). For large inputs
most of the memory goes into copies of all samples: as drawn, centred, scaled, and gradients on their way back. Their
number was measured, as were the four blocks of values of k_g that are there at a time, five with a gradient. With few
rows all are kept for it, which saves one product. Where sums are made in the cache of a core, one block is enough.

A feature map takes the products of matrices that it makes of one row, for each sample, and four times as many with a
gradient. Where g sees more of all data than memory holds, the blocks of rows before a block are mapped again for it.

Seconds follow from what the device is, not from a measurement or the number of threads: the same data get the same
inference on every day, and in every worker process. Plans are made at a nominal speed: that of two cores, or of a GPU.
A slower GPU has its own speed; many have next to no double precision. On a faster one a fit is sooner done, not larger.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch

from orbitgp.inference.exact import ExactGP
from orbitgp.inference.model import InvariantGP
from orbitgp.inference.orbit_gram import kept_elements
from orbitgp.inference.rows import AllInputs, first
from orbitgp.inference.streamed import held_elements
from orbitgp.kernels.covariance import FeatureMapCovariance, Stationary
from orbitgp.kernels.feature_maps import embeds_means
from orbitgp.likelihoods import Likelihood
from orbitgp.machine import chunk_elements
from orbitgp.orbits import Composition, FiniteOrbit
from orbitgp.planning.rungs import FIRST_DRAWS, LEAST_DRAWS, MOST_DRAWS

_EVALUATION = 0.015  # seconds of an evaluation that do not depend on the size of the data
_MEMORY_SHARE = 0.7  # of the free memory
CONDITIONING = 0.6  # of the time for a fit may go into conditioning on all data


class Speed(NamedTuple):
    """Operations a second in single and in double precision."""

    single: float
    double: float


CPU = Speed(40e9, 16e9)  # two threads
GPU = Speed(30e12, 20e12)
_SUSTAINED = 0.6  # of the peak, by large products and factors; measured on an H200
_MOST = Speed(256, 4)  # operations a cycle of one multiprocessor, of most GPUs,
_PER_CYCLE = {  # and of those that are made for double precision, by compute capability
    (6, 0): Speed(128, 64),
    (7, 0): Speed(128, 64),
    (8, 0): Speed(128, 128),
    (9, 0): Speed(256, 256),
    (10, 0): Speed(256, 128),
}


def nominal_speed(device: torch.device) -> Speed:
    """The nominal speed, or that of the device where it is slower; nominal where that of a GPU is not known."""
    if device.type != "cuda":
        return CPU
    if not torch.cuda.is_available() or torch.version.cuda is None:
        return GPU
    properties = torch.cuda.get_device_properties(device)
    per_cycle = _PER_CYCLE.get((properties.major, properties.minor), _MOST)
    # The clock is in kHz; some drivers do not say.
    cycles = 1e3 * getattr(properties, "clock_rate", 1.5e6) * properties.multi_processor_count
    return Speed(*(min(_SUSTAINED * cycles * count, most) for count, most in zip(per_cycle, GPU, strict=True)))


@dataclass(frozen=True)
class Cost:
    """Bytes at the peak, and seconds at the nominal speed of the device."""

    bytes: float
    seconds: float


@dataclass(frozen=True)
class Workload:
    """What the cost of exact inference depends on, besides the number of rows.

    ``dim`` is the size of what the kernel compares, ``samples`` the draws or the size of a finite orbit; each draw has
    all ``elements`` of the finite parts of a product. ``covariances`` have noises of their own, and each of them is
    factorised once in each of the ``turns`` of local parameters and posterior (1 where there are no local parameters).
    ``double``: inputs are in double precision. ``tables``: bytes that the orbit keeps. ``one_noise``: the noise of a
    datum is the same for all latent functions, so that a factor is all that the posterior needs. ``single_sum``: one
    value of K_f takes as many values of k_g as there are samples, and not as many pairs of them. ``corrected``: half of
    many draws are learned from (:class:`~orbitgp.kernels.orbit_average.CorrectedCovariance`). ``mapping``: the feature
    map's operations a sample. ``in_cache``: sums over pairs are made without writing values of k_g to memory.
    """

    samples: int
    dim: int
    device: torch.device
    covariances: int = 1
    turns: int = 1
    double: bool = False
    tables: float = 0.0
    one_noise: bool = False
    single_sum: bool = False
    corrected: bool = False
    mapping: float = 0.0
    elements: int = 1
    in_cache: bool = False

    @classmethod
    def of(cls, model: ExactGP | InvariantGP, likelihood: Likelihood, x: AllInputs, samples: int) -> Workload:
        """That of exact inference with this likelihood and these data, and the kernel and orbit of a model."""
        one_noise = not likelihood.num_locals and (likelihood.shares_curvature or likelihood.num_latents == 1)
        dim, mapping = math.prod(x.shape[1:]), 0.0
        if isinstance(model.covariance, FeatureMapCovariance):
            from torch.utils.flop_counter import FlopCounterMode  # takes a tenth of a second to load

            row = first(x, 1).flatten(1).detach().requires_grad_()  # a map that keeps what it yielded maps it again
            with FlopCounterMode(display=False) as counter, torch.enable_grad():
                dim, mapping = model.covariance.features(row).shape[-1], float(counter.get_total_flops())
        kept: list[Any] = [part for part in model.orbit.modules() if hasattr(part, "bytes_of_table")]
        tables = sum((part.bytes_of_table(x.shape[1:]) for part in kept), 0.0)
        counts, double = covariances_and_turns(likelihood), x.dtype == torch.float64
        fewer = isinstance(model, ExactGP) and model.vectors.pairs(samples) < samples**2
        single = fewer or embeds_means(model.kernel)
        corrected = isinstance(model, ExactGP) and model.gains_by_correction
        parts = model.orbit.parts if isinstance(model.orbit, Composition) else []
        elements = math.prod(part.size for part in parts if isinstance(part, FiniteOrbit))
        seen = model.covariance.of_features
        cached = x.device.type == "cpu" and isinstance(seen, Stationary) and seen.smooth and not single and samples > 1
        return cls(
            samples, dim, x.device, *counts, double, tables, one_noise, single, corrected, mapping, elements, cached
        )

    @property
    def points(self) -> int:
        """Of the finite orbit of a row."""
        return self.samples * self.elements

    @property
    def pairs(self) -> int:
        """Values of k_g for one of K_f."""
        return self.points if self.single_sum else self.points**2

    def evaluation(self, rows: int) -> Cost:
        """The evidence and its gradient."""
        if self.corrected and self.samples > LEAST_DRAWS:
            return replace(self, samples=self.samples // 2, corrected=False).evaluation(rows)
        kept = kept_elements(rows, self.points, self.dim, 0 if self.in_cache else self.pairs, self.device)
        copies = 12.0 if self.in_cache else 10.0
        return self._cost(rows, products=4.0, algebra=4.0, squares=24.0, copies=copies, blocks=5.0, kept=kept)

    def evaluation_seconds(self, rows: int, samples: int | None = None) -> float:
        """The same with this number of draws, and with what does not depend on the size of the data."""
        sized = self if samples is None else replace(self, samples=samples)
        return sized.evaluation(rows).seconds + _EVALUATION

    def conditioning(self, rows: int) -> Cost:
        """The posterior and its evidence, without a gradient."""
        algebra, held = 0.5 if self.one_noise else 2.0, float(held_elements(self.device))
        return self._cost(rows, products=1.0, algebra=algebra, squares=16.0, copies=6.0, blocks=4.0, held=held)

    def learning(self, rows: int) -> Cost:
        """All evaluations of a fit: most with few draws, some with all of them. Starts see few rows and cost little."""
        plan = [(min(self.samples, FIRST_DRAWS), 20)]
        if self.samples > FIRST_DRAWS:
            plan += [(self.samples, 4)]
        seconds = sum(count * replace(self, samples=s).evaluation(rows).seconds for s, count in plan)
        return Cost(self.evaluation(rows).bytes, seconds)

    def most_rows(self, seconds: float, memory: float, rows: int, step: int = 1) -> int:
        """How many of these rows can be learned from in this time and memory: all, or a multiple of a step."""
        counts = range(1, rows + 1)  # the cost grows with the rows
        most = bisect_left(counts, True, key=lambda count: obstacle(self.learning(count), seconds, memory) is not None)
        return most if most == rows else most - most % step

    def most_samples(self, learn_rows: int, rows: int, seconds: float, memory: float = math.inf) -> int:
        """The most draws with memory for them, a tenth of the time for an evaluation, and a share for conditioning."""
        work = replace(self, corrected=False)  # predictions need all draws
        while work.samples < MOST_DRAWS:
            more = replace(work, samples=2 * work.samples)
            evaluation, conditioning = more.evaluation(learn_rows), more.conditioning(rows)
            if obstacle(evaluation, seconds / 10, memory) or obstacle(conditioning, CONDITIONING * seconds, memory):
                break
            work = more
        return work.samples

    def collapsed(self, rows: int, inducing: int, inducing_samples: int, covariances: int) -> Cost:
        """The collapsed bound of a sparse model, and its gradient.

        k_g between samples and inducing points takes three products: its values, these again where data are streamed,
        and the gradient of the points. K_uu takes four halves, and each covariance of q(u) three products of N x M x M.
        """
        single, double = nominal_speed(self.device)
        points = inducing * inducing_samples
        seen = rows * self.points
        kernel = 6.0 * (self.dim + 8) * seen * points + 4.0 * self.mapping * (seen + points)
        algebra = (6.0 * covariances + 8.0) * (rows + inducing) * inducing**2 + 4.0 * (self.dim + 8) * points**2
        numbers = 10.0 * (rows + covariances * inducing) * inducing + 4.0 * self.dim * (seen + points)
        return Cost(8.0 * numbers + self.tables, kernel / (double if self.double else single) + algebra / double)

    def _cost(
        self,
        rows: int,
        products: float,
        algebra: float,
        squares: float,
        copies: float,
        blocks: float,
        kept: int = 0,
        held: float = math.inf,
    ) -> Cost:
        single, double = nominal_speed(self.device)
        numbers = rows * self.points * self.dim
        times_mapped = 1.0 if numbers <= held else 0.5 * (1 + numbers / held)
        kernel = products * ((self.dim + 8) * rows**2 * self.pairs + times_mapped * self.mapping * rows * self.points)
        number = 8 if self.double else 4
        samples = copies * min(numbers, held)
        values = (1.0 if self.in_cache else blocks) * min(chunk_elements(self.device), rows**2 * self.pairs)
        memory = rows**2 * (number + squares) + number * (samples + values + kept) + self.tables
        algebra = (algebra + 2 / 3 * (self.turns - 1)) * self.covariances * rows**3
        seconds = kernel / (double if self.double else single) + algebra / double
        return Cost(memory, seconds)


def covariances_and_turns(likelihood: Likelihood) -> tuple[int, int]:
    """How many covariances a likelihood has factorised, and how often: with local parameters, noises differ everywhere.

    Local parameters and posterior take six turns, measured on thousands of rows.
    """
    return (likelihood.num_latents, 6) if likelihood.num_locals else (1, 1)


def obstacle(cost: Cost, seconds: float, memory: float) -> str | None:
    """What stands against it, in a few words; None where there is time and memory for it."""
    if cost.bytes > _MEMORY_SHARE * memory:
        return f"it needs {cost.bytes / 1e9:.1f} GB of memory and {memory / 1e9:.1f} GB are free"
    if cost.seconds > seconds:
        return f"it would take about {cost.seconds:.0f} s, more than {seconds:.0f} s"
    return None


def workload(model: ExactGP, likelihood: Likelihood, num_samples: int | None) -> Workload:
    """What exact inference costs for these data, with ``num_samples`` or the fewest draws that learning ends with."""
    samples = getattr(model.orbit, "size", 1) if model.is_enumerated else num_samples or LEAST_DRAWS
    return Workload.of(model, likelihood, model.x, samples)
