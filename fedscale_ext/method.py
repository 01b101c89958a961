"""What every author of a method imports, in one module; bases of families are in :mod:`fedscale_ext.methods`.

A method is a subclass of :class:`MultiModelAggregator`. Its hooks say what each client trains, how updates become new
models, and which model each client is served. Its hyperparameters are a frozen dataclass, ``Params``, whose fields may
have ranges (:class:`Range`, :data:`Positive`, ...). A method whose clients do more than local training adds a subclass
of :class:`MultiModelClient`, and names it as its ``Client``.
"""

from fedscale_ext import compat

compat.prepare()  # before the first import of FedScale

from fedscale_ext import models  # noqa: E402
from fedscale_ext.config.job_config import JobConfig  # noqa: E402
from fedscale_ext.core.client_config import ClientConfig  # noqa: E402
from fedscale_ext.core.errors import UserError  # noqa: E402
from fedscale_ext.core.local_steps import hold_out  # noqa: E402
from fedscale_ext.core.model_spec import Cost, ModelSpec  # noqa: E402
from fedscale_ext.core.streams import stream, torch_stream  # noqa: E402
from fedscale_ext.core.types import (  # noqa: E402
    GLOBAL,
    Coverage,
    EvaluationPlan,
    IndexMap,
    State,
    Task,
    Update,
    WorkItem,
    personal_version,
)
from fedscale_ext.executor.executor import MultiModelExecutor  # noqa: E402
from fedscale_ext.population.population import Population  # noqa: E402
from fedscale_ext.server.aggregator import MultiModelAggregator  # noqa: E402
from fedscale_ext.server.announcements import ModelChoice  # noqa: E402
from fedscale_ext.server.method_base.method_traits import About, Excludes, Feature  # noqa: E402
from fedscale_ext.submodels import CountMean, count_mean, extract, insert, narrowed, window  # noqa: E402
from fedscale_ext.tasks.client_tensors import (  # noqa: E402
    ClientState,
    ClientTensors,
    ReceivedTensors,
    ReturnedTensors,
    SharedTensors,
)
from fedscale_ext.training.local_training import Bench, MultiModelClient  # noqa: E402
from fedscale_ext.training.optimizers.choice import optimizer_of  # noqa: E402
from fedscale_ext.training.outcome import result  # noqa: E402
from fedscale_ext.training.resident import Cohort  # noqa: E402
from fedscale_ext.training.samples import ClientSamples  # noqa: E402
from fedscale_ext.util.ranges import (  # noqa: E402
    Count,
    CountOrZero,
    Decay,
    Fraction,
    FractionBelowOne,
    NotNegative,
    OpenFraction,
    Positive,
    PositiveFraction,
    Range,
)

__all__ = [
    "GLOBAL",
    "About",
    "Bench",
    "ClientConfig",
    "ClientSamples",
    "ClientState",
    "ClientTensors",
    "Cohort",
    "Cost",
    "Count",
    "CountMean",
    "CountOrZero",
    "Coverage",
    "Decay",
    "EvaluationPlan",
    "Excludes",
    "Feature",
    "Fraction",
    "FractionBelowOne",
    "IndexMap",
    "JobConfig",
    "ModelChoice",
    "ModelSpec",
    "MultiModelAggregator",
    "MultiModelClient",
    "MultiModelExecutor",
    "NotNegative",
    "OpenFraction",
    "Population",
    "Positive",
    "PositiveFraction",
    "Range",
    "ReceivedTensors",
    "ReturnedTensors",
    "SharedTensors",
    "State",
    "Task",
    "Update",
    "UserError",
    "WorkItem",
    "count_mean",
    "extract",
    "hold_out",
    "insert",
    "models",
    "narrowed",
    "optimizer_of",
    "personal_version",
    "result",
    "stream",
    "torch_stream",
    "window",
]
