"""New samples are predicted by the model that a job serves a client, as the job's last test predicted."""

import csv
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from methods.small_space import written

import fedscale_ext
from fedscale_ext.api import result as results
from fedscale_ext.api.predict import comma_separated, predict
from fedscale_ext.api.served_model import job_data, load_served_model
from fedscale_ext.core.errors import UserError
from fedscale_ext.data.decoding.images import write_png
from fedscale_ext.data.registry import CHARACTERS
from fedscale_ext.methods.exchange.client import NearestPrototype
from fedscale_ext.report.job.loading import LoadedJob, load_job
from fedscale_ext.server import records
from fedscale_ext.tasks.tested_tensors import FILE

KEYS = {"model": "cnn_small", "rounds": 2, "progress": False}


@pytest.fixture(autouse=True)
def no_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "plot_job", lambda folder: folder / "plot.png")  # most of a tiny job's time


def trained(job_file: Path, **keys: Any) -> LoadedJob:
    return load_job(fedscale_ext.run(job_file, **{**KEYS, **keys}).path)


@pytest.fixture(scope="module")
def job(session_job_file: Path) -> LoadedJob:
    return trained(session_job_file, job_name="predicting")


def names(job: LoadedJob) -> list[str]:
    assert job.clients is not None and job.clients.names is not None
    return list(job.clients.names)


def right(job: LoadedJob) -> list[int]:
    """How many of its test samples each client's model gets right, by predictions of the samples as arrays."""
    data = job_data(job)
    assert data is not None
    counts = []
    for number, name in enumerate(data.client_names, 1):
        rows = data.test_rows(number)
        labels = [each.label for each in predict(job, name, np.asarray(data.x[rows]))] if len(rows) else []
        counts.append(sum(label == CHARACTERS[y] for label, y in zip(labels, data.y[rows].tolist(), strict=True)))
    return counts


def exchange_job(method: str, **params: Any) -> dict[str, Any]:
    """Keys of a method whose clients keep models of two types."""
    params = {"types": ["single_exit_mlp", "cnn_small"], "ranges": ["1-4", "5-7"], **params}
    return {f"{method}.{name}": value for name, value in params.items()}


METHODS: dict[str, dict[str, Any]] = {
    "fedavg": {},
    "splitmix": {},
    "local": {},
    "lotteryfl": {},
    "fedproto": exchange_job("fedproto", representation=8),
}
MORE: dict[str, dict[str, Any]] = {
    "heterofl": {},
    "fedmd": {"public_samples": 8, "fedmd.types": ["single_exit_mlp", "lenet_6k"], "fedmd.ranges": ["1-4", "5-7"]},
    "hermes": {},
    "tailorfl": {},
    "fedmask": {},
    "fedskel": {},
    "fedtgp": exchange_job("fedtgp", representation=8, epochs=5),
    "fd": exchange_job("fd"),
    "lgfedavg": exchange_job("lgfedavg", representation=8),
    "fedgh": exchange_job("fedgh", representation=8),
    "fml": exchange_job("fml"),
    "fedkd": exchange_job("fedkd"),
}


@pytest.mark.parametrize("method", METHODS)
def test_predictions_are_those_of_the_last_test(job_file: Path, method: str) -> None:
    job = trained(job_file, method=method, **METHODS[method])
    assert job.evaluation is not None
    assert right(job) == job.evaluation.correct.tolist()


@pytest.mark.second_tier
@pytest.mark.parametrize("method", MORE)
def test_predictions_of_more_methods_are_those_of_the_last_test(job_file: Path, method: str) -> None:
    job = trained(job_file, method=method, **MORE[method])
    assert job.evaluation is not None
    assert right(job) == job.evaluation.correct.tolist()


@pytest.mark.second_tier
def test_predictions_of_clients_own_networks_in_a_supernet_are_those_of_the_last_test(
    job_file: Path, tmp_path: Path
) -> None:
    job = trained(job_file, method="spider", model=str(written(tmp_path)))
    assert job.evaluation is not None
    assert right(job) == job.evaluation.correct.tolist()


