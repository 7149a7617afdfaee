"""Reads a folder of case files. A file that cannot be taken is an entry with its errors, so that the others still run."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.cases import words
from tests.cases.checking import check

OWN_DATA: Final = Path(__file__).parent / "data"

Variant = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseFile:
    """One file: either errors, or the case it holds. kind is None where it could not be told."""

    path: Path
    kind: str | None = None
    variants: Sequence[Variant] = ()
    errors: Sequence[str] = ()

    @property
    def id(self) -> str:
        return self.path.stem

    @property
    def report(self) -> str:
        """The errors, each with the file's name."""
        return "\n".join(f"{self.path.name}: {error}" for error in self.errors)


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A variant on fresh state and those that continue it."""

    file: str
    case: str
    variants: Sequence[Variant]

    @property
    def id(self) -> str:
        return f"{self.case}[{', '.join(str(v['name']) for v in self.variants)}]"


def folder() -> Path:
    """CASES_DIR of the environment, else the project's own cases."""
    given = os.environ.get("CASES_DIR", "").strip()
    return Path(given) if given else OWN_DATA


def read_folder(path: Path) -> list[CaseFile]:
    """Every *.json of the folder, in order of names."""
    return [read_file(file) for file in sorted(path.glob("*.json"))]


def nothing_to_run(path: Path, files: Sequence[CaseFile]) -> str | None:
    """Why a run of this folder would prove nothing: a sentence, or None."""
    if not path.is_dir():
        return f"CASES_DIR: there is no folder {path}; nothing was run."
    if not files:
        return f"CASES_DIR: there is no case file (*.json) in {path}; nothing was run."
    if all(file.kind in words.TOLD_IN_PROSE and not file.errors for file in files):
        kinds = " and ".join(sorted({str(file.kind) for file in files}))
        return f"CASES_DIR: {path} holds only cases of kind {kinds}, which no runner can read; nothing was run."
    return None


def read_file(path: Path) -> CaseFile:
    try:
        case: Any = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        what = f"not JSON: {error}" if isinstance(error, ValueError) else type(error).__name__
        return CaseFile(path=path, errors=(what,))
    found = case.get("kind") if isinstance(case, dict) else None
    kind = found if found in words.KINDS else None
    errors = check(case, path.stem)
    if errors:
        return CaseFile(path=path, kind=kind, errors=errors)
    return CaseFile(path=path, kind=kind, variants=case.get("variants", ()))


def groups(files: Sequence[CaseFile], kind: str) -> list[Group]:
    """What is run one by one of this kind."""
    found = []
    for file in files:
        if file.kind == kind and not file.errors:
            found += [
                Group(file=file.path.name, case=file.id, variants=variants)
                for variants in _chains(file.variants)
            ]
    return found


def _chains(variants: Sequence[Variant]) -> list[list[Variant]]:
    chains: list[list[Variant]] = []
    for variant in variants:
        if variant.get("continues"):
            chains[-1].append(variant)
        else:
            chains.append([variant])
    return chains
