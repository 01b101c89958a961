"""Options of a job that do not go together, with each other or with the method, checked before a job begins.

A method lists what it cannot have as data (``excludes``). Everything else is one sentence per case: an error where the
options contradict each other, a notice where one of them does nothing.
"""

from collections.abc import Iterator
from typing import Any

from fedscale_ext import models
from fedscale_ext.config.idle_settings import is_unread
from fedscale_ext.config.job_config import JobConfig
from fedscale_ext.core.errors import UserError
from fedscale_ext.core.model_spec import ModelSpec
from fedscale_ext.server.method_base.method_traits import Feature, MethodTraits, exclusion


def check_local_training(config: JobConfig, method: type[MethodTraits]) -> None:
    """UserError where the clients of ``method`` cannot train as the configuration asks."""
    job, given = config.job, config.given
    if job.local_epochs is not None and "local_steps" in given:
        raise UserError("local_epochs and local_steps are both given; remove one of them")
    if job.control_variates and job.client_optimizer != "sgd":
        raise UserError(
            "control_variates reads a client's update as a sum of its gradients, which holds for client_optimizer: sgd "
            "only; turn one of them off"
        )
    pyramid = config.fedscale.sample_mode == "pyramidfl"
    for key, is_set in (
        ("control_variates", job.control_variates),
        ("max_update_norm", job.max_update_norm),
        ("sample_mode: pyramidfl", pyramid),
    ):
        if is_set and (reason := exclusion(method, Feature.CHANGES)):
            raise UserError(
                f"{key} needs clients that return the model that they received, changed by their training alone; "
                f"method {job.method} {reason}; remove {key}"
            )
    if job.stop_gain is not None and (reason := exclusion(method, Feature.EARLY_STOP)):
        raise UserError(
            f"stop_gain ends a job where its accuracy has converged, and method {job.method} {reason}; remove stop_gain"
        )
    if job.stop_macs is not None and (reason := exclusion(method, Feature.EARLY_STOP)):
        raise UserError(f"stop_macs ends a job by its cost, and method {job.method} {reason}; remove stop_macs")
    for key in ("stop_patience", "stop_unit"):
        if key in given and job.stop_gain is None and not config.takes_away("stop_gain"):
            raise UserError(f"{key} needs stop_gain, the gain that is asked for; set that, or remove {key}")
    if pyramid:
        _check_dropout(config, method)
    for key in sorted(given):
        if key.startswith("pyramidfl_") and not pyramid:
            raise UserError(f"{key} needs sample_mode: pyramidfl; set that, or remove {key}")
    if "pacer_rule" in given and config.fedscale.sample_mode == "random":
        raise UserError("pacer_rule needs sample_mode: oort or pyramidfl; set one of them, or remove pacer_rule")
    if job.client_optimizer == "adam":
        if reason := exclusion(method, Feature.ADAM):
            raise UserError(f"client_optimizer: adam does not go with method {job.method}, which {reason}; set sgd")
        if "client_momentum" in given and job.client_momentum:
            raise UserError("client_momentum is of SGD and client_optimizer is adam: set adam_beta1, or remove one")
    else:
        for key in sorted(given):
            if key.startswith("adam_"):
                raise UserError(f"{key} needs client_optimizer: adam; set that, or remove {key}")


def check_prox(config: JobConfig, method: type[MethodTraits], params: Any) -> None:
    """UserError for ``prox_mu`` where the term's weight is a hyperparameter of ``method``, which goes before it."""
    param = method.prox_param
    if not config.job.prox_mu or not param:
        return
    # a method whose default is a weight has the term by its definition: there zero is a weight too, and not "unset"
    if getattr(params, param) or getattr(type(params), param):
        name = config.job.method
        raise UserError(
            f"prox_mu does nothing where clients of method {name} take the weight of FedProx's term from "
            f"{name}.{param}: set that, or remove prox_mu"
        )


def check_trained(model: str, spec: ModelSpec, config: JobConfig, method: type[MethodTraits]) -> None:
    """UserError where clients of ``method`` cannot train the ``spec`` of a ``model`` that the configuration names."""
    name = config.job.method
    if models.searched(spec) and not method.chooses_paths:
        raise UserError(
            f"the model {model} is a supernet, and {name} does not choose among its operators: name a path of it, such "
            "as cnn_l_smallest or a spec file with one operator per layer"
        )
    if (exits := models.outputs(spec)) > 1 and not method.trains_exits:
        raise UserError(
            f"the model {model} has {exits} exits, and clients of {name} train one: name one with one exit, such as "
            f"{model.replace('multi_', 'single_') if model.startswith('multi_') else 'single_exit_cnn10'}"
        )
    if dict(spec.fields).get("readout") == "all" and not method.chooses_paths:
        raise UserError(
            f"the model {model} learns what follows each symbol of a text, and {name} trains on what follows the last "
            "one: name one with readout last, such as rnn_largest"
        )


def check_groups(config: JobConfig, params: Any) -> None:
    """UserError where ``groups_by`` orders clients for groups that the method, or its ``params``, do not have."""
    job = config.job
    if job.groups_by == "capacity":
        return
    if not hasattr(params, "groups"):
        raise UserError(f"groups_by is {job.groups_by}, and {job.method} deals no groups to clients; remove groups_by")
    if not params.groups:
        raise UserError(
            f"groups_by is {job.groups_by} and {job.method}.groups is not given, so that nothing is dealt in this "
            "order; give it, or remove groups_by"
        )


def _check_dropout(config: JobConfig, method: type[MethodTraits]) -> None:
    """UserError where clients cannot leave out parts of their updates as PyramidFL has it."""
    low, high = config.job.pyramidfl_dropout_low, config.job.pyramidfl_dropout_high
    if low > high:
        raise UserError(
            f"pyramidfl_dropout_low {low:g} is above pyramidfl_dropout_high {high:g}, and the best client must leave "
            "out least; exchange them"
        )
    if high and (reason := exclusion(method, Feature.DROPPED_TENSORS)):
        raise UserError(
            f"sample_mode: pyramidfl drops parts of clients' updates, and method {config.job.method} {reason}; set "
            "pyramidfl_dropout_low: 0 and pyramidfl_dropout_high: 0"
        )


def setting_notices(config: JobConfig, reestimates_statistics: bool) -> Iterator[str]:
    """Sentences for the start of a job; ``reestimates_statistics``: BatchNorm's are re-estimated before tests."""
    args, job = config.fedscale, config.job
    if args.learning_rate < args.min_learning_rate and not is_unread(config.echo(), "min_learning_rate"):
        yield (
            f"clients train with learning rate {args.min_learning_rate:g}: learning_rate {args.learning_rate:g} is "
            "below min_learning_rate; lower that too"
        )
    if "bn_statistics_clients" in config.given and job.bn_statistics == "auto" and not reestimates_statistics:
        yield f"bn_statistics_clients does nothing: {job.method} is tested with the running statistics of training"
