"""The options that commands share, in three groups: which data, how to train, and what to write and to print.

A group is a dataclass whose fields are options. A command takes it as one argument, and :func:`expand_options` shows
its fields to typer.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from orbitgp.cli.models import OF_IMAGES, OF_SIGNALS

if TYPE_CHECKING:
    from orbitgp.datasets.files import ReadOptions

# Here, and not from orbitgp.orbits.parse: help must not wait for torch. A test holds the two together.
ORBIT_NAMES = (
    *("none", "rotation", "affine", "translation", "scale", "shear", "deformation", "thickness", "brightness"),
    *("contrast", "saturation", "hue", "gamma", "blur", "stain", "cutout"),
    *("noise", "flip", "rotate90", "timeshift", "circularshift", "timescale", "timewarp", "gain", "offset"),
    *("baseline", "smoothing", "reversal", "swap", "sign", "permutations", "cyclic", "dihedral", "blocks"),
    "weighted",
)
ORBIT_HELP = (
    f"What may happen to an input: a name ({', '.join(ORBIT_NAMES)}), with arguments "
    '("rotation(30)") or a product ("affine\\*deformation").'
)
_DATA_HELP = (
    "A file (.npz with x and y, .npy with its targets, .csv, .xlsx or .parquet with a target column), a folder of "
    "images in class folders, or a name: digits, mnist, fashion-mnist."
)
_READ_HELP = "How pandas reads a table: sep=';', decimal=',', encoding=latin-1, …; again for more."
_MAP_HELP = (
    f"What the function sees of an input: none (as it is), {' or '.join(OF_IMAGES)} (of an image), "
    f"{' or '.join(OF_SIGNALS)} (of a signal)."
)


_data = partial(typer.Option, rich_help_panel="Data")
_column = partial(_data, metavar="COLUMN")
_train = partial(typer.Option, rich_help_panel="Training")
_count = partial(_train, metavar="N", min=1)
_out = partial(typer.Option, rich_help_panel="Output")
orbit_option = partial(typer.Option, "--orbit", "-o", metavar="ORBIT")

Json = Annotated[bool, _out("--json", help="Print the result as JSON, for scripts.")]


@dataclass(frozen=True, kw_only=True)
class DataOptions:
    """Which data, and how to read them. The run folder keeps them, so that a run can be resumed and repeated."""

    data: Annotated[str, typer.Argument(metavar="DATA", help=_DATA_HELP)] = "digits"
    target: Annotated[str | None, _column(help="The column of a table to predict.")] = None
    targets: Annotated[str | None, _data(metavar="FILE", help="The .npy targets for a .npy file of inputs.")] = None
    test: Annotated[str | None, _data(metavar="DATA", help="Held-out data, to report the error on.")] = None
    test_fraction: Annotated[float, _data(min=0, max=0.9, help="Hold out this fraction, without a test set.")] = 0.0
    max_data: Annotated[int | None, _data(min=2, metavar="N", help="Train on at most N data.")] = None
    drop_missing: Annotated[bool, _data("--drop-missing", help="Leave out table rows with missing values.")] = False
    impute: Annotated[bool, _data("--impute", help="Put the median for missing inputs; interpolate signals.")] = False
    drop: Annotated[list[str] | None, _column(help="A column that is no input; again for more.")] = None
    id: Annotated[str | None, _column(help="The column that names the rows of a table; by default id.")] = None
    standardise: Annotated[bool, _data(help="Bring columns of a table to mean 0 and standard deviation 1.")] = True
    read: Annotated[list[str] | None, _data(metavar="KEY=VALUE", help=_READ_HELP)] = None
    image_shape: Annotated[str | None, _data(metavar="HxW", help="Shape of images in rows: 28x28, 3x32x32.")] = None
    signal: Annotated[bool, _data("--signal", help="Rows are signals; arrays (N, C, T) have C channels.")] = False
    signal_shape: Annotated[str | None, _data(metavar="CxT", help="The shape of signals stored as rows: 6x100.")] = None
    interval: Annotated[str | None, _data(metavar="LENGTH", help="The distance between samples: 0.01s, 2nm.")] = None
    resample: Annotated[bool, _data("--resample", help="Stretch signals of unequal length to one length.")] = False
    resize: Annotated[str | None, _data(metavar="HxW", help="Resize image files; the aspect stays: 28x28.")] = None
    invert: Annotated[bool, _data("--invert", help="Turn pixels p into 1 - p, for dark ink on white.")] = False
    strict: Annotated[bool, _data("--strict", help="Refuse unreadable images; otherwise they are left out.")] = False
    task: Annotated[Literal["auto", "classification", "regression"], _data(help="auto looks at the targets.")] = "auto"
    data_dir: Annotated[str | None, _data(metavar="FOLDER", help="Folder of named data sets (or ORBITGP_DATA).")] = None

    def read_options(self) -> ReadOptions:
        """These options as the loader takes them."""
        from orbitgp.datasets.files import ReadOptions, read_option

        size = _sizes(self.resize, "--resize", "28x28")
        channels = _sizes(self.signal_shape, "--signal-shape", "6x100")
        self.axis()  # an interval that cannot be read is an error now, not after training
        same = ("target", "targets", "invert", "drop_missing", "impute", "id", "resample", "strict")
        return ReadOptions(
            image_shape=channels or _sizes(self.image_shape, "--image-shape", "28x28", "3x32x32"),
            signal=self.signal or channels is not None,
            resize=(size[0], size[1]) if size else None,
            drop=tuple(self.drop or ()),
            read=dict(map(read_option, self.read or ())),
            root=self.data_dir,
            **{name: getattr(self, name) for name in same},
        )

    def axis(self) -> tuple[float, str] | None:
        """The distance between samples and its unit."""
        if self.interval is None:
            return None
        found = re.fullmatch(r"((?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*([^\s0-9.].*)", self.interval.strip())
        if not found or not float(found[1]) > 0:
            said = f"write a length and its unit, as in 0.01s or 2nm, not {self.interval!r}."
            raise typer.BadParameter(said, param_hint="--interval")
        return float(found[1]), found[2]


@dataclass(frozen=True, kw_only=True)
class TrainingSettings:
    """How to train. The run folder keeps them, so that a run can be resumed and repeated."""

    likelihood: Annotated[str, _train(metavar="NAME", help="dirichlet, gaussian, student-t, …")] = "auto"
    feature_map: Annotated[str, _train(metavar="NAME", help=_MAP_HELP)] = "none"
    ard: Annotated[
        Literal["no", "yes", "auto"],
        _train(help="A lengthscale for each column of a table; auto takes what the evidence prefers."),
    ] = "auto"
    inference: Annotated[Literal["auto", "exact", "sparse"], _train(help="auto: exact if it can be afforded.")] = "auto"
    num_inducing: Annotated[int | None, _count("--num-inducing", "-m", help="Inducing points, if sparse.")] = None
    num_samples: Annotated[int | None, _train(min=2, metavar="N", help="Orbit samples for each datum.")] = None
    max_steps: Annotated[int | None, _count(help="The most steps of training.")] = None
    max_seconds: Annotated[float | None, _train(metavar="SECONDS", help="About how long the command may take.")] = None
    batch_size: Annotated[int | None, _count(help="Data for each gradient, for sparse inference.")] = None
    seed: Annotated[int, _train(min=0, metavar="N", help="The same seed gives the same run.")] = 0
    device: Annotated[str, _train(metavar="NAME", help="cpu or cuda.")] = "cpu"


@dataclass(frozen=True, kw_only=True)
class OutputOptions:
    """Where the run is, and what is printed."""

    out: Annotated[Path | None, _out(metavar="FOLDER", help="The run folder. By default a new one in runs/.")] = None
    resume: Annotated[Path | None, _out(metavar="RUN", help="Go on with this run; it keeps its options.")] = None
    json_: Json = False
    quiet: Annotated[bool, _out("--quiet", "-q", help="Do not show progress.")] = False


def _sizes(text: str | None, option: str, *examples: str) -> tuple[int, ...] | None:
    """The numbers of a text like one of the examples."""
    if text is None:
        return None
    parts = text.lower().replace("×", "x").split("x")
    if len(parts) not in {len(e.split("x")) for e in examples} or not all(p.isdecimal() and int(p) > 0 for p in parts):
        raise typer.BadParameter(f"write it as in {' or '.join(examples)}, not {text!r}.", param_hint=option)
    return tuple(int(part) for part in parts)


def expand_options(command: Callable[..., None]) -> Callable[..., None]:
    """Show the fields of a command's groups to typer as options of their own."""
    groups: dict[str, Any] = {}
    shown: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(command, eval_str=True).parameters.items():
        if is_dataclass(parameter.annotation):
            groups[name] = parameter.annotation
            shown += inspect.signature(groups[name], eval_str=True).parameters.values()
        else:
            shown.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))

    @wraps(command)
    def run(**given: Any) -> None:
        for name, group in groups.items():
            given[name] = group(**{field.name: given.pop(field.name) for field in fields(group)})
        command(**given)

    run.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in shown}
    return run
