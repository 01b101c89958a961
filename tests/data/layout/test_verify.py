import json

import pytest

from fedscale_ext.core.errors import UserError
from fedscale_ext.data.layout.verify import verify
from fedscale_ext.data.store import open_data_set


def test_everything_wrong_is_counted(make_folder):
    folder = make_folder([("a", n % 5) for n in range(9)] + [("b", 1)], [("a", 1), ("z", 2)])
    path = folder / "client_data_mapping" / "train.csv"
    extra = ["a,img/no.png,n,1", "a,img/no2.png,n,1", "a,img/1.png,n,99", "a,../x.png,n,1", "a,img/1.png"]
    path.write_text(path.read_text() + "\n".join(extra) + "\n")
    (folder / "img" / "4.png").write_bytes(b"\x89PNG\r\n")
    report = verify(folder, "femnist")
    assert (report.missing_files, report.labels_out_of_range, report.bad_rows, report.broken_files) == (2, 1, 2, 1)
    assert not report.ok and len(report.problems) == 6
    assert (report.clients, report.train_samples, report.test_samples, report.test_only_clients) == (2, 10, 2, 1)
    assert report.train_quantiles[0] == 1 and report.train_quantiles[-1] == 9
    assert not report.generated


def test_classes_that_only_tests_have_are_told_and_bad_tests_are_not_held_out(make_folder):
    folder = make_folder([("a", 0), ("b", 1)], [("a", 1), ("b", 2)])
    assert "class 2 has only test samples: nobody trains on it" in verify(folder, "femnist").notes
    assert "class 2 has only test samples: nobody trains on it" in open_data_set(folder, "femnist").notes
    (folder / "dataset.json").write_text(json.dumps({"data_set": "femnist", "notes": ["class 2 is strange"]}))
    imported = verify(folder, "femnist").notes  # and edited since
    assert imported == ("class 2 is strange", "class 2 has only test samples: nobody trains on it")
    (folder / "client_data_mapping" / "test.csv").write_text("client_id,sample_path,label_name,label_id\na,no.png,,0\n")
    report = verify(folder, "femnist")
    assert not report.ok and any("test.csv has no usable rows: delete it" in problem for problem in report.problems)
    assert not any("jobs hold out" in note for note in report.notes)


def test_a_good_folder_is_ok(make_folder):
    report = verify(make_folder([("a", 0), ("b", 61)]), "femnist")
    assert report.ok and report.test_samples is None and (report.classes, report.classes_present) == (62, 2)


def test_no_folder_is_an_error(tmp_path):
    with pytest.raises(UserError, match="fedscale dataset"):
        verify(tmp_path / "none", "femnist")
