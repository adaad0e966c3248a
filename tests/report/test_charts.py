"""Charts and pictures of the report: what they show, in which colours, and that no name lies on another."""

from __future__ import annotations

import base64
import io
import re

import matplotlib
import numpy as np
import pytest
from markupsafe import Markup
from PIL import Image

from orbitgp.orbits import Identity
from orbitgp.report import charts
from orbitgp.report.charts import STYLE, Pictures, bound_chart, of_the_same_data


def test_png_can_be_read_back() -> None:
    rng = np.random.default_rng(0)
    for shape in ((4, 6), (3, 4, 6)):
        image = rng.random(shape)
        address = Pictures(Identity(), np.stack([image, np.zeros(shape), np.ones(shape)])).address(image)
        read = np.asarray(Image.open(io.BytesIO(base64.b64decode(address.split(",")[1])))) / 255
        np.testing.assert_allclose(read, image if image.ndim == 2 else np.moveaxis(image, 0, -1), atol=0.002)


def test_a_chart_begins_where_its_records_do() -> None:
    history = [{"step": 400 + i, "bound": float(i)} for i in range(40)]  # those of fewer data were before
    with matplotlib.rc_context(STYLE):
        ticks = re.findall(r">(\d+)</text>", bound_chart(history))
    assert min(step for step in map(int, ticks) if step > 50) >= 390  # the others are of the bound


def test_evaluations_without_the_orbit_are_grey() -> None:
    history = [{"step": i, "bound": float(i), "climb": 1, "without_orbit": i > 5} for i in range(9)]
    dots = re.findall(r"<use [^>]*fill: var\(--(\w+)\)", bound_chart(history, exact=True))
    assert dots == ["accent"] * 6 + ["soft"] * 3


@pytest.mark.parametrize("columns", [3, 8, 40])
@pytest.mark.parametrize("whole", [False, True], ids=["a case", "an example"])
def test_no_name_of_a_column_lies_on_another(columns: int, whole: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = []
    monkeypatch.setattr(charts, "svg", lambda axes, title: drawn.append(axes) or Markup())
    names = [f"a long name, column {i}" for i in range(columns)]
    x = np.linspace(-1, 1, columns)
    with matplotlib.rc_context(STYLE):
        Pictures(Identity(), x[None], names, scales=[(100.0, 12.345)] * columns).chart(x, 24, "a row", whole=whole)
        drawn[0].figure.draw_without_rendering()
    labels = drawn[0].get_xticklabels() + drawn[0].get_yticklabels()
    boxes = [label.get_window_extent() for label in labels if label.get_text()]
    assert len(boxes) >= 3
    assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])
    assert drawn[0].yaxis.get_ticklabels()[0].get_text() == "a long name, colu… 87.66"
    left = min(box.x0 for box in boxes)
    assert left >= 0
    assert drawn[0].get_position().width > 0.3


def test_the_values_of_a_table_are_numbers_to_read() -> None:
    scales = [(15_893.6, 1.0), (0.012, 1.0), (2e12, 1.0)]
    names = Pictures(Identity(), np.zeros((1, 3)), ["mass", "width", "count"], scales=scales)._column_names(np.zeros(3))
    assert names == ["mass 15,894", "width 0.012", "count 2e+12"]


def test_evidences_of_different_data_do_not_share_a_chart() -> None:
    """Starts see few of the data, and what was learned on some is conditioned on all: -1,500, -8,600 and -32,000
    nats."""
    plan = [(50, -1500.0, 5), (300, -8600.0, 4), (1347, -32000.0, 1)]
    rows = [(count, value) for count, value, times in plan for _ in range(times)]
    history = [{"step": i, "rows": count, "bound": value, "orbit": {}} for i, (count, value) in enumerate(rows)]
    shown, some = of_the_same_data(history)
    assert {record["bound"] for record in shown} == {-8600.0}
    assert some == "of 300 of 1,347 data"
    chart = bound_chart(shown, some, plain=-33000.0, exact=True)
    assert "no invariance" not in chart
    whole = [{**record, "rows": 300} for record in history[5:9]]
    assert of_the_same_data([*history[:5], *whole]) == (whole, "")
    assert "no invariance" in bound_chart(whole, plain=-8700.0, exact=True)
    sparse = [{"step": i, "bound": float(i)} for i in range(4)]
    assert of_the_same_data(sparse) == (sparse, "")


def test_images_are_shown_in_the_colours_of_their_files() -> None:
    def first(x: np.ndarray, inverted: bool) -> float | tuple[int, ...] | None:
        address = Pictures(Identity(), x, inverted=inverted).address(x[0])
        return Image.open(io.BytesIO(base64.b64decode(address.split(",")[1]))).getpixel((0, 0))

    photo = np.zeros((1, 3, 4, 4))
    photo[0, 0] = 1.0  # red
    assert first(photo, False) == first(1 - photo, True) == (255, 0, 0)
    ink = np.ones((1, 4, 4))
    ink[0, 1:3, 1:3] = 0.0
    assert first(ink, False) == first(1 - ink, True) == 255
