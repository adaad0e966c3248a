"""What was learned, in words and units: "insensitive to rotations within ±17°"."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isinf
from typing import Any

from orbitgp.inference.evidence import Evidence
from orbitgp.orbits.description import Description, Quantity, listed, number, with_unit
from orbitgp.report.fitted import Fitted
from orbitgp.report.support import nats_needed

_SETS = {
    "Flip": "mirror images",
    "Rotate90": "quarter turns",
    "Permutation": "exchanges of coordinates",
    "Reversal": "reversal of time",
    "ChannelPermutation": "exchanges of channels",
}
_RANGES = {
    "degrees": "rotations",
    "angle": "rotations",
    "scale": "scaling",
    "shear": "shears",
    "shift": "shifts",
    "thickness": "changes of stroke width",
    "brightness": "changes of brightness",
    "contrast": "changes of contrast",
    "stretch": "stretching in time",
    "gain": "changes of gain",
    "offset": "offsets",
}
FEW_DATA = 20
_MOST_PLAUSIBLE = 2  # quantities, or nobody could read the sentence: what is plausible of more stands in the table of ranges
# Sizes of the orbits that come with the package: a class of the user's may call anything a width.
_SIZES = {
    "width": ("Smoothing", "smoothing up to"),
    "gap": ("Dropout", "gaps up to"),
    "baseline": ("Baseline", "baselines of"),
}
_AXES = {"_x": "sideways", "_y": "up and down"}


def nats(value: float | int, sign: bool = False) -> str:
    """Three figures, as in "+41,200 nats". Below a thousand, all figures before the point."""
    size = abs(value)
    digits = 0 if size < 1000 else max(0, len(f"{size:.0f}") - 3)
    rounded = round(value, -digits) if size >= 10 else round(value, 1)
    rounded = rounded or 0.0  # no minus before a zero
    text = f"{rounded:{'+' if sign else ''},.{0 if size >= 10 else 1}f}".replace("-", "−")
    return f"{text} nats"


def seen_by_g(model: Fitted) -> str:
    """The parts of a model's feature map by name, with the constants that each has learned; nothing without a map."""
    if model.feature_map is None:
        return ""
    feature_map, words = model.kernel_.feature_map, []
    for part in (part for part in feature_map.modules() if hasattr(part, "named_constants")):
        constants = ", ".join(f"{name} {value:.3g}" for name, value in part.named_constants().items())
        words.append(f"{type(part).__name__} ({constants})")
    return ", ".join(words) or type(feature_map).__name__


def learned(description: Description) -> list[str]:
    """A phrase for each thing that the function is insensitive to. Where that is nothing at all, the phrases say so."""
    something = [name for name, quantity in description.quantities.items() if not quantity.is_nothing]
    nothing = [name for name in description.quantities if name not in something]
    absent = dict.fromkeys(description.owners[name] if _is_own(name, description) else _what(name) for name in nothing)
    return _phrases(description.only(something)) or [f"no {what}" for what in absent]


def quantity_label(key: str, description: Description) -> str:
    """What a quantity is, for a table of quantities: "rotations" of degrees, "scaling sideways" of scale_x."""
    name = key.rsplit(".", 1)[-1]
    if _is_own(key, description):
        return key.replace("_", " ")
    if name == "scale" and description.quantities[key].unit != "×":
        return "noise: standard deviation"
    if name.startswith("amplitude"):
        return name.replace("amplitude", "local displacements").replace("_", " ")
    if name.startswith("smoothness"):
        return name.replace("smoothness", "smoothness of displacements").replace("_", " ")
    if name in _SIZES:
        return f"{_SIZES[name][0].lower()}: {name}"
    return f"{_what(key)} {_AXES[name[-2:]]}" if name[-2:] in _AXES else _what(key)


def _what(key: str) -> str:
    """What a quantity measures, as a noun: "rotations" of degrees, "scaling" of scale_x."""
    name = key.rsplit(".", 1)[-1]
    name = name[:-2] if name[-2:] in _AXES else name
    return _RANGES.get(name, name.replace("_", " "))


