"""Forms: what a value from a JSON file must look like, said by the type hints of the class that it becomes.

Whoever reads a file asks :func:`misfit` before they use a part of it. A file may come from anywhere, so each part may be
missing, or a number where a name should be.
"""

from __future__ import annotations

from inspect import signature
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NotRequired, Union, get_args, get_origin, get_type_hints, is_typeddict

_PLAIN = {bool: (bool,), int: (int,), float: (int, float), str: (str,), NoneType: (NoneType,), None: (NoneType,)}


def misfit(value: Any, form: Any, name: str = "") -> str | None:
    """What is wrong with ``value``, as in "'settings.seed' is missing"; None where it has this form.

    Forms are the types that JSON has, their unions, literals, lists, tuples (lists in JSON) and dictionaries, and classes with
    fields: a dataclass, a named tuple, or a typed dictionary, which may have more keys than it names.
    """
    origin, inner = get_origin(form), get_args(form)
    if origin in (Annotated, NotRequired):
        return misfit(value, inner[0], name)
    if origin in (Union, UnionType):
        problems = [misfit(value, option, name) for option in inner]
        return None if None in problems else problems[0]
    if origin is Literal:
        fits = any(value == one and type(value) is type(one) for one in inner)
    elif form is Any or form in _PLAIN:
        fits = form is Any or type(value) in _PLAIN[form]
    elif origin in (list, tuple) and isinstance(value, list | tuple):
        forms = inner if origin is tuple and ... not in inner else inner[:1] * len(value)
        if fits := len(forms) == len(value):
            return _misfit_part(dict(enumerate(value)), dict(enumerate(forms)), name)
    elif isinstance(value, dict) and origin in (dict, None):
        return _misfit_part(value, dict.fromkeys(value, inner[1]) if inner else _fields(form, value), name)
    else:
        fits = origin is None and not is_typeddict(form) and isinstance(value, form)
    return None if fits else _said(name, "of the wrong kind")


def _fields(form: Any, value: dict[str, Any]) -> dict[str, Any]:
    """The form of each part that the value has or must have; None for those that a class without such a field has."""
    hints = get_type_hints(form, include_extras=True)
    if is_typeddict(form):
        return {key: hint for key, hint in hints.items() if key in value or get_origin(hint) is not NotRequired}
    needed = [key for key, parameter in signature(form).parameters.items() if parameter.default is parameter.empty]
    return {key: hints.get(key) for key in (*value, *needed)}


def _misfit_part(value: dict[Any, Any], forms: dict[Any, Any], name: str) -> str | None:
    """The first part that is missing, unknown (without a form), or wrong."""
    for key, form in forms.items():
        part = f"{name}.{key}" if name else str(key)
        if key not in value or form is None:
            return _said(part, "unknown" if key in value else "missing")
        if problem := misfit(value[key], form, part):
            return problem
    return None


def _said(name: str, what: str) -> str:
    return f"{name[:40]!r} is {what}" if name else f"it is {what}"
