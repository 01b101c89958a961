"""The executor: keeps data and models resident, trains and tests the units that it is handed."""

import logging
import platform
import time
from argparse import Namespace
from typing import Any

import fedscale.cloud.logger.executor_logging as executor_logging
import grpc
import numpy as np
import torch
from fedscale.cloud import commons
from fedscale.cloud.channels import job_api_pb2
from fedscale.cloud.channels.channel_context import ClientConnections
from fedscale.cloud.execution.executor import Executor
from overrides import overrides
from torch import nn

from fedscale_ext import models
from fedscale_ext.config import JobConfig
from fedscale_ext.data import store
from fedscale_ext.models.spec import ModelSpec
from fedscale_ext.runtime import wire
from fedscale_ext.runtime.evaluation import COLUMNS, test_clients
from fedscale_ext.runtime.training import ClientSamples, MultiModelClient
from fedscale_ext.runtime.work import State
from fedscale_ext.streams import stream

_REPLY_S = 120.0  # the aggregator answers within ten seconds, with work or without
_CONNECT_PAUSE_S = 0.2  # between two attempts to reach an aggregator that is still starting


class MultiModelExecutor(Executor):
    """FedScale's executor for models of any spec.

    FedScale's constructor builds one model of its own zoo for the process's life; this one
    instead builds each spec on first use and sets the attributes that inherited methods read.
    """

    def __init__(self, config: JobConfig):
        executor_logging.initiate_client_setting()
        self.config = config
        self.args = args = config.fedscale
        self.this_rank = args.this_rank
        self.executor_id = str(args.this_rank)
        self.num_executors = args.num_executors
        self.aggregator_communicator = ClientConnections(args.ps_ip, args.ps_port)
        self.received_stop_request = False
        self.wandb = None
        self.device = _device(args)
        self.round = 0
        self._modules: dict[ModelSpec, nn.Module] = {}
        self._states: dict[str, tuple[int, ModelSpec, State]] = {}

    @overrides
    def setup_env(self) -> None:
        """One thread on a CPU: executors share its cores, and results do not depend on their number."""
        if self.device.type == "cpu":
            torch.set_num_threads(1)

    @overrides
    def init_data(self) -> tuple[store.DataSet, store.DataSet]:
        """The decoded data set, once for training and testing rows."""
        args = self.args
        data = store.open_data_set(
            args.data_dir,
            args.data_set,
            data_map_file=args.data_map_file,
            test_split=self.config.job.test_split,
            seed=self.config.job.seed,
        )
        return data, data

    @overrides
    def report_executor_info_handler(self) -> bytes:
        """What the aggregator must know before the first round: the data and this process."""
        data = self.training_sets
        header = {
            "device": str(self.device),
            "host": platform.node(),
            "versions": {"torch": torch.__version__, "numpy": np.__version__},
            "digest": data.digest,
            "data": {
                "name": data.name,
                "generated": data.generated,
                "input_shape": list(data.input_shape),
                "num_classes": data.num_classes,
                "test_source": data.test_source,
                "test_only_clients": data.test_only_clients,
            },
        }
        sizes = {"train": torch.from_numpy(data.train_sizes), "test": torch.from_numpy(data.test_sizes)}
        return wire.pack(header, {"sizes": wire.tensors_to_bytes(sizes)})

    @overrides
    def client_register(self) -> None:
        """Register, trying again while the aggregator is not up yet, at most ``register_timeout_s``."""
        deadline = time.monotonic() + self.config.job.register_timeout_s
        request = job_api_pb2.RegisterRequest(
            client_id=self.executor_id,
            executor_id=self.executor_id,
            executor_info=self.report_executor_info_handler(),
        )
        while True:
            try:
                self.aggregator_communicator.stub.CLIENT_REGISTER(request, wait_for_ready=True, timeout=10.0)
                return
            except grpc.RpcError as error:
                if error.code() not in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
                    raise ConnectionError(f"the aggregator refused this executor: {error.details()}") from None
                if time.monotonic() > deadline:
                    raise ConnectionError(
                        f"no aggregator at {self.args.ps_ip}:{self.args.ps_port} within "
                        f"{self.config.job.register_timeout_s:g} s"
                    ) from None
                time.sleep(_CONNECT_PAUSE_S)

    @overrides
    def client_ping(self) -> Any:
        """Ask for work; the aggregator answers when it has some or after a bounded wait."""
        return self.aggregator_communicator.stub.CLIENT_PING(
            job_api_pb2.PingRequest(client_id=self.executor_id, executor_id=self.executor_id), timeout=_REPLY_S
        )

    @overrides
    def event_monitor(self) -> None:
        """Work until told to stop: each reply brings the next unit. ConnectionError when no reply comes."""
        self.client_register()
        try:
            self._work()
        except grpc.RpcError as error:
            raise ConnectionError(f"the aggregator does not answer any more: {error.details()}") from None

    def _work(self) -> None:
        reply = self.client_ping()
        while not self.received_stop_request:
            if reply.event == commons.CLIENT_TRAIN:
                reply = self._answer(commons.UPLOAD_MODEL, self.train_unit(*wire.unpack(reply.data)))
            elif reply.event == commons.MODEL_TEST:
                reply = self._answer(commons.MODEL_TEST, self.test_unit(*wire.unpack(reply.data)))
            elif reply.event == commons.SHUT_DOWN:
                self.Stop()
            else:
                reply = self.client_ping()

    def _answer(self, event: str, result: bytes) -> Any:
        return self.aggregator_communicator.stub.CLIENT_EXECUTE_COMPLETION(
            job_api_pb2.CompleteRequest(
                client_id=self.executor_id, executor_id=self.executor_id, event=event, status=True, data_result=result
            ),
            timeout=_REPLY_S,
        )

    def train_unit(self, header: dict[str, Any], sections: dict[str, bytes]) -> bytes:
        """Train the unit's work items one after another; a client that raises is reported, not fatal."""
        self._keep_states(header, sections)
        self.round = header["round"]
        results, states = [], {}
        for place, item in enumerate(header["items"]):
            try:
                result = self.training_handler(item["client"], self._client_conf(header, item), item["model"])
            except Exception as error:
                logging.exception(f"executor {self.executor_id}: client {item['client']} failed")
                results.append({"client": item["client"], "failed": f"{type(error).__name__}: {error}"})
                continue
            states[str(place)] = wire.tensors_to_bytes(result["update_weight"])
            results.append(
                {
                    "client": item["client"],
                    "samples": int(self.training_sets.train_sizes[item["client"] - 1]),
                    "trained": result["trained_size"],
                    "steps": self.config.fedscale.local_steps,
                    "loss": result["moving_loss"],
                    "utility": result["utility"],
                }
            )
        return wire.pack(
            {"unit": header["unit"], "round": header["round"], "attempt": header["attempt"], "results": results}, states
        )

    def test_unit(self, header: dict[str, Any], sections: dict[str, bytes]) -> bytes:
        """Test the unit's model on the test samples of the unit's clients."""
        self._keep_states(header, sections)
        module = self._module(header["model"])
        figures = test_clients(module, self.testing_sets, header["clients"], self.args.test_bsz, self.device)
        columns = {name: torch.from_numpy(np.ascontiguousarray(figures[:, i])) for i, name in enumerate(COLUMNS)}
        return wire.pack(
            {"unit": header["unit"], "round": header["round"], "attempt": header["attempt"]},
            {"figures": wire.tensors_to_bytes(columns)},
        )

    @overrides
    def training_handler(self, client_id: int, conf: Namespace, model: str) -> dict[str, Any]:
        """Train the resident module of pool key ``model`` on one client's samples."""
        module = self._module(model)
        x, y = self.training_sets.tensors(self.training_sets.train_rows(client_id))
        # layers that draw by themselves (dropout) draw from the client's own stream
        torch.manual_seed(int(stream(conf.seed, conf.round, client_id, "layers").integers(2**62)))
        samples = ClientSamples(x.to(self.device), y.to(self.device))
        return self.get_client_trainer(conf).train(samples, module, conf)

    @overrides
    def get_client_trainer(self, conf: Namespace) -> MultiModelClient:
        """The class that runs a client's steps; a method whose client differs overrides this."""
        return MultiModelClient(conf)

    def _client_conf(self, header: dict[str, Any], item: dict[str, Any]) -> Namespace:
        job = self.config.job.model_dump()
        return self.override_conf(
            {
                **job,
                "cuda_device": self.device,
                "round": header["round"],
                "learning_rate": header["learning_rate"],
                "client_id": item["client"],
                **item["objective"],
            }
        )

    def _keep_states(self, header: dict[str, Any], sections: dict[str, bytes]) -> None:
        """Remember the states that came along; an older version of the same model is let go."""
        for key, entry in header["models"].items():
            if key in sections:
                spec = ModelSpec.from_json(entry["spec"])
                self._states[key] = entry["version"], spec, wire.bytes_to_tensors(sections[key])
            elif self._states.get(key, (None,))[0] != entry["version"]:
                raise wire.WireError(f"version {entry['version']} of model {key!r} was not sent to this executor")

    def _module(self, key: str) -> nn.Module:
        """The resident module of a model's spec, holding that model's state as it was sent."""
        _, spec, state = self._states[key]
        if spec not in self._modules:
            self._modules[spec] = models.build(spec).to(self.device)
        module = self._modules[spec]
        module.load_state_dict(state)
        return module


def _device(args: Namespace) -> torch.device:
    if not args.use_cuda:
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise RuntimeError("use_cuda is True but torch finds no GPU: set use_cuda: False")
    return torch.device(args.cuda_device or "cuda:0")
