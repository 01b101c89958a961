"""Results that an executor of ours would not send."""

from typing import Any

import numpy as np
import pytest
import torch
from fedscale.cloud import commons

from fedscale_ext.tasks import calibrate
from fedscale_ext.tasks.kinds import check_answer, kinds_by_event
from fedscale_ext.transport import wire
from fedscale_ext.transport.units import Unit
from fedscale_ext.transport.wire import WireError

SIZES = np.array([3, 2, 5])
TRAIN = Unit(1, commons.CLIENT_TRAIN, {"items": [{"client": 1}, {"client": 3}], "sum": True, "states": False}, ("m",))
TEST = Unit(2, commons.MODEL_TEST, {"clients": [2, 3]}, ("m",))
MEASURE = Unit(3, calibrate.EVENT, {"sizes": [1, 4]}, ("m",))


def figures(**changes: Any) -> dict[str, bytes]:
    columns = {"correct": [1.0, 2.0], "top5": [2.0, 5.0], "loss": [float("nan"), 1.0], **changes}
    tensors = {
        name: value if isinstance(value, torch.Tensor) else torch.tensor(value, dtype=torch.float64)
        for name, value in columns.items()
        if value is not None
    }
    return {"figures": wire.tensors_to_bytes(tensors)}


def trained(**changes: Any) -> list[dict[str, Any]]:
    good = {"client": 1, "samples": 3, "loss": 0.5}
    return [{**good, **changes}, {"client": 3, "failed": "it did"}]


GOOD = [
    (TRAIN, {"results": trained(), "weight": 3.0, "seconds": {"training": 1.0, "wire": 0}}, {"sum": b""}),
    (TRAIN, {"results": trained(loss=float("inf"))}, {}),  # the client's own check says so
    (TEST, {}, figures()),
    (MEASURE, {"seconds_by_size": [[1, 0.5], [4, 0.1]]}, {}),
    (MEASURE, {"seconds_by_size": [[1, 0.5]]}, {}),
]
BAD: list[tuple[Unit, dict[str, Any], dict[str, bytes]]] = [
    (TRAIN, {}, {}),
    (TRAIN, {"results": 3}, {}),
    (TRAIN, {"results": trained()[:1]}, {}),
    (TRAIN, {"results": [1, 2]}, {}),
    *((TRAIN, {"results": trained(client=client)}, {}) for client in ([1], {}, None, "1", True, 1.0)),
    *((TRAIN, {"results": trained(loss=loss)}, {}) for loss in ([], None, True, 10**400, "\ud800", "x" * 3000)),
    *((TRAIN, {"results": trained(), "weight": weight}, {}) for weight in ("3", [], float("inf"), True)),
    (TRAIN, {"results": trained()}, {"0": b""}),
    (TRAIN, {"results": trained()}, {"sum": b"", "more": b""}),
    *(
        (TRAIN, {"results": trained(), "seconds": seconds}, {})
        for seconds in (
            3, [], {"a": "b"}, {"a": -1.0}, {"a": float("inf")}, {"a": None}, {"x" * 101: 1.0}, {"\ud800": 1},
        )
    ),
    (TRAIN, {"results": trained(), "seconds": {str(kind): 1.0 for kind in range(101)}}, {}),
    (TEST, {}, {}),
    (TEST, {}, {"figures": b"none"}),
    (TEST, {}, {**figures(), "more": b""}),
    (TEST, {}, figures(loss=None)),
    (TEST, {}, figures(correct=[1.0])),
    (TEST, {}, figures(correct=[3.0, 1.0])),
    (TEST, {}, figures(top5=[2.0, 6.0])),
    (TEST, {}, figures(correct=[float("nan"), 1.0])),
    (TEST, {}, figures(correct=[-1.0, 1.0])),
    (TEST, {}, figures(loss=torch.zeros(2, dtype=torch.bfloat16))),
    (TEST, {}, figures(correct=[[1.0, 2.0]])),
    (TEST, {}, figures(correct=[1.0], top5=[1.0], loss=[1.0])),
    *(
        (MEASURE, {"seconds_by_size": seconds}, {})
        for seconds in (
            None, [], {}, [1], [[1]], [[1, "a"]], [[2, 1.0]], [[1, 0.0]], [[1, float("inf")]], [[1, 1.0], [1, 2.0]],
            [[True, 1.0]], [[[1], 1.0]], [[1, 1.0, 1.0]], [[1, 1.0]] * 3,
        )
    ),
]  # fmt: skip


@pytest.mark.parametrize(("unit", "header", "sections"), GOOD)
def test_what_executors_send_is_taken(unit: Unit, header: dict[str, Any], sections: dict[str, bytes]) -> None:
    check_answer(kinds_by_event(), unit, header, sections, SIZES)


@pytest.mark.parametrize(("unit", "header", "sections"), BAD)
def test_what_would_make_a_reader_stumble_is_refused(
    unit: Unit, header: dict[str, Any], sections: dict[str, bytes]
) -> None:
    with pytest.raises(WireError) as raised:
        check_answer(kinds_by_event(), unit, header, sections, SIZES)
    assert len(str(raised.value)) < 300
