"""Speech Commands: wav files, log-mel features, its trees and FedScale's partition of it."""

import json
import struct
import sys
from pathlib import Path

import numpy as np
import pytest

from fedscale_ext.data.audio import CLIP, log_mel, mfcc, read_wav, square_mfcc, write_wav
from fedscale_ext.data.importers import import_layout, import_npz, import_speech
from fedscale_ext.data.partition import Partition
from fedscale_ext.data.registry import SPEECH_WORDS, known
from fedscale_ext.data.store import open_data_set
from fedscale_ext.data.verify import verify
from fedscale_ext.errors import UserError

pytest.importorskip("librosa", reason="features are computed with librosa")

SPEAKERS = ("0a7c2a8d", "1b4c9b89", "742d6431")


def tone(hertz: float, samples: int = CLIP) -> np.ndarray:
    return (8000 * np.sin(2 * np.pi * hertz * np.arange(samples) / 16000)).astype(np.int16)


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


# ---- clips and features ----


def test_a_clip_is_written_and_read_as_it_is(tmp_path: Path) -> None:
    clip = np.random.default_rng(1).integers(-32768, 32768, 1234).astype(np.int16)
    write_wav(tmp_path / "a.wav", clip)
    assert np.array_equal(read_wav(tmp_path / "a.wav"), clip)


def test_features_are_those_of_the_formula() -> None:
    """Against the transform written out: frames of 512 every 320, HTK bands of height 1 from 60 to 7,600 Hz."""
    clip = np.random.default_rng(2).integers(-3000, 3000, CLIP).astype(np.int16)
    hann = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(512) / 512)
    frames = np.stack([clip[start : start + 512] / 32768 * hann for start in range(0, CLIP - 511, 320)])
    power = np.abs(np.fft.rfft(frames)) ** 2
    mel = np.linspace(*(2595 * np.log10(1 + f / 700) for f in (60, 7600)), 42)
    edges = 700 * (10 ** (mel / 2595) - 1)
    hertz = np.arange(257) * 16000 / 512
    rise = (hertz - edges[:-2, None]) / np.diff(edges)[:-1, None]
    fall = (edges[2:, None] - hertz) / np.diff(edges)[1:, None]
    expected = np.log(power @ np.maximum(0, np.minimum(rise, fall)).T + 1e-5)
    found = log_mel(clip)
    assert found.shape == (1, 49, 40) and found.dtype == np.float16
    assert np.abs(found[0] - expected).max() < 0.01


def test_short_clips_end_in_silence_and_long_ones_are_cut() -> None:
    assert np.allclose(log_mel(tone(440, 4000))[0, -1], np.log(1e-5), atol=0.01)
    assert np.array_equal(log_mel(tone(440, 2 * CLIP)), log_mel(tone(440)))


def test_features_of_real_clips_agree_with_published_ones(shared_data: Path) -> None:
    raw = np.load(shared_data / "speech_commands_raw_12speakers.npz", allow_pickle=False)
    mel = np.load(shared_data / "speech_commands_logmel.npz", allow_pickle=False)
    row = {name: number for number, name in enumerate(mel["files"])}
    expected = mel["logmel"][[row[name] for name in raw["files"]]][::6]
    found = np.concatenate([log_mel(clip) for clip in raw["audio"][::6]])
    apart = np.abs(found.astype(np.float32) - expected)
    assert apart.mean() < 0.005 and apart.max() < 0.2  # of -11.5 to 10; both are rounded to 11 bits


def _header(**changes: int) -> bytes:
    values = {"format": 1, "channels": 1, "rate": 16000, "bits": 16, "claims": 200} | changes
    width = values["channels"] * values["bits"] // 8
    fields = values["format"], values["channels"], values["rate"], values["rate"] * width, width, values["bits"]
    data = b"data" + struct.pack("<I", values["claims"]) + bytes(200)
    return b"RIFF" + struct.pack("<I", 236) + b"WAVEfmt " + struct.pack("<IHHIIHH", 16, *fields) + data


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "no wav file"),
        (b"RIFF\xff\xff\xff\xffWAVE", "no wav file"),
        (b"\x89PNG not a sound", "no wav file"),
        (_header(format=3), "no wav file"),
        (_header(rate=8000), "at 8000 Hz"),
        (_header(rate=0), "at 0 Hz"),
        (_header(bits=8), "8 bits"),
        (_header(channels=7), "7 channels"),
        (_header(channels=0), "no wav file"),
        (_header(claims=2**32 - 2), "cut off"),
        (_header(claims=202), "cut off"),
        (_header(claims=0), "empty"),
        (_header()[:30], r"no wav file of plain PCM \(it is cut off\)"),
    ],
)
def test_hostile_clips_are_refused_by_name(tmp_path: Path, content: bytes, said: str) -> None:
    (tmp_path / "a.wav").write_bytes(content)
    with pytest.raises(UserError, match=said) as caught:
        read_wav(tmp_path / "a.wav")
    assert "a.wav" in str(caught.value)