def test_nearest_prototypes_predict_and_not_the_head(job_file: Path) -> None:
    job = trained(job_file, method="fedproto", **METHODS["fedproto"])
    assert job.clients is not None and job.clients.names
    x = np.random.default_rng(1).integers(0, 256, (20, 28, 28), dtype=np.uint8)
    served = load_served_model(job, job.clients.names[0])
    near = served.logits(x[:, None])
    assert isinstance(served.networks[0], NearestPrototype) and not torch.equal(
        near, replace(served, networks=[served.networks[0].model]).logits(x[:, None])
    )
    (job.folder / FILE).unlink()  # as of an earlier version: the head alone, which was not tested
    assert job.evaluation is not None
    job.evaluation.correct[0] = 0 if job.evaluation.correct[0] > 1 else job.evaluation.count[0]
    with pytest.raises(UserError, match="jobs of earlier versions did not keep what the server sends"):
        load_served_model(job, job.clients.names[0])


def test_masked_tests_are_of_the_same_models(job_file: Path) -> None:
    job = trained(job_file, method="local", mask_test=True, rounds=1)
    assert job.evaluation is not None and job.evaluation.unmasked is not None
    assert right(job) == job.evaluation.unmasked.tolist()


def test_probabilities_are_those_of_the_softmax(job: LoadedJob) -> None:
    data = job_data(job)
    assert data is not None
    rows = data.test_rows(5)
    served = load_served_model(job, data.client_names[4])
    (network,) = served.networks
    with torch.no_grad():
        shares = network(data.batch(rows)).softmax(1)
    seen = list(predict(job, data.client_names[4], np.asarray(data.x[rows])))
    assert [each.probability for each in seen] == pytest.approx(shares.max(1).values.tolist(), abs=1e-6)
    assert [each.label for each in seen] == [CHARACTERS[label] for label in shares.argmax(1).tolist()]


def test_files_folders_and_data_folders_are_read_alike(job: LoadedJob, tmp_path: Path) -> None:
    data = job_data(job)
    assert data is not None
    name, x = data.client_names[0], np.asarray(data.x[:12])
    expected = [(each.label, each.probability) for each in predict(job, name, x)]
    np.savez(tmp_path / "x.npz", x=x, y=np.zeros(12, dtype=int))
    np.savez(tmp_path / "only.npz", pictures=x[:, 0])
    (tmp_path / "pictures" / "deep").mkdir(parents=True)
    for row, sample in enumerate(x):
        write_png(tmp_path / "pictures" / ("deep" if row > 9 else "") / f"{row}.png", sample)
    (tmp_path / "pictures" / ".hidden.png").write_bytes(b"nothing")
    (tmp_path / "pictures" / "notes.txt").write_text("no picture")
    for source in ("x.npz", "only.npz", "pictures"):
        seen = list(predict(job, name, tmp_path / source))
        assert [(each.label, each.probability) for each in seen] == expected, source
    assert [each.name for each in seen] == [*(f"{row}.png" for row in range(10)), "deep/10.png", "deep/11.png"]
    (one,) = predict(job, name, tmp_path / "pictures" / "3.png")
    # of batches of other sizes, the last bits may differ
    assert (one.name, one.label, one.probability) == ("3.png", expected[3][0], pytest.approx(expected[3][1], rel=1e-5))
    whole = list(predict(job, name, Path(job.header["config"]["data_dir"])))
    assert len(whole) == len(data.y) and [each.label for each in whole[:12]] == [label for label, _ in expected]
    assert [each.probability for each in whole[:12]] == pytest.approx([share for _, share in expected], rel=1e-5)


def test_pictures_of_another_size_and_colour_get_the_models(job: LoadedJob, tmp_path: Path) -> None:
    data = job_data(job)
    assert data is not None
    x = np.asarray(data.x[:3]).repeat(2, axis=2).repeat(2, axis=3).repeat(3, axis=1)
    write_png(tmp_path / "large.png", x[1])
    seen = [each.label for each in predict(job, data.client_names[0], x)]
    assert [each.label for each in predict(job, data.client_names[0], tmp_path / "large.png")] == seen[1:2]
    assert seen == [each.label for each in predict(job, data.client_names[0], np.asarray(data.x[:3]))]


