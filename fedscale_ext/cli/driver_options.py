"""Arguments and options of ``fedscale driver``'s commands."""

from typing import Annotated

import typer

from fedscale_ext.cli import complete

Conf = Annotated[
    str,
    typer.Argument(
        metavar="CONF",
        help="Path of a YAML file, name of a shipped configuration, or a method, with --on.",
        autocompletion=complete.configurations,
    ),
]
On = Annotated[
    str | None,
    typer.Option(
        "--on",
        metavar="DATA",
        help="Data for the method CONF; `fedscale config list data` lists them.",
        autocompletion=complete.data_presets,
    ),
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Set a key of the configuration; repeatable.",
        autocompletion=complete.settings,
    ),
]
Resume = Annotated[bool, typer.Option("--resume", help="Continue the job's last run from its last checkpoint.")]
ResumeFrom = Annotated[
    int | None,
    typer.Option("--resume-from", metavar="ROUND", min=1, help="Continue it from an earlier checkpoint instead."),
]
Supervise = Annotated[bool, typer.Option("--supervise", help="Restart processes that die, from the checkpoint.")]
Seeds = Annotated[
    str | None, typer.Option("--seeds", metavar="0-4", help="A job for each of these seeds: 0-4 or 1,5,7.")
]
Grid = Annotated[
    list[str] | None,
    typer.Option(
        "--grid",
        metavar="KEY=A,B",
        help="A job for each of these values; repeatable.",
        autocompletion=complete.settings,
    ),
]
AtOnce = Annotated[
    int | None,
    typer.Option("--at-once", metavar="N", min=1, help="Jobs of a sweep at a time.", show_default="as many as fit"),
]
SubmitAtOnce = Annotated[
    int | None,
    typer.Option(
        "--at-once", metavar="N", min=1, help="Jobs of a sweep at a time.", show_default="1; under --slurm, all"
    ),
]
Slurm = Annotated[bool, typer.Option("--slurm", help="Queue the job in Slurm with submitit.")]
Ray = Annotated[
    str | None,
    typer.Option("--ray", metavar="ADDRESS", help="Run the executors on this Ray cluster: auto, or HOST:PORT."),
]
Hours = Annotated[
    float | None, typer.Option("--hours", min=0.02, help="Time limit under --slurm, in hours.", show_default="24")
]
SlurmOption = Annotated[
    list[str] | None,
    typer.Option("--slurm-option", metavar="KEY=VALUE", help="An option of sbatch, such as partition=gpu; repeatable."),
]
JobName = Annotated[
    str, typer.Argument(metavar="JOB", help="The configuration's job_name.", autocompletion=complete.jobs)
]
JobOrSweep = Annotated[
    str,
    typer.Argument(metavar="JOB", help="The job_name of a job, or the name of a sweep.", autocompletion=complete.jobs),
]
OptionalJobName = Annotated[
    str | None,
    typer.Argument(
        metavar="[JOB]", help="The job_name of a job, or the name of a sweep.", autocompletion=complete.jobs
    ),
]
Follow = Annotated[bool, typer.Option("-f", "--follow", help="Follow new lines until the job ends.")]
