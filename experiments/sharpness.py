r"""Sharper than the mean: orbit averages that prefer well-aligned pairs, against the mean, by evidence.

The power mean of k_g over pairs of elements of the orbits goes from the mean (q = 1) to alignment (q = oo), the
largest value. Its slopes are weights, and those of well-aligned pairs grow with q:

    A_q(x, x') = (mean_ab k_g(x_a, x'_b)^q)^(1/q),    d log A_q / d log k_g(x_a, x'_b) = softmax_ab(q log k_g).

Which families between the two are positive definite?

1. *mean_ab k_g^q* is, by Schur, for every q where k_g^q is. For an RBF it is the mean with lengthscale l / sqrt(q),
   which is learned anyway: nothing new. All that aligns is the root 1/q < 1 after it.
2. *A_q itself* is not. With k_g an RBF of lengthscale 1 and the orbit {x, -x} of a number, and q > 1,

       A_q(x, x') = exp(-(x^2 + x'^2) / 2) cosh(q x x')^(1/q),
       cosh(q z)^(1/q) = 1 + q z^2 / 2 + q^2 (3 - 2 q) z^4 / 24 + ...

   has a negative coefficient (a later one where q <= 3/2), although the limit q = oo, an RBF of |x|, is a covariance.
   And *no function* of the mean does it: phi(k_f) is positive definite for every k_f only where phi is a power series
   without negative coefficients (Schoenberg; Rudin), which is convex on [0, 1], while a root is concave. The powers
   that are allowed, (mean k_g^(1/m))^m, are A_q with q = 1/m < 1: towards the *geometric* mean,
   exp(-mean d^2 / 2 l^2), which is away from alignment.
3. *Normalisation*, k_f(x, x') / (k_f(x, x) k_f(x', x'))^(rho / 2), is positive definite for every rho. It multiplies
   rows and columns, so the weights of pairs in the sum of different x and x' are those of the mean. It undoes that
   inputs near their own images have more variance. Only where elements are many lengthscales apart, so that one pair
   is all of a sum, are the normalised mean (rho = 1) and alignment the same.
4. *Series*: with c the normalised mean (rho = 1), and by Schur and the series of exp,

       k(x, x') = (k_f(x, x) k_f(x', x'))^((1 - rho) / 2) (exp(s c) - 1) / (exp(s) - 1),    s >= 0, 0 <= rho <= 1,

   is positive definite, the mean at s = rho = 0, and sharper in c as s grows: in the limit, with a longer
   lengthscale, an RBF of the distance between mean features. It is a contrast between inputs, not between pairs of
   one sum, as in 2.
5. *Features raised to a power before averaging*. For a fixed set Z of inputs, the power means a(x) = A_q(x, Z) over
   the orbit are features. With V diag(e) V' = A_q(Z, Z), and 1 / e+ for 1 / e where e > 0 and zero elsewhere,

       k(x, x') = a(x) V diag(1 / e+) V' a(x')'  +  k_f(x, x') - k_f(x, Z) k_f(Z, Z)^-1 k_f(Z, x')

   is positive definite for every q and on all inputs: a Gram matrix of features and a Schur complement. At q = 1 it
   is the mean, exactly and everywhere. On Z it is A_q without its negative eigenvalues, so for q = oo it is
   alignment. Z are the training inputs, without their targets. A_q and k_f may both be normalised first, by their own
   values, as in 3.

What is learned are *normalised* (rho), which :class:`orbitgp.InvariantKernel` has, *series* (rho and s), and
*aligned* (rho and q >= 1). The first contains the mean, and the others the first. Each starts there and elsewhere,
and learns all its constants by the exact log evidence with Gaussian noise; digits have an indicator for each class.
The orbits are finite:

- *rotated digits*: 200 embedded digits at any angle, 24 turns;
- *400 digits* of MNIST: the affine maps of :mod:`experiments.augmentation`, 16 of them for all digits, and the same
  one and a half times and twice as wide. A family that sharpens may do no more than make up for a wrong width: each
  has the width with the highest evidence. *copies* are the plain kernel of 5 transformed copies of each digit, by maps
  of its own, whose evidence is one of other data;
- *QM7*: what is seen from each atom of 250 molecules, Matérn-5/2, for energies less those of their elements;
- *optimisation*: 60 observations of the functions of :mod:`experiments.regret`, which are draws of a mean, and of
  those of Ackley and Rastrigin, which have all permutations and signs as symmetries and are draws of nothing.

``python -m experiments sharpness --jobs 14``
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy.optimize import minimize
from torch import Tensor
from torch.autograd.function import once_differentiable

from experiments import augmentation, harness, molecules, regret
from experiments.harness import Claims, Record, Records, Run
from orbitgp.datasets import digits, mnist
from orbitgp.kernels import Surroundings
from orbitgp.orbits import Atoms
from orbitgp.orbits.parse import make_orbit

ARMS = ("mean", "normalised", "series", "aligned")
DATA = ("rotated digits", "400 digits", "QM7", "optimisation")
TASKS = ("cyclic, 3-D", "orders, 2-D", "orders, 6-D")
NATURAL = ("Ackley, 3-D", "Rastrigin, 3-D")
WIDTHS = {"as wide": 1.0, "wider by half": 1.5, "twice as wide": 2.0}  # of the maps of 400 digits
SYMMETRY = "permutations(3)*sign(0)*sign(1)*sign(2)"  # of these two
ABSENT = 1e6  # the distance to an atom that a molecule does not have
AT_ONCE = {"cpu": 2**16, "cuda": 2**26}  # values of k_g
CLEAR = 2.0  # nats by which a family must be better, and standard errors

Arm = str
Logs = tuple[Tensor, Tensor]  # of k_g, and its derivative with respect to the logarithm of the lengthscale
Profile = Callable[[Tensor, float], Logs]
Blocks = Sequence[Float[Tensor, "rows terms"]]
Bounds = dict[str, tuple[float, float]]


def log_rbf(squares: Tensor, lengthscale: float) -> Logs:
    """exp(-d^2 / 2 l^2)."""
    logs = squares * (-0.5 / lengthscale**2)
    return logs, -2 * logs


def log_matern(squares: Tensor, lengthscale: float) -> Logs:
    """(1 + r + r^2 / 3) exp(-r), r = sqrt(5) d / l."""
    r = squares.sqrt() * (5**0.5 / lengthscale)
    cubic = 3 + 3 * r + r.square()
    return (cubic / 3).log() - r, r.square() * (1 + r) / cubic


PROFILES: dict[str, Profile] = {"rbf": log_rbf, "matern": log_matern}


class PowerMean(torch.autograd.Function):
    """The logarithms of A_q of rows of squared distances; the same pass makes derivatives in log l and log q.

    Rows come in blocks that fit into a cache. Each has this number of terms, of which absent ones may be left out.
    """

    @staticmethod
    def forward(ctx: Any, blocks: Blocks, terms: int, log_l: Tensor, log_q: Tensor, profile: str) -> Tensor:
        lengthscale, q = math.exp(log_l), math.exp(log_q)
        by_power = q != 1 or ctx.needs_input_grad[3]
        parts = [_power_mean(block, terms, lengthscale, q if by_power else None, PROFILES[profile]) for block in blocks]
        found = torch.cat(parts, 1)
        ctx.save_for_backward(found)
        return found[0]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *slopes: Tensor) -> tuple[None, None, Tensor, Tensor | None, None]:
        found = ctx.saved_tensors[0] @ slopes[0]
        return None, None, found[1], found[2] if len(found) > 2 else None, None


def _power_mean(squares: Tensor, terms: int, lengthscale: float, q: float | None, profile: Profile) -> Tensor:
    """The logarithms of A_q, its derivative in log l, and that in log q unless this is None and stands for 1."""
    logs, slopes = profile(squares, lengthscale)
    most = logs.amax(1)
    above = logs - most[:, None]
    weights = (above if q is None else above * q).exp_()
    total = weights.sum(1)
    value = most + (total / terms).log() / (q or 1.0)
    found = [value, torch.linalg.vecdot(weights, slopes) / total]
    if q is not None:
        found.append(torch.linalg.vecdot(weights, logs) / total - value)
    return torch.stack(found)


class PositivePart(torch.autograd.Function):
    """A symmetric matrix without its negative eigenvalues; divided differences (Daleckii-Krein) make its derivative."""

    @staticmethod
    def forward(ctx: Any, matrix: Tensor) -> Tensor:
        values, vectors = torch.linalg.eigh(matrix)
        ctx.save_for_backward(values, vectors)
        return (vectors * values.clamp(min=0)) @ vectors.mT

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *slopes: Tensor) -> Tensor:
        values, vectors = ctx.saved_tensors
        positive = values.clamp(min=0)
        apart = values[:, None] - values
        mixed = (positive[:, None] - positive) / torch.where(apart == 0, 1.0, apart)
        same = (values[:, None] > 0) & (values > 0)
        differences = torch.where(same, 1.0, torch.where(apart == 0, 0.0, mixed))
        return vectors @ (differences * (vectors.mT @ slopes[0] @ vectors)) @ vectors.mT


class Theta(NamedTuple):
    """All that is learned except for the variance, which has a closed form: logarithms, rho and s."""

    log_lengthscale: Tensor
    log_noise: Tensor  # over the variance
    rho: Tensor
    s: Tensor
    log_power: Tensor


LEARNED = {  # and the bounds
    "mean": ("log_lengthscale", "log_noise"),
    "normalised": ("log_lengthscale", "log_noise", "rho"),
    "series": ("log_lengthscale", "log_noise", "rho", "s"),
    "aligned": ("log_lengthscale", "log_noise", "rho", "log_power"),
}
BOUNDS = {"log_noise": (-16.0, 5.0), "rho": (0.0, 1.0), "s": (0.0, 30.0), "log_power": (0.0, 6.0)}
# Where each begins besides the best of the family that it contains: further constants, and a factor of the lengthscale
STARTS: dict[Arm, list[tuple[dict[str, float], float]]] = {
    "normalised": [({"rho": 1.0}, 0.6)],
    "series": [({"rho": 1.0, "s": 1.0}, 1.5), ({"rho": 0.5, "s": 5.0}, 3.0)],
    "aligned": [
        ({"rho": 0.0, "log_power": 1.0, "log_noise": -6.0}, 1.0),
        ({"rho": 1.0, "log_power": 3.0, "log_noise": -6.0}, 1.5),
    ],
}


def series(c: Tensor, s: Tensor) -> Tensor:
    """(exp(s c) - 1) / (exp(s) - 1), and c where s = 0."""
    safe = s.clamp(min=1e-3)
    few_terms = c * (1 + 0.5 * s * (c - 1) + s**2 / 12 * (c - 1) * (2 * c - 1))
    return torch.where(s < 1e-3, few_terms, torch.expm1(safe * c) / torch.expm1(safe))


def contrasted(kf: Tensor, own1: Tensor, own2: Tensor, rho: Tensor, s: Tensor) -> Tensor:
    """The fourth family of the docstring, from k_f between inputs and that of each with itself."""
    scale = (own1[:, None] * own2).sqrt()
    return scale ** (1 - rho) * series(kf / scale, s)


class Pairs(NamedTuple):
    """Squared distances of all elements of n inputs from those of m others; of one set, only of its upper triangle."""

    blocks: Blocks
    order: Int[Tensor, " pairs"]  # which pair each row of the blocks is
    terms: int
    n: int
    m: int
    same: bool
    profile: str

    @classmethod
    def of(cls, squares: Float[Tensor, "pairs terms"], n: int, m: int, same: bool, profile: str) -> Pairs:
        """Rows without absent elements as they are; else those with fewest elements first, and absent ones left out."""
        rows = max(1, AT_ONCE[squares.device.type] // squares.shape[1])
        if bool(squares.max() < ABSENT**2):
            blocks: Blocks = squares.split(rows)
            order = torch.arange(len(squares), device=squares.device)
        else:
            counts = (squares < ABSENT**2).sum(1)
            order = counts.argsort()
            sides = [(squares[some].sort(1).values, counts[some].max()) for some in order.split(rows)]
            blocks = [part[:, : int(most)].contiguous() for part, most in sides]
        return cls(blocks, order, squares.shape[1], n, m, same, profile)

    def power_mean(self, theta: Theta, mean: bool) -> Float[Tensor, "n m"]:
        """A_q, or k_f."""
        power = torch.zeros_like(theta.log_power) if mean else theta.log_power
        logs = PowerMean.apply(self.blocks, self.terms, theta.log_lengthscale, power, self.profile)
        found = torch.zeros_like(logs).index_put((self.order,), logs.exp())
        if not self.same:
            return found.reshape(self.n, self.m)
        i, j = torch.triu_indices(self.n, self.n, device=found.device)
        upper = found.new_zeros(self.n, self.n).index_put((i, j), found)
        return upper + upper.triu(1).mT


def gram(arm: Arm, pairs: Pairs, theta: Theta) -> tuple[Tensor, Tensor]:
    """The matrix of the training inputs, and their mean variance before it was scaled to one."""
    found = pairs.power_mean(theta, arm != "aligned")
    if arm != "mean":
        found = contrasted(found, found.diagonal(), found.diagonal(), theta.rho, theta.s)
    if arm == "aligned":
        found = PositivePart.apply(found)
    scale = found.diagonal().mean()
    return found / scale, scale


def evidence(matrix: Tensor, noise: Tensor, y: Float[Tensor, "n outputs"]) -> tuple[Tensor, Tensor]:
    """The logarithm of p(y) under N(0, v (K + noise I)) for each output, at the best v; and that v."""
    n, outputs = y.shape
    factor = torch.linalg.cholesky(matrix + (noise + 1e-9) * torch.eye(n, dtype=y.dtype, device=y.device))
    variance = torch.linalg.solve_triangular(factor, y, upper=False).square().sum() / (n * outputs)
    log_det = 2 * factor.diagonal().log().sum()
    return -0.5 * outputs * (n * (torch.log(2 * math.pi * variance) + 1) + log_det), variance


class Fit(NamedTuple):
    """The best constants, and what they were reached with."""

    theta: Theta
    value: float
    evaluations: int


def fit(arm: Arm, pairs: Pairs, y: Tensor, starts: list[Theta], bounds: Bounds, steps: int) -> Fit:
    """The highest evidence, by L-BFGS within bounds from each start."""
    best, count = Fit(starts[0], -math.inf, 0), 0
    names = LEARNED[arm]

    def made(start: Theta, values: np.ndarray) -> Theta:
        return start._replace(**{name: start.s.new_tensor(float(v)) for name, v in zip(names, values, strict=True)})

    for start in starts:

        def loss(values: np.ndarray, start: Theta = start) -> tuple[float, np.ndarray]:
            nonlocal count
            count += 1
            theta = made(start, values)
            inputs = [getattr(theta, name).requires_grad_() for name in names]
            try:
                value, _ = evidence(gram(arm, pairs, theta)[0], theta.log_noise.exp(), y)
            except RuntimeError:  # the matrix is not positive definite
                return 1e10, np.zeros(len(names))
            slopes = torch.autograd.grad(-value, inputs)
            return -value.item(), np.array([slope.item() for slope in slopes])

        box = [bounds[name] for name in names]
        first = np.clip([float(getattr(start, name)) for name in names], *np.array(box).T)
        found = minimize(loss, first, jac=True, bounds=box, method="L-BFGS-B", options={"maxiter": steps, "ftol": 1e-7})
        if -found.fun > best.value:
            best = Fit(made(start, found.x), float(-found.fun), 0)
    return best._replace(evaluations=count)


@torch.no_grad()
def predictor(arm: Arm, train: Pairs, y: Tensor, theta: Theta) -> Callable[[Pairs, Pairs], Tensor]:
    """Posterior means of test inputs, from their pairs with the training inputs and with themselves."""
    mean = arm != "aligned"
    matrix, scale = gram(arm, train, theta)
    ridge = (theta.log_noise.exp() + 1e-9) * torch.eye(len(y), dtype=y.dtype, device=y.device)
    alpha = torch.linalg.solve(matrix + ridge, y)
    average = train.power_mean(theta, mean)
    own = average.diagonal()
    if arm == "aligned":  # a V diag(1 / e+) V' times the matrix of Z is a projection of a
        values, vectors = torch.linalg.eigh(contrasted(average, own, own, theta.rho, theta.s))
        alpha = vectors @ ((values > 0).to(y)[:, None] * (vectors.mT @ alpha))

    @torch.no_grad()
    def predict(pairs: Pairs, themselves: Pairs) -> Tensor:
        across = pairs.power_mean(theta, mean)
        if arm != "mean":
            across = contrasted(across, themselves.power_mean(theta, mean)[:, 0], own, theta.rho, theta.s)
        return across / scale @ alpha

    return predict


class Data(NamedTuple):
    """Elements of the orbits; where the orbit is a group of isometries, single elements on the left.

    ``compare`` makes a score, which is an error, of predictions and test targets.
    """

    left: Float[Tensor, "n chosen dim"]
    right: Float[Tensor, "n size dim"]
    y: Float[Tensor, "n outputs"]
    test_left: Float[Tensor, "m chosen dim"]
    test_right: Float[Tensor, "m size dim"]
    score: Callable[[Tensor], float]
    profile: str = "rbf"

    def to(self, device: str) -> Data:
        """The same on a device."""
        left, right, y, test_left, test_right = (value.to(device) for value in self[:5])
        return Data(left, right, y, test_left, test_right, self.score, self.profile)

    def squares(self, a: Tensor, b: Tensor) -> Float[Tensor, "n m terms"]:
        """Squared distances of all elements; from products, of centred points."""
        centre = self.right.flatten(0, 1)[:, :-1].mean(0)
        lefts, rights = ((x[..., :-1] - centre).flatten(0, 1) for x in (a, b))
        found = torch.addmm(rights.square().sum(1), lefts, rights.mT, alpha=-2)
        found.add_(lefts.square().sum(1)[:, None]).clamp_(0)
        if a[..., -1].any() or b[..., -1].any():
            found[a[..., -1].flatten() > 0] = ABSENT**2
            found[:, b[..., -1].flatten() > 0] = ABSENT**2
        return found.reshape(*a.shape[:2], *b.shape[:2]).transpose(1, 2).flatten(2)

    def train_pairs(self) -> Pairs:
        """Those of the training inputs."""
        parts = []
        for k in range(0, len(self.left), 25):
            some = self.squares(self.left[k : k + 25], self.right[k:])
            parts += [row[i:] for i, row in enumerate(some)]
        return Pairs.of(torch.cat(parts), len(self.left), len(self.left), True, self.profile)

    def test_pairs(self, rows: int = 50) -> Iterator[tuple[Pairs, Pairs]]:
        """Some test inputs at a time with the training inputs, and with themselves."""
        for left, right in zip(self.test_left.split(rows), self.test_right.split(rows), strict=True):
            across = self.squares(left, self.right)
            own = torch.cat([self.squares(left[k : k + 1], right[k : k + 1])[0] for k in range(len(left))])
            yield (
                Pairs.of(across.flatten(0, 1), len(left), len(self.right), False, self.profile),
                Pairs.of(own, len(left), 1, False, self.profile),
            )


def present(x: Tensor, absent: Tensor | None = None) -> Tensor:
    """Points with a last number that says whether they are absent."""
    x = x.flatten(2).double()
    last = torch.zeros_like(x[..., :1]) if absent is None else absent[..., None].to(x)
    return torch.cat([x, last], -1)


def indicators(labels: np.ndarray) -> Tensor:
    """A column for each of ten classes, with mean zero."""
    return torch.nn.functional.one_hot(torch.as_tensor(labels), 10).double() - 0.1


def error_rate(labels: np.ndarray) -> Callable[[Tensor], float]:
    """Of the class with the highest mean."""
    return lambda means: float(np.mean(means.argmax(1).cpu().numpy() != labels))


def standardised(elements: Sequence[Tensor], y: Tensor, test: Tensor) -> Data:
    """A regression on targets of mean zero and unit variance, scored in the original units."""
    left, right, test_left, test_right = elements
    mean, std = y.mean(), y.std()

    def score(means: Tensor) -> float:
        return float((means.cpu()[:, 0] * std + mean - test).square().mean().sqrt())

    return Data(left, right, ((y - mean) / std)[:, None], test_left, test_right, score, "matern")


@dataclass(frozen=True)
class Sharpness(Run):
    """All families of one data set and seed; or the copies."""

    data: str
    task: str = ""  # of the optimisation, or how wide maps of digits are
    seed: int = 0
    train: int = 200
    test: int = 400
    size: int = 16  # elements of an orbit that is continuous
    steps: int = 30  # of L-BFGS, from each start
    copies: bool = False

    def name(self) -> str:
        return harness.slug(self.data, self.task, "copies" if self.copies else "", self.seed)

    def load(self) -> Data:
        """Elements, targets and test data."""
        if self.data == "rotated digits":
            return self.rotated()
        if self.data == "400 digits":
            return self.moved()
        return self.atoms() if self.data == "QM7" else self.observations()

    def rotated(self) -> Data:
        """Embedded digits at any angle, and as many turns."""
        few = harness.cut(digits(seed=self.seed), slice(self.train), slice(self.test))
        data = harness.turned(few, 180.0, self.seed)
        u = (torch.arange(self.size) + 0.5).div(self.size)[:, None]
        made = [moved(x, "rotation(180, learn=False)", u) for x in (data.x_train, data.x_test)]
        return Data(made[0], made[0], indicators(data.y_train), made[1], made[1], error_rate(data.y_test))

    def moved(self) -> Data:
        """Digits of MNIST, and affine maps that all of them share; or those of each, as copies without an orbit."""
        data = mnist()
        rng = np.random.default_rng(self.seed)
        chosen, tested = (
            rng.permutation(len(data.y_train))[: self.train],
            rng.permutation(len(data.y_test))[: self.test],
        )
        data = harness.cut(data, chosen, tested)
        labels = indicators(data.y_train)
        if self.copies:
            generator = torch.Generator().manual_seed(self.seed)
            dim = make_orbit(augmentation.FIXED).draws_for(torch.Size(data.x_train.shape[1:]))
            u = torch.rand(len(data.x_train), self.size, dim, generator=generator)
            x = moved(data.x_train, augmentation.FIXED, u).flatten(0, 1)[:, None]
            test, labels = present(torch.from_numpy(data.x_test)[:, None]), labels.repeat_interleave(self.size, 0)
            return Data(x, x, labels, test, test, error_rate(data.y_test))
        dim = make_orbit(augmentation.FIXED).draws_for(torch.Size(data.x_train.shape[1:]))
        u = torch.quasirandom.SobolEngine(dim, scramble=True, seed=self.seed).draw(self.size)
        u = 0.5 + WIDTHS[self.task] * (u - 0.5)
        made = [moved(x, augmentation.FIXED, u) for x in (data.x_train, data.x_test)]
        return Data(made[0], made[0], labels, made[1], made[1], error_rate(data.y_test))

    def atoms(self) -> Data:
        """What is seen from each atom of a molecule; an atom that is not there is far from all others."""
        x, counts, energy = molecules.load("qm7")
        order = np.random.default_rng(self.seed).permutation(len(x))
        used, tested = order[: self.train], order[-self.test :]
        y = energy - counts @ np.linalg.lstsq(counts[used], energy[used], rcond=None)[0]
        elements = tuple(int(charge) for charge in np.unique(x[..., 0]) if charge)
        feature_map = Surroundings(elements, learn=False).double()

        def seen(rows: np.ndarray) -> Tensor:
            some = torch.from_numpy(np.ascontiguousarray(x[rows]))
            with torch.no_grad():
                mapped = feature_map(Atoms(x.shape[1]).elements(some).flatten(0, 1)).unflatten(0, some.shape[:2])
            return present(mapped, some[..., 0] == 0)

        made = [seen(rows) for rows in (used, tested)]
        targets = torch.from_numpy(y)
        return standardised((made[0], made[0], made[1], made[1]), targets[used], targets[tested])

    def observations(self) -> Data:
        """Random places of a function on a cube, with little noise; the orbit is a group of isometries."""
        generator = torch.Generator().manual_seed(1000 + self.seed)
        natural = self.task in NATURAL
        columns, group = (3, SYMMETRY) if natural else regret.TASKS[self.task][:2]
        x = torch.rand(self.train + self.test, columns, generator=generator, dtype=torch.float64)
        if natural:
            y = function(self.task)(2 * x - 1)
            x = 2 * x - 1
        else:
            before = torch.get_default_dtype()
            torch.set_default_dtype(torch.float64)
            try:
                f, _ = regret.function(regret.TASKS[self.task], self.seed)
                y = torch.cat([f(part) for part in x.split(50)])
            finally:
                torch.set_default_dtype(before)
        y = y / y.std()
        noisy = y[: self.train] + regret.NOISE * torch.randn(self.train, generator=generator, dtype=torch.float64)
        with torch.no_grad():
            images = present(regret.group_of(group).elements(x))
        alone, (train, _) = present(x[:, None]), images.split([self.train, self.test])
        # The images stand with the training inputs, and are none of a test input, except where it meets itself.
        made = alone[: self.train], train, alone[self.train :], images[self.train :]
        return standardised(made, noisy, y[self.train :])

    def measure(self, device: str) -> Record:
        begin = time.perf_counter()
        data = self.load()
        data = data.to(device)
        train, y = data.train_pairs(), data.y
        middle = 0.5 * math.log(float(torch.cat([block[:, ::7].flatten()[::11] for block in train.blocks]).median()))
        bounds = BOUNDS | {"log_lengthscale": (middle - 5, middle + 5)}
        arms = ("mean",) if self.copies else ARMS
        few = 12 if self.copies else self.steps  # whose evidence is not compared
        loaded = time.perf_counter()
        fits: dict[Arm, Fit] = {}
        seconds: dict[Arm, float] = {}
        zeros = dict.fromkeys(("rho", "s", "log_power"), 0.0)
        for arm in arms:
            clock = time.perf_counter()
            if arm == "mean":
                begins = [{"log_lengthscale": middle + shift, "log_noise": -4.0, **zeros} for shift in (-1.0, 0.0)]
                starts = [self.theta(values, y) for values in (begins[:1] if self.copies else begins)]
            else:
                mean = {name: float(value) for name, value in fits["mean"].theta._asdict().items()}
                starts = [fits["mean" if arm == "normalised" else "normalised"].theta]  # what it contains
                for further, factor in STARTS[arm]:
                    moved_to = mean["log_lengthscale"] + math.log(factor)
                    starts.append(self.theta(mean | further | {"log_lengthscale": moved_to}, y))
            fits[arm] = fit(arm, train, y, starts, bounds, few)
            seconds[arm] = time.perf_counter() - clock
            print(self.name(), arm, f"{fits[arm].value:.2f}", f"{seconds[arm]:.0f} s", flush=True)
        predictors = {arm: predictor(arm, train, y, found.theta) for arm, found in fits.items()}
        means: dict[Arm, list[Tensor]] = {arm: [] for arm in arms}
        for pairs, own in data.test_pairs():
            for arm in arms:
                means[arm].append(predictors[arm](pairs, own))
        found: dict[Arm, Record] = {
            arm: {
                "evidence": fits[arm].value,
                "error": data.score(torch.cat(means[arm])),
                "learned": {name: float(getattr(fits[arm].theta, name)) for name in LEARNED[arm]},
                "evaluations": fits[arm].evaluations,
                "seconds": seconds[arm],
            }
            for arm in arms
        }
        end = time.perf_counter()
        errors = {arm: round(one["error"], 4) for arm, one in found.items()}
        print(self.name(), errors, f"{end - begin:.0f} s", flush=True)
        return {"found": found, "seconds": {"load": loaded - begin, "all": end - begin}}

    @staticmethod
    def theta(values: dict[str, float], y: Tensor) -> Theta:
        """Constants as scalars."""
        return Theta(**{name: y.new_tensor(value) for name, value in values.items()})


def moved(images: np.ndarray, orbit: str, u: Tensor) -> Tensor:
    """Transformed images (N, P, pixels), by draws of each (N, P, dim), or shared (P, dim)."""
    x = torch.from_numpy(np.ascontiguousarray(images))
    draws = u.expand(len(x), *u.shape) if u.ndim == 2 else u
    with torch.no_grad():
        return present(make_orbit(orbit).transform(x, draws.to(x)))


def function(name: str) -> Callable[[Tensor], Tensor]:
    """Functions on [-1, 1]^3 that do not change with the order and the signs of their arguments."""
    if name.startswith("Ackley"):  # on [-2, 2]^3, as it is usually written
        return lambda x: -20 * (-0.4 * x.square().mean(1).sqrt()).exp() - (4 * math.pi * x).cos().mean(1).exp()
    return lambda x: (x.square() - (2 * math.pi * x).cos()).sum(1)


FULL: dict[str, dict[str, int]] = {
    "400 digits": {"train": 400, "test": 1000, "size": 16},
    "rotated digits": {"train": 200, "test": 450, "size": 24},
    "QM7": {"train": 250, "test": 500},
    "optimisation": {"train": 60, "test": 400},
}
QUICK: dict[str, dict[str, int]] = {
    "400 digits": {"train": 40, "test": 60, "size": 4, "steps": 5},
    "rotated digits": {"train": 40, "test": 60, "size": 6, "steps": 5},
    "QM7": {"train": 30, "test": 30, "steps": 5},
    "optimisation": {"train": 15, "test": 30, "steps": 5},
}


def plan(options: argparse.Namespace) -> list[Sharpness]:
    """The runs, the longest first."""
    sizes: dict[str, dict[str, Any]] = dict(QUICK if options.quick else FULL)
    runs = []
    for name in [name for name in sizes if name in options.data]:
        tasks = {"optimisation": (*TASKS, *NATURAL), "400 digits": tuple(WIDTHS)}.get(name, ("",))
        if name == "400 digits":
            few = sizes[name] | {"size": 5}
            runs += [Sharpness(name, "as wide", seed, copies=True, **few) for seed in range(options.seeds)]
        runs += [Sharpness(name, task, seed, **sizes[name]) for seed in range(options.seeds) for task in tasks]
    return runs


class Comparison(NamedTuple):
    """A family against another on one data set: differences of evidence, and ratios of test errors."""

    gain: tuple[float, float]
    ratio: tuple[float, float]

    @property
    def wins(self) -> bool:
        """Clearly more evidence, and less error."""
        return self.gain[0] > CLEAR * max(1.0, self.gain[1]) and self.ratio[0] < 1


Found = dict[Arm, Record]


def comparison(found: Sequence[Found], arm: Arm, against: Arm = "mean") -> Comparison:
    """Over these runs."""
    gains = [one[arm]["evidence"] - one[against]["evidence"] for one in found]
    ratios = [one[arm]["error"] / max(one[against]["error"], 1e-12) for one in found]
    return Comparison(harness.mean(gains), harness.mean(ratios))


def by_data(records: Records) -> dict[str, list[Found]]:
    """What was found on each data set, and on each of its tasks; on maps of digits, by each family at its best."""
    groups: dict[str, list[Found]] = {}
    compared = [record for record in records if not record["settings"]["copies"]]
    for (name,), some in harness.grouped(compared, "data").items():
        groups[name] = [record["found"] for record in some]
        tasks = harness.grouped(some, "task")
        if name == "400 digits":
            seeds = harness.grouped(some, "seed").values()
            groups[name] = [
                {arm: max((r["found"][arm] for r in one), key=itemgetter("evidence")) for arm in ARMS} for one in seeds
            ]
        if len(tasks) > 1:
            groups |= {f"{name}: {task}": [r["found"] for r in few] for (task,), few in tasks.items()}
    return dict(sorted(groups.items(), key=lambda item: DATA.index(item[0].partition(":")[0])))


def table(records: Records) -> str:
    """Differences of evidence with standard errors, test errors, and what was learned."""
    lines = []
    for name, found in by_data(records).items():
        picked = [max(ARMS, key=lambda arm: one[arm]["evidence"] - len(LEARNED[arm])) for one in found]
        for arm in ARMS:
            over, beyond = comparison(found, arm), comparison(found, arm, "normalised")
            learned = {key: np.median([one[arm]["learned"][key] for one in found]) for key in LEARNED[arm][2:]}
            first, second = arm == "mean", arm in ARMS[:2]
            cells = [name, arm, "" if first else said(over.gain, "+"), "" if second else said(beyond.gain, "+")]
            cells += [said(harness.mean([one[arm]["error"] for one in found])), "" if first else said(over.ratio)]
            cells += [", ".join(f"{key} {value:.2g}" for key, value in learned.items())]
            lines.append([*cells, f"{picked.count(arm)} of {len(picked)}"])
        errors = [one[arm]["error"] for one, arm in zip(found, picked, strict=True)]
        lines.append([name, "picked by evidence", "", "", said(harness.mean(errors)), "", "", ""])
    if copies := [record["found"]["mean"]["error"] for record in records if record["settings"]["copies"]]:
        lines.append(["400 digits: as wide", "copies", "", "", said(harness.mean(copies)), "", "", ""])
    evidence = ["evidence less the mean's", "less the normalised's"]
    titles = ["data", "kernel", *evidence, "test error", "over the mean's", "learned (medians)", "picked"]
    return harness.markdown(titles, lines)


def said(value: tuple[float, float], sign: str = "") -> str:
    """A number with its standard error."""
    return f"{value[0]:{sign}.3g} ± {value[1]:.2g}"


def check(records: Records) -> Claims:
    """Which family has more evidence and less error than what it contains, on the two data sets that are asked for."""
    claims: Claims = {}
    groups = {name: found for name, found in by_data(records).items() if ":" not in name}
    if set(groups) != set(DATA):
        return {}
    for arm, against in [(arm, "mean") for arm in ARMS[1:]] + [(arm, "normalised") for arm in ARMS[2:]]:
        won = [name for name, found in groups.items() if comparison(found, arm, against).wins]
        claim = f"{arm}: more evidence and less error than {against} on two data sets or more"
        claims[f"{claim} ({', '.join(won) or 'none'})"] = len(won) >= 2
    return claims


EXPERIMENT = harness.Experiment(
    name="sharpness",
    description=__doc__ or "",
    plan=plan,
    table=table,
    check=check,
    seeds=5,
    options={"--data": {"nargs": "+", "choices": DATA, "default": DATA, "help": "only some of the data"}},
)
