"""Speech Commands: its trees, their features and FedScale's partition of it."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from fedscale_ext.core.errors import UserError
from fedscale_ext.data.decoding.audio import CLIP, log_mel, square_mfcc, write_wav
from fedscale_ext.data.importing.importers import import_layout, import_npz, import_speech
from fedscale_ext.data.importing.options import ImportOptions, NpzOptions, SpeechOptions
from fedscale_ext.data.importing.partition import Partition
from fedscale_ext.data.layout.verify import verify
from fedscale_ext.data.registry import SPEECH_WORDS, known
from fedscale_ext.data.store import open_data_set
from tests.data.decoding.test_audio import tone

pytest.importorskip("librosa", reason="features are computed with librosa")

SPEAKERS = ("0a7c2a8d", "1b4c9b89", "742d6431")


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """As Google's archive unpacks: three speakers, three of the ten words and two others, two clips of each."""
    root = tmp_path / "speech_commands_v0.02"
    for number, word in enumerate(("yes", "no", "up", "bed", "wow")):
        (root / word).mkdir(parents=True)
        for who, speaker in enumerate(SPEAKERS):
            for take in range(2):
                write_wav(root / word / f"{speaker}_nohash_{take}.wav", tone(200 + 150 * number + 20 * who + take))
    (root / "_background_noise_").mkdir()
    write_wav(root / "_background_noise_" / "hum.wav", tone(60, 5 * CLIP))
    (root / "testing_list.txt").write_text("yes/0a7c2a8d_nohash_0.wav\n")
    return root


# ---- the archive ----


def test_speakers_are_clients_and_labels_fedscales(archive: Path, tmp_path: Path) -> None:
    written = import_speech(archive, tmp_path / "out", "speech")
    assert (written.clients, written.train_samples, written.test_samples) == (3, 24, 6)
    data = open_data_set(tmp_path / "out", "speech")
    assert data.client_names == list(SPEAKERS) and data.num_classes == 35
    rows = np.concatenate([data.train_rows(2), data.test_rows(2)])
    assert sorted(data.y[rows]) == sorted(
        SPEECH_WORDS.index(w) for w in ("yes", "no", "up", "bed", "wow") for _ in "12"
    )
    yes = [data.x[row] for row in rows if data.y[row] == SPEECH_WORDS.index("yes")]
    expected = [log_mel(tone(220 + take)) for take in range(2)]
    assert sorted(x.tobytes() for x in yes) == sorted(x.tobytes() for x in expected)
    batch = data.batch(rows[:2])
    assert np.allclose(batch.numpy(), (data.x[rows[:2]].astype(np.float32) + 6.0) / 4.5)
    assert verify(tmp_path / "out", "speech").ok


def test_twelve_classes_have_unknown_words_and_silence(archive: Path, tmp_path: Path) -> None:
    written = import_speech(archive, tmp_path / "a", "speech12", SpeechOptions(test_fraction=0.0))
    data = open_data_set(tmp_path / "a", "speech12", test_split=0.0)
    counts = np.bincount(data.y, minlength=12)
    # 18 clips of the ten words are 2 for each on average
    assert counts.tolist() == [2, 2, 6, 6, 6, 0, 0, 0, 0, 0, 0, 0] and written.classes == 12
    assert set(data.client_names) <= set(SPEAKERS)
    hum = data.x[data.y == 0].astype(np.float32)
    assert np.abs(hum - log_mel(tone(60)).astype(np.float32)).mean() < 1.0
    again = import_speech(archive, tmp_path / "b", "speech12", SpeechOptions(test_fraction=0.0))
    other = open_data_set(tmp_path / "b", "speech12", test_split=0.0)
    assert again.clients == written.clients and np.array_equal(other.x, data.x)


def test_fedscales_client_map(archive: Path, tmp_path: Path) -> None:
    flat = tmp_path / "train"
    flat.mkdir()
    names = {}
    for number, path in enumerate(sorted(archive.glob("[a-z]*/*.wav"))):
        name = f"{path.parent.name}_{path.name}"
        path.rename(flat / name)
        if number % 10:
            names[name] = number % 4
    (tmp_path / "map.json").write_text(json.dumps({**names, "yes_ffffffff_nohash_0.wav": 0}))
    written = import_speech(flat, tmp_path / "out", "speech", SpeechOptions(client_map=tmp_path / "map.json"))
    assert (written.clients, written.left_out, written.absent) == (4, 3, 1)
    again = import_speech(flat, tmp_path / "out", "speech", SpeechOptions(client_map=tmp_path / "map.json"))
    assert (again.already_there, again.left_out, again.absent) == (True, 3, 1)
    data = open_data_set(tmp_path / "out", "speech")
    assert data.client_names == ["0", "1", "2", "3"]
    sizes = data.train_sizes + data.test_sizes
    assert sizes.tolist() == [sum(value == client for value in names.values()) for client in range(4)]


