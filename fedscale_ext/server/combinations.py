"""Keys of the clients' training that do not go together, each told in one sentence before a job begins."""

from typing import TYPE_CHECKING, Any

from fedscale_ext.config.job_config import JobConfig
from fedscale_ext.core.errors import UserError
from fedscale_ext.server.exclusions import Feature, exclusion

if TYPE_CHECKING:
    from fedscale_ext.server.hooks import MethodHooks


def check_local_training(config: JobConfig, method: "type[MethodHooks]") -> None:
    """UserError where the clients of ``method`` cannot train as the configuration asks."""
    job, given = config.job, config.given
    if job.local_epochs is not None and "local_steps" in given:
        raise UserError("local_epochs and local_steps are both given; remove one of them")
    if job.control_variates and job.client_optimizer != "sgd":
        raise UserError(
            "control_variates takes a client's change for a sum of its gradients, which it is under "
            "client_optimizer: sgd only; turn one of them off"
        )
    pyramid = config.fedscale.sample_mode == "pyramidfl"
    for key, asked in (
        ("control_variates", job.control_variates),
        ("max_update_norm", job.max_update_norm),
        ("sample_mode: pyramidfl", pyramid),
    ):
        if asked and (reason := exclusion(method, Feature.CHANGES)):
            raise UserError(
                f"{key} takes what a client hands in for what it was handed and a change of its training; method "
                f"{job.method} {reason}; remove {key}"
            )
    if job.stop_gain is not None and (reason := exclusion(method, Feature.EARLY_STOP)):
        raise UserError(
            f"stop_gain ends a job where its accuracy has converged, and method {job.method} {reason}; remove stop_gain"
        )
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


def check_prox(config: JobConfig, method: "type[MethodHooks]", params: Any) -> None:
    """UserError for ``prox_mu`` where the term's weight is a hyperparameter of ``method``, which goes before it."""
    own = method.own_prox
    if not config.job.prox_mu or not own:
        return
    # a method whose default is a weight has the term by its definition: there zero is a weight too, and not "unset"
    if getattr(params, own) or getattr(type(params), own):
        name = config.job.method
        raise UserError(
            f"prox_mu does nothing where clients of method {name} take the weight of FedProx's term from {name}.{own}: "
            "set that, or remove prox_mu"
        )


def check_groups(config: JobConfig) -> None:
    """UserError where ``groups_by`` orders clients for groups that the method does not have."""
    job = config.job
    if job.groups_by != "capacity" and not config.method_params().get("groups"):
        raise UserError(
            f"groups_by is {job.groups_by} and {job.method}.groups is not given, so that nothing is dealt in this "
            "order; give it, or remove groups_by"
        )


def _check_dropout(config: JobConfig, method: "type[MethodHooks]") -> None:
    """UserError where clients cannot leave out parts of their updates as PyramidFL has it."""
    low, high = config.job.pyramidfl_dropout_low, config.job.pyramidfl_dropout_high
    if low > high:
        raise UserError(
            f"pyramidfl_dropout_low {low:g} is above pyramidfl_dropout_high {high:g}, and the best client shall leave "
            "out least; exchange them"
        )
    if high and (reason := exclusion(method, Feature.DROPPED_TENSORS)):
        raise UserError(
            f"sample_mode: pyramidfl drops parts of clients' updates, and method {config.job.method} {reason}; set "
            "pyramidfl_dropout_low: 0 and pyramidfl_dropout_high: 0"
        )
