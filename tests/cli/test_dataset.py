"""The dataset commands on small data."""

import shutil

import numpy as np
import pytest
from PIL import Image

from fedscale_ext.data.decoding.cache import FOLDER
from fedscale_ext.data.wording import quantile_text


@pytest.fixture
def npz(tmp_path):
    path = tmp_path / "small.npz"
    rng = np.random.default_rng(1)
    labels = np.arange(40) % 10
    np.savez(path, x=rng.integers(0, 256, (40, 28, 28), np.uint8), y=labels, client=np.arange(40) // 10)
    return path


def decoded(folder):
    return len(list((folder / FOLDER).glob("*/meta.json"))) == 1


def test_import_list_and_verify(call, npz, tmp_path):
    out = tmp_path / "data" / "small"
    code, stdout, err = call("dataset", "import", npz, "--data-set", "mnist", "--name", "mine", "-o", out)
    assert code == 0, err
    assert stdout.splitlines()[0].startswith("real: mine, written in")
    assert stdout.splitlines()[1] == "4 clients, 32 training and 8 test samples"
    assert stdout.splitlines()[2] == "10 classes, samples of 1x28x28"
    assert stdout.splitlines()[3] == f"use it with: --set data_dir={out} --set data_set=mnist"
    assert decoded(out)
    code, stdout, _ = call("dataset", "list", tmp_path / "data")
    assert code == 0
    assert "femnist          62       1x28x28  natural" in stdout
    assert stdout.splitlines()[-1].split() == [str(out), "mine", "real", "4"]
    shutil.rmtree(out / FOLDER)
    code, stdout, _ = call("dataset", "verify", out)
    assert code == 0
    assert "real: mine" in stdout
    assert decoded(out)
    picture = next(out.rglob("*.png"))
    picture.write_bytes(picture.read_bytes()[:40])
    code, stdout, err = call("dataset", "verify", out)
    assert code == 1
    assert "broken files                               1" in stdout
    assert picture.name in err


def test_show_prints_classes_and_clients_and_draws_them(call, npz, tmp_path):
    call("dataset", "import", npz, "--data-set", "mnist", "--name", "mine", "-o", tmp_path / "out")
    code, stdout, _ = call("dataset", "show", tmp_path / "out", "-o", tmp_path / "a" / "b.png")
    assert code == 0 and "real: mine, samples of 1x28x28" in stdout and "of 4 clients" in stdout
    assert (tmp_path / "a" / "b.png").read_bytes().startswith(b"\x89PNG")
    (tmp_path / "bare" / "client_data_mapping").mkdir(parents=True)
    code, _, err = call("dataset", "show", tmp_path / "bare")
    assert code == 2 and "does not say what kind of data it holds; give --data-set" in err
    code, _, err = call("dataset", "show", tmp_path / "out", "-o", npz / "x.png")
    assert code == 2 and "cannot be written" in err


def test_what_an_import_changes_and_leaves_out_is_printed_each_time(call, tmp_path):
    for client in ("ann", "bob"):
        for label in ("1", "2"):
            (tmp_path / "tree" / client / label).mkdir(parents=True)
            for number in range(2):
                pixels = np.random.default_rng(len(client) + number).integers(0, 256, (8 + 1200 * number, 8), np.uint8)
                Image.fromarray(pixels).save(tmp_path / "tree" / client / label / f"{number}.png")
    (tmp_path / "tree" / "readme.txt").write_text("")
    arguments = ["import", tmp_path / "tree", "--data-set", "own", "-o", tmp_path / "out", "--shape", "3x8x9"]
    for _ in range(2):
        code, stdout, err = call("dataset", *arguments)
        assert code == 0, err
        lines = stdout.splitlines()
        assert lines[2] == "2 classes (1, 2), samples of 3x8x9"
        assert lines[3:6] == [
            "note: labels 1, 2 became classes 0 and 1",
            "note: left out: 1 file with another ending (1 of .txt)",
            "note: 8 of 8 pictures were resized to 3x8x9, as --shape asks (4 of 8x8, 4 of 1208x8)",
        ]
        assert lines[-1].startswith("use it with: ")
    code, stdout, err = call("dataset", "verify", tmp_path / "out")
    assert code == 0 and lines[3] in stdout and lines[5] in stdout


def test_a_kind_of_two_words_is_shown_as_one_word_of_a_command(call, npz, tmp_path):
    out = call("dataset", "import", npz, "--data-set", "my own", "-o", tmp_path / "a")[1]
    assert out.endswith(" --set data_set='my own'\n")


def test_a_kind_that_nobody_knows_is_noted(call, npz, tmp_path):
    code, stdout, err = call("dataset", "import", npz, "--data-set", "femnits", "-o", tmp_path / "a")
    assert code == 0 and "4 clients" in stdout
    assert err.startswith("note: 'femnits' is not in `fedscale dataset list`")
    assert err.endswith("; did you mean 'femnist'?\n")
    assert "note" not in call("dataset", "import", npz, "--data-set", "FEMNIST", "-o", tmp_path / "b")[2]


def test_an_npz_file_is_called_as_it_is_and_not_as_the_kind_that_it_stands_for(call, npz, tmp_path):
    _, stdout, _ = call("dataset", "import", npz, "--data-set", "femnist", "-o", tmp_path / "a")
    assert stdout.startswith("real: small, ")


def test_import_with_a_partition(call, npz, tmp_path):
    out = tmp_path / "iid"
    arguments = ["--data-set", "mnist", "--partition", "iid", "--clients", 5, "-o", out]
    code, stdout, err = call("dataset", "import", npz, *arguments)
    assert code == 0, err
    assert "5 clients" in stdout
    assert "already there, unchanged" in call("dataset", "import", npz, *arguments)[1]


def test_the_format_of_a_folder_of_several_data_sets_is_that_of_the_one_asked_for(call, tmp_path):
    from tests.data.test_more_sources import cifar10
    from tests.data.test_published import idx

    idx(cifar10(tmp_path / "torch") / "MNIST" / "raw")
    command = ("dataset", "import", tmp_path / "torch", "--partition", "iid", "--clients", 2, "--data-set")
    for name, samples in (("mnist", 30), ("cifar10", 50)):
        code, stdout, err = call(*command, name, "-o", tmp_path / name)
        assert code == 0, err
        assert f"{samples} training" in stdout
    code, _, err = call(*command, "svhn", "-o", tmp_path / "none")
    assert code == 2 and "holds 'cifar10' and not svhn" in err


def test_published_folders_are_known_by_their_files(call, tmp_path):
    from tests.data.test_published import idx, stl10, svhn, unimib

    sources = {"svhn": svhn, "stl10": stl10, "unimib_shar": unimib, "fashionmnist": idx}
    for data_set, make in sources.items():
        source = make(tmp_path / f"in_{data_set}")
        arguments = ["--data-set", data_set, "-o", tmp_path / data_set, "--test", "local", "--test-fraction", 0.25]
        spread = ["--partition", "dirichlet", "--clients", 2, "--min-samples", 4]
        code, stdout, err = call("dataset", "import", source, *arguments, *spread)
        assert code == 0, err
        assert "2 clients" in stdout
        assert decoded(tmp_path / data_set)
    code, _, err = call("dataset", "import", tmp_path / "in_svhn" / "train_32x32.mat", "--data-set", "svhn")
    assert code == 2
    assert "is one of several files: name the folder that they lie in" in err


def test_json_files_make_leaf_of_a_folder_only_where_leaf_has_them(call, tmp_path):
    for name in ("cat/0.png", "cat/1.png", "dog/0.png", "dog/1.png"):
        (tmp_path / "tree" / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((8, 8), len(name), np.uint8)).save(tmp_path / "tree" / name)
    (tmp_path / "tree" / "cat" / "boxes.json").write_text("{}")
    words = ["dataset", "import", tmp_path / "tree", "--data-set", "pets", "--partition", "iid", "--clients", 2]
    code, stdout, err = call(*words, "-o", tmp_path / "a")
    assert code == 0 and "2 classes (cat, dog)" in stdout, err
    (tmp_path / "tree" / "boxes.json").write_text("{}")
    code, _, err = call(*words, "-o", tmp_path / "b")
    assert code == 2 and "boxes.json is not LEAF JSON" in err
    assert err.endswith("; `fedscale dataset import --format` names another format\n") and err.count("\n") == 1
    assert call(*words, "-o", tmp_path / "b", "--format", "folder")[0] == 0


def test_synthesize_is_named_generated(call, tmp_path):
    out = tmp_path / "gen"
    arguments = ["--writers", 2, "--samples-per-class", 1, "-o", out]
    code, stdout, err = call("dataset", "synthesize", "femnist", *arguments)
    assert code == 0, err
    assert stdout.startswith("generated: ")
    assert "2 clients" in stdout
    assert decoded(out)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["import", "nothing.npz", "--data-set", "mnist"], "nothing.npz does not exist"),
        (["import", "pyproject.toml", "--data-set", "mnist"], "say what it is with --format"),
        (["import", "device_traces/sample_capacity.csv", "--data-set", "a"], "write its columns as arrays x, y and"),
        (["import", "x.npz", "--data-set", "mnist", "--partition", "iid"], "--partition and --clients belong together"),
        (["import", "x.npz", "--data-set", "a", "--partition", "iid", "--clients", 0], "needs at least 1 client"),
        (["import", "x.npz", "--data-set", "mnist", "--min-samples", 5], "--min-samples is for --partition dirichlet"),
        (["import", "x", "--data-set", "a", "--format", "svhn", "--x", "pixels"], "name arrays of an npz file"),
        (["import", "x", "--data-set", "a", "--format", "leaf", "--client-map", "m"], "is for the wav files of Speech"),
        (["import", "x", "--data-set", "a", "--format", "folder", "--x", "pixels"], "name arrays of an npz file"),
        (["import", "x", "--data-set", "a", "--format", "folder", "--shape", "8"], "--shape '8' is no shape: give"),
        (["import", "x", "--data-set", "a", "--format", "folder", "--shape", "1025x8"], "1025x8 is not possible: give"),
        (["import", "x", "--data-set", "a", "--format", "folder", "--shape", "2x8x8"], "2x8x8 is not possible: give"),
        (["import", "x.npz", "--data-set", "a", "--name", "x/../../y"], "'x/../../y' cannot name a folder in data"),
        (["import", "x.npz", "--data-set", "../esc"], "'../esc' cannot name a folder in data: leave out the slashes"),
        (["import", "x.npz", "--data-set", ".."], "'..' cannot name a folder in data"),
        (["download", "femnist", "--name", "/y"], "'/y' cannot name a folder in data"),
        (["synthesize", "mnist"], "'mnist' cannot be generated; femnist and digits can"),
        (["verify", "no/such/folder"], "no/such/folder does not exist"),
    ],
)  # fmt: skip
def test_bad_input_is_one_sentence(call, arguments, words):
    code, _, err = call("dataset", *arguments)
    assert code == 2
    assert words in err
    assert err.startswith("fedscale: ")
    assert err.count("\n") == 1


