import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from written_job import write_job

import fedscale_ext
from fedscale_ext.core.errors import UserError
from fedscale_ext.report.job.loading import load_job
from fedscale_ext.report.page.build import build

VOID = {"meta", "br", "hr", "img", "input", "link", "wbr"}


class Page(HTMLParser):
    """What a page holds: text, tags with their attributes; tags that are not closed in order are an error."""

    def __init__(self, text: str):
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" not in self.open:
            self.text += data + " "


@pytest.fixture(scope="module")
def page(report: Path) -> Page:
    return Page(report.read_text(encoding="utf-8"))


def test_a_report_is_a_page_plots_and_figures(report: Path):
    names = {path.relative_to(report.parent).as_posix() for path in report.parent.rglob("*") if path.is_file()}
    shared = ["accuracy_rounds", "accuracy_time", "accuracy_macs", "clients_box", "clients_cdf", "devices",
              "cost_macs", "cost_network", "cost_suite", "cost_served"]  # fmt: skip
    of_jobs = [
        f"{job}/{name}" for job in ("ft-s0", "ft-s1", "hfl") for name in ("participants", "assignment", "models")
    ]
    of_jobs.append("early/participants")
    plots = {f"plots/{name}.{kind}" for name in shared + of_jobs for kind in ("svg", "png")}
    assert names == plots | {"report.html", "figures.csv"}


def test_the_three_plots_of_accuracy_share_one_place(report: Path):
    text = report.read_text(encoding="utf-8")
    section = text[text.index('<section id="accuracy">') : text.index('<section id="clients">')]
    names = ["accuracy_rounds", "accuracy_time", "accuracy_macs"]
    assert re.findall(r'id="show-(\w+)"( checked)?', section) == [
        (names[0], " checked"),
        (names[1], ""),
        (names[2], ""),
    ]
    assert re.findall(r'<label for="show-(\w+)">', section) == names
    assert section.count("<figure") == 3 and section.count("<figcaption>") == 3


def test_a_job_without_capacities_has_a_sentence_for_a_picture(page: Page):
    assert "early: what devices afford was not recorded by the version that ran this" in page.text
    assert page.text.count("was not recorded") == 1


def test_no_empty_picture_where_no_job_has_capacities(tmp_path: Path):
    job = write_job(tmp_path / "old", clients=False)
    page = build([job], tmp_path / "out")[0]
    names = {path.stem for path in page.parent.rglob("*.svg")}
    assert "participants" in names and not names & {"devices", "assignment"}
    assert "old: what devices afford was not recorded" in Page(page.read_text(encoding="utf-8")).text


def test_the_page_needs_nothing_beside_it_and_is_small(report: Path, page: Page):
    text = report.read_text(encoding="utf-8")
    assert len(text) < 1_000_000  # below 5 MB with room for many more jobs
    assert not {"script", "link", "img", "iframe", "image"} & {tag for tag, _ in page.tags}
    for tag, attributes in page.tags:
        for name in ("src", "href"):
            assert (attributes.get(name) or "#").startswith("#"), (tag, attributes)
    assert "@import" not in text and not re.search(r"url\((?!#)", text) and "http" not in text


def test_ids_are_there_once_and_links_lead_to_them(page: Page):
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    links = {attributes["href"][1:] for tag, attributes in page.tags if tag == "a"}
    assert {"figures", "accuracy", "clients", "cost", "jobs"} <= links <= set(ids)


def test_the_page_tells_means_best_paper_and_what_has_not_ended(page: Page):
    assert "fedtrans, heterofl and fedavg on femnist" in page.text
    assert "Not finished: early (round 20 of 40)" in page.text
    assert "76.42" in page.text and "fedtrans: FedTrans, Table 2, LEAF's FEMNIST" in page.text
    assert "(best)" in page.text and "±" in page.text
    assert "widen c0" in page.text  # lineage
    assert "GENERATED" not in page.text


def test_the_page_is_for_phones_and_for_the_dark(report: Path, page: Page):
    assert ("meta", {"name": "viewport", "content": "width=device-width, initial-scale=1"}) in page.tags
    assert "prefers-color-scheme:dark" in report.read_text(encoding="utf-8")
    assert all(attributes.get("aria-label") for tag, attributes in page.tags if tag == "svg")