def _is_own(key: str, description: Description) -> bool:
    """Whether no phrase is known for a quantity, as for the parameters of an orbit of one's own."""
    name, owner, unit = key.rsplit(".", 1)[-1], description.owners[key], description.quantities[key].unit
    if name == "scale" and unit != "×":
        return owner != "GaussianNoise"
    if name in _SIZES:
        return owner != _SIZES[name][0]
    stem = name[:-2] if name[-2:] in _AXES else name
    return stem not in _RANGES and not name.startswith(("elements", "amplitude", "smoothness"))


def _own_phrase(owner: str, description: Description) -> str:
    """As in "AddConstant of width 26"."""
    own = [key for key, title in description.owners.items() if title == owner and _is_own(key, description)]
    values = {key: description.quantities[key] for key in own}
    named = [f"{key.rsplit('.', 1)[-1].replace('_', ' ')} {value}{value.plausibly}" for key, value in values.items()]
    return f"{owner} of {listed(named)}"


def _phrases(description: Description) -> list[str]:
    own = dict.fromkeys(owner for key, owner in description.owners.items() if _is_own(key, description))
    phrases = [_own_phrase(owner, description) for owner in own]
    for key, value in description.quantities.items():
        name = key.rsplit(".", 1)[-1]
        if _is_own(key, description):
            continue
        if name == "elements":
            phrases.append(_set_phrase(key, description, value))
        elif name.startswith("smoothness"):
            continue
        elif name.startswith("amplitude"):
            smooth = description.quantities.get(key.replace("amplitude", "smoothness"))
            over = f" (smooth over {smooth})" if smooth is not None else ""
            phrases.append(f"local displacements of {value}{value.plausibly}{over}")
        elif name == "scale" and value.unit != "×":
            phrases.append(f"noise of standard deviation {value}{value.plausibly}")
        elif name in _SIZES:
            phrases.append(f"{_SIZES[name][1]} {value}{value.plausibly}")
        elif name[-2:] in _AXES:
            phrases += _along_axes(key, description)
        else:
            phrases.append(f"{_RANGES[name]} {_extent(value)}")
    return phrases


def _along_axes(key: str, description: Description) -> list[str]:
    """One phrase for a quantity with two axes. The first axis brings it; the second brings nothing."""
    stem = key[:-2]
    found = {axis: description.quantities[stem + axis] for axis in _AXES if stem + axis in description.quantities}
    if key != stem + next(iter(found)):
        return []
    what = _what(stem)
    extents = {axis: _extent(value) for axis, value in found.items()}
    if len(extents) == 2 and len(set(extents.values())) == 1:
        return [f"{what} {next(iter(extents.values()))}"]
    return [f"{what} {listed([f'{extent} {_AXES[axis]}' for axis, extent in extents.items()])}"]


def _set_phrase(key: str, description: Description, value: Quantity) -> str:
    titles = [key.rsplit(".", 1)[0].rstrip("0123456789")] if "." in key else description.title.split(" * ")
    for title in titles:
        if title.lower().startswith("permutation of "):
            return f"exchanges of {title[len('permutation of ') :]}"
    for title, phrase in _SETS.items():
        if title in titles or title.lower() in titles:
            return phrase
    count = value.value if isinstance(value.value, float) else value.value[0]
    return f"a set of {count:.0f} transformations"


def _extent(value: Quantity) -> str:
    """As in "within ±17°" for symmetric ranges, "from −16° to +40°" for others, "by ×0.9 to ×1.2" for factors."""
    if value.is_symmetric:
        return f"within {value}{value.plausibly}"
    if not isinstance(value.value, tuple):
        return f"within ±{with_unit(number(abs(value.value)), value.unit)}{value.plausibly}"
    low, high = value.ends()
    return (f"by {low} to {high}" if value.unit == "×" else f"from {low} to {high}") + value.plausibly


