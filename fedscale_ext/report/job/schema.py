"""What header.json and summary.json must hold for a report: they may come from anywhere, or from another version."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

_Name = Annotated[str, Field(min_length=1, max_length=1000)]
_Count = Annotated[int, Field(ge=0, lt=2**63)]
_Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
_Figure = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class _Part(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore")


class _Config(_Part):
    rounds: Annotated[int, Field(ge=1)]
    data_set: _Name
    model: _Name


class _Data(_Part):
    name: _Name
    generated: bool
    digest: str
    public_samples: _Count = 0
    public_data_used: bool = False


class _FloorFigures(_Part):
    mean: _Figure | None
    iqr: _Figure | None
    sample_weighted: _Figure | None
    tested: _Count


class _Floor(_Part):
    majority: _FloorFigures
    most_frequent: _FloorFigures | None = None  # of a job that an earlier version ran


class Header(_Part):
    """header.json, and the head of summary.json."""

    job_name: _Name
    method: _Name
    params: dict[str, Any]
    seed: _Count
    data: _Data
    population: str
    num_clients: _Count
    versions: dict[str, str]
    config: _Config
    floor: _Floor | None = None
    named_files: dict[str, dict[str, str]] = {}  # without those of a job that an earlier version ran
    notices: list[str] = []
    beyond_capacity: _Count = 0  # an earlier release did not write it


class _Named(_Part):
    accuracy: _Figure


class _AtTheEnd(_Part):
    mean: _Figure | None
    iqr: _Figure | None
    worst: _Figure | None
    best: _Figure | None
    worst_client: _Count | None
    per_client: list[_Figure | None] = []
    tested: _Count


class _Accuracy(_AtTheEnd):
    sample_weighted: _Figure | None
    named: dict[str, _Named]


class _Cost(_Part):
    forward_macs: _Figure
    training_macs: _Figure
    network_total_mb: _Figure
    network_per_round_mb: _Figure
    storage_suite_mb: _Figure
    mean_model_mb: _Figure | None
    server_bytes: _Count = 0
    client_models: _Count = 0


class _Time(_Part):
    virtual_s: _Figure
    wall_s: _Figure
    round_completion_mean_s: _Figure | None
    round_completion_std_s: _Figure | None


class _Clients(_Part):
    total: _Count
    took_part: _Count
    participations: _Count
    failed: dict[str, _Count]
    failed_total: _Count
    stragglers: _Count
    late_download_mb: _Figure = 0.0  # an earlier release did not write these two
    lost_download_mb: _Figure = 0.0
    offline: _Count
    untested: _Count
    names: list[str] | None = None  # of a job that an earlier version ran


class _ModelCost(_Part):
    forward_macs: _Figure
    parameters: _Count
    bytes: _Count


class _Spec(_Part):
    family: str


class _Lineage(_Part):
    parent: str | None = None
    birth: _Count = 0
    steps: list[str] = []


class _Model(_Part):
    key: _Name
    spec: _Spec
    cost: _ModelCost
    serves: _Count
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
    clients: _Count
    pooled_error: _Share | None


class _Classes(_Part):
    samples: list[_Count]
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
    after_round: _Count
    code_changed: bool


_Pair = Annotated[list[float | None], Field(min_length=2, max_length=2)]
_Known = Annotated[list[Annotated[float, Field(allow_inf_nan=False)]], Field(min_length=2, max_length=2)]


class _Search(_Part):
    macs: _Figure
    score: Annotated[float, Field(allow_inf_nan=False)]
    front: list[_Known]
    scores: list[_Pair]


class SearchedTier(_Part):
    """Search of a tier in ``results.tiers`` of summary.json: MACs and score of paths."""

    tier: Annotated[int, Field(ge=1)]
    search: _Search | None


class TypeOfDevices(_Part):
    """A row of ``results.types`` of summary.json; that of all devices has no curve of [round, accuracy]."""

    type: _Name
    curve: list[_Pair] | None = None


class Summary(Header):
    """summary.json of a job that has ended."""

    rounds: _Count
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
    restarts: dict[str, _Count]
    resumed: list[_Resumed]
    results: dict[str, Any] | None = None
