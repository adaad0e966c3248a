"""What signals are usually classified and regressed with: nearest neighbours, dynamic time warping, SVM, MiniROCKET,
PLS."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.signal import savgol_filter
from sklearn.cross_decomposition import PLSRegression
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
    return np.asarray(y[_warped(x_test, x, band).argmin(1)])


def _warped(a: np.ndarray, b: np.ndarray, band: float) -> np.ndarray:
    """Distances between all signals: the recursion runs over samples, for all pairs at a time."""
    length = a.shape[-1]
    # (T, C, signals), so that the pairs of one step lie side by side.
    a, b = (np.ascontiguousarray(np.moveaxis(c.reshape(len(c), -1, length), 0, 2).swapaxes(0, 1)) for c in (a, b))
    reach = max(1, round(band * length))
    last, row = np.full((2, length + 1, a.shape[2], b.shape[2]), np.inf, dtype=np.float32)
    last[0] = 0.0
    for i in range(length):
        low, high = max(0, i - reach), min(length, i + reach + 1)
        row[low] = np.inf
        for j in range(low, high):
            cost = np.square(a[i][:, :, None] - b[j][:, None]).sum(0)
            row[j + 1] = cost + np.minimum(np.minimum(last[j], last[j + 1]), row[j])
        last, row = row, last
    return last[length]


def svm(x: np.ndarray, y: np.ndarray, x_test: np.ndarray, seed: int) -> np.ndarray:
    """An RBF support vector machine, C and gamma by cross-validation."""
    grid = {"svc__C": [0.1, 1, 10, 100, 1000], "svc__gamma": np.geomspace(0.01, 10, 7) / x[0].size}
    folds = StratifiedKFold(5, shuffle=True, random_state=seed)
    search = GridSearchCV(make_pipeline(StandardScaler(), SVC()), grid, cv=folds)
    return np.asarray(search.fit(x.reshape(len(x), -1), y).predict(x_test.reshape(len(x_test), -1)))


def minirocket(x: np.ndarray, y: np.ndarray, x_test: np.ndarray, seed: int) -> np.ndarray:
    """MiniROCKET (Dempster et al. 2021), as in aeon: 10,000 features of random convolutions and a ridge classifier."""
    from aeon.classification.convolution_based import MiniRocketClassifier

    three = [a.reshape(len(a), -1, a.shape[-1]) for a in (x, x_test)]
    return np.asarray(MiniRocketClassifier(random_state=seed).fit(three[0], y).predict(three[1]))


CLASSIFIERS: dict[str, Classifier] = {
    "1-NN Euclidean": euclidean,
    "1-NN DTW": time_warping,
    "RBF SVM": svm,
    "MiniROCKET": minirocket,
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
