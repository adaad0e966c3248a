"""Groups of options: a dataclass whose fields are options, which a command takes as one argument.

:func:`expand_options` shows the fields of a group to typer one by one, and :func:`option_words` says how one would type them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from functools import wraps
from typing import Any, get_type_hints


def expand_options(command: Callable[..., None]) -> Callable[..., None]:
    """Show the fields of a command's groups to typer as options of their own."""
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: hint for name, hint in hints.items() if is_dataclass(hint)}
    shown: dict[str, tuple[Any, Any]] = {}
    for name, parameter in inspect.signature(command).parameters.items():
        if name in groups:
            types = get_type_hints(groups[name], include_extras=True)
            shown |= {field.name: (types[field.name], field.default) for field in fields(groups[name])}
        else:
            shown[name] = hints[name], parameter.default

    @wraps(command)
    def run(**given: Any) -> None:
        for name, group in groups.items():
            given[name] = group(**{field.name: given.pop(field.name) for field in fields(group)})
        command(**given)

    keyword = inspect.Parameter.KEYWORD_ONLY
    parameters = [inspect.Parameter(n, keyword, annotation=kind, default=value) for n, (kind, value) in shown.items()]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {name: kind for name, (kind, _) in shown.items()}
    return run


def option_words(options: Mapping[str, Any]) -> list[str]:
    """Options as one would type them; those without a value are left out."""
    words = []
    for field, value in options.items():
        name = field.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{name}" if value else f"--no-{name}")
        elif value is not None:
            words += [word for one in (value if isinstance(value, list) else [value]) for word in (f"--{name}", str(one))]
    return words
