"""Training options: frozen, printable, checked when they are made, and reached by scikit-learn's nested names."""

from __future__ import annotations

import pickle
import re
from copy import deepcopy
from dataclasses import FrozenInstanceError, fields, replace
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import orbitgp
from orbitgp import InvariantGPClassifier, InvariantGPRegressor, TrainingOptions
from orbitgp.estimators.validation import trainer_settings
from orbitgp.orbits import GaussianNoise, Identity, Permutation
from orbitgp.planning.options import TrainerSettings

pytestmark = pytest.mark.usefixtures("one_start")

SHARED = [
    *(
        "orbit",
        "kernel",
        "likelihood",
        "mean",
        "feature_map",
        "num_inducing",
        "num_samples",
        "max_steps",
        "max_seconds",
    ),
    *("batch_size", "image_shape", "device", "random_state", "verbose", "inference", "training", "ard"),
]
X = np.random.default_rng(0).normal(size=(24, 2))
y = np.sin(X).sum(1)
QUICK: dict[str, Any] = {"max_steps": 2, "num_inducing": 6, "num_samples": 4, "random_state": 0}


class TestTheShopWindow:
    def test_estimators_have_few_arguments_and_the_regressor_two_more(self) -> None:
        assert list(signature(InvariantGPClassifier).parameters) == SHARED
        assert list(signature(InvariantGPRegressor).parameters) == [*SHARED, "normalize_y", "alpha"]

    def test_no_setting_has_two_places(self) -> None:
        assert not {field.name for field in fields(TrainingOptions)} & set(SHARED)

    def test_a_page_has_all_ten(self) -> None:
        page = (Path(__file__).parents[2] / "docs" / "reference" / "options.md").read_text(encoding="utf-8")
        assert re.findall(r"^\| `(\w+)` \| .+ \| .+ \|$", page, re.MULTILINE) == [
            f.name for f in fields(TrainingOptions)
        ]
        assert len(fields(TrainingOptions)) == 10

    def test_where_it_is_imported_from(self) -> None:
        assert orbitgp.TrainingOptions is orbitgp.training.TrainingOptions is TrainingOptions


class TestTheObject:
    def test_frozen(self) -> None:
        options = TrainingOptions(jitter=1e-5)
        with pytest.raises(FrozenInstanceError):
            options.jitter = 1.0
        assert options == TrainingOptions(jitter=1e-5) != TrainingOptions()
        assert hash(options) == hash(TrainingOptions(jitter=1e-5))

    def test_repr_shows_what_was_changed_and_print_shows_all(self) -> None:
        options = TrainingOptions(inducing_samples=64, sampler="iid")
        assert repr(options) == "TrainingOptions(sampler='iid', inducing_samples=64)"
        assert eval(repr(options)) == options
        assert repr(TrainingOptions()) == "TrainingOptions()"
        lines = str(options).splitlines()
        assert len(lines) == 1 + len(fields(TrainingOptions))
        assert "  inducing_samples = 64" in lines
        assert "  jitter = 1e-06" in lines

    def test_copies(self) -> None:
        options = TrainingOptions(start_rows=20)
        for again in (pickle.loads(pickle.dumps(options)), deepcopy(options), replace(options), clone(options)):
            assert again == options

    def test_numbers_of_numpy_become_plain(self) -> None:
        options = TrainingOptions(inducing_samples=np.int64(8), jitter=np.float32(0.5), exact_seconds=1)
        assert [type(v) for v in (options.inducing_samples, options.jitter, options.exact_seconds)] == [
            int,
            float,
            float,
        ]

    @pytest.mark.parametrize(("options", "error", "sentence"), [
        ({"posterior_rows": "two"}, TypeError, "posterior_rows must be a whole number, got 'two'"),
        ({"num_predict_samples": 0}, ValueError, "num_predict_samples must be at least 1, got 0"),
        ({"inducing_samples": 2.5}, TypeError, "inducing_samples must be a whole number, got 2.5"),
        ({"posterior_rows": 0}, ValueError, "posterior_rows must be at least 1, got 0"),
        ({"start_rows": -1}, ValueError, "start_rows must be at least 0, got -1"),
        ({"sampler": "sobol"}, ValueError, "sampler must be one of .*got 'sobol'"),
        ({"local": "mine"}, ValueError, "local must be one of .*got 'mine'"),
        ({"jitter": 0}, ValueError, "jitter must be positive and finite, got 0"),
        ({"jitter": None}, TypeError, "jitter must be a number, got None"),
        ({"learning_rate": 0.0}, ValueError, "learning_rate must be positive and finite"),
        ({"dtype": "float16"}, ValueError, "dtype must be one of auto, float32, float64, got 'float16'"),
        ({"dtype": np.float32}, ValueError, "dtype must be one of auto, float32, float64"),
    ], ids=str)  # fmt: skip
    def test_one_sentence_about_what_is_wrong(
        self, options: dict[str, Any], error: type[Exception], sentence: str
    ) -> None:
        with pytest.raises(error, match=sentence):
            TrainingOptions(**options)
        with pytest.raises(error, match=sentence):
            TrainingOptions().set_params(**options)

    def test_an_unknown_name(self) -> None:
        with pytest.raises(TypeError, match="unexpected keyword argument 'inducing_sample'"):
            TrainingOptions(inducing_sample=3)  # type: ignore[call-arg]
        with pytest.raises(ValueError, match="TrainingOptions has no option 'draws': it has sampler, inducing_samples"):
            TrainingOptions().set_params(draws="qmc")