@pytest.mark.parametrize(
    ("break_it", "said"),
    [
        (lambda root: (root / "yes" / "notes.wav").write_bytes(b""), "no clip of Speech Commands"),
        (lambda root: (root / "yes").rename(root / "jupiter"), "one of its 35 words"),
        (lambda root: (root / "no" / "0a7c2a8d_nohash_0.wav").write_bytes(b"RIFF"), "0a7c2a8d_nohash_0.wav is no wav"),
    ],
)
def test_a_broken_archive_leaves_nothing_behind(archive: Path, tmp_path: Path, break_it, said: str) -> None:
    break_it(archive)
    with pytest.raises(UserError, match=said):
        import_speech(archive, tmp_path / "out", "speech")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("content", ["[]", '{"a": -1}', '{"a": "b"}', "{", '{"a": true}'])
def test_a_broken_map_is_refused(archive: Path, tmp_path: Path, content: str) -> None:
    (tmp_path / "map.json").write_text(content)
    with pytest.raises(UserError, match="client map"):
        import_speech(archive, tmp_path / "out", "speech", SpeechOptions(client_map=tmp_path / "map.json"))


def test_clips_are_no_pictures(archive: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="as speech or speech12"):
        import_speech(archive, tmp_path / "out", "femnist")


# ---- FedScale's own layout ----


@pytest.fixture
def layout(tmp_path: Path) -> Path:
    """As FedScale's speech unpacks: clips below train and test, labels by name, label_id of its own."""
    folder = tmp_path / "speech"
    (folder / "client_data_mapping").mkdir(parents=True)
    for split, takes in (("train", range(3)), ("test", range(3, 4))):
        (folder / split).mkdir()
        lines = ["client_id,sample_path,label_name,label_id"]
        for client, speaker in enumerate(SPEAKERS):
            for number, word in enumerate(("wow", "yes")):
                for take in takes:
                    name = f"{word}_{speaker}_nohash_{take}.wav"
                    write_wav(folder / split / name, tone(100 * (1 + number) + 10 * client + take))
                    lines.append(f"{client},{name},{word},{90 + number}")
        (folder / "client_data_mapping" / f"{split}.csv").write_text("\n".join(lines) + "\n")
    return folder


def test_fedscales_folder_is_read_as_it_is(layout: Path) -> None:
    data = open_data_set(layout, "speech")
    assert data.train_sizes.tolist() == [6, 6, 6] and data.test_sizes.tolist() == [2, 2, 2]
    assert data.y[data.test_rows(1)].tolist() == [SPEECH_WORDS.index("wow"), SPEECH_WORDS.index("yes")]
    assert np.array_equal(data.x[data.train_rows(1)[1]], log_mel(tone(101)))
    twelve = known("speech12")
    assert twelve is not None
    data = open_data_set(layout, "speech12")
    assert data.y[data.test_rows(1)].tolist() == [1, twelve.label_names.index("yes")]
    csv = layout / "client_data_mapping" / "test.csv"
    csv.write_text(csv.read_text().replace(",yes,", ",jupiter,"))
    with pytest.raises(UserError, match="the label 'jupiter' is not a class of this data set"):
        open_data_set(layout, "speech")


def test_the_folders_clips_get_other_clients(layout: Path, tmp_path: Path) -> None:
    import_layout(
        layout,
        tmp_path / "out",
        "speech",
        ImportOptions(partition=Partition("classes", 4, classes_per_client=1)),
    )
    data = open_data_set(tmp_path / "out", "speech")
    assert data.num_clients == 4 and (len(data.train.rows), len(data.test.rows)) == (18, 6)
    for client in range(1, 5):
        assert len({*data.y[data.train_rows(client)], *data.y[data.test_rows(client)]}) == 1


def test_features_have_one_shape(layout: Path) -> None:
    with pytest.raises(UserError, match="cannot be resized"):
        open_data_set(layout, "speech", input_shape=(1, 32, 32))


