"""The data sets of FedTrans's tables: which arms take them, how clients share them, and what is said if they lack."""

import json
from pathlib import Path
from typing import Any

import pytest
from fedtrans_script import EXPERIMENT, call

from evals.fedtrans import fig13, regime, table1, table3
from evals.fedtrans.arms import anchors
from evals.fedtrans.settings import PAPER, main
from evals.paper import jobs
from evals.paper.engine import planned
from evals.paper.experiment import Arm, Experiment
from evals.paper.job_keys import Parameter


def test_other_data_take_each_different_arm_once() -> None:
    assert [data for _, data in planned(PAPER, table1.EXPERIMENT, "small", None)] == [
        *["chars74k"] * 2, *["cifar10-h0.5"] * 2, *["chars74k"] * 2, *["cifar10-h0.5"] * 2
    ]  # fmt: skip
    instead = planned(PAPER, table1.EXPERIMENT, "small", ["har", "speech"])
    assert [(arm.label, data) for arm, data in instead] == [
        (label, data)
        for data in ("har", "speech")
        for label in ("FedTrans", "FedTrans (l2s)", *(arm.label for arm in anchors()))
    ]
    assert not any(arm.paper for arm, _ in instead)  # of neither kind of data


def test_the_papers_figures_stand_beside_the_same_kind_of_data_and_beside_an_only_one() -> None:
    on_images = planned(PAPER, table1.EXPERIMENT, "small", ["cifar10-c2"])
    assert [arm.paper.get("accuracy %") for arm, _ in on_images[:2]] == [77.5, 54.1]
    assert planned(PAPER, table3.EXPERIMENT, "small", ["speech"])[0][0].paper["accuracy %"] == 76.42
    for data in ("mnist-h0.5", "cifar10-h0.5"):  # each with the arms whose models are for it
        small = [arm for arm, _ in planned(PAPER, regime.EXPERIMENT, "small", [data]) if "eighth" in arm.label]
        assert [("mnist" in arm.keys["model"]) == ("mnist" in data) for arm in small[:2]] == [True, True]


def test_a_swept_partition_is_that_of_other_data_too() -> None:
    assert [data for _, data in planned(PAPER, fig13.EXPERIMENT, "small", ["speech"])] == [
        "speech-h0.1", "speech-h0.5", "speech-h1", "speech-h10", "speech-h100"
    ]  # fmt: skip
    assert planned(PAPER, fig13.EXPERIMENT, "paper", None)[0][1] == "femnist-h0.1"
    with pytest.raises(SystemExit, match="fig13 deals the samples out by itself: name cifar10 alone"):
        planned(PAPER, fig13.EXPERIMENT, "small", ["cifar10-h0.5"])


def test_names_of_partitions() -> None:
    assert PAPER.split_name("har") == ("har", [])
    assert PAPER.split_name("cifar10-h0.5")[1][:4] == ["--partition", "dirichlet", "--alpha", "0.5"]
    assert PAPER.split_name("cifar10-c2")[1][:4] == ["--partition", "classes", "--classes-per-client", "2"]
    for wrong in ("nothing", "cifar10-x", "cifar10-hx", "cifar10-c", "cifar10-c2.5"):
        with pytest.raises(SystemExit, match="none of h<number>" if "-" in wrong else "no data set"):
            PAPER.split_name(wrong)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--set", "rounds"], "--set rounds: write it as key=value"),
        (["--data", "chars74k", "nothing"], "there is no data set 'nothing'"),
    ],
)
def test_wrong_options_are_told_before_anything_is_written(
    places: dict[str, Path], tmp_path: Path, options: list[str], said: str
) -> None:
    with pytest.raises(SystemExit, match=said):
        call(EXPERIMENT, {**places, "results": tmp_path / "none"}, *options)
    assert not (tmp_path / "none").exists()


def test_data_that_lack_are_told_before_the_first_job(
    places: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: Any, **__: Any) -> Path:
        raise AssertionError("a job began")

    monkeypatch.setattr(jobs, "train", never)
    elsewhere = {**places, "results": tmp_path / "none", "sources": tmp_path}
    two = Experiment("two", "Two data sets", [Arm("A", {"method": "fedavg"}, name) for name in ("chars74k", "har")])
    assert call(two, elsewhere) == 2
    (said,) = capsys.readouterr().err.splitlines()
    assert said == (
        f"uci_har.npz (for har) is not in {tmp_path}: name the folder of such files with --sources or "
        "FEDSCALE_EXT_SHARED_DATA (evals/data.md says what they are); or run what is there with --data chars74k"
    )
    assert not (tmp_path / "none").exists()
    assert call(two, elsewhere, "--data", "mnist-h0.1", "mnist-iid", "femnist") == 2
    (said,) = capsys.readouterr().err.splitlines()
    assert "(for mnist-h0.1 and mnist-iid) is not in" in said and said.endswith("; or name other data sets with --data")
    assert f"; {places['folder'] / 'femnist'} is not there: import such data first" in said


def test_data_that_another_paper_dealt_otherwise_are_not_taken(tmp_path: Path) -> None:
    """All papers share a folder of data, in which cifar10-h0.5 may be FedTrans's 100 clients or FedorAS's 20."""
    import evals.fedoras.settings as fedoras

    (tmp_path / "cifar10-h0.5" / "client_data_mapping").mkdir(parents=True)
    (tmp_path / "cifar10-h0.5" / "client_data_mapping" / "train.csv").touch()

    def said(**partition: Any) -> list[str]:
        content = {"settings": {"partition": partition}} if partition else {}
        (tmp_path / "cifar10-h0.5" / "dataset.json").write_text(json.dumps(content))
        return [paper.missing_of(["cifar10-h0.5"], tmp_path, tmp_path) for paper in (PAPER, fedoras.PAPER)]

    theirs, ours = said(kind="dirichlet", clients=100, alpha=0.5, shards_per_client=2, classes_per_client=2)
    assert (
        not theirs and ours == f"{tmp_path / 'cifar10-h0.5'} was dealt to clients in another way: name another --folder"
    )
    theirs, ours = said(kind="dirichlet", clients=20, alpha=0.5, samples_per_client=500)
    assert theirs and not ours
    assert said(kind="dirichlet", clients=20, alpha=0.5)[1]  # sizes as they come
    assert said() == ["", ""]  # nobody knows how


def test_data_for_public_samples_must_be_there_too(
    places: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    far = Parameter("far")
    one = Experiment("one", "One", [Arm("A", {"method": "fedmd", far: "har", "public_dir": far}, "chars74k")])
    assert call(one, {**places, "results": tmp_path / "none", "sources": tmp_path}) == 2
    assert "uci_har.npz (for har) is not in" in capsys.readouterr().err


def test_where_data_lie_by_default_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(EXPERIMENT, ["--help"])
    said = " ".join(capsys.readouterr().out.split())
    assert "(default: what FEDSCALE_EXT_SHARED_DATA names, else shared/data beside this checkout: /" in said