def test_two_channels_are_averaged(tmp_path: Path) -> None:
    (tmp_path / "a.wav").write_bytes(_header(channels=2)[:44] + struct.pack("<100h", *([100, 300] * 50)))
    assert read_wav(tmp_path / "a.wav").tolist() == [200] * 50


# ---- the archive ----


def test_speakers_are_clients_and_labels_fedscales(archive: Path, tmp_path: Path) -> None:
    written = import_speech(archive, tmp_path / "out", "google_speech")
    assert (written.clients, written.train_samples, written.test_samples) == (3, 24, 6)
    data = open_data_set(tmp_path / "out", "google_speech")
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
    assert verify(tmp_path / "out", "google_speech").ok


def test_twelve_classes_have_unknown_words_and_silence(archive: Path, tmp_path: Path) -> None:
    written = import_speech(archive, tmp_path / "a", "google_speech12", test_fraction=0.0)
    data = open_data_set(tmp_path / "a", "google_speech12", test_split=0.0)
    counts = np.bincount(data.y, minlength=12)
    # 18 clips of the ten words are 2 for each on average
    assert counts.tolist() == [2, 2, 6, 6, 6, 0, 0, 0, 0, 0, 0, 0] and written.classes == 12
    assert set(data.client_names) <= set(SPEAKERS)
    hum = data.x[data.y == 0].astype(np.float32)
    assert np.abs(hum - log_mel(tone(60)).astype(np.float32)).mean() < 1.0
    again = import_speech(archive, tmp_path / "b", "google_speech12", test_fraction=0.0)
    other = open_data_set(tmp_path / "b", "google_speech12", test_split=0.0)
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
    written = import_speech(flat, tmp_path / "out", "google_speech", client_map=tmp_path / "map.json")
    assert (written.clients, written.left_out, written.absent) == (4, 3, 1)
    again = import_speech(flat, tmp_path / "out", "google_speech", client_map=tmp_path / "map.json")
    assert (again.already_there, again.left_out, again.absent) == (True, 3, 1)
    data = open_data_set(tmp_path / "out", "google_speech")
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
        import_speech(archive, tmp_path / "out", "google_speech")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("content", ["[]", '{"a": -1}', '{"a": "b"}', "{", '{"a": true}'])
def test_a_broken_map_is_refused(archive: Path, tmp_path: Path, content: str) -> None:
    (tmp_path / "map.json").write_text(content)
    with pytest.raises(UserError, match="client map"):
        import_speech(archive, tmp_path / "out", "google_speech", client_map=tmp_path / "map.json")


def test_clips_are_no_pictures(archive: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="as google_speech or google_speech12"):
        import_speech(archive, tmp_path / "out", "femnist")


# ---- FedScale's own layout ----


@pytest.fixture
def layout(tmp_path: Path) -> Path:
    """As FedScale's google_speech unpacks: clips below train and test, labels by name, label_id of its own."""
    folder = tmp_path / "google_speech"
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
    data = open_data_set(layout, "google_speech")
    assert data.train_sizes.tolist() == [6, 6, 6] and data.test_sizes.tolist() == [2, 2, 2]
    assert data.y[data.test_rows(1)].tolist() == [SPEECH_WORDS.index("wow"), SPEECH_WORDS.index("yes")]
    assert np.array_equal(data.x[data.train_rows(1)[1]], log_mel(tone(101)))
    twelve = known("google_speech12")
    assert twelve is not None
    data = open_data_set(layout, "google_speech12")
    assert data.y[data.test_rows(1)].tolist() == [1, twelve.label_names.index("yes")]
    csv = layout / "client_data_mapping" / "test.csv"
    csv.write_text(csv.read_text().replace(",yes,", ",jupiter,"))
    with pytest.raises(UserError, match="the label 'jupiter' is not a class of this data set"):
        open_data_set(layout, "google_speech")


def test_the_folders_clips_get_other_clients(layout: Path, tmp_path: Path) -> None:
    import_layout(layout, tmp_path / "out", "google_speech", partition=Partition("classes", 4, classes_per_client=1))
    data = open_data_set(tmp_path / "out", "google_speech")
    assert data.num_clients == 4 and (len(data.train.rows), len(data.test.rows)) == (18, 6)
    for client in range(1, 5):
        assert len({*data.y[data.train_rows(client)], *data.y[data.test_rows(client)]}) == 1


