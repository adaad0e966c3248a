"""Covariances of new rows with data of many dimensions, from a fifth of these: rough, and soon there.

A kernel of distances compares samples x of new rows with samples z of the data. With V the directions in which the data
vary most, and r what is left of a sample without these, |x - z|^2 = |Vx - Vz|^2 + |r_x|^2 + |r_z|^2 - 2 r_x . r_z. All
but the last term is the distance between (Vx, |r_x|, 0) and (Vz, 0, |r_z|).
"""

from __future__ import annotations

import torch

from orbitgp.inference import orbit_gram
from orbitgp.inference.streamed import Streamed
from orbitgp.kernels.covariance import Covariance, Cross, Seen, Stationary


class RoughCovariance:
    """Covariances with what g sees of these data, in directions that 1,024 of their samples show."""

    def __init__(self, covariance: Covariance, seen: Seen | Streamed) -> None:
        self.covariance = covariance
        some = seen[:: -(-len(seen) // 64)].flatten(0, 1)
        some = some[:: -(-len(some) // 1024)].float()
        self.centre = some.mean(0)
        vectors = torch.linalg.eigh((some - self.centre) @ (some - self.centre).mT)[1]
        self.directions = torch.linalg.qr((some - self.centre).mT @ vectors[:, -(min(some.shape) // 5) :])[0]
        self.data = torch.cat([self._seen(seen[i : i + 128], -1) for i in range(0, len(seen), 128)])

    def _seen(self, seen: Seen, place: int) -> torch.Tensor:
        """V x of each sample, and two more numbers: |r_x| at this place, and 0 at the other."""
        x = seen.float() - self.centre
        found = torch.nn.functional.pad(x @ self.directions, (0, 2))
        found[..., place] = (x.square().sum(-1) - found.square().sum(-1)).clamp_min(0.0).sqrt()
        return found

    def cross(self, others: Seen) -> Cross:
        return orbit_gram.cross(self.covariance, self._seen(others, -2), self.data)


def pays(covariance: Covariance, seen: Seen | Streamed, others: int) -> bool:
    """Whether this saves time for so many rows, some of which are computed exactly: where all pairs take seconds."""
    size, dim = seen[:1].shape[1:]
    costs = seen.device.type == "cpu" and min(others, dim) > 255 and others * len(seen) * size**2 * dim > 2**38
    return costs and type(covariance) is Stationary and len(covariance.hyperparameters(dim)[0]) == 1
