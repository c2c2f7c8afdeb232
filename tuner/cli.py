"""The command `tuner`: its commands, options and exit codes, and nothing else."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, TextIO

import click

from tuner import __version__
from tuner.errors import InputError, TunerError
from tuner.options import Connections, Duration, Percentage, Real, SomePath, Whole
from tuner.wording import printable

DEFECT_EXIT_CODE = 1
INTERRUPTED_EXIT_CODE = 130

EXIT_CODES = """\b
Exit codes:
  0    done (and written, unless asked not to)
  1    a defect in tuner itself
  2    wrong usage or input; nothing was touched
  3    unresolved; nothing was written
  4    no candidate kept the limits for errors, memory and latency; nothing was written
  5    the host or Ansible failed; the original setting was restored
  6    the original setting could not be restored: the message says what to run
  130  interrupted; the original setting was restored
"""


def host_options(command: Callable[..., None]) -> Callable[..., None]:
    """The options that say which host is meant."""
    for option in (
        click.option("-v", "--verbose", is_flag=True, help="Show Ansible's own output on standard error."),
        click.option(
            "-i",
            "--inventory",
            type=SomePath(),
            help="Inventory file or directory.  [default: Ansible's]",
        ),
        click.option("--host", required=True, help="Host of the inventory."),
    ):
        command = option(command)
    return command


def load_options(command: Callable[..., None]) -> Callable[..., None]:
    """The options that say what load each trial gets."""
    for option in (
        click.option(
            "--duration", type=Real(2, 600), default=20.0, show_default=True, help="Measured seconds of a trial."
        ),
        click.option(
            "--connections",
            type=Connections(1, 10_000),
            default="auto",
            show_default=True,
            help="Connections, each with one request at a time; auto doubles them until that wins no more.",
        ),
        click.option(
            "--url",
            "urls",
            multiple=True,
            metavar="PATH",
            help="Path to ask for; may be repeated.  [default: load_requests of the inventory]",
        ),
    ):
        command = option(command)
    return command


def effort_option(meaning: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """The option that says how sure an answer is to be."""
    return click.option(
        "--effort",
        type=click.Choice(["quick", "standard", "thorough"]),
        default="standard",
        show_default=True,
        help=meaning,
    )


results_option = click.option(
    "--results",
    type=SomePath(file_okay=False),
    help="Directory for the records.  [default: tuner-results]",
)


def run_options(command: Callable[..., None]) -> Callable[..., None]:
    """The options of every run that measures."""
    for option in (
        click.option(
            "--live",
            is_flag=True,
            help="Others may use the application meanwhile: begin with little load, and stop when it harms them.",
        ),
        click.option(
            "--keep-disturbed",
            is_flag=True,
            help="Count trials that something else disturbed, instead of repeating them: for a host never quiet.",
        ),
        results_option,
        click.option("--budget", type=Duration(), help="The longest that all trials may take, such as 10m or 90s."),
    ):
        command = option(command)
    return command


@click.group(epilog=EXIT_CODES, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="tuner")
def cli() -> None:
    """Find by measurement how many pm2 instances of Strapi a host should run.

    \b
    Examples:
      tuner inspect --host prod1                 what the host really has, and what runs there
      tuner recommend --host prod1 --dry-run     what would be tried, and how long it takes
      tuner recommend --host prod1               measure, decide, write it into the inventory, roll it out
      tuner seed --host demo --count 1000        fill the sample application with articles
      tuner status                               what the runs came to, and what was left behind
      tuner restore --host prod1                 bring a host back after a run that was cut off
    """


@cli.command()
@host_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON on standard output.")
def inspect(host: str, inventory: Path | None, *, verbose: bool, as_json: bool) -> None:
    """Show what a host really has, and what of the application runs there.

    \b
    Example:
      tuner inspect --host prod1 -i inventories/production
    """
    from tuner import assembly, report

    with assembly.open_session(host, inventory, verbose=verbose) as session:
        session.progress.step(f"Looking at {host}")
        found = session.target.inspect()
    console = report.make_console()
    if as_json:
        report.print_json(console, asdict(found))
    else:
        report.print_inspection(console, found)


@cli.command()
@host_options
@click.option(
    "--candidates",
    metavar="LIST",
    help="Instance counts to try, such as 1-4 or 1,2,4.  [default: all up to a few more than the CPUs]",
)
@load_options
@effort_option("How sure it is to be before it stops: about 95%, 99% or 99.8%.")
@run_options
@click.option("--slo", metavar="P=TIME", help="Latency that must be kept, such as p99=250ms, or no count is chosen.")
@click.option(
    "--rate",
    type=Real(0.1, 1_000_000),
    help="Requests per second at which it must be kept.  [default: 70% of what the candidate can do]",
)
@click.option(
    "--objective",
    type=click.Choice(["throughput", "latency"]),
    default="throughput",
    show_default=True,
    help="Choose the smallest count near the best throughput, or that keeps --slo at --rate with 20% headroom.",
)
@click.option("--resume", metavar="RUN", help="Go on with a run that was stopped, named by its directory of records.")
@click.option("--seed", type=Whole(0, 2**31 - 1), help="Seed of the sampling.  [default: a new one, noted]")
@click.option(
    "--tolerance",
    type=Percentage(),
    default="5%",
    show_default=True,
    help="Throughput you would give up for fewer instances.",
)
@click.option("--dry-run", is_flag=True, help="Show the plan; measure and change nothing.")
@click.option("--no-write", is_flag=True, help="Measure, but write nothing and leave the host as it was.")
@click.option("--json", "as_json", is_flag=True, help="Print the summary alone, as JSON, on standard output.")
def recommend(
    host: str,
    inventory: Path | None,
    results: Path | None,
    *,
    verbose: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Measure how many instances a host should run, write the number into the inventory, and roll it out.

    The load disturbs whoever uses the application meanwhile, and workers are started and stopped. Afterwards the host
    runs the chosen number, or what it ran before: with --no-write, when the measurements do not resolve, and after
    Ctrl-C or a failure.

    \b
    Examples:
      tuner recommend --host prod1
      tuner recommend --host prod1 --url '/api/articles?pagination[pageSize]=10' --url /api/articles/1
      tuner recommend --host prod1 --candidates 1-8 --budget 10m --no-write --json
      tuner recommend --host prod1 --rate 200 --slo p99=250ms --objective latency
    """
    from tuner import assembly, report
    from tuner import recommend as use_case

    with assembly.open_session(host, inventory, verbose=verbose) as session:
        request = assembly.make_request(session, options)
        outcome = use_case.recommend(request, session.actors(results))
    console = report.make_console()
    if as_json:
        report.print_json(console, use_case.to_summary(outcome))
    else:
        report.print_outcome(console, outcome)
    use_case.raise_for_verdict(outcome)


