"""What an executor works with: the data, the models that came with units, and the clients that it trains."""

import logging
import math
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from fedscale_ext.core.local_steps import step_sizes, trained_on
from fedscale_ext.data.store import DataSet
from fedscale_ext.executor import faults
from fedscale_ext.tasks import bn_statistics
from fedscale_ext.tasks.client_tensors import CONTROL_VARIATES, OwnTensors, Returned, Shared
from fedscale_ext.tasks.kind import HANDED, Trained
from fedscale_ext.tasks.units import in_parts
from fedscale_ext.tasks.workbench import Workbench, can_factor
from fedscale_ext.training.cohort import Cohort
from fedscale_ext.training.device_data import DeviceData
from fedscale_ext.training.local_training import MultiModelClient, train_alone
from fedscale_ext.training.samples import ClientSamples
from fedscale_ext.util.stopwatch import Stopwatch

# where a client's settings have the tensors that came for it, by kind
_SETTINGS = {CONTROL_VARIATES: "offset", OwnTensors.kind: "own", Returned.kind: "returned", Shared.kind: "shared"}


class Worker:
    """Trains clients and provides models and data for each kind of work (:class:`fedscale_ext.tasks.kind.Worker`).

    Args:
        data: all clients' samples.
        bench: the models that came with units.
        client_of: makes the object that runs the steps of a client with these settings.
        settings_of: makes a client's settings from a unit's header and one of its items.
        handler: trains one client (FedScale's hook).
        watch: adds up the seconds of each kind of work.
        augment: the key of that name.
        test_batch: samples that a test passes through a model at once.
        seed: of the job.

    """

    def __init__(
        self,
        data: DataSet,
        bench: Workbench,
        client_of: Callable[[Namespace], MultiModelClient],
        settings_of: Callable[[Mapping[str, Any], Mapping[str, Any]], Namespace],
        handler: Callable[[int, Namespace, str], dict[str, Any]],
        watch: Stopwatch,
        augment: str = "none",
        test_batch: int = 256,
        seed: int = 0,
    ) -> None:
        self.data, self.bench, self.watch = data, bench, watch
        self.test_batch, self.seed = test_batch, seed
        self._on_device = DeviceData(data, bench.device, augment)
        self._client_of, self._settings_of, self._handler = client_of, settings_of, handler

    def client_of(self, conf: Namespace) -> MultiModelClient:
        """The object that runs the steps of a client with these settings."""
        return self._client_of(conf)

    def settings(self, header: Mapping[str, Any], item: Mapping[str, Any]) -> Namespace:
        """A client's settings, from a unit's header and one of its items."""
        return self._settings_of(header, item)

    def confs(self, header: Mapping[str, Any], items: Sequence[Mapping[str, Any]]) -> list[Namespace]:
        """The settings of the clients of a unit, with the tensors that came for each."""
        confs = [self.settings(header, item) for item in items]
        for kind, tensors_by_index in header.get(HANDED, {}).items():
            for index, conf in enumerate(confs):
                tensors = tensors_by_index.get(0 if kind == Shared.kind else index, {})
                on_device = {name: tensor.to(self.bench.device) for name, tensor in tensors.items()}
                setattr(conf, _SETTINGS[kind], on_device)
        return confs

    def trained(self, header: dict[str, Any], confs: list[Namespace]) -> Iterator[Trained]:
        """Train clients, some at a time; their states are overwritten when more are asked for."""
        model = header["items"][0]["model"]
        trainer = self.client_of(confs[0])
        factored = can_factor(header, confs)
        size = header["cohort"] if trainer.in_cohorts else 1
        for part in in_parts(confs, math.ceil(len(confs) / max(size, 1))):
            cohort = None
            if len(part) > 1 and size > 1:
                with self.watch("training"):
                    cohort = self.bench.cohort(model, len(part), factored=factored)
            together = None
            if cohort is not None and cohort.takes([self.batch_sizes(conf) for conf in part]):
                together = self._together(trainer, cohort, part)
            if together is not None:
                yield together
            else:
                for conf in part:
                    yield self._alone(model, conf)

    def batch_sizes(self, conf: Namespace) -> np.ndarray:
        """How many samples each step of a client sees, int64 [steps]."""
        samples = trained_on(int(self.data.train_sizes[conf.client_id - 1]), vars(conf))
        return step_sizes(samples, conf.batch_size, conf.local_steps, conf.local_epochs)

    def _together(self, trainer: MultiModelClient, cohort: Cohort, confs: Sequence[Namespace]) -> Trained | None:
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

    def _alone(self, model: str, conf: Namespace) -> Trained:
        result: dict[str, Any] | Exception
        try:
            result = self._handler(conf.client_id, conf, model)
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
        if faults.of_machine(error):
            raise error
        faults.check_device(self.bench.device)

    def train_client(self, model: str, client: MultiModelClient, conf: Namespace) -> dict[str, Any]:
        """One client on the resident module of pool key ``model``."""
        data = self.samples(conf)
        with self.watch("training"):
            return train_alone(client, data, self.bench.module(model), conf)

    def samples(self, conf: Namespace) -> ClientSamples:
        """A client's training samples, on the training device."""
        with self.watch("data"):
            return self._on_device.samples(self.data.train_rows(conf.client_id), conf.augment)

    def device_inputs(self, rows: np.ndarray) -> torch.Tensor:
        """The inputs of rows of the data set, on the training device."""
        return self._on_device.samples(rows).x

    def own_versions(self, header: Mapping[str, Any]) -> Iterator[tuple[int, nn.Module]]:
        """Each client of a unit with its personal version of the unit's model, done with before the next is asked for;
        with BatchNorm's statistics of its own training samples, where the unit asks for it."""
        (member,) = header["members"]
        items = [{"client": client, "model": member, "objective": {}} for client in header["clients"]]
        for conf in self.confs(header, items):
            module = self.bench.module(member)
            self.client_of(conf).own_model(module, conf)
            if header.get(bn_statistics.EVENT):
                total = bn_statistics.client_sums(self, module, [conf.client_id])
                module.load_state_dict(bn_statistics.with_statistics(module.state_dict(), total))
            yield conf.client_id, module
