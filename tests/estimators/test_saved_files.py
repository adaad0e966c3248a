"""Files of estimators that are damaged, of another kind, or cannot be written: one sentence, and nothing is lost."""

from __future__ import annotations

import errno
import json
import math
import os
import random
from pathlib import Path
from typing import Any

import gpytorch
import numpy as np
import pytest
import safetensors.torch
import torch
from gpytorch.kernels import (
    RBFKernel,
)

from orbitgp import InvariantGPClassifier, InvariantGPRegressor, saving
from orbitgp.orbits import (
    GaussianNoise,
    Rotation,
)
from orbitgp.saving import SavedFileError
from orbitgp.saving.container import read, write
from tests.saving.quick import QUICK, pictures, table

pytestmark = pytest.mark.usefixtures("short_ends")


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("good") / "model.safetensors"
    InvariantGPRegressor(GaussianNoise(0.3), RBFKernel(), **QUICK).fit(*table()).save(path)
    return path


class TestBadFiles:
    @staticmethod
    def sentence(path: Path) -> str:
        with pytest.raises(SavedFileError) as caught:
            InvariantGPRegressor.load(path)
        text = str(caught.value)
        assert str(path) in text
        assert "\n" not in text
        assert text.endswith(".")
        return text

    def test_cut_short(self, good: Path, tmp_path: Path) -> None:
        data, path = good.read_bytes(), tmp_path / "model.safetensors"
        for length in [0, 1, 7, 8, 9, *random.Random(0).sample(range(10, len(data)), 40), len(data) - 1]:
            path.write_bytes(data[:length])
            assert "cut short" in self.sentence(path)

    def test_any_byte_changed(self, good: Path, tmp_path: Path) -> None:
        data, path = good.read_bytes(), tmp_path / "model.safetensors"
        chosen = random.Random(0)
        header = int.from_bytes(data[:8], "little") + 8
        for place in [*range(8), *chosen.sample(range(8, header), 150), *chosen.sample(range(header, len(data)), 80)]:
            path.write_bytes(data[:place] + bytes([data[place] ^ (1 << chosen.randrange(8))]) + data[place + 1 :])
            self.sentence(path)

    @pytest.mark.parametrize("data", [
        b"", b"\x89PNG\r\n" * 10, b"PK\x03\x04" * 100, b"\x80\x04\x95" * 50, b"{}" * 99, b"\0" * 99,
        (2**40).to_bytes(8, "little") + b"{" * 99, (12).to_bytes(8, "little") + b"{[[[[[[[[[[[" * 9,
        (200_000).to_bytes(8, "little") + b'{"a":' + b"[" * 199_995,
    ], ids=range(9))  # fmt: skip
    def test_other_files(self, data: bytes, tmp_path: Path) -> None:
        (tmp_path / "file").write_bytes(data)
        self.sentence(tmp_path / "file")

    def test_somebody_elses_safetensors(self, tmp_path: Path) -> None:
        safetensors.torch.save_file({"a": torch.ones(2)}, tmp_path / "file")
        assert "not one that orbitgp wrote" in self.sentence(tmp_path / "file")

    @pytest.mark.parametrize(
        ("version", "advice"), [(99, "install a newer one."), (1, "fit again, or use the version that")]
    )
    def test_of_another_version(
        self, good: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int, advice: str
    ) -> None:
        contents = read(good)
        with monkeypatch.context() as patched:
            patched.setattr("orbitgp.saving.container.FORMAT_VERSION", version)
            write(tmp_path / "file", *contents)
        said = self.sentence(tmp_path / "file")
        assert f"has format version {version}, " in said
        assert advice in said
        assert ("newer" in said) == (version > saving.FORMAT_VERSION)

    def test_of_the_other_kind(self, good: Path, tmp_path: Path) -> None:
        with pytest.raises(SavedFileError, match=r"holds a regressor: load it with InvariantGPRegressor\.load"):
            InvariantGPClassifier.load(good)
        write(tmp_path / "file", "checkpoint", {}, {})
        assert "checkpoint" in self.sentence(tmp_path / "file")

    def test_missing(self, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError):
            InvariantGPRegressor.load(tmp_path / "nothing")

    @pytest.mark.parametrize(("change", "words"), [
        (lambda c, t: t.update({"model.q_mean": t["model.q_mean"] * math.nan}), "not finite"),
        (lambda c, t: t.update({"model.inducing": t["model.inducing"] / 0}), "not finite"),
        (lambda c, t: t.update({"model.q_mean": torch.zeros(3, 1).double()}), "shape"),
        (lambda c, t: t.update({"model.orbit.scale": torch.zeros(2)}), "shape"),
        (lambda c, t: t.pop("model.orbit.scale"), "orbit.scale"),
        (lambda c, t: t.update({"model.orbit.more": torch.zeros(2)}), "orbit.more"),
        (lambda c, t: t.update({"model.orbit.scale": torch.tensor(3)}), "floating point"),
        (lambda c, t: c["modules"]["learned.orbit"].update(build={"$object": ["os.system", {"*": ["ls"]}]}), "system"),
        (lambda c, t: c["modules"]["learned.orbit"]["build"]["$object"][1].update(colour=1), "colour"),
        (lambda c, t: c["modules"]["learned.orbit"].update(build=3), "module"),
        (
            lambda c, t: c["modules"]["learned.kernel"].update(build=c["modules"]["learned.orbit"]["build"]),
            "cannot be loaded",
        ),
        (lambda c, t: c.pop("model"), "model"),
        (lambda c, t: c["noted"].update(predict=3), "predict"),
        (lambda c, t: c["given"].update(colour="red"), "colour"),
        (lambda c, t: c.update(evidence={"value": 1.0}), "loaded"),
    ])  # fmt: skip
    def test_whole_but_wrong(self, good: Path, tmp_path: Path, change: Any, words: str) -> None:
        kind, config, tensors = read(good)
        change(config, tensors)
        write(tmp_path / "file", kind, config, tensors)
        assert words in self.sentence(tmp_path / "file")

    @pytest.mark.parametrize(
        "change", [lambda noise: noise[:3], lambda noise: -noise, lambda noise: noise.repeat(1, 2)]
    )
    def test_noise_of_an_exact_model(self, tmp_path: Path, change: Any) -> None:
        InvariantGPRegressor(max_steps=3).fit(*table()).save(tmp_path / "good")
        kind, config, tensors = read(tmp_path / "good")
        write(tmp_path / "file", kind, config, {**tensors, "model.noise": change(tensors["model.noise"])})
        assert "its noise must be positive, for 20 data" in self.sentence(tmp_path / "file")

    def test_training_options_of_another_version(self, good: Path, tmp_path: Path) -> None:
        kind, config, tensors = read(good)
        config["given"]["training"]["$object"][1]["colour"] = "red"
        write(tmp_path / "file", kind, config, tensors)
        with pytest.raises(SavedFileError, match="unexpected keyword argument 'colour'"):
            InvariantGPRegressor.load(tmp_path / "file")

    def test_a_folder(self, tmp_path: Path) -> None:
        with pytest.raises(IsADirectoryError, match="is a folder: name the file in it"):
            InvariantGPRegressor.load(tmp_path)

    def test_unharmed(self, good: Path, tmp_path: Path) -> None:
        """What the tests above change is all that is wrong with their files."""
        write(tmp_path / "file", *read(good))
        InvariantGPRegressor.load(tmp_path / "file")


