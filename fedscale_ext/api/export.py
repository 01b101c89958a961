"""A trained model as an ONNX file, which phones and boards run, checked against the job that trained it.

The file's input ``samples`` are float32 [batch, C, H, W] as the data have them: pixels from 0 to 255, or values. Their
normalisation is part of the network. The output ``logits`` is float32 [batch, classes]. A network with several exits
answers as in the job's tests: with its deepest exit, or with all of them together. The file's metadata have the
``labels`` as JSON, the ``job``, the ``model`` and the ``method``.
"""

import importlib
import json
import logging
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fedscale_ext.api.served_model import job_data, load_network
from fedscale_ext.core.errors import UserError, meant_or_known, one_line
from fedscale_ext.core.types import is_personal, members
from fedscale_ext.data.layout.class_names import class_names
from fedscale_ext.data.registry import known, normalisation
from fedscale_ext.metrics.accuracy import without_mask
from fedscale_ext.report.job.loading import LoadedJob
from fedscale_ext.util.atomic_files import write_atomic

TOLERANCE = 1e-3
"""Largest difference of a logit between the file and the network, in parts of the largest logit."""
_BATCH = 64


@dataclass(frozen=True)
class Exported:
    """What was written, and how it compares.

    Attributes:
        path: The file.
        model: Key of the model.
        samples: Samples that both the file and the network ran on: test samples, or noise.
        why_noise: Why they were noise; empty for test samples.
        difference: Largest difference of a logit, in parts of the largest one.
        right: Share of the test samples of the clients whom the job serves the model that the file gets right, in
            [0, 1]. None without data.
        reached: The same share by the job's last test. None where it is not known.

    """

    path: Path
    model: str
    samples: int
    why_noise: str
    difference: float
    right: float | None
    reached: float | None


class _WithNormalisation(nn.Module):
    """Samples as the data have them -> logits, as the job's tests compute them."""

    mean: Tensor
    std: Tensor

    def __init__(self, network: nn.Module, data_set: str, channels: int, pixels: bool) -> None:
        super().__init__()
        mean, std = normalisation(data_set, channels)
        scale = 255.0 if pixels else 1.0
        self.network = network
        self.register_buffer("mean", torch.tensor(mean).reshape(1, -1, 1, 1) * scale)
        self.register_buffer("std", torch.tensor(std).reshape(1, -1, 1, 1) * scale)

    def forward(self, samples: Tensor) -> Tensor:
        logits: Tensor = self.network((samples - self.mean) / self.std)
        return logits


def export(job: LoadedJob, out: Path, model: str | None = None, client: str | None = None) -> Exported:
    """Write a model of a finished job as an ONNX file, and check it.

    Args:
        job: The job.
        out: The file.
        model: Key of the model. By default, the one that ``client`` is served, or the only one.
        client: Name of a client.

    Raises:
        UserError: If the model is not one file's: unknown, a client's own, an ensemble; if it was never trained; if
            packages are missing; if the network cannot be exported; or if the file computes something else.

    """
    runtime = _packages()
    key = _chosen(job, model, client)
    network, shape, classes = _network(job, key)
    labels = class_names(job.header["config"], classes)
    about = {"labels": json.dumps(labels), "job": job.name, "model": key, "method": job.header["method"]}
    content = _onnx(network, shape, about)
    served = _served(job, key)
    tests = _test_samples(job, served)
    samples = _noise(shape) if isinstance(tests, str) else tests[0]
    answers = _answers_of_file(runtime, content, samples)
    difference = _difference(answers, _answers_of_network(network, samples))
    if not difference <= TOLERANCE:
        raise UserError(f"the exported network computes something else than {key}: logits differ by {difference:.1e}")
    write_atomic(out, content)
    if isinstance(tests, str):
        return Exported(out, key, len(samples), tests, difference, None, None)
    right = float((answers.argmax(1) == tests[1]).mean())
    return Exported(out, key, len(samples), "", difference, right, _reached(job, served))


def _network(job: LoadedJob, key: str) -> tuple[nn.Module, tuple[int, int, int], int]:
    """Return a model with the normalisation of the job's data, in evaluation; the shape of a sample; the classes."""
    spec, network = load_network(job, key)
    data_set = job.header["config"]["data_set"]
    entry = known(data_set)
    pixels = not (entry and entry.values)
    whole = _WithNormalisation(network, data_set, spec["input_shape"][0], pixels).eval()
    return whole, spec["input_shape"], spec["num_classes"]


def _test_samples(job: LoadedJob, clients: Sequence[int]) -> tuple[np.ndarray, np.ndarray] | str:
    """Return the clients' test samples, float32 [n, C, H, W], and their labels, int64 [n]; or why there are none."""
    data = job_data(job)
    if data is None:
        return "the data of the job are not there"
    rows = np.concatenate([data.test_rows(client) for client in clients]) if clients else np.zeros(0, dtype=np.int64)
    if not len(rows):
        return "no client with test samples is served this model alone"
    return np.asarray(data.x[rows], dtype=np.float32), data.y[rows]