@dataclass(frozen=True)
class Finding:
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
    """One rule for the terminal, the report and the summary: nothing is called a finding that the evidence does not support.

    Args:
        description: what was learned.
        over_plain: nats over the same model without invariance; None where that was not trained.
        num_data: the data that it was learned from.
        certain: whether the difference is known well enough (:func:`is_certain`, or the verdict of a comparison).
        needed: nats that chance alone may give (:func:`~orbitgp.report.support.nats_needed`).
        steps: of training.
        stopped: whether the run was stopped by hand.
        converged: whether it came to its end, and not to a limit.
    """
    phrases = learned(_with_few_plausible(description))
    if stopped or not converged:
        how = "Stopped" if stopped else "Not converged"
        so_far = f"so far {listed(phrases)}" if phrases else "a Gaussian process without invariance"
        return Finding(f"{how} after {steps:,} step{'' if steps == 1 else 's'}, so this is no result yet: {so_far}.")
    if not phrases:
        return Finding("No invariance: a plain Gaussian process.")
    what = listed(phrases)
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
    found = _found(description)
    return Finding(f"Insensitive to {found}; evidence {nats(over_plain, sign=True)} over no invariance.{few}", supported=True)


def _found(description: Description) -> str:
    """What is insensitive beyond doubt, and then by name where none at all is plausible; all in the same way if nothing is."""
    doubtful = [name for name, quantity in description.quantities.items() if quantity.may_be_nothing]
    clear = description.only([name for name, q in description.quantities.items() if not q.may_be_nothing and not q.is_nothing])
    phrases = learned(_with_few_plausible(clear))
    if not doubtful or not phrases:
        return listed(learned(_with_few_plausible(description)))
    return f"{listed(phrases)} ({listed([quantity_label(name, description) for name in doubtful])} not determined)"


def _with_few_plausible(description: Description) -> Description:
    """The same without what is plausible, if there is too much of that for a sentence."""
    many = sum(quantity.plausible is not None for quantity in description.quantities.values()) > _MOST_PLAUSIBLE
    return description.with_plausible({}) if many else description


def is_certain(evidence: Evidence, plain: Evidence) -> bool:
    """Whether the better of two is better beyond their errors, and beyond the slack of the worse, where that is known."""
    better, worse = (evidence, plain) if evidence.value >= plain.value else (plain, evidence)
    low, high = better.interval[0], worse.interval[1]
    return low > (worse.value + 2 * worse.stderr if isinf(high) else high)


def why_not_plausible(inference: str | None, learned: Mapping[str, Any], plausible: Mapping[str, Any]) -> str:
    """Why nothing is said of what else is plausible; empty where it is said, or where there is nothing to say it of.

    Args:
        inference: exact or sparse.
        learned: what was learned, by name.
        plausible: the ``plausible_`` of a fitted estimator.
    """
    if inference == "sparse" and learned:
        return "known for exact inference alone"
    return not_determined([name for name, ends in plausible.items() if ends is None])


def not_determined(quantities: Sequence[str]) -> str:
    """As in "the data do not determine shift_x"; empty where there are none."""
    return f"the data do not determine {listed(quantities)}" if quantities else ""


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


def noise_in_units(learned: Description, columns: Sequence[str], scales: Sequence[tuple[float, float]]) -> list[str]:
    """What noise on standardised columns is in their own units; columns of words have none."""
    noise = learned.quantities.get("scale")
    scaled = [(name, unit) for name, (shift, unit) in zip(columns, scales, strict=False) if (shift, unit) != (0.0, 1.0)]
    if noise is None or noise.unit or not isinstance(noise.value, float) or not scaled:
        return []
    shown = [f"{number(noise.value * unit)} in {name}" for name, unit in scaled[:6]] + ["…"] * (len(scaled) > 6)
    return [f"Columns are standardised. In their own units, the noise has a standard deviation of {', '.join(shown)}."]
