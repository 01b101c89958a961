"""What the hooks of a method may use: models that the configuration names, downloads, figures of a round, notices."""

import logging
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedscale_ext import models
from fedscale_ext.config.job_config import JobConfig
from fedscale_ext.core import events
from fedscale_ext.core.errors import UserError
from fedscale_ext.core.model_spec import ModelSpec
from fedscale_ext.core.parts import part_of
from fedscale_ext.core.types import RoundRecord, State, Task, WorkItem
from fedscale_ext.data.job_data import main_classes, public_data
from fedscale_ext.data.public import PublicData
from fedscale_ext.data.registry import is_text
from fedscale_ext.metrics.scheduled_tests import scheduled
from fedscale_ext.metrics.trackers.tensorboard import drop_events
from fedscale_ext.population.population import Population
from fedscale_ext.server.announcements import ModelChoice, assignment_sentence, weak_notice
from fedscale_ext.server.deadline_notices import DeadlineNotices
from fedscale_ext.server.grpc_server import Coordinator
from fedscale_ext.server.guided_selection import Guided
from fedscale_ext.server.initial_weights import starting_weights
from fedscale_ext.server.method_base.method_traits import MethodTraits
from fedscale_ext.server.method_base.requirements import check_trained
from fedscale_ext.server.privacy import JobPrivacy
from fedscale_ext.server.round.round_record import OtherWork
from fedscale_ext.tasks.client_tensors import ClientTensors
from fedscale_ext.util.code_digest import code_digest
from fedscale_ext.util.macs import MacCounter
from fedscale_ext.util.stopwatch import Stopwatch
from fedscale_ext.util.torch_devices import server_device

_KEPT_NOTICES = 100  # different ones, in the summary; the log has all


