"""The figures that papers print for a method on a data set."""

import pytest

from fedscale_ext.report.compare.published import paper_row


@pytest.mark.parametrize(
    ("method", "data_set", "params", "where", "accuracy"),
    [
        ("hypemefed", "unimib_shar", {"k": 100}, "HypeMeFed, Table 1, k = 100", 0.3886),
        ("hypemefed", "unimib_shar", {"k": 7}, "HypeMeFed, Table 1, k = 7", None),
        ("fluid", "speech", {}, "FedTrans, Table 2, Speech Commands", 0.765),
        ("fedavg", "speech", {}, "", None),
        ("fluid", "stl10", {}, "", None),
    ],
)
def test_papers_rows(method, data_set, params, where, accuracy):
    header = {"method": method, "params": params, "config": {"data_set": data_set}, "data": {"generated": False}}
    source, figures = paper_row(header)
    assert source == where and figures.get("global" if method == "hypemefed" else "accuracy") == (
        None if accuracy is None else pytest.approx(accuracy)
    )