def test_a_result_predicts(job: LoadedJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "find_spec", lambda _: None)
    x = np.arange(2 * 28 * 28, dtype=np.uint8).reshape(2, 28, 28)
    np.savez(tmp_path / "x.npz", x=x)
    assert job.clients is not None and job.clients.names
    table = fedscale_ext.load(job.folder).predict(job.clients.names[0], x)
    assert [row["name"] for row in table] == ["0", "1"] and table[0].keys() == {"name", "label", "probability"}
    assert table == fedscale_ext.load(job.folder).predict(job.clients.names[0], str(tmp_path / "x.npz"))
    with pytest.warns(UserWarning, match="no pixel is above 1 of 255"):
        fedscale_ext.load(job.folder).predict(job.clients.names[0], x % 2)


def test_a_table_of_no_predictions_has_its_columns(job: LoadedJob) -> None:
    pytest.importorskip("pandas")
    table = fedscale_ext.load(job.folder).predict(names(job)[0], np.zeros((0, 28, 28), np.uint8))
    assert len(table) == 0 and list(table.columns) == ["name", "label", "probability"]


def test_the_command_prints_or_writes_csv(job: LoadedJob, tmp_path: Path, call: Any) -> None:
    np.savez(tmp_path / "x.npz", x=np.arange(2 * 28 * 28, dtype=np.uint8).reshape(2, 28, 28))
    assert job.clients is not None and job.clients.names
    client = job.clients.names[0]
    words = ["predict", str(job.folder), str(tmp_path / "x.npz"), "--client", client]
    code, out, err = call(*words)
    assert (code, err) == (0, "")
    assert out == comma_separated(predict(job, client, tmp_path / "x.npz"))
    rows = list(csv.DictReader(out.splitlines()))
    assert [row["name"] for row in rows] == ["0", "1"] and 0 < float(rows[0]["probability"]) <= 1
    code, report, _ = call(*words, "--out", str(tmp_path / "a" / "p.csv"))
    assert code == 0 and "2 samples" in report and (tmp_path / "a" / "p.csv").read_text() == out


def test_a_name_that_is_not_utf_8_is_written_with_an_escape(job: LoadedJob, tmp_path: Path, call: Any) -> None:
    assert job.clients is not None and job.clients.names
    (tmp_path / "pictures").mkdir()
    write_png(tmp_path / "pictures" / os.fsdecode(b"p\xe9.png"), np.zeros((1, 28, 28), np.uint8))
    out = tmp_path / "p.csv"
    words = ["predict", str(job.folder), str(tmp_path / "pictures"), "--client", job.clients.names[0]]
    assert call(*words, "--out", str(out))[0] == 0
    assert out.read_text().splitlines()[1].startswith("p\\udce9.png,")


def test_what_prediction_changes_in_samples_and_finds_odd_is_noted(job: LoadedJob, tmp_path: Path, call: Any) -> None:
    """As an import notes it: pictures of another ratio are stretched, and pixels of 0 and 1 are nearly black."""
    assert job.clients is not None and job.clients.names
    client, rng = job.clients.names[0], np.random.default_rng(1)
    wide = rng.integers(0, 256, (3, 28, 56), dtype=np.uint8)
    (tmp_path / "pictures").mkdir()
    for row, sample in enumerate(wide):
        write_png(tmp_path / "pictures" / f"{row}.png", sample[None])
    stretched = ["3 of 3 pictures were resized to 1x28x28, the shape of the job's samples (3 of 28x56)",
                 "3 of 3 pictures changed the ratio of height to width by resizing"]  # fmt: skip
    dark = "no pixel is above 1 of 255: give pixels of 0 to 255 as bytes, or of 0 to 1 as floats"
    binary = rng.integers(0, 2, (3, 28, 28), dtype=np.uint8)
    cases: list[tuple[Path | np.ndarray, list[str]]] = [
        (wide, stretched), (tmp_path / "pictures", stretched), (binary, [dark]), (binary.astype(np.float32), []),
        (Path(job.header["config"]["data_dir"]), []),
    ]  # fmt: skip
    for source, expected in cases:
        notes: list[str] = []
        assert list(predict(job, client, source, notes.append)) and notes == expected
    code, out, err = call("predict", str(job.folder), str(tmp_path / "pictures"), "--client", client)
    assert code == 0 and len(out.splitlines()) == 4 and [f"note: {note}" for note in stretched] == err.splitlines()


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("none.npz", "does not exist"),
        ("broken.npz", "is not an npz file"),
        ("flat.npz", "it must be images"),
        ("other.npz", "has no array 'x': it has a, b"),
        ("empty", "holds no pictures"),
        ("broken.png", "cannot be decoded"),
    ],
)
def test_bad_inputs_are_one_sentence(job: LoadedJob, tmp_path: Path, call: Any, name: str, sentence: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "broken.npz").write_bytes(b"nothing")
    (tmp_path / "broken.png").write_bytes(b"nothing")
    np.savez(tmp_path / "flat.npz", x=np.zeros((2, 28), np.uint8))
    np.savez(tmp_path / "other.npz", a=np.zeros(2), b=np.zeros(2))
    assert job.clients is not None and job.clients.names
    code, out, err = call("predict", str(job.folder), str(tmp_path / name), "--client", job.clients.names[0])
    assert code == 2 and not out and sentence in " ".join(err.split()) and "Traceback" not in err


