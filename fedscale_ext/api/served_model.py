"""Loads the model that a job serves a client at its end: one of the pool, an ensemble, or a personal one.

A personal model is rebuilt as the job's last test made it: from the client's tensors in the job's folder and what
the server sent for that test, by the method's own client. Where the job's data are there, it must get as many of the
client's test samples right.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from fedscale_ext import models
from fedscale_ext.config.job_config import JobConfig
from fedscale_ext.config.recorded import recorded_config
from fedscale_ext.core.errors import UserError
from fedscale_ext.core.model_spec import ModelSpec
from fedscale_ext.core.types import State, WorkItem, is_personal, members
from fedscale_ext.data.job_data import open_recorded_data
from fedscale_ext.data.layout.class_names import class_names
from fedscale_ext.data.registry import Shape, normalisation
from fedscale_ext.data.store import DataSet, normalised
from fedscale_ext.metrics.job_folder.model_files import load_model, model_file
from fedscale_ext.report.job.loading import LoadedJob
from fedscale_ext.server.method_base.method_traits import reestimates_statistics
from fedscale_ext.tasks.client_files import newest_file
from fedscale_ext.tasks.client_tensors import ClientState, SharedTensors
from fedscale_ext.tasks.evaluation_figures import test_clients
from fedscale_ext.tasks.tested_tensors import read_tested
from fedscale_ext.transport import wire
from fedscale_ext.transport.units import UnitHeader

_BATCH = 256
_SHARE = 0.02  # of test samples that another machine's rounding may change


@dataclass(frozen=True)
class ServedModel:
    """A client's model.

    Attributes:
        key: Key of the last test: that of a model, several joined by "+", or ending in "@own".
        networks: The model, or the members of an ensemble, whose mean logits count; in evaluation mode.
        shape: Of a sample, (C, H, W).
        labels: Names of the classes.
        data_set: The job's kind of data.

    """

    key: str
    networks: Sequence[nn.Module]
    shape: Shape
    labels: Sequence[str]
    data_set: str

    @torch.no_grad()
    def logits(self, samples: np.ndarray) -> Tensor:
        """Return logits, float32 [n, classes], of samples as the data have them: uint8 or float16 [n, C, H, W]."""
        mean, std = (torch.tensor(each).view(1, -1, 1, 1) for each in normalisation(self.data_set, self.shape[0]))
        total = torch.zeros(0)
        for number, network in enumerate(self.networks):
            parts = (samples[begin : begin + _BATCH] for begin in range(0, len(samples), _BATCH))
            logits = torch.cat([network(normalised(torch.from_numpy(part), mean, std)).float() for part in parts])
            total = total + (logits - total) / (number + 1) if number else logits
        return total


def load_served_model(job: LoadedJob, client: str) -> ServedModel:
    """Load the model that a job serves a client at its end.

    Args:
        job: A finished job.
        client: Name of the client.

    Raises:
        UserError: If there is no such client, if it was not tested, or if its model cannot be rebuilt.

    """
    number = job.client_number(client)
    if not job.finished or job.evaluation is None:
        raise UserError(f"{job.name} has not ended yet; its models are written at the end")
    key = job.evaluation.serve[number - 1]
    loaded = [load_network(job, member) for member in members(key)]
    spec = loaded[0][0]
    networks = [network for _, network in loaded]
    if is_personal(key):
        networks = [_personal(job, number, client, members(key)[0], spec, loaded[0][1].state_dict())]
    config = job.header["config"]
    labels = class_names(config, spec["num_classes"])
    return ServedModel(key, [each.eval() for each in networks], tuple(spec["input_shape"]), labels, config["data_set"])


def load_network(job: LoadedJob, key: str) -> tuple[ModelSpec, nn.Module]:
    """Load a model of a finished job: its spec, and the network with its weights."""
    spec, state = load_model(model_file(job.folder, key))
    network = models.build(spec)
    network.load_state_dict(state)
    return spec, network


def job_data(job: LoadedJob) -> DataSet | None:
    """Open the data that a job was tested on; None where they are not there, or are others now."""
    try:
        data = open_recorded_data(job.header["config"])
    except (UserError, KeyError):
        return None
    return data if data.digest == job.digest else None


def _personal(job: LoadedJob, number: int, client: str, key: str, spec: ModelSpec, state: State) -> nn.Module:
    """The client's personal version of a model, as the job's last test made it."""
    from fedscale_ext.config.methods import method_class

    config = recorded_config(job.header["config"])
    data = job_data(job)
    if data is None:
        raise UserError(f"client {client} has a personal model, which is rebuilt with the job's data: they are not in "
                        f"{config.fedscale.data_dir} any more")  # fmt: skip
    stored = newest_file(job.folder / ClientState.kind, key, number, job.rounds_done)
    received = {ClientState.kind: {0: stored or {}}}
    shared, objective = read_tested(job.folder)
    if shared is not None:
        received[SharedTensors.kind] = {0: shared}
    header: UnitHeader = {
        "members": [key], "clients": [number], "items": [WorkItem(number, key).to_json()], "round": 0,
        "learning_rate": 0.0, "model": key, "objective": objective,
        "statistics": reestimates_statistics(method_class(config.job.method), config),
    }  # fmt: skip
    network = _build_personal(config, data, key, spec, state, header, received)
    _check(job, number, client, network, data)
    return network


def _build_personal(
    config: JobConfig, data: DataSet, key: str, spec: ModelSpec, state: State, header: UnitHeader,
    tensors: Mapping[str, Mapping[int, State]],
) -> nn.Module:  # fmt: skip
    """Build the network that the job's executor makes for the header of a test of one client, and its ``tensors``."""
    from fedscale_ext.entry.launch import executor_class

    worker = executor_class(config.job.method).worker_alone(config, data)  # type: ignore[attr-defined]
    worker.bench.keep({"models": {key: {"spec": spec.to_json(), "version": 0}}}, {key: wire.tensors_to_bytes(state)})
    worker.client_tensors = tensors
    [(_, network)] = list(worker.personal_models(header))
    return network


def _check(job: LoadedJob, number: int, client: str, network: nn.Module, data: DataSet) -> None:
    """Raise UserError unless the network gets right what the client got right in the job's last test."""
    evaluation = job.evaluation
    if evaluation is None or not evaluation.count[number - 1]:
        return
    figures = test_clients([network], data, [number], _BATCH, torch.device("cpu")).figures
    reached = (evaluation.correct if evaluation.unmasked is None else evaluation.unmasked)[number - 1]
    count = int(evaluation.count[number - 1])
    if abs(figures[0, 0] - reached) > max(1.0, _SHARE * count):
        raise UserError(
            f"client {client} has a personal model, which cannot be rebuilt: it gets {int(figures[0, 0])} of "
            f"{count} test samples right, and {int(reached)} in the job's last test; jobs of earlier versions "
            "did not keep what the server sends for tests, such as FedProto's prototypes"
        )
