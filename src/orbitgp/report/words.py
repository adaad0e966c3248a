"""What was learned, in words and units: "insensitive to rotations within ±17°"."""

from __future__ import annotations

from orbitgp.orbits.description import Description, Quantity, listed, number, with_unit

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
_SIZES = {"width": "smoothing up to", "gap": "gaps up to", "baseline": "baselines of"}
_AXES = {"_x": "sideways", "_y": "up and down"}


def nats(value: float | int, sign: bool = False) -> str:
    """Three figures, as in "+41,200 nats". Below a thousand, all figures before the point."""
    size = abs(value)
    digits = 0 if size < 1000 else max(0, len(f"{size:.0f}") - 3)
    rounded = round(value, -digits) if size >= 10 else round(value, 1)
    text = f"{rounded:{'+' if sign else ''},.{0 if size >= 10 else 1}f}".replace("-", "−")
    return f"{text} nats"


def learned(description: Description) -> list[str]:
    """A phrase for each thing that the function is insensitive to."""
    phrases = []
    for key, value in description.quantities.items():
        name = key.rsplit(".", 1)[-1]
        if name == "elements":
            phrases.append(_set_phrase(key, description, value))
        elif name.startswith("smoothness"):
            continue
        elif name.startswith("amplitude"):
            smooth = description.quantities.get(key.replace("amplitude", "smoothness"))
            over = f" (smooth over {smooth})" if smooth is not None else ""
            phrases.append(f"local displacements of {value}{over}")
        elif name == "scale" and value.unit != "×":
            phrases.append(f"noise of standard deviation {value}")
        elif name in _SIZES:
            phrases.append(f"{_SIZES[name]} {value}")
        elif name[-2:] in _AXES:
            phrases += _along_axes(key, description)
        else:
            phrases.append(f"{_RANGES.get(name, key.replace('_', ' '))} {_extent(value)}")
    return phrases


def _along_axes(key: str, description: Description) -> list[str]:
    """One phrase for a quantity with two axes. The first axis brings it; the second brings nothing."""
    stem = key[:-2]
    found = {axis: description.quantities[stem + axis] for axis in _AXES if stem + axis in description.quantities}
    if key != stem + next(iter(found)):
        return []
    name = stem.rsplit(".", 1)[-1]
    extents = {axis: _extent(value) for axis, value in found.items()}
    what = _RANGES.get(name, name.replace("_", " "))
    if len(extents) == 2 and len(set(extents.values())) == 1:
        return [f"{what} {next(iter(extents.values()))}"]
    return [f"{what} {listed([f'{extent} {_AXES[axis]}' for axis, extent in extents.items()])}"]


def _set_phrase(key: str, description: Description, value: Quantity) -> str:
    titles = [key.rsplit(".", 1)[0].rstrip("0123456789")] if "." in key else description.title.split(" * ")
    for title, phrase in _SETS.items():
        if title in titles or title.lower() in titles:
            return phrase
    count = value.value if isinstance(value.value, float) else value.value[0]
    return f"a set of {count:.0f} transformations"


def _extent(value: Quantity) -> str:
    """As in "within ±17°" for symmetric ranges, "from −16° to +40°" for others, "by ×0.9 to ×1.2" for factors."""
    if value.is_symmetric:
        return f"within {value}"
    if not isinstance(value.value, tuple):
        return f"within ±{with_unit(number(value.value), value.unit)}"
    low, high = value.ends()
    return f"by {low} to {high}" if value.unit == "×" else f"from {low} to {high}"


def sentence(description: Description, over_plain: float | int | None = None) -> str:
    """What a run has learned, and how much evidence that gains."""
    phrases = learned(description)
    said = f"Insensitive to {listed(phrases)}" if phrases else "No invariance: a plain Gaussian process"
    if over_plain is None:
        return f"{said}."
    if over_plain < 0:
        return f"{said}; but the evidence is {nats(-over_plain)} lower than without any invariance."
    return f"{said}; evidence {nats(over_plain, sign=True)} over no invariance."
