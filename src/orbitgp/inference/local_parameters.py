"""Where the local parameters of a bound come from, while it is trained.

A bound holds for any local parameters that do not depend on the draws it is scored with. Two sources:

- ``kept``: one value for each datum, the best one for the moments of the last refit of q(u) that saw the datum;
- ``network``: a recognition network, a function of input and label that learns with everything else (section 4.5). It
  costs no memory for each datum and serves new data, but cannot beat the closed form of ``Likelihood.local``.

``at`` serves draws that are scored. ``refit`` serves draws that q(u) is refitted to. These are never scored, so the
local parameters may be the best ones for those very draws.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

import torch
from jaxtyping import Float
from torch import Tensor, nn

from orbitgp.inference.model import InvariantGP
from orbitgp.inference.rows import AllInputs, RowIndex, spaced
from orbitgp.likelihoods import Likelihood
from orbitgp.likelihoods.base import Moments, Targets, required

LocalName = Literal["kept", "network"]

Local = Float[Tensor, "rows params"]


class Setting(NamedTuple):
    """What a source looks at, without owning it."""

    model: InvariantGP
    likelihood: Likelihood
    x: AllInputs
    y: Targets


class LocalParameters(nn.Module):
    """The local parameters of all data, from the source of this name; None where the likelihood has none."""

    values: Tensor | None

    def __init__(self, name: LocalName, setting: Setting, seed: int) -> None:
        super().__init__()
        if name not in get_args(LocalName):
            raise ValueError(f"local must be one of {', '.join(get_args(LocalName))}, got {name!r}.")
        self.setting, size, x = setting, setting.likelihood.num_locals, setting.x
        is_kept = size > 0 and name == "kept"
        values = torch.ones(len(x), size, dtype=torch.float64, device=x.device) if is_kept else None
        self.register_buffer("values", values)
        self.network: RecognitionNetwork | None = None
        if size and name == "network":
            # Layers draw their weights from PyTorch's global generator. Its state is restored afterwards.
            with torch.random.fork_rng(devices=[]):
                torch.default_generator.manual_seed(seed)
                self.network = RecognitionNetwork(setting.likelihood, spaced(x), setting.y)

    def at(self, rows: RowIndex) -> Local | None:
        """Local parameters of these data, for draws that are scored."""
        if self.network is not None:
            found: Local = self.network(self.setting.x[rows], self.setting.y[rows])
            return found
        return None if self.values is None else self.values[rows]

    @torch.no_grad()
    def refit(self, rows: RowIndex, moments: Moments) -> Local | None:
        """Local parameters of these data, given moments from draws that are not scored."""
        if self.values is not None:
            self.values[rows] = required(self.setting.likelihood.local(self.setting.y[rows], moments))
        return self.at(rows)


class RecognitionNetwork(nn.Module):
    """(x, y) -> local parameters: two layers of 64 units, behind two convolutions if the inputs are images.

    Inputs are standardised with the mean and spread of the data given here. The last layer starts at zero weights, so
    that all data start with the same local parameters, one.
    """

    shift: Tensor
    spread: Tensor

    def __init__(self, likelihood: Likelihood, x: Float[Tensor, "rows *features"], y: Targets) -> None:
        super().__init__()
        images = x.ndim in (3, 4)
        # Pixels share one scale; columns of a table need not.
        over = tuple(range(x.ndim)) if images else (0,)
        self.register_buffer("shift", x.mean(over, keepdim=True))
        self.register_buffer("spread", x.std(over, keepdim=True, correction=0).clamp_min(1e-6))
        front: list[nn.Module] = [nn.Unflatten(1, (1, x.shape[1]))] if x.ndim == 3 else []
        if images:  # two convolutions that halve the image
            for inputs, outputs in ((x.shape[1] if x.ndim == 4 else 1, 16), (16, 32)):
                front += [nn.Conv2d(inputs, outputs, 3, stride=2, padding=1), nn.ReLU()]
        self.front = nn.Sequential(*front, nn.Flatten())
        with torch.no_grad():
            width = self.front(x[:1].float()).shape[1]
        self.body = nn.Sequential(nn.Linear(width + y[0].numel(), 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU())
        self.last = nn.Linear(64, likelihood.num_locals)
        nn.init.zeros_(self.last.weight)
        nn.init.ones_(self.last.bias)
        self.to(device=x.device, dtype=x.dtype)

    def forward(self, x: Float[Tensor, "rows *features"], y: Targets) -> Float[Tensor, "rows params"]:
        """Local parameters for these data, in double precision as moments are."""
        seen = self.front((x - self.shift) / self.spread)
        return self.last(self.body(torch.cat([seen, y.flatten(1).to(seen.dtype)], 1))).double()