def test_a_shift_is_imported_and_shown(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.savez("x.npz", x=np.zeros((40, 28, 28), np.uint8), y=np.arange(40) % 10)
    words = "dataset import x.npz --data-set mnist --partition iid --clients 4 -o made".split()
    assert call(*words, "--shift", "rotation", "--angles", "0,45")[0] == 0
    code, out, _ = call("dataset", "show", "made")
    assert code == 0 and "feature shift: clients see pictures turned by 0, 45 degrees" in " ".join(out.split())
    for more, sentence in (
        (["--angles", "0,45"], "--angles is for --shift rotation"),
        (["--noise-level", "0.1"], "--noise-level is for --shift noise"),
        (["--shift", "rotation", "--angles", "left"], "write numbers of degrees"),
    ):
        code, _, err = call(*words, *more)
        assert code == 2 and sentence in " ".join(err.split())


def test_show_writes_quantiles_between_clients(call, tmp_path):
    """Two clients with 4 and 8 samples: the median is 6, which no client has."""
    path, client = tmp_path / "a.npz", np.repeat([0, 1], [5, 10])
    np.savez(path, x=np.random.default_rng(0).random((15, 1, 4, 4)), y=np.arange(15) % 2, client=client)
    call("dataset", "import", path, "--data-set", "few", "-o", tmp_path / "few")
    code, out, _ = call("dataset", "show", tmp_path / "few", "-o", tmp_path / "few.png")
    (row,) = [line.split()[2:] for line in out.splitlines() if line.startswith("training samples")]
    assert code == 0 and row == ["4", "5", "6", "7", "8"]
    assert [quantile_text(value) for value in (1025.0, 25.5, 18.25)] == ["1,025", "25.5", "18.25"]