@cli.command()
@host_options
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    help="A setting: role variables with YAML values, several separated by commas. Give two or more.",
)
@load_options
@effort_option("How often each setting is measured: 4, 8 or 16 times.")
@run_options
@click.option("--json", "as_json", is_flag=True, help="Print the outcome alone, as JSON, on standard output.")
def compare(
    host: str,
    inventory: Path | None,
    results: Path | None,
    *,
    verbose: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Measure settings in turns: does it matter, which one wins, and by how much?

    Each setting is applied as a deploy would, and measured as often as the others, in turning order. Afterwards the
    host runs what it ran before, and nothing is written into the inventory.

    \b
    Examples:
      tuner compare --host prod1 --set strapi_serve_admin_panel=true --set strapi_serve_admin_panel=false
      tuner compare --host prod1 --set 'strapi_node_args=[]' --set 'strapi_node_args=["--max-semi-space-size=64"]'
      tuner compare --host prod1 --set strapi_instances=1 --set strapi_instances=2,strapi_database_pool_max=5
    """
    from tuner import assembly, report
    from tuner import compare as use_case

    with assembly.open_session(host, inventory, verbose=verbose) as session:
        request = assembly.make_compare_request(session, options)
        found = use_case.compare(request, session.actors(results))
    console = report.make_console()
    if as_json:
        report.print_json(console, use_case.to_summary(found))
    else:
        report.print_comparison(console, found)
    use_case.raise_for_outcome(found)


@cli.command()
@host_options
@click.option(
    "--count",
    type=Whole(1, 1_000_000),
    default=1000,
    show_default=True,
    help="How many entries there should be.",
)
@click.option(
    "--url", "path", metavar="PATH", default="/api/articles", show_default=True, help="Path of the collection."
)
def seed(*, host: str, inventory: Path | None, count: int, path: str, verbose: bool) -> None:
    """Fill a collection of the application with articles, up to a number of them.

    \b
    Example:
      tuner seed --host demo --count 1000
    """
    from tuner import assembly
    from tuner.seed import seed as fill

    with assembly.open_session(host, inventory, verbose=verbose) as session:
        session.progress.step(f"Seeding {path} on {host}")

        def note(done: int, total: int) -> None:
            session.interruption.check()
            session.progress.counted(f"Seeding {path}", done, total)

        made = fill(session.target, path, count, note)
    click.echo(
        f"{path} on {host} holds {count} entries now; {made} were added."
        if made
        else f"{path} on {host} holds {count} entries or more already; none were added."
    )


@cli.command()
@host_options
@results_option
@click.option("--break-lock", is_flag=True, help="Do so whoever holds the lock of the host; says whose it was.")
def restore(host: str, inventory: Path | None, results: Path | None, *, break_lock: bool, verbose: bool) -> None:
    """Bring a host back to where a run that was cut off had found it.

    The next run on that host does so by itself, and the host too, a few minutes after it has last heard of the run.
    What such a run had written into the inventory is taken back.

    \b
    Examples:
      tuner restore --host prod1
      tuner restore --host prod1 --break-lock     whoever holds the lock is gone
    """
    from tuner import assembly
    from tuner import restore as use_case

    with assembly.open_session(host, inventory, verbose=verbose) as session:
        done = use_case.restore(host, session.actors(results), break_lock=break_lock)
    click.echo(done)


@cli.command()
@click.option("--host", help="One host alone, and who holds its lock now.  [default: all that have records]")
@click.option("-i", "--inventory", type=SomePath(), help="Inventory file or directory.  [default: Ansible's]")
@results_option
@click.option("-v", "--verbose", is_flag=True, help="Show Ansible's own output on standard error.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON on standard output.")
def status(host: str | None, inventory: Path | None, results: Path | None, *, verbose: bool, as_json: bool) -> None:
    """Show what the runs came to, and what was left behind.

    \b
    Examples:
      tuner status --host prod1
      tuner status --json
    """
    from tuner import assembly, report
    from tuner import status as use_case

    directory = assembly.find_results(results)
    if host is None:
        found = list(use_case.read(directory))
    else:
        with assembly.open_session(host, inventory, verbose=verbose) as session:
            session.progress.step(f"Looking at {host}")
            lock = session.target.inspect().lock
        found = [replace(use_case.of_host(directory, host), lock=str(lock) if lock else "")]
    console = report.make_console()
    if as_json:
        report.print_json(console, {"hosts": [asdict(one) for one in found]})
    else:
        report.print_status(console, found)


@cli.command()
@click.argument("hosts", type=click.File("r", encoding="utf-8", errors="surrogateescape"))
@click.option("--runs", type=Whole(1, 1000), default=1, show_default=True, help="Runs on each host.")
@click.option(
    "--method",
    type=click.Choice(["tuner", "article", "vcpus", "max", "optuna"]),
    default="tuner",
    show_default=True,
    help="Who decides: the tuner, or what people do today.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a run on standard output.")
def simulate(hosts: TextIO, runs: int, method: str, *, as_json: bool) -> None:
    """Run the decision of `recommend` on simulated hosts: how many trials and minutes would it take?

    HOSTS is a file with one JSON object a line, or - for standard input.

    \b
    Example:
      tuner simulate hosts.jsonl --runs 20
      echo '{"name": "h1", "cpu_budget": 2, "throughput": {"1": 428, "2": 478, "3": 400}}' | tuner simulate -
    """
    from tuner import simulate as use_case

    models = list(use_case.parse_hosts(hosts))
    results = []
    for result in use_case.simulate(models, method=method, runs=runs):
        results.append(result)
        line = result.to_json()
        text = f"{line['name']}: {line['verdict']}, {line['instances']} instances, {line['trials']} trials, "
        click.echo(json.dumps(line) if as_json else f"{text}{line['simulated_s'] / 60:.1f} min")
    click.echo(use_case.summarise(models, results).sentence(), err=True)


def main() -> None:
    """Entry point: run a command, and turn what goes wrong into one line and an exit code."""
    try:
        cli(standalone_mode=False)
    except TunerError as error:
        _end(str(error), error.exit_code)
    except click.Abort:
        _end("interrupted", INTERRUPTED_EXIT_CODE)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        sys.exit(error.exit_code)
    except click.ClickException as error:
        _end(f"{error.format_message().rstrip('.')}; `tuner --help` shows how it is used", InputError.exit_code)
    except KeyboardInterrupt:
        _end("interrupted", INTERRUPTED_EXIT_CODE)
    except Exception as error:  # the last resort: a user must not be shown a traceback
        if os.environ.get("TUNER_DEBUG"):
            raise
        _end(
            f"a defect in tuner: {type(error).__name__}: {error}; set TUNER_DEBUG=1 to see where, and report it",
            DEFECT_EXIT_CODE,
        )


def _end(message: str, exit_code: int) -> None:
    click.secho("Error: ", fg="red", err=True, nl=False)
    click.echo(printable(message), err=True)
    sys.exit(exit_code)
