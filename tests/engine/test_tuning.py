"""Warnings and the tuning table name the same rows."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import pytest

from engine.tuning import PAGE, SYMPTOMS, Row, Tally, see

TABLE = (Path(__file__).resolve().parents[2] / PAGE).read_text("utf-8")


def test_every_row_stands_in_the_table_once() -> None:
    assert re.findall(r"^\| (T\d+) \|", TABLE, re.MULTILINE) == [row.value for row in Row]


def test_symptoms_stand_in_the_row_they_point_to() -> None:
    for word, (_, row) in SYMPTOMS.items():
        (line,) = re.findall(rf"^\| {row.value} \|.*$", TABLE, re.MULTILINE)
        assert f"`{word}`" in line


def test_a_symptom_is_logged_each_time_its_count_doubles(caplog: pytest.LogCaptureFixture) -> None:
    tally = Tally()
    with caplog.at_level(logging.WARNING, "seamscribe"):
        for _ in range(9):
            tally.note("alarm_loop")
            tally.note("finish_stop")
    assert tally == {"alarm_loop": 9, "finish_stop": 9}
    assert len(caplog.records) == 4
    assert see(Row.LOOP) in caplog.records[-1].getMessage()