@pytest.mark.parametrize("inputs", [None, [[0]], torch.zeros(1, 28, 28)], ids=lambda value: type(value).__name__)
def test_inputs_of_another_type_are_one_sentence(job: LoadedJob, inputs: Any) -> None:
    sentence = f"inputs are {type(inputs).__name__}; give a NumPy array, or the path of a file or a folder"
    with pytest.raises(UserError, match=sentence):
        fedscale_ext.load(job.folder).predict(names(job)[0], inputs)


@pytest.mark.parametrize("client", [0, 1, None])
def test_a_number_for_a_client_is_one_sentence(job: LoadedJob, client: Any) -> None:
    with pytest.raises(UserError, match=f"tells of no client {client}; "):
        job.client_number(client)


def test_a_missing_file_of_clients_is_named(job: LoadedJob, tmp_path: Path) -> None:
    shutil.copytree(job.folder, tmp_path / "copy")
    (tmp_path / "copy" / "clients.safetensors").unlink()
    with pytest.raises(
        UserError, match=r"tells of no client 'w0001': .*clients\.safetensors is missing or has no names"
    ):
        load_job(tmp_path / "copy").client_number("w0001")


def test_a_client_that_is_not_there_is_one_sentence(job: LoadedJob) -> None:
    with pytest.raises(UserError, match="tells of no client 'nobody'"):
        next(predict(job, "nobody", np.zeros((1, 28, 28), np.uint8)))
    with pytest.raises(UserError, match="has not ended yet"):
        next(predict(replace(job, finished=False), job.clients.names[0], np.zeros((1, 28, 28), np.uint8)))  # type: ignore[union-attr,index]


@pytest.mark.parametrize(
    ("method", "served"),
    [
        ("local", "what clients keep of their models has its initial weights"),
        ("hermes", "the weights are those of the global model"),
        ("lotteryfl", "the weights are those of the global model"),
        ("fedskel", "the weights are those of the global model"),
    ],
)
def test_a_client_that_never_trained_is_named(job_file: Path, method: str, served: str) -> None:
    job, x = trained(job_file, method=method, rounds=1, num_participants=2), np.zeros((1, 28, 28), np.uint8)
    assert job.clients is not None and job.clients.names and len(job.records[0].participants) == 2
    says = f"never trained: {served}"
    for number, name in enumerate(job.clients.names[:7], 1):
        notices: list[str] = []
        next(predict(job, name, x, notices.append))
        untrained = number not in job.records[0].participants
        assert [one for one in notices if "trained" in one] == ([f"client {name} {says}"] if untrained else [])


def test_a_model_of_a_clients_own_needs_the_jobs_data_and_must_test_as_before(job_file: Path, tmp_path: Path) -> None:
    job, x = trained(job_file, method="local", rounds=1), np.zeros((1, 28, 28), np.uint8)
    assert job.evaluation is not None and job.clients is not None and job.clients.names
    name = job.clients.names[0]
    job.evaluation.correct[0] = 0 if job.evaluation.correct[0] > 1 else job.evaluation.count[0]
    with pytest.raises(UserError, match=r"cannot be rebuilt: it gets \d+ of \d+ test samples right, and \d+"):
        next(predict(job, name, x))
    job.header["config"]["data_dir"] = str(tmp_path / "gone")
    with pytest.raises(UserError, match=r"has a personal model, .* they are not in .*gone any more"):
        next(predict(job, name, x))
