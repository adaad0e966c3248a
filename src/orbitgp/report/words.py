"""What was learned, in words and units: "rotations within ±17° and mirror images"."""

from __future__ import annotations

from collections.abc import Sequence

from orbitgp.orbits.description import Description, Quantity, listed, number, with_unit

_RANGES = {
    "degrees": "rotations",
    "angle": "rotations",
    "scale": "scaling",
    "shear": "shears",
    "shift": "shifts",
    "thickness": "changes of stroke width",
    "brightness": "changes of brightness",
    "contrast": "changes of contrast",
    "saturation": "changes of saturation",
    "hue": "changes of hue",
    "gamma": "changes of gamma",
    "haematoxylin": "changes of haematoxylin",
    "eosin": "changes of eosin",
    "stretch": "stretching in time",
    "gain": "changes of gain",
    "offset": "offsets",
}
# Sizes of the package's own orbits, in a sentence and in a table. A class of the user's may call anything a width.
_SIZES = {
    ("GaussianNoise", "scale"): ("noise of standard deviation", "noise: standard deviation"),
    ("NoisySort", "noise"): ("atoms sorted with noise of", "noisy sort: noise"),
    ("Smoothing", "width"): ("smoothing up to", "smoothing: width"),
    ("Baseline", "baseline"): ("baselines of", "baseline: baseline"),
    ("Blur", "width"): ("blur up to", "blur: width"),
    ("Cutout", "side"): ("missing squares up to", "cutout: side"),
}
_FIELDS = {"amplitude": "local displacements", "smoothness": "smoothness of displacements"}
_SETS = {
    "Flip": "mirror images",
    "Rotate90": "quarter turns",
    "Permutation": "exchanges of coordinates",
    "SignChange": "changes of sign of coordinates",
    "Reversal": "reversal of time",
    "ChannelPermutation": "exchanges of channels",
}
_AXES = {"_x": "sideways", "_y": "up and down"}
_MOST_PLAUSIBLE = 2  # quantities whose plausible ranges a sentence gives, or nobody could read it
# Less than this is not worth a word.
_LEAST = {
    ("rotations", "°"): 0.5,
    ("scaling", "×"): 0.02,
    ("stretching in time", "×"): 0.02,
    ("changes of gain", "×"): 0.02,
    ("shears", ""): 0.02,
    ("shifts", "px"): 0.05,
    ("local displacements", "px"): 0.05,
}


def nats(value: float | int, sign: bool = False) -> str:
    """Three figures, as in "+41,200 nats". Below a thousand, all figures before the point."""
    places = 0 if abs(value) >= 10 else 1
    rounded = float(f"{value:.3g}") if abs(value) >= 1000 else round(value, places) or 0.0  # no minus before a zero
    return f"{rounded:{'+' if sign else ''},.{places}f} nats".replace("-", "−")


def _name(key: str, description: Description) -> tuple[str, str, str]:
    """What a quantity is called: its kind (range, size, set, own, or a key of _FIELDS), a noun, and its axis.

    Quantities of an orbit that does not come with the package are its own: no phrase is known for them.
    """
    name, owner = key.rsplit(".", 1)[-1], description.owners[key]
    stem, axis = (name[:-2], _AXES[name[-2:]]) if name[-2:] in _AXES else (name, "")
    field = next((start for start in _FIELDS if name.startswith(start)), None)
    if (owner, name) in _SIZES:
        return "size", _SIZES[owner, name][1], ""
    if field is not None:
        return field, _FIELDS[field], name[len(field) :].replace("_", " ").strip()
    if name == "elements":
        kind, _, names = owner.partition(" of ")
        if names and kind in _SETS:
            return "set", _SETS[kind].replace("coordinates", names), ""
        return "set", _SETS.get(owner, f"a set of {description.quantities[key]} transformations"), ""
    if stem in _RANGES and (stem != "scale" or description.quantities[key].unit == "×"):
        return "range", _RANGES[stem], axis
    return "own", key.replace("_", " "), ""


def quantity_label(key: str, description: Description) -> str:
    """What a quantity is, for a table of quantities: "rotations" of degrees, "scaling sideways" of scale_x."""
    _, noun, axis = _name(key, description)
    return f"{noun} {axis}".rstrip()


def _is_small(quantity: Quantity, key: str, description: Description) -> bool:
    """Whether this much of a quantity is not worth a word."""
    least = _LEAST.get((_name(key, description)[1], quantity.unit), 0.0)
    return quantity.is_nothing or all(abs(end - quantity.neutral) < least for end in quantity.span)


def is_absent(key: str, description: Description) -> bool:
    """Whether a quantity is too small to be worth a word, and so is what else is plausible of it."""
    quantity = description.quantities[key]
    return all(_is_small(one, key, description) for one in (quantity, *(quantity.plausible or ())))


