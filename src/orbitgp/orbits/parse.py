"""Orbits in words: ``rotation``, ``rotation(30)``, ``affine*deformation``, ``translation(shift_y=None)``.

A text is a product of names, each with the arguments of its class in parentheses, if any: positional or by keyword;
numbers, pairs, words in quotes, True, False, None or lists of names. ``a*b`` is what ``a * b`` is in Python: a acts
first, then b. It is parsed, never evaluated: nothing but the names below can be called.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from functools import partial, reduce
from inspect import Parameter, signature
from operator import mul
from typing import Any, NamedTuple

import torch

from orbitgp import orbits
from orbitgp.orbits import Orbit

MAX_LENGTH = 500  # characters of a text: longer ones are slips, and deep ones could exhaust the parser

_CLASSES = (
    *(orbits.Rotation, orbits.Affine, orbits.Translation, orbits.Scale, orbits.Shear, orbits.Thickness),
    *(orbits.Brightness, orbits.Contrast, orbits.Flip, orbits.Rotate90, orbits.TimeShift, orbits.TimeScale),
    *(orbits.TimeWarp, orbits.Gain, orbits.Offset, orbits.Baseline, orbits.Smoothing, orbits.Reversal),
    *(orbits.Saturation, orbits.Hue, orbits.Gamma, orbits.Blur, orbits.Stain, orbits.Cutout),
)
NAMES: dict[str, Callable[..., Orbit]] = {
    "none": orbits.Identity,
    **{kind.__name__.lower(): kind for kind in _CLASSES},
    "noise": orbits.GaussianNoise,
    "deformation": orbits.LocalDeformation,
    "circularshift": partial(orbits.TimeShift, border="circular"),
    "swap": orbits.Permutation.swap,
    "sign": orbits.SignChange,
    "permutations": orbits.Permutation.all,
    "cyclic": orbits.Permutation.cyclic,
    "dihedral": orbits.Permutation.dihedral,
    "blocks": orbits.Permutation.blocks,
    "weighted": orbits.Weighted,  # takes another factor, as in weighted(swap(a, b))
}
_OF_COLUMNS = ("swap", "sign", "permutations", "cyclic", "dihedral")  # their arguments may be names of columns


class Factor(NamedTuple):
    """One name of the product, with its arguments."""

    name: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    @property
    def takes(self) -> dict[str, Any]:
        """The arguments that it may have, with their defaults."""
        return {name: p.default for name, p in signature(NAMES[self.name]).parameters.items()}

    def __str__(self) -> str:
        given: dict[Any, Any] = {**dict(enumerate(self.args)), **self.kwargs}
        texts = {key: str(value) if isinstance(value, Factor) else repr(value) for key, value in given.items()}
        arguments = [f"{key}={text}" if isinstance(key, str) else text for key, text in texts.items()]
        return f"{self.name}({', '.join(arguments)})" if arguments else self.name

    def make(self) -> Orbit:
        """The orbit, or an error that names this factor."""
        try:
            args = [value.make() if isinstance(value, Factor) else value for value in self.args]
            kwargs = {key: value.make() if isinstance(value, Factor) else value for key, value in self.kwargs.items()}
            return NAMES[self.name](*args, **kwargs)
        except ValueError as error:
            raise ValueError(f"{self} is not possible: {error}") from None
        except TypeError:
            named = [name if value is Parameter.empty else f"{name}={value!r}" for name, value in self.takes.items()]
            takes = f"it takes {', '.join(named) or 'no arguments'}"
            raise ValueError(
                f"{self} is not possible: an argument is missing, unknown or of the wrong kind; {takes}."
            ) from None


def parse(text: str, columns: Sequence[str] | None = None) -> list[Factor]:
    """The factors of a product, in the order in which they act; with ``columns``, numbers in place of names."""
    if len(text) > MAX_LENGTH:
        raise ValueError(f"an orbit is written in at most {MAX_LENGTH} characters, got {len(text)}.")
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        advice = "write a name, arguments in parentheses, and * between factors: rotation(30), affine*deformation."
        raise ValueError(f"cannot read the orbit {text!r}: {advice}") from None
    factors = _factors(tree.body, text)
    return factors if columns is None else [_with_columns(factor, columns) for factor in factors]


def _factors(node: ast.expr, text: str) -> list[Factor]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        return [*_factors(node.left, text), *_factors(node.right, text)]
    if isinstance(node, ast.Name):
        return [Factor(_known(node.id), (), {})]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and all(keyword.arg for keyword in node.keywords):
        name = _known(node.func.id)
        try:
            args = tuple(_argument(name, a, text) for a in node.args)
            return [Factor(name, args, {str(k.arg): ast.literal_eval(k.value) for k in node.keywords})]
        except (ValueError, TypeError, SyntaxError):
            raise ValueError(
                f"the arguments of {name} in {text!r} must be numbers, pairs, words in quotes, True, False or None."
            ) from None
    raise ValueError(
        f"cannot read the orbit {text!r}: it is not a product of names such as rotation(30) or affine*deformation."
    )


def _argument(name: str, node: ast.expr, text: str) -> Any:
    """A number or a text, the name of a column, or the factor that is to have weights."""
    if name == "weighted" and isinstance(node, ast.Name | ast.Call):
        return _factors(node, text)[0]
    return node.id if name in _OF_COLUMNS and isinstance(node, ast.Name) else ast.literal_eval(node)


def _known(name: str) -> str:
    key = name.lower()
    if key in NAMES:
        return key
    close = get_close_matches(key, NAMES, n=1)
    hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(NAMES)}."
    raise ValueError(f"there is no orbit {name!r}: {hint}")


def _with_columns(factor: Factor, columns: Sequence[str]) -> Factor:
    if factor.name == "weighted":
        inner = (_with_columns(a, columns) if isinstance(a, Factor) else a for a in factor.args)
        return factor._replace(args=tuple(inner))
    texts = [argument for argument in factor.args if isinstance(argument, str)]
    if not texts or factor.name not in _OF_COLUMNS:
        return factor
    for text in texts:
        if text not in columns:
            unnamed = "the inputs have no named columns, so count them from 0"
            there = f"they are {', '.join(columns)}" if columns else unnamed
            raise ValueError(f"{factor} is not possible: there is no column {text!r}; {there}.")
    args = tuple(columns.index(a) if isinstance(a, str) else a for a in factor.args)
    moved = args[:2] if factor.name == "swap" else args
    return Factor(factor.name, args, {**factor.kwargs, "names": tuple(columns[i] for i in moved)})


def make_orbit(orbit: str | Orbit | None, features: Sequence[int] | None = None, columns: Sequence[str] = ()) -> Orbit:
    """The orbit that a text stands for, an orbit itself, or no invariance for None.

    If ``features``, the shape of one input, is given, the orbit is checked against it. ``columns`` are the names of the
    coordinates of vectors, for orbits such as ``swap(left, right)``.
    """
    if isinstance(orbit, str):
        orbit = reduce(mul, (factor.make() for factor in parse(orbit, columns)), orbits.Identity())
    made = orbits.Identity() if orbit is None else orbit
    if not isinstance(made, Orbit):
        raise TypeError(f"an orbit is an orbitgp.orbits.Orbit, its name or None, got {type(made).__name__}.")
    if features is not None:
        made.check(torch.Size(features))
    return made


def with_axis(text: str, interval: float, unit: str) -> str:
    """The same orbit with this distance between samples in all factors that have lengths along the axis of a signal."""
    axis = {"interval": interval, "unit": unit}
    factors = [f._replace(kwargs={**axis, **f.kwargs}) if "interval" in f.takes else f for f in parse(text)]
    return "*".join(str(factor) for factor in factors)