def test_names_cannot_inject_anything(tmp_path: Path):
    evil = '../../<script>alert("1")</script>&amp;'
    job = write_job(tmp_path / "job", job_name=evil, data={"name": evil, "generated": False, "digest": evil})
    built = Page(build([job], tmp_path / "out")[0].read_text(encoding="utf-8"))
    assert "script" not in {tag for tag, _ in built.tags} and evil in built.text
    assert [path.name for path in (tmp_path / "out" / "plots").iterdir() if path.is_dir()] == ["job_0"]


def test_a_job_that_is_called_as_a_stand_in_has_its_plots_for_itself(undrawn, tmp_path: Path):
    jobs = [write_job(tmp_path / str(at), job_name=name) for at, name in enumerate(("job_0", "../a", "../b"))]
    build(jobs, tmp_path / "out")
    folders = [path.name for path in (tmp_path / "out" / "plots").iterdir() if path.is_dir()]
    assert sorted(folders) == ["job_0", "job_1", "job_2"]


def test_generated_data_and_different_data_are_said(undrawn, tmp_path: Path):
    one = write_job(tmp_path / "one", generated=True)
    two = write_job(tmp_path / "two", data={"name": "x", "generated": False, "digest": "0"})
    text = Page(build([one, two], tmp_path / "out")[0].read_text(encoding="utf-8")).text
    assert "Some of these results are for GENERATED data" in text and "jobs are on different data" in text
    alone = Page(build([one], tmp_path / "alone")[0].read_text(encoding="utf-8")).text
    assert "These results are for GENERATED data" in alone


def test_runs_of_one_name_are_told_apart_and_equal_folders_count_once(undrawn, tmp_path: Path):
    folders = [write_job(tmp_path / stamp, job_name="job", seed=seed) for seed, stamp in enumerate(("0101", "0102"))]
    arms = build([*folders, folders[0]], tmp_path / "out").arms
    assert [job.name for job in arms[0].jobs] == ["job_0101", "job_0102"]


def test_runs_of_one_name_and_time_stamp_have_names_and_plots_of_their_own(undrawn, tmp_path: Path):
    folders = [write_job(tmp_path / folder / "0101", job_name="job") for folder in "abc"]
    built = build([*folders, write_job(tmp_path / "d", job_name="job_0101_2")], tmp_path / "out")
    names = ["job_0101", "job_0101_3", "job_0101_4", "job_0101_2"]
    assert sorted(job.name for arm in built.arms for job in arm.every_job) == sorted(names)
    assert all((tmp_path / "out" / "plots" / name).is_dir() for name in names)


def test_jobs_without_a_round_are_left_out_and_named(undrawn, tmp_path: Path):
    done, begun, other = (write_job(tmp_path / name) for name in ("done", "begun", "other"))
    (begun / "metrics.jsonl").write_text('{"round": 1, "torn')
    (other / "metrics.jsonl").unlink()
    built = build([begun, done, other], tmp_path / "out", ["waits"])
    assert [job.name for arm in built.arms for job in arm.jobs] == ["done"]
    assert built.left_out == "3 of 4 jobs are left out, as no round of them has ended: begun, other, waits."
    assert built.left_out in Page(built.page.read_text(encoding="utf-8")).text
    assert build([done], tmp_path / "out").left_out == ""
    with pytest.raises(UserError, match=r"no job here has a round that has ended: begun, other$"):
        build([begun, other], tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_a_folder_that_cannot_be_written_is_one_sentence(folders: list[Path], tmp_path: Path):
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"cannot be written to: .*; name another folder with -o"):
        build(folders[:1], tmp_path / "file" / "out")


def test_a_job_that_really_ran_is_reported_whole(job_file: Path, tmp_path: Path):
    done = fedscale_ext.run(job_file)
    text = build([Path(done["log_dir"])], tmp_path / "out")[0].read_text(encoding="utf-8")
    job = load_job(Path(done["log_dir"]))
    assert job.clients is not None and len(job.clients.capacity) == job.header["num_clients"] == 7
    assert job.clients.capacity.min() == job.summary["models"][0]["cost"]["forward_macs"]  # rule `deadline`
    assert "was not recorded" not in Page(text).text and "fedavg on tiny generated" in text
