"""Signals: gaps, and unequal lengths."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from orbitgp.datasets import DatasetError
from orbitgp.datasets.files import ReadOptions, load, load_inputs


class TestSignals:
    """Gaps, and signals of unequal length."""

    @staticmethod
    def write(tmp_path: Path, signals: list[list[range | list[float]]], name: str = "s.npz") -> Path:
        longest = max(len(channel) for signal in signals for channel in signal)
        x = np.array([[[*channel, *[np.nan] * (longest - len(channel))] for channel in signal] for signal in signals])
        np.savez(tmp_path / name, x=x[:, 0] if x.shape[1] == 1 else x, y=np.arange(len(x)))
        return tmp_path / name

    def test_gaps_are_closed_along_time(self, tmp_path: Path) -> None:
        x = np.array([[0, np.nan, np.nan, 3, 4], [np.nan, 5, 5, 9, np.nan]])
        np.savez(tmp_path / "s.npz", x=x, y=[0, 1])
        (tmp_path / "s.csv").write_text("p,q,r,s,t,y\n0,,,3,4,0\n,5,5,9,,1\n")
        for path in (tmp_path / "s.npz", tmp_path / "s.csv"):
            with pytest.raises(
                DatasetError, match=r"2 of 2 signals in .* have gaps .*, first in row 1: --impute .* --resample"
            ):
                load(path, ReadOptions(signal=True))
            data = load(path, ReadOptions(signal=True, impute=True))
            np.testing.assert_array_equal(data.x, [[0, 1, 2, 3, 4], [5, 5, 5, 9, 9]])
            assert data.notes == ["2 of 2 signals have gaps or are short: they are interpolated along time."]

    def test_a_table_with_a_column_that_no_signal_reaches(self, tmp_path: Path) -> None:
        (tmp_path / "s.csv").write_text("p,q,r,y\n0,1,,0\n,5,,1\n")
        with pytest.raises(DatasetError, match=r"2 of 2 signals .* have gaps or are shorter"):
            load(tmp_path / "s.csv", ReadOptions(signal=True))
        data = load(tmp_path / "s.csv", ReadOptions(signal=True, impute=True))
        np.testing.assert_array_equal(data.x, [[0, 1, 1], [5, 5, 5]])

    def test_channels_that_are_stored_as_rows(self, tmp_path: Path) -> None:
        np.savez(tmp_path / "s.npz", x=[[0, np.nan, 2, 7, 7, np.nan], [0.0] * 6], y=[0, 1])
        data = load(tmp_path / "s.npz", ReadOptions(signal=True, impute=True, image_shape=(2, 3)))
        np.testing.assert_array_equal(data.x[0], [0, 1, 2, 7, 7, 7])

    def test_signals_of_unequal_length(self, tmp_path: Path) -> None:
        path = self.write(tmp_path, [[[0, 1, 2, 3, 4]], [[0, 2, 4]]])
        with pytest.raises(
            DatasetError, match=r"1 of 2 signals .* are shorter than others, first in row 2: .*--resample"
        ):
            load(path, ReadOptions(signal=True))
        padded, stretched = (
            load(path, ReadOptions(signal=True, **how)) for how in ({"impute": True}, {"resample": True})
        )
        np.testing.assert_array_equal(padded.x, [[0, 1, 2, 3, 4], [0, 2, 4, 4, 4]])
        np.testing.assert_array_equal(stretched.x, [[0, 1, 2, 3, 4], [0, 1, 2, 3, 4]])
        new = self.write(tmp_path, [[[0, 3]]], name="new.npz")
        np.testing.assert_array_equal(load_inputs(new, padded.options).x, [[0, 3, 3, 3, 3]])
        np.testing.assert_array_equal(load_inputs(new, stretched.options).x, [[0, 0.75, 1.5, 2.25, 3]])
        long = self.write(tmp_path, [[range(9)]], name="long.npz")
        assert load_inputs(long, padded.options).x.shape == (1, 9)  # nothing is cut
        np.testing.assert_array_equal(load_inputs(long, stretched.options).x, [[0, 2, 4, 6, 8]])

    def test_two_channels(self, tmp_path: Path) -> None:
        options = ReadOptions(signal=True, impute=True)
        data = load(self.write(tmp_path, [[[0, 1, 2], [5, np.nan, 7]], [[0, 2], [4, 6]]]), options)
        np.testing.assert_array_equal(data.x, [[[0, 1, 2], [5, 6, 7]], [[0, 2, 2], [4, 6, 6]]])
        with pytest.raises(DatasetError, match=r"row 2 of .* has a channel without any value"):
            load(self.write(tmp_path, [[[0, 1, 2], [5, np.nan, 7]], [[0, 2], []]]), options)
