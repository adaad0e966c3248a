"""The options that commands share, and what they come to: data, settings of the estimator, a name for the run."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

if TYPE_CHECKING:
    from orbitgp.datasets.files import Data, Reading

DATA_NAMES = {
    "digits": "1,797 digits of 8x8 pixels, embedded",
    "mnist": "70,000 digits of 28x28 pixels",
    "fashion-mnist": "70,000 pieces of clothing, 28x28 pixels",
    "rotated-mnist": "MNIST turned by random angles",
}
ORBIT_HELP = (
    "What may happen to an input: a name (none, rotation, affine, translation, scale, shear, deformation, tangent, thickness, "
    'brightness, contrast, noise, flip, rotate90, swap), with arguments ("rotation(30)") or a product ("affine*deformation").'
)
# Here, and not from orbitgp.orbits.parse: completion must not wait for torch. A test holds the two together.
ORBIT_NAMES = (
    *("none", "rotation", "affine", "translation", "scale", "shear", "deformation", "tangent", "thickness", "brightness"),
    *("contrast", "noise", "flip", "rotate90", "swap"),
)


def complete_data(incomplete: str) -> list[tuple[str, str]]:
    """Names of data sets; files are completed by the shell."""
    return [(name, says) for name, says in DATA_NAMES.items() if name.startswith(incomplete)]


def complete_orbit(incomplete: str) -> list[str]:
    """Names of orbits, the last factor of a product too."""
    done, star, last = incomplete.rpartition("*")
    return [f"{done}{star}{name}" for name in ORBIT_NAMES if name.startswith(last)]


_FILES = "Data"
_TRAIN = "Training"
_OUT = "Output"

DataArgument = Annotated[
    str,
    typer.Argument(
        metavar="DATA",
        help="A file (.npz with x and y, .npy with its targets, .csv or .parquet with a target column), a folder of images in "
        "class folders, or a name: digits, mnist, fashion-mnist, rotated-mnist.",
        autocompletion=complete_data,
        show_default=True,
    ),
]
Target = Annotated[str | None, typer.Option(metavar="COLUMN", help="The column of a table to predict.", rich_help_panel=_FILES)]
Targets = Annotated[
    str | None, typer.Option(metavar="FILE", help="The .npy file of targets for a .npy file of inputs.", rich_help_panel=_FILES)
]
Test = Annotated[
    str | None, typer.Option(metavar="DATA", help="Held-out data, to report the error on.", rich_help_panel=_FILES)
]
TestFraction = Annotated[
    float,
    typer.Option(
        min=0.0,
        max=0.9,
        metavar="FRACTION",
        help="Hold out this fraction, if the data bring no test set.",
        rich_help_panel=_FILES,
    ),
]
MaxData = Annotated[int | None, typer.Option(min=2, metavar="N", help="Train on so many data at most.", rich_help_panel=_FILES)]
ImageShape = Annotated[
    str | None,
    typer.Option(metavar="HxW", help="The shape of images that are stored as rows: 28x28, or 3x32x32.", rich_help_panel=_FILES),
]
Resize = Annotated[
    str | None, typer.Option(metavar="HxW", help="Bring image files to this size: 28x28.", rich_help_panel=_FILES)
]
Invert = Annotated[bool, typer.Option("--invert", help="Pixels p become 1 - p: for dark ink on white.", rich_help_panel=_FILES)]
Task = Annotated[
    Literal["auto", "classification", "regression"],
    typer.Option(help="What to learn; auto looks at the targets.", rich_help_panel=_FILES),
]
DataDir = Annotated[
    str | None, typer.Option(metavar="FOLDER", help="The folder of named data sets (or ORBITGP_DATA).", rich_help_panel=_FILES)
]

Likelihood = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="How targets follow from the function: bernoulli, dirichlet, gaussian, student-t, …",
        rich_help_panel=_TRAIN,
    ),
]
FeatureMap = Annotated[
    Literal["none", "gradients"],
    typer.Option(help="What the function sees of an image: its pixels, or its oriented gradients.", rich_help_panel=_TRAIN),
]
NumInducing = Annotated[
    int, typer.Option("--num-inducing", "-m", min=1, metavar="N", help="Inducing points.", rich_help_panel=_TRAIN)
]
NumSamples = Annotated[
    int, typer.Option(min=2, metavar="N", help="Orbit samples for each datum and step.", rich_help_panel=_TRAIN)
]
MaxSteps = Annotated[int, typer.Option(min=1, metavar="N", help="Steps of training.", rich_help_panel=_TRAIN)]
MaxSeconds = Annotated[
    float | None,
    typer.Option(metavar="SECONDS", help="Seconds of training for a model, if they end first.", rich_help_panel=_TRAIN),
]
BatchSize = Annotated[int, typer.Option(min=1, metavar="N", help="Data for each gradient.", rich_help_panel=_TRAIN)]
Seed = Annotated[int, typer.Option(min=0, metavar="N", help="Makes a run reproducible.", rich_help_panel=_TRAIN)]
Device = Annotated[str, typer.Option(metavar="NAME", help="cpu or cuda.", rich_help_panel=_TRAIN)]

Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON, for machines.", rich_help_panel=_OUT)]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress.", rich_help_panel=_OUT)]


@dataclass(frozen=True)
class DataOptions:
    """How to get the data: kept in the run folder, so that a run can be resumed and repeated."""

    data: str
    target: str | None = None
    targets: str | None = None
    test: str | None = None
    test_fraction: float = 0.0
    max_data: int | None = None
    image_shape: str | None = None
    resize: str | None = None
    invert: bool = False
    data_dir: str | None = None
    seed: int = 0

    def reading(self) -> Reading:
        """As the loader takes it."""
        from orbitgp.datasets.files import Reading

        size = _sizes(self.resize, "--resize", (2,))
        return Reading(
            target=self.target,
            targets=self.targets,
            image_shape=_sizes(self.image_shape, "--image-shape", (2, 3)),
            resize=(size[0], size[1]) if size else None,
            invert=self.invert,
            root=self.data_dir,
        )

    def load(self) -> Data:
        """The data."""
        from orbitgp.datasets.files import load

        return load(self.data, self.reading(), self.test, self.test_fraction, self.max_data, self.seed)

    def arguments(self) -> list[str]:
        """The words on the command line that say the same."""
        words = [self.data]
        defaults = asdict(DataOptions(self.data))
        for name, value in asdict(self).items():
            if name not in ("data", "seed") and value != defaults[name]:
                words += [f"--{name.replace('_', '-')}"] + ([] if value is True else [str(value)])
        return words


def _sizes(text: str | None, option: str, counts: tuple[int, ...]) -> tuple[int, ...] | None:
    if text is None:
        return None
    parts = text.lower().replace("×", "x").split("x")
    if len(parts) not in counts or not all(part.isdigit() and int(part) > 0 for part in parts):
        example = "28x28 or 3x32x32" if 3 in counts else "28x28"
        raise typer.BadParameter(f"write it as in {example}, not {text!r}.", param_hint=option)
    return tuple(int(part) for part in parts)


def settings_arguments(settings: dict[str, Any]) -> list[str]:
    """The words on the command line that say the same; what is not set is left out."""
    words = []
    for name, value in settings.items():
        if value is not None:
            words += [f"--{name.replace('_', '-')}", str(value)]
    return words
