"""Where the local parameters of a bound come from, while it is trained.

A bound holds for any local parameters that do not depend on the draws it is scored with. Two sources:

- ``kept``: one value for each datum, the best one for the moments of the last refit of q(u) that saw the datum;
- ``network``: a recognition network, a function of input and label that learns with everything else (section 4.5). It costs no
  memory for each datum and serves data never seen before, but cannot do better than the closed form of ``Likelihood.local``.

``at`` serves draws that are scored. ``refit`` serves draws that q(u) is refitted to. These are never scored, so the local
parameters may be the best ones for those very draws.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

import torch
from jaxtyping import Float
from torch import Tensor, nn

from orbitgp.inference.model import InvariantGP
from orbitgp.inference.rows import RowIndex, RowSource, spaced
from orbitgp.likelihoods import Likelihood
from orbitgp.likelihoods.base import Moments, required

LocalName = Literal["kept", "network"]

Local = Float[Tensor, "rows params"]


class Setting(NamedTuple):
    """What a source looks at, without owning it."""

    model: InvariantGP
    likelihood: Likelihood
    x: Float[Tensor, "rows *features"] | RowSource
    y: Float[Tensor, "rows *outputs"]


class LocalSource(nn.Module):
    """The source of a likelihood that has no local parameters, and the base class of all others."""

    follows_posterior = False  # whether ``refit`` depends on q(u), so that the two are found in turns

    def __init__(self, setting: Setting) -> None:
        super().__init__()
        self.setting = setting

    def at(self, rows: RowIndex) -> Local | None:
        """Local parameters of these data, for draws that are scored."""
        return None

    def refit(self, rows: RowIndex, moments: Moments) -> Local | None:
        """Local parameters of these data, given moments from draws that are not scored."""
        return None


class Kept(LocalSource):
    """One value for each datum, which follows q(f) from refit to refit."""

    follows_posterior = True
    values: Tensor

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        ones = torch.ones(len(setting.x), setting.likelihood.num_locals, dtype=torch.float64, device=setting.x.device)
        self.register_buffer("values", ones)

    def at(self, rows: RowIndex) -> Local:
        return self.values[rows]

    @torch.no_grad()
    def refit(self, rows: RowIndex, moments: Moments) -> Local:
        local = required(self.setting.likelihood.local(self.setting.y[rows], moments))
        self.values[rows] = local
        return local


class Network(LocalSource):
    """A function of input and label, trained by the gradient of the bound."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        self.network = RecognitionNetwork(setting.likelihood, spaced(setting.x), setting.y)

    def at(self, rows: RowIndex) -> Local:
        local: Local = self.network(self.setting.x[rows], self.setting.y[rows])
        return local

    @torch.no_grad()
    def refit(self, rows: RowIndex, moments: Moments) -> Local:
        return self.at(rows)


class RecognitionNetwork(nn.Module):
    """(x, y) -> local parameters: two layers of ``hidden`` units, behind two convolutions if the inputs are images.

    Inputs are standardised with the mean and spread of the data given here. The last layer starts at zero weights, so that all
    data start with the same local parameters, ``start``.
    """

    shift: Tensor
    spread: Tensor

    def __init__(
        self,
        likelihood: Likelihood,
        x: Float[Tensor, "rows *features"],
        y: Float[Tensor, "rows *outputs"],
        hidden: int = 64,
        start: float = 1.0,
    ) -> None:
        super().__init__()
        if not likelihood.num_locals:
            raise ValueError(f"{type(likelihood).__name__} has no local parameters to recognise.")
        features = x.shape[1:]
        images = len(features) in (2, 3)
        # Pixels share one scale; columns of a table need not.
        over = tuple(range(x.ndim)) if images else (0,)
        self.register_buffer("shift", x.mean(over, keepdim=True))
        self.register_buffer("spread", x.std(over, keepdim=True, correction=0).clamp_min(1e-6))
        self.front: nn.Module = _convolutions(features) if images else nn.Flatten()
        with torch.no_grad():
            width = self.front(x[:1].float()).shape[1]
        self.body = nn.Sequential(nn.Linear(width + y[0].numel(), hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU())
        self.last = nn.Linear(hidden, likelihood.num_locals)
        nn.init.zeros_(self.last.weight)
        nn.init.constant_(self.last.bias, start)
        self.to(device=x.device, dtype=x.dtype)

    def forward(self, x: Float[Tensor, "rows *features"], y: Float[Tensor, "rows *outputs"]) -> Float[Tensor, "rows params"]:
        """Local parameters for these data, in double precision as moments are."""
        seen = self.front((x - self.shift) / self.spread)
        return self.last(self.body(torch.cat([seen, y.flatten(1).to(seen.dtype)], 1))).double()


def _convolutions(features: torch.Size) -> nn.Sequential:
    """Two convolutions that halve the image, and its flattening."""
    channels = features[0] if len(features) == 3 else 1
    layers = [nn.Conv2d(channels, 16, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.ReLU()]
    as_channels = [] if len(features) == 3 else [nn.Unflatten(1, (1, features[0]))]
    return nn.Sequential(*as_channels, *layers, nn.Flatten())


SOURCES: dict[str, type[LocalSource]] = {"kept": Kept, "network": Network}


def local_source(name: LocalName, setting: Setting, seed: int) -> LocalSource:
    """The source of this name, or the one without local parameters where the likelihood has none."""
    if name not in SOURCES:
        raise ValueError(f"local must be one of {', '.join(get_args(LocalName))}, got {name!r}.")
    if not setting.likelihood.num_locals:
        return LocalSource(setting)
    # Layers draw their weights from PyTorch's global generator. Its state is restored afterwards.
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        return SOURCES[name](setting)
