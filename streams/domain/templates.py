"""Templates of subject, text and HTML, rendered in Jinja2's sandbox."""

import re
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from jinja2 import Environment, StrictUndefined, TemplateSyntaxError
from jinja2.exceptions import SecurityError, UndefinedError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from streams.domain.errors import BadMessage

LONGEST_SUBJECT: Final = 2000
_KEPT: Final = 1000
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
# The only words of Jinja that name the template's own variable and cannot quote what was given.
_UNDEFINED: Final = re.compile(r"'[A-Za-z_]\w{0,99}' is undefined", re.ASCII)

Render = Callable[[Mapping[str, Any]], str]


class TemplateName(NamedTuple):
    """Which template; version None asks for the newest one. A version never changes."""

    tenant: str
    name: str
    version: int | None

    def __str__(self) -> str:
        return f"{self.name} version {self.version}" if self.version else f"{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """The source of one version."""

    name: TemplateName
    subject: str
    text: str | None
    html: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """What the reader gets: a subject of one line, and at least one of text and html."""

    subject: str
    text: str | None
    html: str | None


class Renderer:
    """Renders templates; a version is compiled once. A missing variable is an error, HTML is escaped, text is not."""

    def __init__(self) -> None:
        self._plain = ImmutableSandboxedEnvironment(undefined=StrictUndefined)
        self._html = ImmutableSandboxedEnvironment(undefined=StrictUndefined, autoescape=True)
        self._compiled: OrderedDict[TemplateName, dict[str, Render]] = OrderedDict()

    def render(self, template: Template, variables: Mapping[str, Any]) -> Content:
        """The content; BadMessage says what to change in the template or in the variables."""
        parts = self._parts(template)
        rendered = {
            part: _rendered(template.name, part, render, variables)
            for part, render in parts.items()
        }
        return Content(
            subject=_one_line(template.name, rendered["subject"]),
            text=rendered.get("text"),
            html=rendered.get("html"),
        )

    def _parts(self, template: Template) -> dict[str, Render]:
        found = self._compiled.get(template.name)
        if found is None:
            found = {"subject": _compiled(self._plain, template, "subject", template.subject)}
            if template.text is not None:
                found["text"] = _compiled(self._plain, template, "text", template.text)
            if template.html is not None:
                found["html"] = _compiled(self._html, template, "html", template.html)
            self._compiled[template.name] = found
            if len(self._compiled) > _KEPT:
                self._compiled.popitem(last=False)
        return found


def _compiled(environment: Environment, template: Template, part: str, source: str) -> Render:
    try:
        return environment.from_string(source).render
    except TemplateSyntaxError as error:
        raise BadMessage(
            f"template {template.name}: line {error.lineno} of its {part} is not valid Jinja2: "
            "correct it in a new version and send again"
        ) from error
    # Python compiles what Jinja writes: what is nested too deep or has too long numbers fails there, in many ways.
    except Exception as error:  # a template is a tenant's text, and costs that tenant's mail alone
        raise BadMessage(
            f"template {template.name}: its {part} cannot be compiled ({type(error).__name__}): "
            "make it simpler in a new version and send again"
        ) from error


def _rendered(name: TemplateName, part: str, render: Render, variables: Mapping[str, Any]) -> str:
    try:
        return render(variables)
    except UndefinedError as error:
        raise BadMessage(
            f"template {name}: its {part} needs a variable that was not given{_which(error)}: "
            "add it to variables and send again"
        ) from error
    except SecurityError as error:
        raise BadMessage(
            f"template {name}: its {part} uses what the sandbox forbids: correct it in a new version"
        ) from error
    # What an expression raises may quote a variable, so that only its kind is told.
    except Exception as error:  # a template is a tenant's text, and costs that tenant's mail alone
        raise BadMessage(
            f"template {name}: its {part} cannot be rendered with these variables ({type(error).__name__}): "
            "correct the template in a new version, or the variables"
        ) from error


def _which(error: UndefinedError) -> str:
    """The variable's name, where Jinja's words can hold nothing else: an attribute's name may be content."""
    words = str(error)
    return f" ({words})" if _UNDEFINED.fullmatch(words) else ""


def _one_line(name: TemplateName, subject: str) -> str:
    if _CONTROL.search(subject):
        raise BadMessage(
            f"template {name}: the rendered subject has a line break or control character: "
            "take it out of the variables or the template"
        )
    if not 1 <= len(subject) <= LONGEST_SUBJECT:
        raise BadMessage(
            f"template {name}: the rendered subject has {len(subject)} characters, "
            f"it must have 1 to {LONGEST_SUBJECT}"
        )
    return subject
