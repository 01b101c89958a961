"""The executor: keeps data and models resident, trains and tests the units that it is handed."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, cast

import fedscale.cloud.logger.executor_logging as executor_logging
import torch
from fedscale.cloud import commons
from fedscale.cloud.execution.executor import Executor
from overrides import overrides

from fedscale_ext.config import methods
from fedscale_ext.config.job_config import JobConfig
from fedscale_ext.core.client_config import ClientConfig
from fedscale_ext.core.local_steps import local_steps
from fedscale_ext.core.types import State
from fedscale_ext.data import store
from fedscale_ext.data.job_data import open_job_data
from fedscale_ext.executor.section_cache import SectionCache
from fedscale_ext.executor.worker import Worker
from fedscale_ext.tasks.client_tensors import ClientState, cache_label, read_client_tensors, section_name
from fedscale_ext.tasks.kind import CACHED, NOT_CACHED, TENSORS, Kind
from fedscale_ext.tasks.kinds import kinds_by_event
from fedscale_ext.tasks.workbench import Workbench
from fedscale_ext.training.local_training import MultiModelClient
from fedscale_ext.transport import wire
from fedscale_ext.transport.executor_link import Connection, Link
from fedscale_ext.transport.no_pickle import NoPickle
from fedscale_ext.transport.registration import registration
from fedscale_ext.transport.units import UnitHeader
from fedscale_ext.util.code_digest import code_digest
from fedscale_ext.util.stopwatch import Stopwatch
from fedscale_ext.util.torch_devices import device_of


@dataclass(frozen=True)
class _Reply:
    """The reply to a call.

    Attributes:
        event: Names the kind of work of the unit that came, or what else to do.
        header: The unit's header; empty if none came.
        tensors: Tensors of the unit's clients, by kind and index.
        lacks_sections: Whether a section is missing that the aggregator takes for cached here.
        error: Why the states that came cannot be used.

    """

    event: str
    header: UnitHeader = field(default_factory=UnitHeader)
    tensors: dict[str, dict[int, State]] = field(default_factory=dict)
    lacks_sections: bool = False
    error: Exception | None = None


class MultiModelExecutor(NoPickle, Executor):
    """FedScale's executor for models of any spec.

    FedScale's constructor builds one model of its own zoo for the process's life; this one
    instead builds each spec on first use and sets the attributes that inherited methods read.
    """

    #: Kinds of work that a method has in addition to the common ones (``tasks/kinds.py``).
    kinds: ClassVar[tuple[Kind, ...]] = ()

    def __init_subclass__(cls, **options: Any) -> None:
        """TypeError for a subclass that names its clients' class, which the aggregator's class does."""
        super().__init_subclass__(**options)
        if hasattr(cls, "client") or hasattr(cls, "Client"):
            raise TypeError(f"{cls.__name__} names its clients' class; the aggregator's class does, as Client = ...")

    def __init__(self, config: JobConfig):
        executor_logging.initiate_client_setting()
        self.config = config
        self.method: Any = methods.method_class(config.job.method)
        self.code = code_digest(self.method)  # before the data are read, which may take long
        self.args = args = config.fedscale
        self.this_rank = args.this_rank
        self.executor_id = str(args.this_rank)
        self.num_executors = args.num_executors
        self.aggregator_communicator = Connection(config)
        self.received_stop_request = False
        self.wandb = None
        self.device = device_of(args)
        self.round: int | str = 0
        self.watch = Stopwatch()
        self.bench = Workbench(self.device)
        self.cache = SectionCache()

    @overrides
    def setup_env(self) -> None:
        """One thread on a CPU: executors share its cores, and results do not depend on their number."""
        if self.device.type == "cpu":
            torch.set_num_threads(1)
        else:
            torch.cuda.set_device(self.device)  # where graphs and streams are made

    @overrides
    def init_data(self) -> tuple[store.DataSet, store.DataSet]:
        """The decoded data set, once for training and testing rows."""
        data = open_job_data(self.config)
        self.worker = self._worker(data)
        return data, data

    def _worker(self, data: store.DataSet) -> Worker:
        return Worker(
            data, self.bench, self.get_client_trainer, self._client_config, self.watch,
            self.config.job.augment, self.args.test_bsz, self.config.job.seed,
        )  # fmt: skip

    @classmethod
    def worker_alone(cls, config: JobConfig, data: store.DataSet) -> Worker:
        """Return a worker that no job runs: for what its clients' models are after the job.

        The constructor is left out. It would set up a process: its logs and its connection to an aggregator.
        """
        executor = cls.__new__(cls)
        executor.config, executor.args = config, config.fedscale
        executor.method = methods.method_class(config.job.method)
        executor.device = device_of(config.fedscale)
        executor.watch = Stopwatch()
        executor.bench = Workbench(executor.device)
        executor.training_sets = data
        return executor._worker(data)

    @overrides
    def report_executor_info_handler(self) -> bytes:
        """What the aggregator must know before the first round: the data and this process."""
        return registration(self.training_sets, self.device, self.code)

    @overrides
    def client_register(self) -> None:
        """Register, trying again while the aggregator is not up yet, at most ``register_timeout_s``."""
        self.link = Link(self.aggregator_communicator, self.config, self.report_executor_info_handler())
        self.link.open()

    @overrides
    def client_ping(self) -> Any:
        """Ask for work; the aggregator answers when it has some or after a bounded wait."""
        with self.watch("waiting"):
            return self.link.ping()

    @overrides
    def event_monitor(self) -> None:
        """Work until told to stop: each reply brings the next unit. ConnectionError when no reply comes."""
        self.client_register()
        try:
            self._work()
        finally:
            self.link.close()

    def _work(self) -> None:
        kinds = kinds_by_event(self.kinds)
        reply = self._exchange(self.client_ping)
        while not self.received_stop_request:
            if reply.event in kinds:
                reply = self._exchange(partial(self._hand_in, kinds[reply.event], reply))
            elif reply.event == commons.SHUT_DOWN:
                self.Stop()
            else:
                reply = self._exchange(self.client_ping)

    def _exchange(self, call: Callable[[], Any]) -> _Reply:
        """Make a call and read its reply. The message itself ends here: it may be large."""
        response = call()
        event, message = response.event, response.data
        del response  # holds the message a second time
        if not message:
            return _Reply(event)
        with self.watch("wire"):
            unpacked, sections = wire.unpack(message)
            header = cast(UnitHeader, unpacked)  # what make_unit wrote
            del message
            cached = self.cache.get(header.get(CACHED, {}))
            if cached is None:  # the unit comes once more, with all sections
                return _Reply(event, header, lacks_sections=True)
            sections |= cached
            del cached
            try:
                self.bench.keep(header, sections)
                return _Reply(event, header, read_client_tensors(header.get(TENSORS, ()), sections))
            except Exception as error:
                return _Reply(event, header, error=error)

    def _hand_in(self, kind: Kind, unit: _Reply) -> Any:
        """Do a unit and send its answer; the reply brings the next one."""
        self.round = unit.header["round"]
        request = self.link.result(kind.answer or kind.event, self._answer(kind, unit))
        with self.watch("waiting"):
            return self.link.complete(request)

    def _cache_states(self, unit: Mapping[str, Any], cached: Mapping[str, str], parts: Mapping[str, bytes]) -> None:
        """Keep what clients keep until their next unit, in place of what came before it."""
        for name, section in parts.items():
            if name.startswith(section_name(ClientState.kind, "")):
                if name in cached:
                    self.cache.drop(cached[name])
                self.cache.put(cache_label(unit, name), section)

    def _answer(self, kind: Kind, unit: _Reply) -> bytes:
        answer: dict[str, Any]
        parts: dict[str, bytes]
        header = unit.header
        identity = {name: header[name] for name in ("job", "unit", "round", "attempt")}
        if unit.lacks_sections:
            return wire.pack({**identity, NOT_CACHED: True})
        try:
            if unit.error is not None:
                raise unit.error
            self.worker.client_tensors = unit.tensors
            answer, parts = kind.run(self.worker, header)
        except Exception as error:  # the unit fails, not this process: another executor tries
            logging.exception(f"unit {header['unit']} failed")
            answer, parts = {"failed": f"{type(error).__name__}: {error}"}, {}
        finally:
            unit.tensors.clear()  # the worker has them, too: an executor holds none while it waits
        with self.watch("wire"):
            self._cache_states(identity, header.get(CACHED, {}), parts)
            return wire.pack({**identity, **answer, "seconds": self.watch.read()}, parts)

    @overrides
    def get_client_trainer(self, conf: ClientConfig) -> MultiModelClient:
        """Create the object that runs a client's steps: the method's ``Client``."""
        return self.method.Client(conf, self.bench)

    def _client_config(self, header: UnitHeader, item: Mapping[str, Any]) -> ClientConfig:
        """A client's configuration: the job's keys, then the item's overrides. Tensors are added by the worker."""
        job, args, overrides = self.config.job, self.args, item["overrides"]
        size = int(self.training_sets.train_sizes[item["client"] - 1])
        local = local_steps(size, args.batch_size, args.local_steps, job.local_epochs, overrides)
        config = ClientConfig(
            client_id=item["client"],
            round=header["round"],
            seed=job.seed,
            model_key=item.get("model") or header["model"],
            task=args.task,
            use_cuda=args.use_cuda,
            cuda_device=self.device,
            batch_size=args.batch_size,
            test_bsz=args.test_bsz,
            local_steps=args.local_steps,
            learning_rate=header["learning_rate"],
            client_optimizer=job.client_optimizer,
            client_momentum=job.client_momentum,
            client_weight_decay=job.client_weight_decay,
            adam_beta1=job.adam_beta1,
            adam_beta2=job.adam_beta2,
            adam_eps=job.adam_eps,
            clip_norm=job.clip_norm,
            prox_mu=job.prox_mu,
            own_classes=job.own_classes,
            loss_decay=args.loss_decay,
            max_update_norm=job.max_update_norm,
            augment=job.augment,
            precision=job.precision,
            objective=item["objective"],
        )
        return replace(config, **{**overrides, "local_steps": local.steps, "local_epochs": local.epochs})