class MethodTools(MethodTraits, Coordinator):
    """The state of a job that hooks may read, and methods that they may call.

    Hooks may use ``params`` (an instance of ``Params``), ``config``, ``seed``, ``args`` (FedScale's arguments),
    ``task``, ``population``, ``capacity``, ``eligible``, ``pool`` and ``history`` (the records of finished rounds).
    """

    # What is known only when the executors have registered: MultiModelAggregator.prepare sets it, before init_state.
    task: Task
    data_info: dict[str, Any]  # of the data set: its name, digest, what clients are tested on
    population: Population
    capacity: np.ndarray  # float64 [clients], MACs per sample that each client's device affords
    eligible: np.ndarray  # bool [clients], who may train
    file_digests: dict[str, dict[str, str]]  # of the files that the configuration names
    device_name: str  # where executors train
    majority_correct: np.ndarray  # int64 [clients], test samples with the client's most frequent training label
    most_frequent_correct: np.ndarray  # the same with the most frequent training label of all clients

    params: Any
    privacy: JobPrivacy | None = None  # of a job with ``dp_noise_multiplier``
    weights_given = False  # whether the key ``initial_weights`` was heard
    public_data_used = False  # whether the method has asked for public data
    selection: Guided | None = None  # of a job whose ``sample_mode`` is not random
    beyond_capacity = 0  # clients that train what their devices do not afford

    def __init__(self, config: JobConfig, emit: events.Emit = events.print_event):
        args = config.fedscale
        self.log_dir = Path(args.log_path, "logs", args.job_name, args.time_stamp)
        # FedScale opens its TensorBoard writer at once; a resumed job shows its kept rounds anew
        drop_events(self.log_dir / "aggregator")
        super().__init__(config, emit)
        self.seed = config.job.seed
        self.watch = Stopwatch()
        self.mac_counter = MacCounter(config.job.count_server_macs)
        self.history: list[RoundRecord] = []
        self.spent_macs = 0.0  # of all clients' training, in the rounds of ``history``
        self.code = code_digest(type(self))
        self.resumed: list[dict[str, Any]] = []  # after which rounds this job was resumed
        self.client_tensors_by_kind: dict[str, ClientTensors] = {}  # what clients also receive, by kind
        self.notices: dict[str, None] = {}  # different sentences of :meth:`notice`, in their order
        self.deadline = DeadlineNotices(config, self.notice)
        self._internals: dict[str, Any] = {}
        self._internal_states: dict[str, State] = {}
        self._other_work = OtherWork()  # of this round

    def trained_spec(self, model: str) -> ModelSpec:
        """The spec of a named model or a spec file that clients train; UserError for one that this method cannot."""
        spec = self._configured(model)
        check_trained(model, spec, self.config, type(self))
        return spec

    def initial_state(self, spec: ModelSpec) -> State:
        """What the one model that a method starts from has for weights: those of the key ``initial_weights``, or by
        default random ones of the job's seed. Where nobody asks for it, that key is refused."""
        source = self.config.job.initial_weights
        if source is None:
            return models.initial_state(spec, self.seed)
        self.weights_given = True
        return starting_weights(source, spec, partial(models.initial_state, spec, self.seed), self.notice)

    def _model(self) -> str:
        """The key ``model``; FedScale's own default is none of the models here."""
        if "model" not in self.config.given:
            raise UserError(
                f"key 'model' is not given, and method {self.config.job.method} trains one: name it in job_conf, as in "
                "`- model: resnet18`"
            )
        return self.args.model

    def _configured(self, model: str) -> ModelSpec:
        text = is_text(self.args.data_set)
        return models.configured_spec(model, self.task.input_shape, self.task.num_classes, text=text)

    def public_data(self) -> PublicData:
        """The samples that only the server holds; UserError where the configuration asks for none."""
        self.public_data_used = True
        return public_data(self.config, self.data_info["digest"])

    def dealing_order(self) -> np.ndarray:
        """By which sizes of groups are dealt to clients, lowest first with the smallest type: float64 [clients]."""
        if self.config.job.groups_by == "capacity":
            return self.capacity
        return main_classes(self.config, self.data_info["digest"]).astype(np.float64)

    def server_device(self) -> torch.device:
        """Where what the method trains on the server runs: the GPU, if ``use_cuda`` is on and this machine has one.
        A notice tells that it does."""
        device = server_device(self.args)
        if device.type != "cpu":
            self.notice("what the method trains on the server runs on the GPU")
        return device

    def scheduled_tests(self, *, last: bool = False) -> list[RoundRecord]:
        """The rounds so far whose test of all clients the settings ask for, as in a job that was never resumed; with
        ``last``, also the newest round if it was tested."""
        return scheduled(self.history, self.args.eval_interval, self.config.job.eval_macs, last=last)

    def has_passed(self, share: float, round: int) -> bool:
        """Return whether ``round`` is after a share of the job: of ``rounds``, or of ``stop_macs`` if that is earlier.

        No round is after a share of 1.
        """
        return round > part_of(share, self.args.rounds) or (share < 1 and self.spent_share() >= share)

    def spent_share(self, after: int = 0) -> float:
        """Return the share of ``stop_macs`` that clients have spent before this round; 0 without that key.

        Args:
            after: A round. The share is of what was left of the budget after it.

        """
        budget = self.config.job.stop_macs
        if budget is None:
            return 0.0
        before = sum(record.training_macs for record in self.history[:after])
        return min(1.0, (self.spent_macs - before) / (budget - before)) if before < budget else 1.0

    def charge(self, *, seconds: float, forward_macs: float, download_bytes: int, upload_bytes: int) -> None:
        """Count what else than training clients did in this round: sums over them, and the virtual ``seconds`` that it
        took."""
        self._other_work = OtherWork(seconds, forward_macs, download_bytes, upload_bytes)

    def keep_state(self) -> None:
        """Write a checkpoint in the midst of a round that changes no model before :meth:`assign` returns: a resumed
        job begins this round anew, with the method's state as it is now."""
        self.save_checkpoint(self.round - 1)

    def save_checkpoint(self, round: int, last: bool = False) -> None:
        """Write the job's state after ``round``; ``last``: it was tested as the job's last one."""
        raise NotImplementedError

    def record(self, name: str, value: Any) -> None:
        """Keep a figure of this round for internals.jsonl, where ``record_internals`` asks for it."""
        if self.config.job.record_internals:
            self._internals[name] = value

    def record_state(self, name: str, state: State) -> None:
        """Keep weights of this round the same way; files of the last ``checkpoint_keep`` rounds stay."""
        if self.config.job.record_internals:
            self._internal_states[name] = state

    def download_bytes(self, item: WorkItem) -> int:
        """Bytes that a client downloads for an item: the model, and what else counts."""
        model = self.pool[item.model].cost.bytes if item.bytes is None else item.bytes
        return model + self._tensor_bytes(item)

    def _tensor_bytes(self, item: WorkItem) -> int:
        return sum(tensors.traffic_bytes(item) for tensors in self.client_tensors_by_kind.values())

    def count_beyond(self, macs: np.ndarray | float) -> int:
        """Count the clients that train what their devices do not afford. The report tells such jobs apart.

        What a client trains is a network, however many passes a step takes through it, or two that each step trains.
        Of several counts the largest is the job's.

        Args:
            macs: MACs per sample of the largest network or pair that each client trains, float64 [clients], or of all
                of them.

        Returns:
            The number of these clients.

        """
        beyond = int((macs > self.capacity).sum())
        self.beyond_capacity = max(self.beyond_capacity, beyond)
        return beyond

    def report_weak(self, macs: float, instead: str) -> None:
        """Name the clients that afford less than ``macs`` per sample, the least that the method has for anybody."""
        weak = [self.task.name_of(client) for client in (np.flatnonzero(self.capacity < macs) + 1).tolist()]
        if not weak:
            return
        self.count_beyond(macs)
        logging.info(f"clients that afford less than {macs:,.0f} MACs: {weak}")
        self.notice(weak_notice(weak, len(self.capacity), macs, instead))

    def report_assignment(self, choices: Sequence[ModelChoice], indices: np.ndarray, verb: str = "gives") -> None:
        """Report how many clients have which model or level, and whether it takes them longer than ``deadline_s``;
        ``indices`` int64 [clients] into ``choices``."""
        self.notice(f"{self.config.job.method} {verb} {assignment_sentence(choices, indices)}")
        self.count_beyond(np.array([choice.cost.forward_macs for choice in choices], dtype=np.float64)[indices])
        if self.exchanges_models:  # else rounds tell: their times have what travels
            self.deadline.assigned([choice.cost for choice in choices], indices, self.population, self.task)

    def report_unaffordable(self, name: str, macs: float) -> None:
        """Report that no client affords the largest model, if that is so; ``macs`` per sample."""
        if (strongest := self.capacity.max()) < macs:
            self.notice(
                f"no client affords {name}, the largest: it takes {macs:,.0f} MACs per sample, and the strongest "
                f"client affords {strongest:,.0f}"
            )

    def notice(self, message: str) -> None:
        """Tell whoever watches the job, and the log."""
        logging.info(message)
        if len(self.notices) < _KEPT_NOTICES:
            self.notices[message] = None
        self.emit({"event": "notice", "message": message})
