"""Orbits in words: ``rotation``, ``rotation(30)``, ``affine*deformation``, ``translation(shift_y=None)``.

A text is a product of names, each with the arguments of its class in parentheses, if any: positional or by keyword; numbers,
pairs, words in quotes, True, False, None or lists of names. ``a*b`` is what ``a * b`` is in Python: a acts first, then b. It
is parsed, never evaluated: nothing but the names below can be called.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import partial
from typing import Any, NamedTuple

import torch

from orbitgp import orbits
from orbitgp.orbits import Orbit

MAX_LENGTH = 500  # of a text: longer ones are slips, and deep ones could exhaust the parser


class Named(NamedTuple):
    """An orbit that has a name: how to make it, what it is, and the quantities that it describes."""

    make: Callable[..., Orbit]
    says: str
    quantities: tuple[str, ...] = ()


_DEFORMATION = ("amplitude", "smoothness")
_AFFINE = ("angle", "scale_x", "scale_y", "shear", "shift_x", "shift_y")
NAMES: dict[str, Named] = {
    "none": Named(orbits.Identity, "no invariance: the plain Gaussian process"),
    "rotation": Named(orbits.Rotation, "rotations within ± a learned angle (degrees)", ("degrees",)),
    "affine": Named(orbits.Affine, "rotation, scaling, shear and shift, a learned range each", _AFFINE),
    "translation": Named(orbits.Translation, "shifts to the right and down (pixels)", ("shift_x", "shift_y")),
    "scale": Named(orbits.Scale, "larger and smaller (a factor)", ("scale",)),
    "shear": Named(orbits.Shear, "slanted, as italics are", ("shear",)),
    "deformation": Named(orbits.LocalDeformation, "smooth local displacements (pixels)", _DEFORMATION),
    "tangent": Named(orbits.TangentDeformation, "the same to first order, with thickness", (*_DEFORMATION, "thickness")),
    "thickness": Named(orbits.Thickness, "strokes thicker and thinner (pixels)", ("thickness",)),
    "brightness": Named(orbits.Brightness, "brighter and darker", ("brightness",)),
    "contrast": Named(orbits.Contrast, "more and less contrast (a factor)", ("contrast",)),
    "noise": Named(orbits.GaussianNoise, "Gaussian noise on every feature", ("scale",)),
    "flip": Named(orbits.Flip, "the mirror image; flip(vertical=True) both ways"),
    "rotate90": Named(orbits.Rotate90, "quarter turns of square images"),
    "timeshift": Named(orbits.TimeShift, "signals that come earlier and later", ("shift",)),
    "circularshift": Named(
        partial(orbits.TimeShift, border="circular"), "signals that begin anywhere in their circle", ("shift",)
    ),
    "timescale": Named(orbits.TimeScale, "signals that are slower and faster (a factor)", ("stretch",)),
    "timewarp": Named(orbits.TimeWarp, "signals whose time runs unevenly, never back", _DEFORMATION),
    "gain": Named(orbits.Gain, "signals that are stronger and weaker (a factor)", ("gain",)),
    "offset": Named(orbits.Offset, "a constant added to a signal", ("offset",)),
    "baseline": Named(orbits.Baseline, "a polynomial added to a signal", ("baseline",)),
    "smoothing": Named(orbits.Smoothing, "signals with less detail, up to a learned width", ("width",)),
    "dropout": Named(orbits.Dropout, "signals with a gap, up to a learned length", ("gap",)),
    "reversal": Named(orbits.Reversal, "signals forwards and backwards"),
    "swap": Named(orbits.Permutation.swap, "swap(0, 1): two coordinates of a vector exchanged"),
}


@dataclass(frozen=True)
class Factor:
    """One name of the product, with its arguments."""

    name: str
    args: tuple[Any, ...] = ()
    kwargs: tuple[tuple[str, Any], ...] = ()

    def __str__(self) -> str:
        arguments = [repr(value) for value in self.args] + [f"{key}={value!r}" for key, value in self.kwargs]
        return f"{self.name}({', '.join(arguments)})" if arguments else self.name


def parse(text: str) -> list[Factor]:
    """The factors of a product, in the order in which they act."""
    if len(text) > MAX_LENGTH:
        raise ValueError(f"an orbit is written in at most {MAX_LENGTH} characters, got {len(text)}.")
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        if ".py:" in text:
            raise ValueError(
                f"cannot read the orbit {text!r}: a class of your own stands alone on the command line; in Python, give the "
                "object itself, or a product of objects."
            ) from None
        raise ValueError(
            f"cannot read the orbit {text!r}: write a name, arguments in parentheses if any, and * between factors, "
            "as in rotation(30) or affine*deformation."
        ) from None
    return _factors(tree.body, text)


def _factors(node: ast.expr, text: str) -> list[Factor]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        return [*_factors(node.left, text), *_factors(node.right, text)]
    if isinstance(node, ast.Name):
        return [Factor(_known(node.id))]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        name = _known(node.func.id)
        try:
            args = tuple(_argument(name, argument) for argument in node.args)
            kwargs = tuple((str(keyword.arg), ast.literal_eval(keyword.value)) for keyword in node.keywords if keyword.arg)
        except (ValueError, TypeError, SyntaxError):
            raise ValueError(
                f"the arguments of {name} in {text!r} must be numbers, pairs, words in quotes, True, False or None."
            ) from None
        if len(kwargs) == len(node.keywords):
            return [Factor(name, args, kwargs)]
    raise ValueError(
        f"cannot read the orbit {text!r}: it is not a product of names such as rotation(30) or affine*deformation."
    )


def _argument(orbit: str, node: ast.expr) -> Any:
    """A number, a pair, True, False, None or a text; a bare name in a swap is a text, too: that of a column."""
    return node.id if orbit == "swap" and isinstance(node, ast.Name) else ast.literal_eval(node)


def _with_columns(factor: Factor, columns: Sequence[str]) -> Factor:
    """The factor with the numbers of columns in place of their names."""
    texts = [argument for argument in factor.args if isinstance(argument, str)]
    if not texts or factor.name != "swap":
        return factor
    for text in texts:
        if text not in columns:
            there = f"they are {', '.join(columns)}" if columns else "the inputs have no named columns, so count them from 0"
            raise ValueError(f"{factor} is not possible: there is no column {text!r}; {there}.")
    args = tuple(columns.index(a) if isinstance(a, str) else a for a in factor.args)
    named = tuple(columns[i] for i in args[:2])
    return replace(factor, args=args, kwargs=(*factor.kwargs, ("names", named)))


def exchanged(text: str, columns: Sequence[str] = ()) -> list[set[int]]:
    """Groups of coordinates that this orbit exchanges among themselves."""
    groups = []
    for part in make_orbit(text, columns=columns).modules():
        if isinstance(part, orbits.Permutation):
            moved = (part.index != torch.arange(part.index.shape[1])).any(0)
            groups.append(set(torch.nonzero(moved)[:, 0].tolist()))
    return groups


def _known(name: str) -> str:
    key = name.lower()
    if key in NAMES:
        return key
    close = get_close_matches(key, NAMES, n=1)
    hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(NAMES)}."
    raise ValueError(f"there is no orbit {name!r}: {hint}")


def make_orbit(text: str, features: Sequence[int] | None = None, columns: Sequence[str] = ()) -> Orbit:
    """The orbit that a text stands for. If ``features``, the shape of one input, is given, the orbit is checked against it.
    ``columns`` are the names of the coordinates of vectors, for orbits such as ``swap(left, right)``."""
    return product(_read(text, columns), features)


def _read(text: str, columns: Sequence[str]) -> list[Factor]:
    return [_with_columns(factor, columns) for factor in parse(text)]


def product(factors: Sequence[Factor], features: Sequence[int] | None = None) -> Orbit:
    """The product of these factors."""
    orbit: Orbit = orbits.Identity()
    for factor in factors:
        orbit = orbit * _make(factor)
    if features is not None:
        orbit.check(torch.Size(features))
    return orbit


def _make(factor: Factor) -> Orbit:
    make = NAMES[factor.name].make
    kwargs = dict(factor.kwargs)
    try:
        inspect.signature(make).bind(*factor.args, **kwargs)
    except TypeError as error:
        raise ValueError(f"{factor} is not possible ({error}): it takes {_arguments(make)}.") from None
    try:
        return make(*factor.args, **kwargs)
    except ValueError as error:
        raise ValueError(f"{factor} is not possible: {error}") from None
    except TypeError:
        raise ValueError(f"{factor} is not possible: an argument is of the wrong kind; it takes {_arguments(make)}.") from None


def _arguments(make: Callable[..., Orbit]) -> str:
    parameters = inspect.signature(make).parameters.values()
    named = [p.name if p.default is p.empty else f"{p.name}={p.default!r}" for p in parameters]
    return ", ".join(named) or "no arguments"


def with_axis(text: str, interval: float, unit: str) -> str:
    """The same orbit with this distance between samples in all factors that have lengths along the axis of a signal."""
    axis = {"interval": interval, "unit": unit}
    factors = []
    for factor in parse(text):
        takes = "interval" in inspect.signature(NAMES[factor.name].make).parameters
        kwargs = {**axis, **dict(factor.kwargs)} if takes else dict(factor.kwargs)
        factors.append(replace(factor, kwargs=tuple(kwargs.items())))
    return "*".join(str(factor) for factor in factors)


def quantity_names(text: str, columns: Sequence[str] = ()) -> list[str]:
    """The quantities of this orbit that :func:`with_fixed` can hold fixed, as ``describe()`` names them."""
    return list(_quantities(_read(text, columns)))


def with_fixed(
    text: str, quantity: str, value: float, features: Sequence[int] | None = None, columns: Sequence[str] = ()
) -> Orbit:
    """The orbit with one quantity, as ``describe()`` names it, held at a value (a half-width, a factor), the rest learned."""
    factors = _read(text, columns)
    found = _quantities(factors)
    if quantity not in found:
        there = f"it has {', '.join(found)}" if found else "it has nothing to fix"
        raise ValueError(f"the orbit {text} has no quantity {quantity!r}: {there}.")
    i, name = found[quantity]
    try:
        return product([*factors[:i], _fixed(factors[i], name, value), *factors[i + 1 :]], features)
    except ValueError as error:  # of an argument that nobody has typed
        raise ValueError(str(error).replace(f"init_{name}", name)) from None


def _quantities(factors: Sequence[Factor]) -> dict[str, tuple[int, str]]:
    """The quantities of a product, by the names that it gives them: which factor has it, and what it is called there."""
    own = [(i, name) for i, factor in enumerate(factors) for name in _make(factor).describe().quantities]
    own = [(i, name) for i, name in own if name in NAMES[factors[i].name].quantities]
    names = [name for name in product(factors).describe().quantities if name.split(".")[-1] in {name for _, name in own}]
    return dict(zip(names, own, strict=True))


def _fixed(factor: Factor, quantity: str, value: float) -> Factor:
    signature = inspect.signature(NAMES[factor.name].make)
    given = dict(signature.bind_partial(*factor.args, **dict(factor.kwargs)).arguments)
    given[quantity if quantity in signature.parameters else f"init_{quantity}"] = value
    if "frozen" in signature.parameters:
        given["frozen"] = (*given.get("frozen", ()), quantity)
    else:
        given["learn"] = False
    return replace(factor, args=(), kwargs=tuple(given.items()))
