"""Whether a method's hooks name clients and models that there are: a slip of its author is told in a sentence."""

from collections.abc import Sequence

from fedscale_ext.core.errors import UserError, meant_or_known
from fedscale_ext.core.types import EvaluationPlan, WorkItem, is_personal, members
from fedscale_ext.submodels.model_pool import ModelPool


def check_items(items: Sequence[WorkItem], method: str, pool: ModelPool, clients: int) -> None:
    """UserError where ``assign`` names a model that is not in the pool, or none of the clients 1..N (0 would pass for
    the last one)."""
    hook = f"assign of method {method}"
    for item in items:
        if not 1 <= item.client <= clients:
            raise UserError(f"{hook} names client {item.client}, and clients are 1 to {clients}")
        if item.model not in pool:
            raise UserError(f"{hook} names model {item.model!r} for client {item.client}{_lacks(pool, item.model)}")


def check_plan(plan: EvaluationPlan, method: str, pool: ModelPool, clients: int, personal_models: bool) -> None:
    """UserError where ``evaluation_plan`` serves other than all clients, or names a model that is not in the pool; or
    clients' own versions, where none are kept (``personal_models`` false)."""
    serve, named = (f"evaluation_plan().{field} of method {method}" for field in ("serve", "named"))
    if len(plan.serve) != clients:
        raise UserError(f"{serve} has {len(plan.serve)} entries, and there are {clients} clients")
    first: dict[str, int] = {}  # client by key: there are fewer keys than clients, as a rule
    for client, key in enumerate(plan.serve, 1):
        first.setdefault(key, client)
    uses = [(serve, key, f"client {client}") for key, client in first.items()]
    uses += [(named, key, repr(title)) for title, key in plan.named.items()]
    for hook, key, whom in uses:
        for member in members(key):
            if member not in pool:
                raise UserError(f"{hook} names model {member!r} for {whom}{_lacks(pool, member)}")
        if is_personal(key) and not personal_models:
            raise UserError(
                f"{hook} names {key!r} for {whom}, and client_tensors keeps no ClientState, which personal versions "
                "are made of"
            )


def _lacks(pool: ModelPool, key: str) -> str:
    known = [model.key for model in pool]
    hint = meant_or_known(key, known) if known else "; it is empty: init_state puts the first models there"
    return f", which the pool lacks{hint}"
