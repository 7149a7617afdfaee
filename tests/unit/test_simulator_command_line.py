"""Options of the command are the settings, with the same defaults."""

import ast
from dataclasses import fields
from pathlib import Path

import pytest

import streams.simulator
from streams.simulator.__main__ import settings_from
from streams.simulator.settings import (
    BadSettingError,
    EventTimes,
    Legacy,
    SignatureVersions,
    SimulatorSettings,
)

NOT_AN_OPTION = {
    "event_times",
    "kept_content_bytes",
    "subscribe_interval_s",
    "suppress_bounces_and_complaints",
}


def test_without_options_every_default_holds() -> None:
    assert settings_from([]) == SimulatorSettings()


def test_options_reach_their_settings() -> None:
    settings = settings_from(
        [
            "--port",
            "8025",
            "--signature-version",
            "mixed",
            "--subscribe",
            "http://127.0.0.1:1/a",
            "--subscribe",
            "http://127.0.0.1:2/b",
            "--outcome-ms",
            "5",
            "6",
            "--duplicate-share",
            "0.5",
            "--rules-file",
            "r.json",
            "--script-file",
            "s.json",
            "--late-share",
            "0.1",
            "--late-ms",
            "7",
            "8",
            "--early-share",
            "0.2",
            "--legacy",
            "beside",
            "--merge-recipients",
            "--verify-identities",
        ]
    )
    assert settings.port == 8025
    assert settings.signature_version is SignatureVersions.MIXED
    assert settings.subscribe == ("http://127.0.0.1:1/a", "http://127.0.0.1:2/b")
    assert settings.event_times == EventTimes(
        outcome_ms=(5, 6),
        duplicate_share=0.5,
        late_share=0.1,
        late_ms=(7, 8),
        early_share=0.2,
        legacy=Legacy.BESIDE,
        merge_recipients=True,
    )
    assert settings.script_file == Path("s.json")
    assert settings.verify_identities
    assert settings.rules_file == Path("r.json")


def test_every_setting_has_an_option(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        settings_from(["--help"])
    text = capsys.readouterr().out
    singular = {
        "configuration_sets": "configuration_set",
        "verified_identities": "verified_identity",
    }
    for field in (*fields(SimulatorSettings), *fields(EventTimes)):
        if field.name not in NOT_AN_OPTION:
            assert "--" + singular.get(field.name, field.name).replace("_", "-") in text


@pytest.mark.parametrize(
    "options",
    [
        ["--subscribe", "ftp://127.0.0.1/x"],
        ["--key-bits", "512"],
        ["--rate", "-1"],
        ["--concurrent-deliveries", "0"],
        ["--outcome-ms", "9", "3"],
        ["--duplicate-share", "1.5"],
        ["--early-share", "-0.1"],
        ["--late-age-s", "-1"],
    ],
)
def test_an_option_out_of_bounds_is_named(options: list[str]) -> None:
    with pytest.raises(BadSettingError) as caught:
        settings_from(options)
    assert options[0].removeprefix("--").replace("-", "_") in str(caught.value)


def test_an_unknown_option_is_refused() -> None:
    with pytest.raises(SystemExit):
        settings_from(["--no-such-option"])


def test_the_simulator_imports_nothing_from_the_rest_of_the_package() -> None:
    for path in Path(streams.simulator.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            modules = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            modules += [name.name for name in node.names] if isinstance(node, ast.Import) else []
            for module in modules:
                inside = module == "streams" or module.startswith("streams.")
                assert not inside or module.startswith("streams.simulator"), path.name