class TestWriting:
    @pytest.mark.parametrize("where", ["os.fsync", "os.replace", "safetensors.torch.save", "pathlib.Path.open"])
    def test_a_full_disk_loses_nothing(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
        path = tmp_path / "model.safetensors"
        fitted = InvariantGPRegressor(**QUICK).fit(*table())
        fitted.save(path)
        before = path.read_bytes()
        fitted.target_mean_ = fitted.target_mean_ + 1

        def full(*args: Any, **kwargs: Any) -> Any:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(where, full)
        with pytest.raises(OSError, match="No space left"):
            fitted.save(path)
        monkeypatch.undo()
        assert path.read_bytes() == before
        assert list(tmp_path.iterdir()) == [path]
        fitted.save(path)
        assert path.read_bytes() != before

    def test_no_folder(self, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError, match="there is no folder"):
            InvariantGPRegressor(**QUICK).fit(*table()).save(tmp_path / "nothing" / "model.safetensors")

    def test_the_header_is_plain_json(self, tmp_path: Path) -> None:
        X, y = pictures()
        InvariantGPClassifier(Rotation(20.0), **QUICK).fit(X, np.array(["a", "b", "c"])[y]).save(
            tmp_path / "model.safetensors"
        )
        with safetensors.safe_open(tmp_path / "model.safetensors", "pt") as file:
            metadata = file.metadata()
            assert "model.inducing" in file.keys()  # noqa: SIM118
        assert metadata["orbitgp"] == "2"
        assert metadata["kind"] == "classifier"
        config = json.loads(metadata["config"])
        assert config["modules"]["learned.orbit"]["build"] == {"$object": ["orbitgp:Rotation", {"border": "reflect"}]}
        assert config["noted"]["classes_"]["$object"][1]["data"] == ["a", "b", "c"]
        assert config["versions"]["torch"].split("+")[0] == torch.__version__.split("+")[0]  # only one may say cpu
        assert config["versions"]["gpytorch"] == gpytorch.__version__
