"""Forms: what a value from a JSON file must look like, said by the type hints of the class that it becomes.

Whoever reads a file asks :func:`misfit` before they use a part of it. A file may come from anywhere, so each part may be
missing, or a number where a name should be.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NotRequired, Union, get_args, get_origin, get_type_hints, is_typeddict

_LONGEST_NAME = 40


def misfit(value: Any, form: Any, name: str = "") -> str | None:
    """What is wrong with ``value``, as in "'settings.seed' is missing"; None where it has this form.

    Forms are the types that JSON has, their unions, literals, lists, tuples (lists in JSON) and dictionaries, and classes with
    fields: a dataclass, a named tuple, or a typed dictionary, which may have more keys than it names.
    """
    origin, inner = get_origin(form), get_args(form)
    if form is Any:
        return None
    if origin in (Annotated, NotRequired):
        return misfit(value, inner[0], name)
    if origin in (Union, UnionType):
        problems = [misfit(value, option, name) for option in inner]
        return None if None in problems else problems[0]
    if origin in (list, tuple):
        return _misfit_item(value, inner if origin is tuple else (*inner, ...), name)
    if origin is dict:
        return _misfit_part(value, dict.fromkeys(value, inner[1]) if isinstance(value, dict) else {}, frozenset(), name)
    if is_typeddict(form):
        hints = get_type_hints(form, include_extras=True)
        optional = frozenset(key for key, hint in hints.items() if get_origin(hint) is NotRequired)
        return _misfit_part(value, hints, optional, name)
    if is_dataclass(form) or hasattr(form, "_field_defaults"):
        hints = get_type_hints(form)
        unknown = [key for key in value if key not in hints] if isinstance(value, dict) else []
        return _said(_part(name, unknown[0]), "unknown") if unknown else _misfit_part(value, hints, _with_default(form), name)
    fits = any(value == one and type(value) is type(one) for one in inner) if origin is Literal else _is_plain(value, form)
    return None if fits else _said(name, "of the wrong kind")


def _is_plain(value: Any, form: Any) -> bool:
    """Whether this is a number, a text, true, false or null of this type. A truth is no number, and 1 is a float."""
    if form is NoneType or form is None:
        return value is None
    return isinstance(value, int | float if form is float else form) and (form is bool or not isinstance(value, bool))


def _misfit_item(value: Any, forms: tuple[Any, ...], name: str) -> str | None:
    if isinstance(value, list | tuple) and forms[-1] is ...:
        forms = forms[:1] * len(value)
    if not isinstance(value, list | tuple) or len(value) != len(forms):
        return _said(name, "of the wrong kind")
    problems = (misfit(item, form, _part(name, i)) for i, (item, form) in enumerate(zip(value, forms, strict=True)))
    return next(filter(None, problems), None)


def _misfit_part(value: Any, forms: Mapping[str, Any], optional: frozenset[str], name: str) -> str | None:
    if not isinstance(value, dict):
        return _said(name, "of the wrong kind")
    for key, form in forms.items():
        if key not in value and key not in optional:
            return _said(_part(name, key), "missing")
        if key in value and (problem := misfit(value[key], form, _part(name, key))):
            return problem
    return None


def _with_default(form: Any) -> frozenset[str]:
    if is_dataclass(form):
        return frozenset(f.name for f in fields(form) if f.default is not MISSING or f.default_factory is not MISSING)
    return frozenset(form._field_defaults)


def _part(name: str, part: object) -> str:
    return f"{name}.{part}" if name else str(part)


def _said(name: str, what: str) -> str:
    return f"{name[:_LONGEST_NAME]!r} is {what}" if name else f"it is {what}"