def test_features_have_one_shape(layout: Path) -> None:
    with pytest.raises(UserError, match="cannot be resized"):
        open_data_set(layout, "google_speech", input_shape=(1, 32, 32))


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
        open_data_set(layout, "google_speech")
    assert "odd.npy" in str(caught.value)


def test_a_picture_is_no_sound(layout: Path) -> None:
    (layout / "train" / "odd.png").write_bytes(b"x")
    csv = layout / "client_data_mapping" / "train.csv"
    csv.write_text(csv.read_text() + "0,odd.png,yes,1\n")
    with pytest.raises(UserError, match=r"odd\.png holds no values"):
        open_data_set(layout, "google_speech")


# ---- arrays ----


def test_arrays_of_features_and_of_clips_are_the_same_data(tmp_path: Path) -> None:
    clips = np.stack([tone(100 + 7 * number) for number in range(12)])
    words, y, who = np.array(["no", "wow", "yes"]), np.arange(12) % 3, np.arange(12) // 6
    features = np.concatenate([log_mel(clip) for clip in clips])
    np.savez(tmp_path / "clips.npz", audio=clips, y=y, client=who, words=words)
    np.savez(tmp_path / "mel.npz", audio=features, y=y, client=who, words=words)
    found = []
    for kind in ("clips", "mel"):
        import_npz(tmp_path / f"{kind}.npz", tmp_path / kind, "google_speech", x="audio", names="words")
        found.append(open_data_set(tmp_path / kind, "google_speech"))
    assert np.array_equal(found[0].x, found[1].x) and np.array_equal(found[0].y, found[1].y)
    assert {SPEECH_WORDS[label] for label in found[0].y} == set(words)
    import_npz(tmp_path / "mel.npz", tmp_path / "twelve", "google_speech12", x="audio", names="words")
    assert set(open_data_set(tmp_path / "twelve", "google_speech12").y.tolist()) == {1, 2, 3}
    with pytest.raises(UserError, match="no array 'labels'"):
        import_npz(tmp_path / "mel.npz", tmp_path / "no", "google_speech", x="audio", names="labels")
    np.savez(tmp_path / "odd.npz", x=features, y=y, client=who, classes=np.array(["no", "wow", "jupiter"]))
    with pytest.raises(UserError, match="names classes that google_speech does not have"):
        import_npz(tmp_path / "odd.npz", tmp_path / "no", "google_speech")
    np.savez(tmp_path / "odd.npz", x=features, y=y + 1, client=who, classes=words)
    with pytest.raises(UserError, match="beyond the 3 names"):
        import_npz(tmp_path / "odd.npz", tmp_path / "no", "google_speech")
    np.savez(tmp_path / "odd.npz", x=features[:, :28, :28], y=y, client=who)
    with pytest.raises(UserError, match=r"have the shape \(1, 49, 40\)"):
        import_npz(tmp_path / "odd.npz", tmp_path / "no", "google_speech")
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
    import_npz(tmp_path / "digits.npz", tmp_path / "digits", "fsdd", x="audio", y="label", test_fraction=0.0)
    data = open_data_set(tmp_path / "digits", "fsdd", test_split=0.0)
    assert data.input_shape == (1, 49, 40) and data.num_classes == 10 and data.y.tolist() == [0, 3, 9]
    for row, each in enumerate(hertz):
        assert np.abs(data.x[row].astype(np.float64) - log_mel(tone(each))).max() < 0.2


# ---- FedorAS's features and silence ----


def test_cepstra_are_those_of_the_formula() -> None:
    """Against the transform written out: centred frames of 400 every 320, 128 bands to 8 kHz, decibels, a DCT-II."""
    clip = np.random.default_rng(2).integers(-3000, 3000, CLIP - 100).astype(np.int16)
    padded = np.pad(np.pad(clip / 32768, (0, 100)), 200, mode="reflect")
    hann = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(400) / 400)
    power = np.abs(np.fft.rfft(np.stack([padded[at : at + 400] * hann for at in range(0, CLIP + 1, 320)]))) ** 2
    edges = 700 * (10 ** (np.linspace(0, 2595 * np.log10(1 + 8000 / 700), 130) / 2595) - 1)
    hertz = np.arange(201) * 40.0
    low, middle, high = edges[:-2, None], edges[1:-1, None], edges[2:, None]
    bands = np.clip(np.minimum((hertz - low) / (middle - low), (high - hertz) / (high - middle)), 0, None)
    decibels = 10 * np.log10(np.maximum(power @ bands.T, 1e-10))
    decibels = np.maximum(decibels, decibels.max() - 80)
    n = np.arange(128)
    expected = np.stack([(decibels * np.cos(np.pi * k * (n + 0.5) / 128)).sum(1) * np.sqrt((1 + (k > 0)) / 128)
                         for k in range(40)])  # fmt: skip
    found = mfcc(clip)
    assert found.shape == (1, 40, 51) and found.dtype == np.float16
    assert np.abs(found[0].astype(np.float64) - expected).max() < 0.3  # rounded to float16 near 400


