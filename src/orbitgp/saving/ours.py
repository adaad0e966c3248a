"""The orbits, feature maps and likelihoods of this library in the register.

Arguments say how many parameters there are; their values, learned or not, are tensors of the file.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from orbitgp import likelihoods, orbits
from orbitgp.kernels import OrientedGradients
from orbitgp.orbits import Orbit
from orbitgp.orbits.images.affine import _Ranged
from orbitgp.orbits.images.displacement_field import SmoothField
from orbitgp.saving.registry import Arguments, register


def _orbit(kind: type[Orbit], arguments: Callable[[Any], Arguments] | None = None) -> None:
    register(kind, arguments, name=f"orbit:{kind.__name__}")


def _field(field: SmoothField) -> Arguments:
    axes, scales = field.amplitude.shape
    # Every scale starts at the coarsest: with the finest given, that is all the waves depend on.
    smoothness = [field.coarsest] * scales
    return {"amplitude": [1.0] * scales, "smoothness": smoothness, "per_axis": axes == 2, "finest": field.finest}


def _parts(product: Any) -> Arguments:
    return {"parts": list(product.parts)}


def _absent(orbit: _Ranged, *names: str) -> Arguments:
    return {name: None for name in names if name not in orbit.ranges}


for _kind in (
    orbits.Identity,
    orbits.Rotate90,
    orbits.Rotation,
    orbits.Scale,
    orbits.Shear,
    orbits.Brightness,
    orbits.Thickness,
):
    _orbit(_kind)
_orbit(orbits.Composition, _parts)
_orbit(orbits.FiniteProduct, _parts)
_orbit(orbits.WarpProduct, _parts)
_orbit(orbits.Affine, lambda o: _absent(o, "angle", "scale_x", "scale_y", "shear", "shift_x", "shift_y"))
_orbit(orbits.Translation, lambda o: _absent(o, "shift_x", "shift_y"))
_orbit(orbits.Permutation, lambda o: {"permutations": o.index.tolist(), "any_length": o.any_length})
_orbit(orbits.Flip, lambda o: {"horizontal": o.horizontal, "vertical": o.vertical})
_orbit(orbits.GaussianNoise, lambda o: {"num_features": o.scale.numel() if o.scale.ndim else None})
_orbit(orbits.Contrast, lambda o: {"pivot": o.pivot})
_orbit(orbits.LocalDeformation, lambda o: _field(o.field))
_orbit(
    orbits.TangentDeformation,
    lambda o: {**_field(o.field), "thickness": None if o.thickness is None else 0.3, "blur": o.blur},
)

register(
    OrientedGradients,
    lambda m: {name: getattr(m, name) for name in ("orientations", "cell", "learn")},
    name="feature_map:OrientedGradients",
)


def _likelihood(kind: type, *names: str) -> None:
    register(kind, lambda likelihood: {n: getattr(likelihood, n) for n in names}, name=f"likelihood:{kind.__name__}")


# noise is learned above min_noise, which is fixed.
register(
    likelihoods.Gaussian,
    lambda g: {"num_latents": g.num_latents, "noise": g.min_noise + 1.0, "min_noise": g.min_noise},
    name="likelihood:Gaussian",
)
_likelihood(likelihoods.StudentT, "num_latents")
_likelihood(likelihoods.Laplace, "num_latents")
_likelihood(likelihoods.Bernoulli)
_likelihood(likelihoods.GaussianIndicators, "num_classes")
register(
    likelihoods.Dirichlet,
    lambda d: {"num_classes": d.num_classes, "concentration": d.concentration if d.is_given else None},
    name="likelihood:Dirichlet",
)
_likelihood(likelihoods.StickBreaking, "num_classes")
_likelihood(likelihoods.OneVsEach, "num_classes")
_likelihood(likelihoods.Bouchard, "num_classes")
_likelihood(likelihoods.Bohning, "num_classes")
_likelihood(likelihoods.LogisticSoftmax, "num_classes")