def _noise(shape: Sequence[int]) -> np.ndarray:
    return np.random.default_rng(0).uniform(0, 255, (_BATCH, *shape)).astype(np.float32)


def _answers_of_file(runtime: Any, content: bytes, samples: np.ndarray) -> np.ndarray:
    session = runtime.InferenceSession(content, providers=["CPUExecutionProvider"])
    return np.concatenate([session.run(None, {"samples": part})[0] for part in _parts(samples)])


def _answers_of_network(network: nn.Module, samples: np.ndarray) -> np.ndarray:
    with torch.no_grad():
        return np.concatenate([network(torch.from_numpy(part)).numpy() for part in _parts(samples)])


def _difference(answers: np.ndarray, expected: np.ndarray) -> float:
    return float(np.abs(answers - expected).max() / max(float(np.abs(expected).max()), 1e-12))


def _packages() -> Any:
    try:
        for name in ("onnx", "onnxscript"):
            importlib.import_module(name)
        return importlib.import_module("onnxruntime")
    except ImportError as error:
        raise UserError(f"an export needs {error.name}: pip install 'fedscale_ext[export]'") from None


def _chosen(job: LoadedJob, model: str | None, client: str | None) -> str:
    keys = [str(each["key"]) for each in job.summary["models"]]
    untrained = _initial(job)
    if model is not None:
        if model not in keys:
            raise UserError(f"{job.name} has no model {model!r}{meant_or_known(model, keys)}")
        if model in untrained:
            raise UserError(f"model {model} of {job.name} has its initial weights: clients keep models of their own, "
                            "which `fedscale predict` uses")  # fmt: skip
        return model
    if client is None:
        if len(keys) > 1:
            raise UserError(f"{job.name} has {len(keys)} models: name one by --model or a client by --client; "
                            f"it has {', '.join(keys[:10])}")  # fmt: skip
        return _chosen(job, keys[0], None)
    number = job.client_number(client)
    if job.evaluation is None:
        raise UserError(f"{job.name} has not tested client {client!r}")
    served = job.evaluation.serve[number - 1]
    if is_personal(served):
        trained = ", ".join([key for key in keys if key not in untrained][:10])
        others = f"name one of these by --model; they are {trained}" if trained else "`fedscale predict` uses it"
        raise UserError(f"client {client} has a personal model, which is not among the job's models: {others}")
    if len(members(served)) > 1:
        raise UserError(f"client {client} is served an ensemble of {served.replace('+', ', ')}: export them one by one "
                        "by --model")  # fmt: skip
    return served


def _initial(job: LoadedJob) -> set[str]:
    """Keys of the models that nobody trained: clients began with them and keep models of their own."""
    serve = job.evaluation.serve if job.evaluation is not None else ()
    personal = {members(served)[0] for served in serve if is_personal(served)}
    return {str(each["key"]) for each in job.summary["models"] if each.get("version") == 0 and each["key"] in personal}


def _onnx(network: nn.Module, shape: Sequence[int], about: dict[str, str]) -> bytes:
    quiet = logging.getLogger("torch.onnx")
    level = quiet.level
    quiet.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(action="ignore"):
            program = torch.onnx.export(
                network, (torch.zeros(2, *shape),), dynamo=True, verbose=False, input_names=["samples"],
                output_names=["logits"], dynamic_shapes=({0: torch.export.Dim("batch")},),
            )  # fmt: skip
    except Exception as error:  # torch and onnxscript raise many kinds for what they do not know
        raise UserError(f"the network cannot be written as ONNX: {one_line(str(error), 200)}") from None
    finally:
        quiet.setLevel(level)
    assert program is not None
    proto = program.model_proto
    for name, text in about.items():
        proto.metadata_props.add(key=name, value=text)
    content: bytes = proto.SerializeToString()
    return content


def _served(job: LoadedJob, key: str) -> list[int]:
    """Clients whom the job's last test served the model, from 1 on."""
    serve = job.evaluation.serve if job.evaluation is not None else ()
    return [client for client, served in enumerate(serve, start=1) if served == key]


def _reached(job: LoadedJob, clients: Sequence[int]) -> float | None:
    if job.evaluation is None or not clients:
        return None
    evaluation, at = without_mask(job.evaluation) or job.evaluation, np.asarray(clients) - 1  # the file has no mask
    return float(evaluation.correct[at].sum() / evaluation.count[at].sum())


def _parts(inputs: np.ndarray) -> list[np.ndarray]:
    return [inputs[begin : begin + _BATCH] for begin in range(0, len(inputs), _BATCH)]