def test_fedoras_keeps_all_other_words_and_adds_a_tenth_of_silence_to_each_client(
    archive: Path, tmp_path: Path
) -> None:
    written = import_speech(archive, tmp_path / "a", "speech12_mfcc", test_fraction=0.0)
    data = open_data_set(tmp_path / "a", "speech12_mfcc", test_split=0.0)
    # three speakers of ten clips each, of which four are of two other words
    assert np.bincount(data.y, minlength=12).tolist() == [3, 12, 6, 6, 6] + [0] * 7
    assert written.shape == (1, 40, 51) and data.train_sizes.tolist() == [11, 11, 11]
    for client in (1, 2, 3):
        assert (data.y[data.train_rows(client)] == 0).sum() == 1
    assert set(data.client_names) == set(SPEAKERS)
    again = import_speech(archive, tmp_path / "b", "speech12_mfcc", test_fraction=0.0)
    assert again.train_samples == written.train_samples
    assert np.array_equal(open_data_set(tmp_path / "b", "speech12_mfcc", test_split=0.0).x, data.x)
    words = import_speech(archive, tmp_path / "c", "speech_mfcc", test_fraction=0.0)
    assert (words.train_samples, words.classes, words.shape) == (30, 35, (1, 40, 51))


def test_real_clips_as_fedoras_has_them(shared_data: Path, tmp_path: Path) -> None:
    source = shared_data / "speech_commands_raw_12speakers.npz"
    if not source.exists():
        pytest.skip(f"{source} is not there")
    found = import_npz(
        source, tmp_path / "out", "speech12_mfcc", x="audio", y="label", names="words", test_fraction=0.0
    )
    data = open_data_set(tmp_path / "out", "speech12_mfcc", test_split=0.0)
    assert (found.clients, found.train_samples, found.shape) == (12, 660, (1, 40, 51))
    x = data.batch(data.train_rows(1))
    assert abs(float(x.mean())) < 0.2 and 0.8 < float(x.std()) < 1.2


# ---- Moss's features ----


def test_moss_has_librosas_own_cepstra() -> None:
    import librosa

    clip = np.random.default_rng(3).integers(-3000, 3000, CLIP - 900).astype(np.int16)
    second = np.pad(clip / np.float32(32768), (0, 900))
    found = square_mfcc(clip)
    assert found.shape == (1, 32, 32) and found.dtype == np.float16
    expected = librosa.feature.mfcc(y=second, sr=16000, n_mfcc=32)
    assert np.abs(found[0].astype(np.float64) - expected).max() < 0.3  # rounded to float16 near 400
    # centred frames of 2,048 every 512: a quiet clip that begins at 8,192 is heard from the frame at 7,168 on
    late = np.zeros(CLIP, np.int16)
    late[8192:] = tone(440)[8192:]
    heard = square_mfcc(late)[0, 0].astype(np.float64)
    assert np.ptp(heard[:15]) == 0 and (heard[15:31] > heard[0]).all()


def test_clips_become_squares(archive: Path, tmp_path: Path) -> None:
    written = import_speech(archive, tmp_path / "a", "speech12_mfcc32", test_fraction=0.0)
    assert (written.classes, written.shape) == (12, (1, 32, 32))
    twelve = import_speech(archive, tmp_path / "b", "google_speech12", test_fraction=0.0)
    found, plain = (open_data_set(tmp_path / f, k, test_split=0.0)
                    for f, k in (("a", "speech12_mfcc32"), ("b", "google_speech12")))  # fmt: skip
    assert written.train_samples == twelve.train_samples and np.array_equal(found.y, plain.y)
    assert found.x.shape[1:] == (1, 32, 32)


def test_real_clips_as_moss_has_them(shared_data: Path, tmp_path: Path) -> None:
    source = shared_data / "speech_commands_raw_12speakers.npz"
    if not source.exists():
        pytest.skip(f"{source} is not there")
    import_npz(source, tmp_path / "out", "speech12_mfcc32", x="audio", y="label", names="words", test_fraction=0.0)
    data = open_data_set(tmp_path / "out", "speech12_mfcc32", test_split=0.0)
    x = data.batch(np.arange(len(data.y)))
    assert len(x) == 660 and abs(float(x.mean())) < 0.05 and float(x.std()) == pytest.approx(1, abs=0.05)
