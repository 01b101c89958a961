"""What an executor works with: the data, the models that came with units, and the clients that it trains."""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import nn

from fedscale_ext.core.client_config import ClientConfig
from fedscale_ext.core.local_steps import step_sizes, trained_on
from fedscale_ext.core.types import State, WorkItem
from fedscale_ext.data.store import DataSet
from fedscale_ext.executor import lost_device
from fedscale_ext.tasks import bn_statistics
from fedscale_ext.tasks.client_tensors import (
    CONTROL_VARIATES,
    ClientState,
    ReceivedTensors,
    ReturnedTensors,
    SharedTensors,
)
from fedscale_ext.tasks.kind import Trained
from fedscale_ext.tasks.workbench import Workbench
from fedscale_ext.training.cohort import Cohort
from fedscale_ext.training.device_data import DeviceData
from fedscale_ext.training.local_training import MultiModelClient, train_alone
from fedscale_ext.training.samples import ClientSamples
from fedscale_ext.transport.units import UnitHeader
from fedscale_ext.util.machine_errors import of_machine
from fedscale_ext.util.stopwatch import Stopwatch


class Worker:
    """Trains clients and provides models and data for each kind of work (:class:`fedscale_ext.tasks.kind.Worker`).

    Args:
        data: all clients' samples.
        bench: the models that came with units.
        client_of: makes the object that runs the steps of a client.
        client_config: makes a client's configuration from a unit's header and one of its items.
        watch: adds up the seconds of each kind of work.
        augment: the key of that name.
        test_batch: samples that a test passes through a model at once.
        seed: of the job.

    """

    def __init__(
        self,
        data: DataSet,
        bench: Workbench,
        client_of: Callable[[ClientConfig], MultiModelClient],
        client_config: Callable[[UnitHeader, Mapping[str, Any]], ClientConfig],
        watch: Stopwatch,
        augment: str = "none",
        test_batch: int = 256,
        seed: int = 0,
    ) -> None:
        self.data, self.bench, self.watch = data, bench, watch
        self.test_batch, self.seed = test_batch, seed
        self._on_device = DeviceData(data, bench.device, augment)
        self.client_of, self.client_config = client_of, client_config
        #: the tensors that came for the clients of the unit, by kind and index
        self.client_tensors: Mapping[str, Mapping[int, State]] = {}

    def client_configs(self, header: UnitHeader, items: Sequence[Mapping[str, Any]]) -> list[ClientConfig]:
        """The configurations of the clients of a unit, with the tensors that came for each."""
        by_kind = self.client_tensors

        def received(kind: str, index: int) -> State | None:
            if kind not in by_kind:
                return None
            return {name: tensor.to(self.bench.device) for name, tensor in by_kind[kind].get(index, {}).items()}

        return [
            replace(
                self.client_config(header, item),
                gradient_offset=received(CONTROL_VARIATES, index),
                client_state=received(ClientState.kind, index),
                shared_tensors=received(SharedTensors.kind, 0),
                received_tensors=received(ReceivedTensors.kind, index),
                returns_tensors=ReturnedTensors.kind in by_kind,
            )
            for index, item in enumerate(items)
        ]

    def trained(
        self, model: str, confs: Sequence[ClientConfig], cohort_size: int, factored: bool = False
    ) -> Iterator[Trained]:
        """Train clients, some at a time; their states are overwritten when more are asked for."""
        trainer = self.client_of(confs[0])
        size = cohort_size if trainer.in_cohorts else 1
        for part in self.bench.parts(confs, max(size, 1)):
            cohort = None
            if size > 1 and (len(part) > 1 or self.bench.records):
                with self.watch("training"):
                    cohort = self.bench.cohort(model, len(part), size, factored=factored, tap=trainer.tap)
            together = None
            if cohort is not None and cohort.takes([self.batch_sizes(conf) for conf in part]):
                together = self._together(trainer, cohort, part)
            if together is not None:
                yield together
            else:
                for conf in part:
                    yield self._alone(model, conf)

    def batch_sizes(self, conf: ClientConfig) -> np.ndarray:
        """How many samples each step of a client sees, int64 [steps]."""
        samples = trained_on(int(self.data.train_sizes[conf.client_id - 1]), conf.held_out)
        return step_sizes(samples, conf.batch_size, conf.local_steps, conf.local_epochs)

    def _together(self, trainer: MultiModelClient, cohort: Cohort, confs: Sequence[ClientConfig]) -> Trained | None:
        """None where one of them raised: trained one by one, only the clients that are to blame fail."""
        try:
            data = [self.samples(conf) for conf in confs]
            with self.watch("training"):
                results = trainer.train_cohort(data, cohort, confs)
        except Exception as error:
            self._blame(error)
            logging.warning("a cohort failed, its clients train one by one", exc_info=error)
            return None
        return results, cohort.trained([conf.local_steps for conf in confs])

    def _alone(self, model: str, conf: ClientConfig) -> Trained:
        result: dict[str, Any] | Exception
        try:
            result = self.train_client(model, self.client_of(conf), conf)
            state = result["update_weight"]
        except Exception as error:
            self._blame(error)
            result, state = error, self.bench.state(model)
        return [result], {name: tensor[None] for name, tensor in state.items()}

    def _blame(self, error: Exception) -> None:
        """Return only if an error comes from the client's work itself, so that it would come on any executor.

        An error of this machine (no memory, no file) fails the unit, which another executor then does: what
        a unit yields must not depend on who does it. A GPU that does not work any more ends this process.
        """
        if of_machine(error):
            raise error
        lost_device.check_device(self.bench.device)

    def train_client(self, model: str, client: MultiModelClient, conf: ClientConfig) -> dict[str, Any]:
        """One client on the resident module of pool key ``model``."""
        data = self.samples(conf)
        with self.watch("training"):
            return train_alone(client, data, self.bench.module(model), conf)

    def samples(self, conf: ClientConfig) -> ClientSamples:
        """A client's training samples, on the training device."""
        with self.watch("data"):
            return self._on_device.samples(self.data.train_rows(conf.client_id), conf.augment)

    def device_inputs(self, rows: np.ndarray) -> torch.Tensor:
        """The inputs of rows of the data set, on the training device."""
        return self._on_device.samples(rows).x

    def personal_models(self, header: UnitHeader) -> Iterator[tuple[int, nn.Module]]:
        """Each client of a unit with its personal version of the unit's model, done with before the next is asked for;
        with BatchNorm's statistics of its own training samples, where the unit asks for it."""
        (member,) = header["members"]
        objective = header.get("objective", {})
        items = [WorkItem(client, member, objective).to_json() for client in header["clients"]]
        for conf in self.client_configs(header, items):
            module = self.bench.module(member)
            client = self.client_of(conf)
            client.load_personal_model(module, conf)
            if header.get(bn_statistics.EVENT):
                bn_statistics.measure_on_client(self, module, conf.client_id)
            yield conf.client_id, client.predictor(module, conf)
