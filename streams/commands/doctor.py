"""`mailstreams doctor`: what is wrong with an installation, and its remedy, before anything is sent."""

import json
from collections import Counter
from dataclasses import asdict
from typing import Annotated

import typer

from streams.commands.running import Json, run_async
from streams.domain.diagnosis import Finding, Level, exit_code


def doctor(
    *,
    ses: Annotated[
        bool, typer.Option("--ses/--no-ses", help="Look for AWS credentials and ask SES too.")
    ] = True,
    as_json: Json = False,
) -> None:
    """Looks at settings, PostgreSQL, Kafka and SES, changes nothing, and says what is wrong and what mends it, one line a finding.
    Exit code 1: something is wrong; 2: something could not be looked at; 0: neither, warnings or not."""
    from streams import wiring

    async def work() -> None:
        findings = await wiring.diagnose(with_ses=ses)
        code = exit_code(findings)
        if as_json:
            document = {"exit": code, "counts": _counts(findings)}
            print(json.dumps(document | {"findings": [asdict(finding) for finding in findings]}))
        else:
            _tell(findings)
        if code:
            raise typer.Exit(code)

    run_async(work)


def _tell(findings: list[Finding]) -> None:
    for finding in findings:
        remedy = "" if finding.remedy is None else f" -> {finding.remedy}"
        print(f"{finding.level:<8} {finding.id:<24} {finding.found}{remedy}")
    counts = _counts(findings)
    print(", ".join(f"{count} {name}" for name, count in counts.items()))


def _counts(findings: list[Finding]) -> dict[str, int]:
    """unseen are errors too."""
    levels = Counter(finding.level for finding in findings)
    unseen = sum(finding.unseen for finding in findings)
    return {str(level): levels[level] for level in Level} | {"unseen": unseen}
