"""The recognition network of section 4.5: local parameters as a function of the datum, learned with everything else.

A bound holds for any local parameters, so they may come from anywhere but the draws that the bound is scored with. The paper
lets a network guess them from the input and the label and trains it jointly, by the gradient of the bound. It costs no memory
for each datum and serves data never seen before, but it cannot do better than the closed form of ``Likelihood.local``.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from orbitgp.likelihoods import Likelihood

_SMALLEST_SPREAD = 1e-6


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
        self.register_buffer("spread", x.std(over, keepdim=True, correction=0).clamp_min(_SMALLEST_SPREAD))
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
