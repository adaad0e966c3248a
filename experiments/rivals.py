"""What signals are usually classified and regressed with: nearest neighbours, dynamic time warping, SVM, ROCKET, PLS."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from scipy.signal import savgol_filter
from sklearn.cross_decomposition import PLSRegression
from sklearn.linear_model import RidgeClassifierCV
from sklearn.model_selection import GridSearchCV, KFold, StratifiedKFold, cross_val_predict
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

Classifier = Callable[[np.ndarray, np.ndarray, np.ndarray, int], np.ndarray]  # x, y, x_test, seed -> labels


def euclidean(x: np.ndarray, y: np.ndarray, x_test: np.ndarray, seed: int) -> np.ndarray:
    """The nearest neighbour by Euclidean distance."""
    flat = x.reshape(len(x), -1)
    return np.asarray(KNeighborsClassifier(1).fit(flat, y).predict(x_test.reshape(len(x_test), -1)))


def time_warping(x: np.ndarray, y: np.ndarray, x_test: np.ndarray, seed: int, band: float = 0.1) -> np.ndarray:
    """The nearest neighbour by dynamic time warping, within a band of a tenth of the length."""
    labels = [y[_warped(x, one, band).argmin()] for one in x_test]
    return np.array(labels)


def _warped(x: np.ndarray, one: np.ndarray, band: float) -> np.ndarray:
    """Distances of one signal from all: the recursion runs over samples, for all signals at a time."""
    x, one = (a.reshape(*a.shape[:-2], -1, a.shape[-1]) if a.ndim > k else a[..., None, :] for a, k in ((x, 2), (one, 1)))
    length = x.shape[-1]
    reach = max(1, round(band * length))
    last = np.full((length + 1, len(x)), np.inf)
    last[0] = 0.0
    columns = np.ascontiguousarray(np.moveaxis(x, -1, 0))  # (T, N, C)
    for i in range(length):
        low, high = max(0, i - reach), min(length, i + reach + 1)
        cost = np.square(columns[low:high] - one[:, i]).sum(-1)
        row = np.full_like(last, np.inf)
        before = np.minimum(last[low:high], last[low + 1 : high + 1])
        for j in range(high - low):
            row[low + j + 1] = cost[j] + np.minimum(before[j], row[low + j])
        last = row
    return last[length]


def svm(x: np.ndarray, y: np.ndarray, x_test: np.ndarray, seed: int) -> np.ndarray:
    """An RBF support vector machine, C and gamma by cross-validation."""
    grid = {"svc__C": [0.1, 1, 10, 100, 1000], "svc__gamma": np.geomspace(0.01, 10, 7) / x[0].size}
    folds = StratifiedKFold(5, shuffle=True, random_state=seed)
    search = GridSearchCV(make_pipeline(StandardScaler(), SVC()), grid, cv=folds)
    return np.asarray(search.fit(x.reshape(len(x), -1), y).predict(x_test.reshape(len(x_test), -1)))


def rocket(x: np.ndarray, y: np.ndarray, x_test: np.ndarray, seed: int, kernels: int = 2000) -> np.ndarray:
    """ROCKET (Dempster et al. 2020): random convolutions, their largest value and part above zero, and a ridge classifier.

    Written from the paper, with fewer kernels than its 10,000 and one channel for each kernel of signals with several.
    """
    rng = np.random.default_rng(seed)
    channels = 1 if x.ndim == 2 else x.shape[1]
    both = torch.tensor(np.concatenate([x, x_test]), dtype=torch.float32).reshape(len(x) + len(x_test), channels, -1)
    length = both.shape[-1]
    features = []
    for _ in range(kernels):
        size = int(rng.choice([s for s in (7, 9, 11) if s <= length]))
        weights = rng.normal(size=size)
        most = np.log2(max(1.0, (length - 1) / (size - 1)))
        dilation = int(2 ** rng.uniform(0, most))
        padding = (size - 1) * dilation // 2 if rng.random() < 0.5 else 0
        kernel = torch.tensor(weights - weights.mean(), dtype=torch.float32)[None, None]
        channel = int(rng.integers(channels))
        found = torch.nn.functional.conv1d(both[:, channel : channel + 1], kernel, padding=padding, dilation=dilation)
        found = found[:, 0] + float(rng.uniform(-1, 1))
        features += [found.max(1).values, (found > 0).float().mean(1)]
    table = torch.stack(features, 1).numpy()
    model = make_pipeline(StandardScaler(), RidgeClassifierCV(alphas=np.logspace(-3, 3, 10)))
    return np.asarray(model.fit(table[: len(x)], y).predict(table[len(x) :]))


CLASSIFIERS: dict[str, Classifier] = {
    "1-NN Euclidean": euclidean,
    "1-NN DTW": time_warping,
    "RBF SVM": svm,
    "ROCKET": rocket,
}


def _snv(x: np.ndarray, like: np.ndarray) -> np.ndarray:
    return (x - x.mean(1, keepdims=True)) / x.std(1, keepdims=True)


def _msc(x: np.ndarray, like: np.ndarray) -> np.ndarray:
    """Each spectrum corrected by its regression on the mean spectrum of the training data."""
    mean = like.mean(0)
    slope, offset = np.polyfit(mean, x.T, 1)
    return (x - offset[:, None]) / slope[:, None]


PREPARATIONS: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "PLS": lambda x, _: x,
    "PLS, SNV": _snv,
    "PLS, MSC": _msc,
    "PLS, first derivative": lambda x, _: savgol_filter(x, 11, 2, deriv=1),
    "PLS, second derivative": lambda x, _: savgol_filter(x, 11, 2, deriv=2),
}


def pls(name: str, x: np.ndarray, y: np.ndarray, x_test: np.ndarray, seed: int) -> np.ndarray:
    """Partial least squares of prepared spectra, as many components as cross-validation finds best."""
    prepare = PREPARATIONS[name]
    train, test = prepare(x, x), prepare(x_test, x)
    folds = KFold(10, shuffle=True, random_state=seed)
    errors = {
        count: np.square(cross_val_predict(PLSRegression(count), train, y, cv=folds).ravel() - y).mean()
        for count in range(1, 26)
    }
    best = min(errors, key=lambda count: errors[count])
    return np.asarray(PLSRegression(best).fit(train, y).predict(test)).ravel()
