"""Data frames with words, dates and gaps: the numbers that scikit-learn's transformers make of them, also after
loading."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from orbitgp import InvariantGPClassifier, InvariantGPRegressor, compare
from orbitgp.orbits import GaussianNoise, TimeShift

pandas = pytest.importorskip("pandas")
GAPS = pytest.mark.filterwarnings("ignore:column '.*' has no value")


def frame_of(rows: int = 40, seed: int = 0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    frame = pandas.DataFrame(
        {
            "site": rng.choice(["north", "south", "west"], rows),
            "day": pandas.to_datetime("2026-05-01") + pandas.to_timedelta(rng.integers(0, 90, rows), unit="D"),
            "dose": rng.gamma(2, 3, rows),
            "grade": pandas.Categorical(rng.choice(["a", "b", "c"], rows)),
        }
    )
    y = np.sin(frame["dose"] / 3).to_numpy() + (frame["site"] == "west") + 0.1 * rng.normal(size=rows)
    frame.loc[[3, 8], "dose"] = np.nan
    frame.loc[5, "site"] = np.nan
    return frame, y.to_numpy()


def by_scikit_learn() -> Any:
    numbers = make_pipeline(SimpleImputer(strategy="median"), StandardScaler())
    words = make_pipeline(SimpleImputer(strategy="most_frequent"), OneHotEncoder(sparse_output=False))
    return make_column_transformer(
        (words, ["site"]),
        (numbers, ["day", "dose"]),
        (OneHotEncoder(sparse_output=False), ["grade"]),
        verbose_feature_names_out=False,
    )


def test_inputs_and_predictions_are_those_of_scikit_learns_transformers() -> None:
    frame, y = frame_of()
    with pytest.warns(UserWarning, match="column '.*' has no value") as caught:
        model = InvariantGPRegressor(random_state=0).fit(frame, y)
    (warning,) = caught  # one for all columns
    assert str(warning.message).splitlines() == [
        "column 'site' has no value in row 5: " + frame["site"].mode()[0] + " is put there.",
        f"column 'dose' has no value in rows 3 and 8: {frame['dose'].median():.7g} is put there.",
    ]
    days = frame.assign(day=(frame["day"] - pandas.Timestamp("1970-01-01")).dt.days.astype(float))
    expected = by_scikit_learn().fit_transform(days)
    np.testing.assert_allclose(model.model_.x, expected, atol=1e-12)
    assert list(model.feature_names_in_[:4]) == ["site=north", "site=south", "site=west", "day"]
    other = InvariantGPRegressor(random_state=0).fit(expected, y)
    assert model.evidence_.value == pytest.approx(other.evidence_.value, abs=1e-6)


@GAPS
def test_a_saved_model_takes_data_frames_and_warns_of_what_is_new(tmp_path: Path) -> None:
    frame, y = frame_of()
    model = InvariantGPClassifier(random_state=0, max_steps=5).fit(frame, np.where(y > 0.5, "high", "low"))
    model.save(tmp_path / "model.safetensors")
    back = InvariantGPClassifier.load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(back.predict_proba(frame[:10]), model.predict_proba(frame[:10]))
    words = frame[:10].assign(day=frame["day"].astype(str), grade=frame["grade"].astype(str))
    np.testing.assert_allclose(
        back.predict_proba(words[["grade", "dose", "day", "site"]]), model.predict_proba(frame[:10])
    )
    whole = frame.iloc[[0]]
    with pytest.warns(UserWarning, match="column 'site' is 'east' in row 0, which the training data do not have"):
        strange = back.predict_proba(whole.assign(site="east"))
    assert strange.shape == (1, 2)
    with pytest.raises(ValueError, match="X has no column 'dose', which the model was fitted to"):
        back.predict(whole.drop(columns="dose"))
    with pytest.raises(ValueError, match="X has no columns 'site' and 'dose', which"):
        back.predict(whole.drop(columns=["dose", "site"]))
    with pytest.raises(ValueError, match="column 'dose' holds words, such as 'much', where numbers were"):
        back.predict(whole.assign(dose="much"))
    again = clone(back).fit(frame[["dose"]].dropna(), y[frame["dose"].notna()] > 0.5)
    assert again.columns_ is None


def test_numbers_alone_stay_as_they_are() -> None:
    rng = np.random.default_rng(0)
    frame = pandas.DataFrame(rng.normal(3, 2, size=(30, 2)), columns=["a", "chunks"])
    model = InvariantGPRegressor(random_state=0, max_steps=3).fit(frame, frame["a"])
    np.testing.assert_array_equal(model.model_.x, frame)
    with pytest.raises(ValueError, match="contains NaN"):
        model.predict(frame.replace(frame.iloc[0, 0], np.nan))


def test_objects_that_are_numbers_and_durations_in_days() -> None:
    """A column of a file with a word in it is of objects, also when the word is gone."""
    rng = np.random.default_rng(0)
    hours, dose = rng.permutation(30), rng.gamma(2, 3, 30)
    frame = pandas.DataFrame({"since": pandas.to_timedelta(hours, unit="h"), "dose": dose.astype(object)})
    model = InvariantGPRegressor(random_state=0, max_steps=3).fit(frame, dose)
    expected = StandardScaler().fit_transform(np.column_stack([hours / 24, dose]))
    np.testing.assert_allclose(model.model_.x, expected, atol=1e-12)


@GAPS
def test_orbits_and_noise_by_column() -> None:
    frame, y = frame_of()
    frame["twin"] = frame["dose"].sample(frac=1, random_state=0).to_numpy()
    frame["same"] = 7.0
    swapped = InvariantGPRegressor("swap(dose, twin)", random_state=0, max_steps=3).fit(frame, y)
    i, j = (list(swapped.feature_names_in_).index(name) for name in ("dose", "twin"))
    assert swapped.columns_.scales[i] == swapped.columns_.scales[j]
    np.testing.assert_allclose(
        swapped.predict(frame), swapped.predict(frame.rename(columns={"dose": "twin", "twin": "dose"}))
    )
    noisy = InvariantGPRegressor(GaussianNoise(), random_state=0, max_steps=3).fit(frame, y)
    names = [noisy.feature_names_in_[column] for column in noisy.orbit_.columns]
    assert names == ["day", "dose", "twin"]  # neither indicators nor what does not vary
    table = compare(frame, y, ["none", "swap(dose, twin)"], refine_seconds=0.0, random_state=0, max_steps=3)
    assert list(table.models["swap(dose,twin)"].orbit_.names) == ["dose", "twin"]
    signals = pandas.DataFrame(np.random.default_rng(0).normal(size=(20, 8))).rename(columns=str)
    gappy = signals.mask(np.eye(20, 8) > 0)
    with pytest.raises(ValueError, match=r"signals have gaps: close them along time, X\.interpolate"):
        InvariantGPRegressor(TimeShift()).fit(gappy, np.arange(20.0))
    assert not gappy.interpolate(axis=1, limit_direction="both").isna().any(axis=None)
    signals = signals.astype({"0": object})
    shifted = InvariantGPRegressor(TimeShift(), random_state=0, max_steps=3, num_samples=4).fit(
        signals, np.arange(20.0)
    )
    assert shifted.columns_.scales is None  # its samples are of one kind


def test_columns_that_cannot_be_inputs() -> None:
    frame, y = frame_of(30)
    with pytest.raises(ValueError, match=r"column 'name' of X holds 30 different words, such as 'n0': .*X.drop"):
        InvariantGPRegressor().fit(frame.assign(name=[f"n{i}" for i in range(30)]), y)
    with pytest.raises(ValueError, match="column 'none' of X has no value at all: leave it out"):
        InvariantGPRegressor().fit(frame.assign(none=None), y)