@pytest.mark.parametrize(
    ("array", "said"),
    [
        (np.zeros((49, 40), np.float16), "has shape"),
        (np.full((1, 49, 40), np.nan), "not finite"),
        (np.full((1, 49, 40), 1e6), "beyond 65504"),
        (np.zeros((1, 49, 40), "U4"), r"must hold numbers|allowed"),
    ],
)
def test_hostile_arrays_are_refused_by_name(layout: Path, array: np.ndarray, said: str) -> None:
    np.save(layout / "train" / "odd.npy", array, allow_pickle=False)
    csv = layout / "client_data_mapping" / "train.csv"
    csv.write_text(csv.read_text() + "0,odd.npy,yes,1\n")
    with pytest.raises(UserError, match=said) as caught:
        open_data_set(layout, "speech")
    assert "odd.npy" in str(caught.value)


def test_a_picture_is_no_sound(layout: Path) -> None:
    (layout / "train" / "odd.png").write_bytes(b"x")
    csv = layout / "client_data_mapping" / "train.csv"
    csv.write_text(csv.read_text() + "0,odd.png,yes,1\n")
    with pytest.raises(UserError, match=r"odd\.png holds no values"):
        open_data_set(layout, "speech")


# ---- arrays ----


def test_arrays_of_features_and_of_clips_are_the_same_data(tmp_path: Path) -> None:
    clips = np.stack([tone(100 + 7 * number) for number in range(12)])
    words, y, who = np.array(["no", "wow", "yes"]), np.arange(12) % 3, np.arange(12) // 6
    features = np.concatenate([log_mel(clip) for clip in clips])
    np.savez(tmp_path / "clips.npz", audio=clips, y=y, client=who, words=words)
    np.savez(tmp_path / "mel.npz", audio=features, y=y, client=who, words=words)
    data_sets = []
    for kind in ("clips", "mel"):
        import_npz(tmp_path / f"{kind}.npz", tmp_path / kind, "speech", NpzOptions(x="audio", names="words"))
        data_sets.append(open_data_set(tmp_path / kind, "speech"))
    assert np.array_equal(data_sets[0].x, data_sets[1].x) and np.array_equal(data_sets[0].y, data_sets[1].y)
    assert {SPEECH_WORDS[label] for label in data_sets[0].y} == set(words)
    import_npz(tmp_path / "mel.npz", tmp_path / "twelve", "speech12", NpzOptions(x="audio", names="words"))
    assert set(open_data_set(tmp_path / "twelve", "speech12").y.tolist()) == {1, 2, 3}
    with pytest.raises(UserError, match="no array 'labels'"):
        import_npz(tmp_path / "mel.npz", tmp_path / "no", "speech", NpzOptions(x="audio", names="labels"))
    np.savez(tmp_path / "odd.npz", x=features, y=y, client=who, classes=np.array(["no", "wow", "jupiter"]))
    with pytest.raises(UserError, match="names classes that speech does not have"):
        import_npz(tmp_path / "odd.npz", tmp_path / "no", "speech")
    np.savez(tmp_path / "odd.npz", x=features, y=y + 1, client=who, classes=words)
    with pytest.raises(UserError, match="beyond the 3 names"):
        import_npz(tmp_path / "odd.npz", tmp_path / "no", "speech")
    np.savez(tmp_path / "odd.npz", x=features[:, :28, :28], y=y, client=who)
    with pytest.raises(UserError, match=r"have the shape \(1, 49, 40\)"):
        import_npz(tmp_path / "odd.npz", tmp_path / "no", "speech")
    np.savez(tmp_path / "odd.npz", x=(features * 0).astype(np.float32), y=y, client=who)
    with pytest.raises(UserError, match=r"have the shape \(1, 9, 128\)"):
        import_npz(tmp_path / "odd.npz", tmp_path / "no", "uci_har")


def test_without_librosa_the_command_to_install_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "librosa", None)
    with pytest.raises(UserError, match="pip install librosa"):
        log_mel(tone(440))


def test_clips_of_half_the_rate_get_the_features_of_the_whole_one(tmp_path: Path) -> None:
    hertz = (300, 400, 700)  # whole periods: nothing at the ends
    audio = np.stack([tone(each)[::2] for each in hertz])
    np.savez(tmp_path / "digits.npz", audio=audio, label=np.array([0, 3, 9]), client=np.array([0, 0, 1]))
    import_npz(
        tmp_path / "digits.npz", tmp_path / "digits", "fsdd", NpzOptions(x="audio", y="label", test_fraction=0.0)
    )
    data = open_data_set(tmp_path / "digits", "fsdd", test_split=0.0)
    assert data.input_shape == (1, 49, 40) and data.num_classes == 10 and data.y.tolist() == [0, 3, 9]
    for row, each in enumerate(hertz):
        assert np.abs(data.x[row].astype(np.float64) - log_mel(tone(each))).max() < 0.2


