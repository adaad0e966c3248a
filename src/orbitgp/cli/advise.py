"""``orbitgp advise``: which augmentations the labels of pictures allow, and how far each may go."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from orbitgp.cli import arguments
from orbitgp.cli.arguments import DataOptions, OutputOptions, TrainingSettings
from orbitgp.cli.begin import begin, stoppable
from orbitgp.cli.compare import train_and_rank
from orbitgp.cli.results import print_next

_ROWS = 200  # that advice is learned from by default
_SIDE = 32  # pixels, to which larger pictures are made smaller
_SECONDS = 270.0


def advise(
    options: DataOptions,
    settings: TrainingSettings,
    output: OutputOptions,
    orbit: Annotated[
        list[str] | None, arguments.orbit_option(help="As for compare, always with none; by default all for pictures.")
    ] = None,
) -> None:
    """Which augmentations do the labels of these pictures allow, and how far?

    Compares a model for each augmentation with one without any, as compare does. Says whether the data support it, by
    how many nats, and how far it may go. It learns from at most 200 pictures, made smaller to 32 pixels, in about five
    minutes, unless --max-data, --resize and --max-seconds say otherwise. Beside the report it writes advice.json.

    Example:

        orbitgp advise photographs/
    """
    folder = Path(options.data)
    smaller = f"{_SIDE}x{_SIDE}" if options.resize is None and folder.is_dir() and _is_large(folder) else options.resize
    asked = replace(options, max_data=options.max_data or _ROWS, resize=smaller)
    seen = "gradients" if settings.feature_map == "none" else settings.feature_map
    limited = replace(settings, max_seconds=settings.max_seconds or _SECONDS, feature_map=seen)
    run = begin("advise", asked, limited, output, ["none", *orbit] if orbit else [], {})
    with stoppable(run):
        ranking, _ = train_and_rank(run, None)
        advice: dict[str, Any] = {
            "data": run.data.name,
            "pictures": len(run.data.x),
            "shape": list(run.data.input_shape),
            "verdict": ranking.verdict,
            "advice": _advice(ranking),
        }
        run.write_json(run.path / "advice.json", advice)
    if run.json:
        typer.echo(json.dumps(advice, indent=1))
        return
    shape = " × ".join(map(str, advice["shape"]))
    typer.echo(f"Learned from {advice['pictures']:,} pictures of {shape}; more, or larger ones, may support more.\n")
    width = max(len(one["augmentation"]) for one in advice["advice"])
    for one in advice["advice"]:
        typer.echo(f"  {one['augmentation']:<{width}}  {one['says']}")
    typer.echo("")
    print_next(run)


def _advice(ranking: Any) -> list[dict[str, Any]]:
    """For each augmentation: whether it is supported, by how many nats over none, and how far it goes."""
    from orbitgp.comparison.verdict import Difference

    plain = next(standing for standing in ranking.standings if standing.name == ranking.plain)
    found = []
    for standing in ranking.standings:
        if standing is plain:
            continue
        helps = standing.value >= plain.value
        difference = Difference(*((standing, plain) if helps else (plain, standing)))
        nats = difference.nats if helps else -difference.nats
        words = ("supported" if helps else "not supported: the labels change") if difference.certain else "cannot tell"
        learned = ranking.learned(standing.name)
        reach = f"; {learned}" if learned and helps else ""
        doubt = "" if standing.converged else "; training met its limit"
        says = f"{words} ({nats:+z,.1f} nats over none{doubt}){reach}"
        row = next(row for row in ranking.rows if row.orbit == standing.name)
        supported = helps if difference.certain else None
        found.append(
            {"augmentation": standing.name, "supported": supported, "nats": nats, "learned": row.learned, "says": says}
        )
    return found


def _is_large(folder: Path) -> bool:
    """Whether the first picture of a folder is larger than is needed."""
    from PIL import Image, UnidentifiedImageError

    for path in sorted(folder.rglob("*.*")):
        try:
            with Image.open(path) as picture:
                return min(picture.size) > _SIDE
        except (UnidentifiedImageError, OSError):
            continue
    return False
