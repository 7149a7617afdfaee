"""Rendering: what comes out, and what a template may not do."""

from typing import Any

import pytest

from streams.domain.errors import BadMessage
from streams.domain.templates import Content, Renderer, Template, TemplateName


def template(
    subject: str = "Hello {{ name }}",
    text: str | None = "Dear {{ name }}",
    html: str | None = "<p>{{ name }}</p>",
    version: int = 1,
) -> Template:
    return Template(
        name=TemplateName("shop", "welcome", version), subject=subject, text=text, html=html
    )


def render(given: Template, **variables: Any) -> Content:
    return Renderer().render(given, variables)


def test_html_is_escaped_text_and_subject_are_not() -> None:
    assert render(template(), name="<Ann> & co") == Content(
        subject="Hello <Ann> & co", text="Dear <Ann> & co", html="<p>&lt;Ann&gt; &amp; co</p>"
    )


def test_missing_parts_stay_missing() -> None:
    assert render(template(html=None), name="Ann").html is None
    assert render(template(text=None), name="Ann").text is None


@pytest.mark.parametrize(
    ("change", "variables", "reason"),
    [
        ({}, {}, "subject needs a variable that was not given.*name"),
        ({"text": "{{ order.id }}"}, {"name": "a", "order": {}}, "text needs a variable"),
        ({"html": "{% if %}"}, {"name": "a"}, "html is not valid Jinja2"),
        ({"subject": "{{ name }}"}, {"name": "a\r\nBcc: b@example.com"}, "line break"),
        ({"subject": "{{ name }}"}, {"name": ""}, "0 characters"),
        ({"subject": "{{ name }}"}, {"name": "x" * 2001}, "2001 characters"),
        ({"text": "{{ 1 / 0 }}"}, {"name": "a"}, "ZeroDivisionError"),
        ({"text": "{{ name.nope() }}"}, {"name": "a"}, "needs a variable"),
        ({"text": "{{ 1 + name }}"}, {"name": "a"}, "cannot be rendered"),
        ({"text": "{% include 'other' %}"}, {"name": "a"}, "cannot be rendered"),
    ],
)
def test_what_cannot_be_rendered_says_what_to_change(
    change: dict[str, Any], variables: dict[str, Any], reason: str
) -> None:
    with pytest.raises(BadMessage, match=reason):
        render(template(**change), **variables)


DEEP = "{% for i in [1] %}" * 25 + "{% endfor %}" * 25


@pytest.mark.parametrize(
    ("source", "error"),
    [
        ("{{ name|truncate(-9, leeway=0) }}", "AssertionError"),
        ("{{ cycler() }}", "RuntimeError"),
        (DEEP, "SyntaxError"),
        ("{{ " + "(" * 400 + "1" + ")" * 400 + " }}", r"RecursionError|MemoryError|SyntaxError"),
        ("{{ " + "9" * 5000 + " }}", "ValueError"),
    ],
)
def test_whatever_a_template_raises_is_a_fault_of_the_template(source: str, error: str) -> None:
    with pytest.raises(BadMessage, match=error):
        render(template(text=source), name="Ann and more")


@pytest.mark.parametrize(
    "source",
    [
        "{{ labels[token] }}",
        "{{ labels[token].more }}",
        "{{ token.nope }}",
        "{{ (token ~ 1).x() }}",
    ],
)
def test_reason_does_not_quote_what_was_given(source: str) -> None:
    with pytest.raises(BadMessage) as caught:
        render(template(text=source), name="Ann", labels={}, token="reset-SECRET-123")
    assert "SECRET" not in str(caught.value)


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ name.__init__.__globals__ }}",
        "{{ items.append(1) }}",
        "{% for i in range(1000000000) %}{% endfor %}",
    ],
)
def test_sandbox_holds(source: str) -> None:
    with pytest.raises(BadMessage):
        render(template(text=source), name="a", items=[])


def test_broken_expression_does_not_quote_the_variables() -> None:
    with pytest.raises(BadMessage) as caught:
        render(template(text="{{ '%d' % name }}"), name="zoe@example.com")
    assert "zoe" not in str(caught.value)


def test_versions_are_told_apart_and_kept_compiled() -> None:
    renderer = Renderer()
    first = template(text="one", version=1)
    assert renderer.render(first, {"name": "a"}).text == "one"
    assert renderer.render(template(text="two", version=2), {"name": "a"}).text == "two"
    assert renderer.render(first, {"name": "a"}).text == "one"


def test_neighbour_is_rendered_after_a_broken_one() -> None:
    renderer = Renderer()
    with pytest.raises(BadMessage):
        renderer.render(template(), {})
    assert renderer.render(template(), {"name": "Ann"}).subject == "Hello Ann"
