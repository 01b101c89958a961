"""Twenty thousand hostile inputs; evals/reliability/fuzz.py has a million, and says what is looked for."""

import logging
import struct
from pathlib import Path
from random import Random
from typing import Any

import pytest
from fedscale.cloud import commons

from evals.reliability import fuzz
from evals.reliability.corpus import Corpus, record
from evals.reliability.decoders import Reader, attempt, readers
from evals.reliability.mutate import tensors_rewritten
from evals.reliability.server import served

INPUTS = {"header and sections": 4000, "tensors": 4000, "registration": 4000, "result": 4000, "signature": 2000}
OF_FILES, SENT = 200, 1000


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz")


@pytest.fixture(scope="module")
def corpus(folder: Path) -> Corpus:
    return record(folder)


@pytest.fixture(autouse=True)
def quiet() -> Any:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def test_two_recordings_are_equal(corpus: Corpus, tmp_path: Path) -> None:
    assert record(tmp_path) == corpus  # or an input would be another one in the next run


def test_no_reader_breaks(corpus: Corpus, folder: Path) -> None:
    every = readers(corpus, folder)
    assert sum(INPUTS.get(name, OF_FILES) for name in every) + SENT >= 20_000
    for name, reader in every.items():
        inputs = INPUTS.get(name, OF_FILES)
        taken = sum(attempt(reader, Random(f"{name} {number}")) for number in range(inputs))
        assert taken < inputs
        assert name == "signature" or taken > 0, name  # changes that hit nothing would test nothing


def test_the_running_service_does_not_break(corpus: Corpus, folder: Path) -> None:
    with served(corpus, folder) as service:
        answered = sum(service.attempt(Random(f"server {number}")) for number in range(SENT))
        assert 0 < answered < SENT
        service.check()
        assert set(service.board.used) == {commons.CLIENT_TRAIN, commons.MODEL_TEST, "calibrate"}
        assert len(service.aggregator.refusals.counts()) > 8


def test_a_section_whose_header_became_a_number_can_be_changed_further() -> None:
    section = struct.pack("<Q", 5) + b"12345tensors"
    assert tensors_rewritten(Random(1), section) == section[::-1]


def test_a_finding_is_written_down_and_a_run_goes_on_where_it_stopped(tmp_path: Path) -> None:
    def stumble(data: int) -> None:
        if data == 3:
            raise KeyError("three")
        if data > 3:
            raise ValueError

    reader = Reader(lambda random: random.randrange(10), stumble, (ValueError,))
    run = fuzz.Run(tmp_path / "state", fresh=False)
    run.batch("toy", lambda random: attempt(reader, random), 700)
    again = fuzz.Run(tmp_path / "state", fresh=False)
    again.batch("toy", lambda random: attempt(reader, random), 2500)
    assert again.done() == 1700
    findings = again.state["findings"]
    assert 100 < len(findings) < 250 and len({entry["input"] for entry in findings}) == len(findings)
    assert f"**{len(findings)} findings**" in fuzz.page(again)
    assert "KeyError" in fuzz.page(again)
