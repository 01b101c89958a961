"""What summary.json must hold for a report beside its header: it may come from anywhere, or from another version."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from fedscale_ext.metrics.job_folder.header import Count, Figure, Name

_Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]


class _Part(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore")


class _Named(_Part):
    accuracy: Figure


class _AtTheEnd(_Part):
    mean: Figure | None
    iqr: Figure | None
    worst: Figure | None
    best: Figure | None
    worst_client: Count | None
    per_client: list[Figure | None] = []
    tested: Count


class _Accuracy(_AtTheEnd):
    sample_weighted: Figure | None
    named: dict[str, _Named]


class _Cost(_Part):
    forward_macs: Figure
    training_macs: Figure
    network_total_mb: Figure
    network_per_round_mb: Figure
    storage_suite_mb: Figure
    mean_model_mb: Figure | None
    server_bytes: Count = 0
    client_models: Count = 0


class _Time(_Part):
    virtual_s: Figure
    wall_s: Figure
    round_completion_mean_s: Figure | None
    round_completion_std_s: Figure | None


class _Clients(_Part):
    total: Count
    took_part: Count
    participations: Count
    failed: dict[str, Count]
    failed_total: Count
    stragglers: Count
    late_download_mb: Figure = 0.0  # an earlier release did not write these two
    lost_download_mb: Figure = 0.0
    offline: Count
    untested: Count
    names: list[str] | None = None  # of a job that an earlier version ran


class _ModelCost(_Part):
    forward_macs: Figure
    parameters: Count
    bytes: Count


class _Spec(_Part):
    family: str


class _Lineage(_Part):
    parent: str | None = None
    birth: Count = 0
    steps: list[str] = []


class _Model(_Part):
    key: Name
    spec: _Spec
    cost: _ModelCost
    serves: Count
    lineage: _Lineage | str | None


class _Loss(_Part):
    train: float | Literal["inf", "-inf"] | None  # of a model that diverged
    test: float | Literal["inf", "-inf"] | None


class _Privacy(_Part):
    epsilon: float
    delta: float
    noise: str
    assumes: str
    unprotected: str


class _ClassFigure(_Part):
    mean: _Share | None
    pooled: _Share | None


class _AucFigure(_ClassFigure):
    clients: Count
    pooled_error: _Share | None


class _Classes(_Part):
    samples: list[Count]
    accuracy: list[_Share | None]

    @model_validator(mode="after")
    def _alike(self) -> "_Classes":
        if len(self.samples) != len(self.accuracy) or not any(value is not None for value in self.accuracy):
            raise ValueError("samples and accuracy must be of the same classes, one of them tested")
        return self


class _ByClass(_Part):
    absent: str | None = None
    balanced_accuracy: _ClassFigure | None = None
    macro_f1: _ClassFigure | None = None
    auc: _AucFigure | None = None  # only of jobs with the key
    classes: _Classes | None = None

    @model_validator(mode="after")
    def _whole(self) -> "_ByClass":
        figures = (self.balanced_accuracy, self.macro_f1, self.classes)
        if None in figures and (self.absent is None or self.classes is not None):
            raise ValueError("it must have all figures of classes, or say why they are absent")
        return self


class _Resumed(_Part):
    after_round: Count
    code_changed: bool


_Pair = Annotated[list[float | None], Field(min_length=2, max_length=2)]
_Known = Annotated[list[Annotated[float, Field(allow_inf_nan=False)]], Field(min_length=2, max_length=2)]


class _Search(_Part):
    macs: Figure
    score: Annotated[float, Field(allow_inf_nan=False)]
    front: list[_Known]
    scores: list[_Pair]


class SearchedTier(_Part):
    """Search of a tier in ``results.tiers`` of summary.json: MACs and score of paths."""

    tier: Annotated[int, Field(ge=1)]
    search: _Search | None


class TypeOfDevices(_Part):
    """A row of ``results.types`` of summary.json; that of all devices has no curve of [round, accuracy]."""

    type: Name
    curve: list[_Pair] | None = None


class Summary(_Part):
    """summary.json of a job that has ended, without the fields of its header."""

    rounds: Count
    stopped: str | None
    privacy: _Privacy | None = None
    accuracy: _Accuracy | None
    by_class: _ByClass | None = None  # an earlier release did not write it
    personalised: _AtTheEnd | None = None
    before_training: _AtTheEnd | None = None
    after_training: _AtTheEnd | None = None
    on_all: _AtTheEnd | None = None
    loss: _Loss
    cost: _Cost
    time: _Time
    clients: _Clients
    models: list[_Model]
    restarts: dict[str, Count]
    resumed: list[_Resumed]
    results: dict[str, Any] | None = None