class TestNestedNames:
    def test_set_params_replaces_the_object(self) -> None:
        options = TrainingOptions(jitter=1e-5)
        model = InvariantGPRegressor(training=options)
        assert model.set_params(training__inducing_samples=64, num_inducing=7) is model
        assert model.training == TrainingOptions(jitter=1e-5, inducing_samples=64)
        assert model.num_inducing == 7
        assert options == TrainingOptions(jitter=1e-5)
        assert model.get_params()["training__inducing_samples"] == 64

    def test_without_options_the_defaults_are_changed(self) -> None:
        model = InvariantGPRegressor().set_params(training__sampler="iid")
        assert model.training == TrainingOptions(sampler="iid")
        assert "training__sampler" not in InvariantGPRegressor().get_params()

    def test_the_object_and_an_option_of_it_at_once(self) -> None:
        model = InvariantGPRegressor().set_params(training__jitter=1e-4, training=TrainingOptions(start_rows=40))
        assert model.training == TrainingOptions(start_rows=40, jitter=1e-4)

    def test_unknown_names(self) -> None:
        with pytest.raises(ValueError, match="has no option 'inducing_sample': it has sampler, inducing_samples"):
            InvariantGPRegressor().set_params(training__inducing_sample=8)
        with pytest.raises(ValueError, match="TrainingOptions has no option 'max_steps'"):
            InvariantGPRegressor().set_params(training__max_steps=8)
        with pytest.raises(TypeError, match=r"training must be an orbitgp\.TrainingOptions or None, got dict"):
            InvariantGPRegressor(training={}).set_params(training__jitter=1e-5)

    def test_clone(self) -> None:
        model = InvariantGPRegressor(training=TrainingOptions(jitter=1e-5), **QUICK)
        again = clone(model).set_params(training__jitter=1e-4)
        assert model.training == TrainingOptions(jitter=1e-5)
        assert again.training == TrainingOptions(jitter=1e-4)
        assert "training=TrainingOptions(jitter=1e-05)" in repr(model)
        assert "training" in model._repr_html_()

    @pytest.mark.parametrize("given", [None, TrainingOptions(start_rows=0)])
    def test_grid_search(self, given: TrainingOptions | None) -> None:
        model = InvariantGPRegressor(GaussianNoise(0.3), training=given, **QUICK)
        search = GridSearchCV(model, {"training__inducing_samples": [8, 16]}, cv=2).fit(X, y)
        assert {c["training__inducing_samples"] for c in search.cv_results_["params"]} == {8, 16}
        assert search.best_estimator_.training.inducing_samples == search.best_params_["training__inducing_samples"]
        assert search.best_estimator_.training.start_rows == (given or TrainingOptions()).start_rows
        assert model.training is given

    def test_in_a_pipeline(self) -> None:
        pipeline = make_pipeline(StandardScaler(), InvariantGPRegressor(**QUICK))
        pipeline.set_params(invariantgpregressor__training__dtype="float32").fit(X, y)
        assert pipeline[-1].model_.inducing.dtype == torch.float32


class TestWhatATrainerGets:
    def test_arguments_and_options_in_one_object(self) -> None:
        model = InvariantGPRegressor(
            max_steps=7, batch_size=5, num_samples=6, training=TrainingOptions(learning_rate=0.2)
        )
        settings = trainer_settings(model.get_params(deep=False), GaussianNoise(), seed=9)
        expected = {
            "max_steps": 7,
            "batch_size": 5,
            "num_samples": 6,
            "climb_samples": 6,
            "learning_rate": 0.2,
            "seed": 9,
        }
        assert settings == TrainerSettings(**expected)

    def test_defaults_stand_in_one_place(self) -> None:
        found = trainer_settings(InvariantGPRegressor().get_params(deep=False), GaussianNoise(), seed=0)
        assert found == TrainerSettings()

    def test_a_finite_orbit_that_is_covered_is_enumerated(self) -> None:
        arguments = InvariantGPRegressor(num_samples=2).get_params(deep=False)
        assert trainer_settings(arguments, Permutation.swap(0, 1), 0).num_samples is None
        assert trainer_settings(arguments, Identity(), 0).num_samples is None
        assert trainer_settings(arguments, Permutation([[0, 1, 2], [1, 2, 0], [2, 0, 1]]), 0).num_samples == 2

    def test_options_reach_the_model(self) -> None:
        training = TrainingOptions(inducing_samples=3, jitter=1e-3, sampler="iid")
        model = InvariantGPRegressor(GaussianNoise(0.3), training=training, **QUICK).fit(X, y)
        assert model.model_.inducing_sets().shape == (6, 3, 2)
        other = InvariantGPRegressor(GaussianNoise(0.3), training=replace(training, sampler="qmc"), **QUICK).fit(X, y)
        assert other.evidence_ != model.evidence_
        assert model.model_.jitter == pytest.approx(
            1e-4, rel=0.1
        )  # a fraction of the noise, a tenth of the variance of y
