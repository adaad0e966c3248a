"""All learned parameters of a model as a vector, in units that make a step of one mean the same in any units of the
data."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from orbitgp.inference.collapsed import CollapsedGP
from orbitgp.inference.exact import ExactGP
from orbitgp.kernels.learned_constants import LearnedConstants
from orbitgp.likelihoods import Likelihood
from orbitgp.training.starts import distance_between, map_constants, natural_units

Vector = Float[np.ndarray, " parameters"]

_FARTHEST = 50.0  # natural units from where a run began: a hyperparameter may change by a factor of 1e21


class LearnedVector:
    """What is learned of a model and its likelihood, but for the prior mean's bias, which has its best value anyway.

    The unit of a reach is where it alone moves inputs by about a third of the distances between them
    (:func:`~orbitgp.training.starts.natural_units`). That of a hyperparameter of the kernel is a factor of e, and that
    of a coordinate of an inducing point is the distance between inputs. All else is learned as it is.

    ``is_reach``, ``is_shape`` and ``is_point`` tell which entries belong to what. A shape is any parameter of the orbit
    that is no reach. It may do nothing while the reaches are zero, as a smoothness, or act on its own, as a weight.
    """

    def __init__(self, model: ExactGP | CollapsedGP, likelihood: Likelihood) -> None:
        learned = (*model.parameters(), *likelihood.parameters())
        self.parameters = [p for p in learned if p.requires_grad and p is not model.prior_mean.bias]
        self.units: Vector = _flat(self._natural_units(model))
        widest = {id(r): end for r, end in zip(model.orbit.reaches(), model.orbit.widest_reaches(), strict=True)}
        self.is_reach = self._belongs_to(set(widest))
        self.is_shape = self._belongs_to({id(p) for p in model.orbit.parameters()} - set(widest))
        self.is_point = self._belongs_to({id(model.sparse.inducing)} if isinstance(model, CollapsedGP) else set())
        widest |= {id(getattr(part, n)): 1.0 for part in model.orbit.modules() for n in getattr(part, "bounded", ())}
        # Where the orbit of a reach is the whole one, and where other parameters end; infinite where they never do.
        ends = [torch.full_like(p, widest.get(id(p), math.inf)) for p in self.parameters]
        self.widest: Vector = _flat(ends) / self.units
        is_constant = self._belongs_to({id(raw) for raw in map_constants(model.kernel)})
        self.farthest = np.where(is_constant, LearnedConstants.farthest, _FARTHEST)
        self.origin = self.get()

    def _belongs_to(self, chosen: set[int]) -> Bool[np.ndarray, " parameters"]:
        """Which entries are those of these parameters, told by their ids."""
        return np.asarray(_flat([torch.full_like(p, id(p) in chosen) for p in self.parameters]) > 0)

    def _natural_units(self, model: ExactGP | CollapsedGP) -> list[Tensor]:
        reaches = zip(model.orbit.reaches(), natural_units(model.orbit, model.x), strict=True)
        units = {id(reach): unit for reach, unit in reaches}
        for _, raw, constraint in model.kernel.named_parameters_and_constraints():
            if constraint is not None and raw.requires_grad:
                with torch.enable_grad():
                    value = constraint.transform(raw)
                    (slope,) = torch.autograd.grad(value.sum(), raw)
                units[id(raw)] = (value / slope).detach().abs()
        if isinstance(model, CollapsedGP):
            points = model.sparse.inducing
            units[id(points)] = torch.full_like(points, distance_between(model.x), requires_grad=False)
        ones = [torch.ones_like(p, requires_grad=False) for p in self.parameters]
        found = [units.get(id(p), one).to(one) for p, one in zip(self.parameters, ones, strict=True)]
        return [torch.where(unit.isfinite() & (unit > 0), unit, 1.0) for unit in found]

    def contains(self, vector: Vector) -> bool:
        """Whether no hyperparameter has run off, in a direction in which the evidence is flat."""
        return bool(np.all((np.abs(vector - self.origin) < self.farthest)[~(self.is_reach | self.is_point)]))

    def get(self) -> Vector:
        """The parameters as they are."""
        return _flat(self.parameters) / self.units

    @torch.no_grad()
    def set(self, vector: Vector) -> None:
        """Put the parameters there, without a gradient."""
        if not self.parameters:
            return
        values = torch.from_numpy(vector * self.units).to(self.parameters[0].device)
        for parameter, value in zip(self.parameters, values.split([p.numel() for p in self.parameters]), strict=True):
            parameter.copy_(value.view_as(parameter))
            parameter.grad = None

    def with_reaches(self, reaches: Vector, others: Vector) -> Vector:
        """The reaches of one vector, and all else of another."""
        return np.where(self.is_reach, reaches, others)

    def folded(self, vector: Vector) -> Vector:
        """The same orbit with reaches between zero and their widest, and bounded parameters too: both ends reflect."""
        ends = np.isfinite(self.widest)
        whole = np.where(ends, self.widest, 1.0)
        inside = whole - np.abs(whole - np.abs(vector) % (2 * whole))
        return np.where(ends, inside, np.where(self.is_reach, np.abs(vector), vector))

    def gradient(self) -> Vector:
        """What was added up in the parameters since they were set."""
        return _flat([torch.zeros_like(p) if p.grad is None else p.grad for p in self.parameters]) * self.units


def _flat(tensors: Sequence[Tensor]) -> Vector:
    """All numbers in one vector. From a GPU they come at once: each copy waits for it."""
    if not tensors:
        return np.zeros(0)
    found: Vector = torch.cat([t.detach().flatten().double() for t in tensors]).cpu().numpy()
    return found
