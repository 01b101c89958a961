import pytest

from fedscale_ext.core.errors import UserError
from fedscale_ext.data.verify import verify


def test_everything_wrong_is_counted(make_folder):
    folder = make_folder([("a", n % 5) for n in range(9)] + [("b", 1)], [("a", 1), ("z", 2)])
    path = folder / "client_data_mapping" / "train.csv"
    extra = ["a,img/no.png,n,1", "a,img/no2.png,n,1", "a,img/1.png,n,99", "a,../x.png,n,1", "a,img/1.png"]
    path.write_text(path.read_text() + "\n".join(extra) + "\n")
    (folder / "img" / "4.png").write_bytes(b"\x89PNG\r\n")
    found = verify(folder, "femnist")
    assert (found.missing_files, found.labels_out_of_range, found.bad_rows, found.broken_files) == (2, 1, 2, 1)
    assert not found.ok and len(found.problems) == 6
    assert (found.clients, found.train_samples, found.test_samples, found.test_only_clients) == (2, 10, 2, 1)
    assert found.train_quantiles[0] == 1 and found.train_quantiles[-1] == 9
    assert found.test_quantiles == (0, 0, 0, 0, 1, 1, 1)
    assert not found.generated


def test_a_good_folder_is_ok(make_folder):
    found = verify(make_folder([("a", 0), ("b", 61)]), "femnist")
    assert found.ok and found.test_samples is None and (found.classes, found.classes_present) == (62, 2)


def test_no_folder_is_an_error(tmp_path):
    with pytest.raises(UserError, match="fedscale dataset"):
        verify(tmp_path / "none", "femnist")
