"""The kill matrix: each process of a job is killed at each step of the protocol and restarted by the driver.

    python -m evals.reliability.matrix --work /tmp/matrix

A cell is a whole job of the real command (``fedscale driver start --supervise``): FedTrans that grows in each
round, with an adaptive server, cohorts of two and an evaluation per round, on 12 generated clients. It counts as
equal when the final weights, the virtual clock, every figure of metrics.jsonl but wall times, internals.jsonl
and each client's evaluation are bitwise those of the job that nobody disturbed. Writes matrix.md beside this file.
"""

import argparse
import datetime
import os
from pathlib import Path

import yaml

from evals.reliability import cells
from evals.speed.data import prepare
from evals.speed.machine import model_name

HERE = Path(__file__).resolve().parent
AGGREGATOR = {
    "waits for executors": "listening",
    "register": "register",
    "unit sent": "unit_sent",
    "training (a result is filed)": "result_filed",
    "upload": "result_in",
    "aggregation, before": "aggregate",
    "aggregation, after": "aggregated",
    "evaluation, before": "evaluate",
    "evaluation, after": "evaluated_all",
    "metrics written, no checkpoint yet": "recorded",
    "checkpoint, before its file": "checkpoint",
    "checkpoint, before its rename": "checkpoint_rename",
    "checkpoint, after its rename": "checkpoint_renamed",
    "results being written": "finish",
}
EXECUTOR = {
    "registered": "registered",
    "unit received": "unit",
    "training, one client done": "training",
    "unit done, before the upload": "computed",
    "upload done": "uploaded",
    "evaluation, before": "evaluation",
    "evaluation, after": "evaluated",
}
ONCE = {"listening", "register", "registered", "finish"}  # these have no round
ROUNDS = (1, 3)  # in which the others strike, of four
JOB = {
    "method": "fedtrans", "fedtrans.gamma": 1, "fedtrans.delta": 1, "fedtrans.beta": 1e9, "fedtrans.server_opt": "yogi",
    "data_set": "femnist", "model": "nasbench201_base", "rounds": 4, "eval_interval": 1, "num_participants": 8,
    "overcommitment": 1.25, "local_steps": 2, "batch_size": 5, "cohort_size": 2, "unit_size": 2, "filter_less": 0,
    "record_internals": True, "use_cuda": False,
}  # fmt: skip


def job_file(work: Path) -> Path:
    """The matrix's configuration and its data, made once."""
    data = prepare(work / "data", clients=12, train=20) / "femnist"
    path = work / "matrix.yml"
    keys = [{key: value} for key, value in {**JOB, "data_dir": str(data)}.items()]
    path.write_text(yaml.safe_dump({"worker_ips": ["localhost:[2]"], "job_conf": keys}), encoding="utf-8")
    return path


def rows() -> list[tuple[str, str, str]]:
    """(process, step in words, step) of each row."""
    found = [("aggregator", words, step) for words, step in AGGREGATOR.items()]
    return found + [(f"executor {rank}", words, step) for rank in (1, 2) for words, step in EXECUTOR.items()]


def row(work: Path, job: Path, undisturbed: cells.Ended, process: str, step: str) -> tuple[int, int, list[str]]:
    """(equal cells, cells, what went wrong) of one row."""
    equal, wrong = 0, []
    strikes = (0,) if step in ONCE else ROUNDS
    for round in strikes:
        name = f"{process}-{step}-{round}".replace(" ", "")
        kills = {process: [(step, round)]}
        try:
            cells.check(undisturbed, cells.run(job, work, name, kills), kills)
            equal += 1
        except AssertionError as error:
            wrong.append(f"{name}: {str(error)[-1500:]}")
    return equal, len(strikes), wrong


def page(lines: list[tuple[str, str, int, int]], seconds: float) -> str:
    """The page matrix.md."""
    equal, tried = sum(line[2] for line in lines), sum(line[3] for line in lines)
    head = f"""# The kill matrix

`python -m evals.reliability.matrix --work DIR`, {datetime.date.today().isoformat()}, {os.cpu_count()} cores of
{model_name()}.

In each job, SIGKILL killed one process at one step, and `--supervise` restarted it. **{equal} of {tried}** jobs ended
bitwise equal to the undisturbed one. Compared were final weights, virtual clock, metrics but wall times, internals, and
each client's figures. FedTrans, 4 rounds, 2 executors; a step that recurs strikes in rounds
{" and ".join(map(str, ROUNDS))}. An undisturbed job takes {seconds:.0f} s.

| process | killed at | equal |
|---|---|---|
"""
    return head + "".join(f"| {process} | {words} | {n} of {of} |\n" for process, words, n, of in lines)


def main() -> None:
    """Run all cells, or those of one process, and write the page when all of them ran."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="an empty folder for the jobs")
    parser.add_argument("--only", default="", help="a process or step: others are left out, and no page is written")
    asked = parser.parse_args()
    asked.work.mkdir(parents=True, exist_ok=True)
    job = job_file(asked.work.absolute())
    undisturbed = cells.run(job, asked.work.absolute(), "undisturbed", {})
    lines: list[tuple[str, str, int, int]] = []
    for process, words, step in rows():
        if asked.only in ("", process, step):
            equal, tried, wrong = row(asked.work.absolute(), job, undisturbed, process, step)
            lines.append((process, words, equal, tried))
            print(f"{process:<12}{words:<40}{equal} of {tried}", *wrong, sep="\n  ", flush=True)
    if not asked.only:
        text = page(lines, undisturbed.seconds)
        (HERE / "matrix.md").write_text(text, encoding="utf-8")
    raise SystemExit(any(line[2] < line[3] for line in lines))


if __name__ == "__main__":
    main()