def test_places_in_an_array_of_words_need_its_name(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", audio=tone(400)[None], label=np.array([24]), client=np.array([0]), words=SPEECH_WORDS)
    with pytest.raises(UserError, match=r"label 24, out of range for speech12_mfcc32 .* name it by --names"):
        import_npz(tmp_path / "a.npz", tmp_path / "out", "speech12_mfcc32", NpzOptions(x="audio", y="label"))


def test_digits_as_mosss_squares_are_resampled_too(tmp_path: Path) -> None:
    np.savez(tmp_path / "digits.npz", audio=tone(400)[None, ::2], label=np.array([3]), client=np.array([0]))
    import_npz(
        tmp_path / "digits.npz", tmp_path / "digits", "fsdd_mfcc32", NpzOptions(x="audio", y="label", test_fraction=0.0)
    )
    data = open_data_set(tmp_path / "digits", "fsdd_mfcc32", test_split=0.0)
    assert data.input_shape == (1, 32, 32) and data.num_classes == 10
    difference = np.abs(data.x[0].astype(np.float64) - square_mfcc(tone(400)))
    assert difference.max() < 0.05 * np.abs(square_mfcc(tone(400))).max()


# ---- FedorAS's features and silence ----


def test_fedoras_keeps_all_other_words_and_adds_a_tenth_of_silence_to_each_client(
    archive: Path, tmp_path: Path
) -> None:
    written = import_speech(archive, tmp_path / "a", "speech12_mfcc", SpeechOptions(test_fraction=0.0))
    data = open_data_set(tmp_path / "a", "speech12_mfcc", test_split=0.0)
    # three speakers of ten clips each, of which four are of two other words
    assert np.bincount(data.y, minlength=12).tolist() == [3, 12, 6, 6, 6] + [0] * 7
    assert written.shape == (1, 40, 51) and data.train_sizes.tolist() == [11, 11, 11]
    for client in (1, 2, 3):
        assert (data.y[data.train_rows(client)] == 0).sum() == 1
    assert set(data.client_names) == set(SPEAKERS)
    again = import_speech(archive, tmp_path / "b", "speech12_mfcc", SpeechOptions(test_fraction=0.0))
    assert again.train_samples == written.train_samples
    assert np.array_equal(open_data_set(tmp_path / "b", "speech12_mfcc", test_split=0.0).x, data.x)
    words = import_speech(archive, tmp_path / "c", "speech_mfcc", SpeechOptions(test_fraction=0.0))
    assert (words.train_samples, words.classes, words.shape) == (30, 35, (1, 40, 51))


def test_real_clips_as_fedoras_has_them(shared_data: Path, tmp_path: Path) -> None:
    source = shared_data / "speech_commands_raw_12speakers.npz"
    if not source.exists():
        pytest.skip(f"{source} is not there")
    written = import_npz(
        source, tmp_path / "out", "speech12_mfcc", NpzOptions(x="audio", y="label", names="words", test_fraction=0.0)
    )
    data = open_data_set(tmp_path / "out", "speech12_mfcc", test_split=0.0)
    assert (written.clients, written.train_samples, written.shape) == (12, 660, (1, 40, 51))
    x = data.batch(data.train_rows(1))
    assert abs(float(x.mean())) < 0.2 and 0.8 < float(x.std()) < 1.2


# ---- Moss's features ----


def test_clips_become_squares(archive: Path, tmp_path: Path) -> None:
    written = import_speech(archive, tmp_path / "a", "speech12_mfcc32", SpeechOptions(test_fraction=0.0))
    assert (written.classes, written.shape) == (12, (1, 32, 32))
    twelve = import_speech(archive, tmp_path / "b", "speech12", SpeechOptions(test_fraction=0.0))
    features, plain = (open_data_set(tmp_path / f, k, test_split=0.0)
                       for f, k in (("a", "speech12_mfcc32"), ("b", "speech12")))  # fmt: skip
    assert written.train_samples == twelve.train_samples and np.array_equal(features.y, plain.y)
    assert features.x.shape[1:] == (1, 32, 32)


def test_real_clips_as_moss_has_them(shared_data: Path, tmp_path: Path) -> None:
    source = shared_data / "speech_commands_raw_12speakers.npz"
    if not source.exists():
        pytest.skip(f"{source} is not there")
    import_npz(
        source, tmp_path / "out", "speech12_mfcc32", NpzOptions(x="audio", y="label", names="words", test_fraction=0.0)
    )
    data = open_data_set(tmp_path / "out", "speech12_mfcc32", test_split=0.0)
    x = data.batch(np.arange(len(data.y)))
    assert len(x) == 660 and abs(float(x.mean())) < 0.05 and float(x.std()) == pytest.approx(1, abs=0.05)
