"""Feature maps of images, against loops over pixels."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch import Tensor

from orbitgp import InvariantGPClassifier, InvariantGPRegressor
from orbitgp.kernels.image_maps import Frame, OrientedGradients
from tests.kernels.maps import NAMES, OTHER, oriented_gradients


def rand(*shape: int) -> Tensor:
    return torch.rand(*shape, dtype=torch.float64)


def digits(count: int, classes: int = 10) -> tuple[np.ndarray, np.ndarray]:
    images, labels = load_digits(n_class=classes, return_X_y=True)
    return images[:count].reshape(-1, 8, 8) / 16, labels[:count]


class TestOrientedGradients:
    @pytest.mark.parametrize(
        "shape", [(6, 6), (7, 5), (4, 9), (16, 15), (1, 1), (2, 2), (2, 7), (6, 1), (2, 5, 7), (3, 1, 4)], ids=str
    )
    @pytest.mark.parametrize("arguments", [{}, OTHER], ids=["defaults", "others"])
    def test_equals_its_docstring_in_loops(self, shape: tuple[int, ...], arguments: dict[str, Any]) -> None:
        x = rand(2, *shape)
        features = OrientedGradients(**arguments)(x).detach()
        torch.testing.assert_close(features, oriented_gradients(x, **arguments), rtol=1e-11, atol=1e-13)
        torch.testing.assert_close(features.norm(dim=1), torch.ones(2).double())

    def test_single_precision(self) -> None:
        x = torch.tensor(digits(6)[0])
        features = OrientedGradients(cell=2.0)(x.float())
        assert features.dtype == torch.float32
        torch.testing.assert_close(features.detach().double(), oriented_gradients(x, cell=2.0), rtol=1e-4, atol=1e-6)

    @pytest.mark.parametrize("shape", [(5, 4), (2, 3, 4), (1, 1), (2, 2)], ids=str)
    def test_gradcheck_in_the_image_and_all_parameters(self, shape: tuple[int, ...]) -> None:
        module = OrientedGradients(orientations=3, cell=2.0, window=1.1, sharpness=2.0)
        raw = {name: p.detach().clone().requires_grad_() for name, p in module.named_parameters()}
        assert set(raw) == {f"raw_{name}" for name in NAMES}

        def features(x: Tensor, *values: Tensor) -> Tensor:
            return torch.func.functional_call(module, dict(zip(raw, values, strict=True)), (x,))

        assert torch.autograd.gradcheck(features, (rand(2, *shape).requires_grad_(), *raw.values()))

    def test_a_row_does_not_depend_on_its_company(self) -> None:
        x = rand(5, 6, 7)
        module = OrientedGradients()
        torch.testing.assert_close(module(x)[2:3], module(x[2:3]), rtol=1e-12, atol=1e-14)

    def test_contrast_matters_little_and_not_at_all_for_strong_edges(self) -> None:
        x = torch.tensor(digits(40)[0])
        module = OrientedGradients()
        with torch.no_grad():
            features, doubled, strong, stronger = (module(c * x) for c in (1, 2, 1e5, 2e5))
        apart = torch.pdist(features).median()
        assert (doubled - features).norm(dim=1).max() < 0.1 * apart
        assert (stronger - strong).norm(dim=1).max() < 1e-5 * apart
        # Pixels, scaled as much, are further away than other digits are.
        assert x.flatten(1).norm(dim=1).median() > 0.7 * torch.pdist(x.flatten(1)).median()

    @pytest.mark.parametrize("orientations", [4, 8])
    def test_a_quarter_turn_turns_directions_and_windows(self, orientations: int) -> None:
        """Rows run down, so an angle counts clockwise: turned anticlockwise, direction o is what o + a quarter was."""
        x = rand(3, 9, 9)
        module = OrientedGradients(orientations, cell=2.0)
        with torch.no_grad():
            straight, turned = (module(v).reshape(3, orientations, 4, 4) for v in (x, x.rot90(1, (1, 2))))
        expected = straight.roll(-orientations // 4, 1).rot90(1, (2, 3))
        torch.testing.assert_close(turned, expected, rtol=1e-12, atol=1e-14)
        assert (turned - straight).abs().max() > 0.01

    def test_an_edge_is_seen_where_it_is_and_as_it_runs(self) -> None:
        image = torch.zeros(1, 16, 16).double()
        image[:, :, 4:] = 1.0  # brighter to the right, at column 4
        features = OrientedGradients(orientations=4, cell=4.0, window=0.375)(image).reshape(4, 4, 4)
        brightest = features.amax((1, 2)).argmax()
        assert brightest == 0
        assert (features[0, 1:3].argmax(1) <= 1).all()
        assert (features[0, 1:3, 0] > 2 * features[0, 1:3, 3]).all()

    @pytest.mark.parametrize("shape", [(6, 6), (1, 1), (2, 2), (2, 5), (2, 4, 3)], ids=str)
    @pytest.mark.parametrize("value", [0.0, 0.7])
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_blank_images_have_finite_features_and_gradients(
        self, shape: tuple[int, ...], value: float, dtype: torch.dtype
    ) -> None:
        module = OrientedGradients()
        x = torch.full((2, *shape), value, dtype=dtype).requires_grad_()
        features = module(x)
        assert features.isfinite().all()
        weights = torch.randn(features.shape, dtype=dtype)
        gradients = torch.autograd.grad((features * weights).sum(), [x, *module.parameters()])
        assert all(g.isfinite().all() for g in gradients)

    def test_what_is_learned(self) -> None:
        module, fixed = OrientedGradients(**OTHER), OrientedGradients(**OTHER, learn=False)
        values = {n: c.transform(p).item() for n, p, c in module.named_parameters_and_constraints()}
        assert values == pytest.approx({f"raw_{name}": OTHER[name] for name in NAMES})
        assert not any(p.requires_grad for p in fixed.parameters())
        x = rand(2, 5, 5)
        assert torch.equal(fixed(x), module(x))
        assert not fixed(x).requires_grad
        assert all(f"{name}={value:.3g}" in repr(module) for name, value in OTHER.items())

    @pytest.mark.parametrize(("arguments", "sentence"), [
        ({"orientations": 0}, "orientations must be at least 1, got 0."),
        ({"orientations": -8}, "orientations must be at least 1, got -8."),
        *(({name: value}, f"{name} must be positive") for name in ("cell", *NAMES) for value in (0.0, -1.0, math.nan)),
        *(({name: math.inf}, f"{name} must be") for name in NAMES),
    ], ids=str)  # fmt: skip
    def test_bad_arguments(self, arguments: dict[str, Any], sentence: str) -> None:
        with pytest.raises(ValueError, match=sentence) as caught:
            OrientedGradients(**arguments)
        assert str(caught.value).count("\n") == 0

    @pytest.mark.parametrize("shape", [(5,), (2, 3, 4, 5)], ids=str)
    def test_what_is_no_image(self, shape: tuple[int, ...]) -> None:
        with pytest.raises(ValueError, match=r"OrientedGradients takes images .* set image_shape"):
            OrientedGradients()(rand(3, *shape))


class TestFrame:
    def test_the_whole_image_stays_as_it_is(self) -> None:
        x = rand(3, 2, 5, 6)
        assert torch.equal(Frame(learn=False)(x), x.flatten(1))

    @pytest.mark.parametrize(("width", "height"), [(0.6, 0.85), (0.31, 1.0), (0.93, 0.47)])
    def test_a_quadratic_image_is_enlarged_exactly(self, width: float, height: float) -> None:
        """Cubic interpolation loses nothing of a parabola, as far as no place looks beyond the image."""

        def image(share_x: float, share_y: float) -> Tensor:
            rows, columns = (
                share * (torch.arange(n).double() - (n - 1) / 2) for n, share in ((9, share_y), (12, share_x))
            )
            y, x = torch.meshgrid(rows, columns, indexing="ij")
            return 0.3 * x**2 - 0.7 * x * y + 0.2 * y**2 + x - 2 * y + 1

        seen = Frame(width=width, height=height, learn=False)(image(1.0, 1.0)[None]).reshape(9, 12)
        inside = slice(None) if height < 0.8 else slice(1, -1), slice(None) if width < 0.8 else slice(1, -1)
        torch.testing.assert_close(seen[inside], image(width, height)[inside], rtol=1e-12, atol=1e-12)

    @pytest.mark.parametrize("share", [0.55, 1.3])
    def test_weights_in_loops(self, share: float) -> None:
        """Keys' cubic weights, written out for every pixel and place."""
        size, x = 7, rand(2, 7, 1)
        expected = torch.zeros(2, size).double()
        for i, j in itertools.product(range(size), repeat=2):
            t = abs(share * (i - 3) - (j - 3))
            weight = 1.5 * t**3 - 2.5 * t**2 + 1 if t < 1 else (-0.5 * t**3 + 2.5 * t**2 - 4 * t + 2 if t < 2 else 0.0)
            expected[:, i] += weight * x[:, j, 0]
        torch.testing.assert_close(Frame(height=share, learn=False)(x), expected)

    @pytest.mark.parametrize("shape", [(5, 4), (2, 3, 4), (1, 1)], ids=str)
    @pytest.mark.parametrize("share", [0.8, 1.0])
    def test_gradcheck_in_the_image_and_the_frame(self, shape: tuple[int, ...], share: float) -> None:
        """At the whole image, too, where it starts: linear interpolation would have no gradient there."""
        module = Frame(width=share, height=share)
        raw = {name: p.detach().clone().requires_grad_() for name, p in module.named_parameters()}

        def features(x: Tensor, *values: Tensor) -> Tensor:
            return torch.func.functional_call(module, dict(zip(raw, values, strict=True)), (x,))

        assert torch.autograd.gradcheck(features, (rand(2, *shape).requires_grad_(), *raw.values()))

    def test_another_map_sees_what_is_in_the_frame(self) -> None:
        x, own = rand(4, 8, 9), OrientedGradients(cell=2.0)
        module = Frame(own, width=0.7, height=0.9)
        seen = Frame(width=0.7, height=0.9)(x).reshape(x.shape)
        torch.testing.assert_close(module(x), own(seen))
        assert module.named_constants() == pytest.approx({"width": 0.7, "height": 0.9})
        assert "width=0.7, height=0.9" in repr(module)
        assert "window=0.625" in repr(module)

    @pytest.mark.usefixtures("one_start")
    def test_the_evidence_leaves_a_noisy_margin_out(self, tmp_path: Path) -> None:
        X, y = digits(30)
        wide = np.random.default_rng(0).uniform(0, 1, (30, 16, 16))
        wide[:, 4:12, 4:12] = X
        settings: dict[str, Any] = {"likelihood": "gaussian", "random_state": 0}
        plain, framed = (InvariantGPClassifier(feature_map=own, **settings).fit(wide, y) for own in (None, Frame()))
        assert all(share < 0.5 for share in framed.kernel_.feature_map.named_constants().values())
        assert framed.evidence_.value > plain.evidence_.value + 50
        shares = ", ".join(
            f"{name} {share:.3g}" for name, share in framed.kernel_.feature_map.named_constants().items()
        )
        assert f"g sees: Frame ({shares})" in framed.summary()
        assert "g sees" not in plain.summary()
        framed.save(tmp_path / "model.safetensors")
        loaded = InvariantGPClassifier.load(tmp_path / "model.safetensors")
        assert loaded.predict_proba(wide).tobytes() == framed.predict_proba(wide).tobytes()

    def test_a_map_within_is_saved(self, tmp_path: Path) -> None:
        X, y = digits(20, classes=2)
        own = Frame(OrientedGradients(4, cell=2.0))
        estimator = InvariantGPRegressor(feature_map=own, max_steps=5).fit(X, y.astype(float))
        learned = estimator.kernel_.feature_map
        assert learned.raw_width != 0
        assert learned.feature_map.raw_window != own.feature_map.raw_window
        estimator.save(tmp_path / "model.safetensors")
        loaded = InvariantGPRegressor.load(tmp_path / "model.safetensors")
        assert repr(loaded.kernel_.feature_map) == repr(learned)
        assert loaded.predict(X).tobytes() == estimator.predict(X).tobytes()

    def test_bad_arguments(self) -> None:
        with pytest.raises(ValueError, match="width must be positive and finite, got 0"):
            Frame(width=0.0)
        with pytest.raises(ValueError, match=r"Frame takes images .* shape \(5,\): set image_shape"):
            Frame()(rand(3, 5))