def learned(description: Description) -> list[str]:
    """A phrase for each thing that the function is insensitive to. Where that is nothing at all, the phrases say so."""
    something = [key for key, q in description.quantities.items() if not (q.is_nothing or is_absent(key, description))]
    return _phrases(description.only(something)) or _without(list(description), description)


def learned_sentence(description: Description) -> str:
    """The same as part of a sentence, with what is absent or not determined behind it, by name."""
    absent = [key for key in description if is_absent(key, description)]
    known = {key: value.plausible[0] for key, value in description.quantities.items() if value.plausible is not None}
    doubtful = [key for key, least in known.items() if _is_small(least, key, description) and key not in absent]
    clear = description.only([key for key in description if key not in (*absent, *doubtful)])
    phrases = _phrases(_with_few_plausible(clear))
    if not phrases:
        return listed(learned(_with_few_plausible(description))) if description else ""
    labels = [quantity_label(key, description) for key in doubtful]
    apart = [listed(_without(absent, description))] if absent else []
    apart += [f"{listed(labels)} not determined"] if labels else []
    return listed(phrases) + (f" ({', '.join(apart)})" if apart else "")


def _without(absent: Sequence[str], description: Description) -> list[str]:
    """As in "no shears" and, where there is some up and down, "no scaling sideways"."""
    names = {key: _name(key, description) for key in description}
    present = {noun for key, (_, noun, _) in names.items() if key not in absent}
    labels = {
        description.owners[k] if kind == "own" else quantity_label(k, description) if noun in present else noun: None
        for k, (kind, noun, _) in names.items()
        if k in absent and kind != "smoothness"
    }
    return [f"no {label}" for label in labels]


def _with_few_plausible(description: Description) -> Description:
    """The same without what is plausible, if there is too much of that for a sentence: the table of ranges has it."""
    many = sum(quantity.plausible is not None for quantity in description.quantities.values()) > _MOST_PLAUSIBLE
    return description.with_plausible({}) if many else description


def _phrases(description: Description) -> list[str]:
    """As in "rotations within ±17°", "noise of standard deviation 0.2", "AddConstant of width 26"."""
    phrases: dict[str, str] = {}
    own: dict[str, list[str]] = {}
    ranges: dict[str, dict[str, str]] = {}
    for key, value in description.quantities.items():
        kind, noun, axis = _name(key, description)
        name, owner = key.rsplit(".", 1)[-1], description.owners[key]
        said = f"{value}{value.plausibly}"
        if kind == "own":
            own.setdefault(owner, []).append(f"{name.replace('_', ' ')} {said}")
        elif kind == "set":
            phrases[key] = noun
        elif kind == "size":
            phrases[key] = f"{_SIZES[owner, name][0]} {said}"
        elif kind == "amplitude":
            smooth = description.quantities.get(key.replace("amplitude", "smoothness"))
            over = "" if smooth is None else "the whole input" if smooth.is_beyond else str(smooth)
            phrases[key] = f"{noun} of {said}" + (over and f" (smooth over {over})")
        elif kind == "range":  # one phrase for both axes, without their names where both are the same
            stem = key[:-2] if axis else key
            extents = ranges.setdefault(stem, {})
            extents[axis] = _extent(value)
            alike = len(extents) == 2 and len(set(extents.values())) == 1
            parts = [extents[axis]] if alike else [f"{extent} {where}".rstrip() for where, extent in extents.items()]
            phrases[stem] = f"{noun} {listed(parts)}"
    return [*(f"{owner} of {listed(named)}" for owner, named in own.items()), *phrases.values()]


def _extent(value: Quantity) -> str:
    """As in "within ±17°" for symmetric ranges, "from −16° to +40°" for others, "by ×0.9 to ×1.2" for factors."""
    if value.is_symmetric:
        return f"within {value}{value.plausibly}"
    if not isinstance(value.value, tuple):
        return f"within ±{with_unit(number(abs(value.value)), value.unit)}{value.plausibly}"
    low, high = value.ends()
    return (f"by {low} to {high}" if value.unit == "×" else f"from {low} to {high}") + value.plausibly


def noise_in_units(learned: Description, columns: Sequence[str], scales: Sequence[tuple[float, float]]) -> list[str]:
    """What noise on standardised columns is in their own units; columns of words have none."""
    noise = learned.quantities.get("scale")
    scaled = [(name, unit) for name, (shift, unit) in zip(columns, scales, strict=False) if (shift, unit) != (0.0, 1.0)]
    if noise is None or noise.unit or not isinstance(noise.value, float) or not scaled:
        return []
    shown = [f"{number(noise.value * unit)} in {name}" for name, unit in scaled[:6]] + ["…"] * (len(scaled) > 6)
    return [f"Columns are standardised. In their own units, the noise has a standard deviation of {', '.join(shown)}."]
