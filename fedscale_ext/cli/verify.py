"""``fedscale verify``: whether a run's records fit together, and what some of its rounds give when computed again."""

import secrets
from typing import Annotated

import typer

from fedscale_ext.cli import complete


def verify(
    run: Annotated[
        str,
        typer.Argument(metavar="RUN", help="Name of a job, or its log folder.", autocompletion=complete.jobs_and_arms),
    ],
    rounds: Annotated[
        int, typer.Option("--rounds", metavar="N", help="Number of rounds to compute again; 0 for none.", min=0)
    ] = 3,
    seed: Annotated[
        int | None, typer.Option("--seed", metavar="S", help="Seed of the draw.", show_default="a new one", min=0)
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Compute again all rounds that have what this needs.")] = False,
    data: Annotated[
        str | None,
        typer.Option("--data", metavar="DIR", help="Folder of the job's data.", show_default="the job's data_dir"),
    ] = None,
) -> None:
    """Check that a run's records fit together, and compute some of its rounds again.

    Each round's record has a digest of itself, of the models after it, and of the round before. The command finds the
    first round that does not fit. Then it draws rounds and trains them again in a temporary folder. It can do so for
    the first round, and for rounds with the checkpoint of the round before. On the same processor and versions, each
    bit must agree. Not all files are checked: docs/reliability.md says which are not, such as most of summary.json.

    Exit code 0 if all that was checked fits, 1 if something does not, 2 for bad input.

    Example: fedscale verify fedavg_digits

    Example: fedscale verify logs/fedavg_digits/1126_120000 --rounds 10 --seed 7 --data data/digits
    """
    from fedscale_ext.api.run_checks import RecordedRun
    from fedscale_ext.api.verify import verify as checks
    from fedscale_ext.data.wording import counted
    from fedscale_ext.driver.naming import find_trained_job
    from fedscale_ext.driver.tables import console, print_table

    recorded = RecordedRun(find_trained_job(run))
    drawn = secrets.randbelow(1_000_000) if seed is None else seed
    err = console(stderr=True)

    def tell(round: int) -> None:
        if err.is_terminal:
            err.print(f"round {round} is computed again ...")

    rows = list(checks(recorded, rounds=None if every else rounds, seed=drawn, data_dir=data, before_replay=tell))
    print_table(
        console(),
        ("checked", "outcome", "detail"),
        [(row.what, row.outcome, row.detail) for row in rows],
        sentences=True,
    )
    how = "all rounds that can be" if every else f"--rounds {rounds} --seed {drawn}"
    print(f"\ndrawn by    {how}")
    print(f"last link   {recorded.last_link()}")
    wrong = sum(row.outcome == "does not fit" for row in rows)
    again = sum(row.outcome == "fits" and row.what.startswith("round ") for row in rows)
    print(
        f"result      {wrong} of {len(rows)} checks do not fit"
        if wrong
        else f"result      all that was checked fits, {counted(again, 'round')} computed again among it"
    )
    if wrong:
        raise typer.Exit(1)
