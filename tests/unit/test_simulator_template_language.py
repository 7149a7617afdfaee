"""Templates are rendered as Handlebars does it, as far as SES uses it."""

from typing import Any

import pytest

from streams.simulator.template_language import (
    RenderingError,
    TemplateSyntaxError,
    check_syntax,
    render,
)

DATA: dict[str, Any] = {
    "name": "Ann & Bob",
    "user": {"city": "Ulm"},
    "items": [{"n": 1}, {"n": 2}],
    "words": ["a", "b"],
    "no": False,
    "none": [],
    "zero": 0,
}


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("no tags { } }}", "no tags { } }}"),
        ("{{name}}", "Ann & Bob"),
        ("{{ user.city }}", "Ulm"),
        ("{{zero}} {{no}}", "0 false"),
        ("{{words.[1]}}", "b"),
        ("{{! a remark }}x", "x"),
        ("{{#if name}}yes{{else}}no{{/if}}", "yes"),
        ("{{#if none}}yes{{else}}no{{/if}}", "no"),
        ("{{#if absent}}yes{{/if}}", ""),
        ("{{#unless absent}}yes{{/unless}}", "yes"),
        ("{{#each words}}{{@index}}{{this}}{{#unless @last}},{{/unless}}{{/each}}", "0a,1b"),
        ("{{#each items}}{{n}}{{../user.city}} {{/each}}", "1Ulm 2Ulm "),
        ("{{#each user}}{{@key}}={{this}}{{/each}}", "city=Ulm"),
        ("{{#each none}}x{{else}}empty{{/each}}", "empty"),
        ("{{#with user}}{{city}}{{/with}}", "Ulm"),
        ("{{#if name}}{{#each words}}{{this}}{{/each}}{{/if}}", "ab"),
    ],
)
def test_values_and_blocks_are_filled_in(template: str, text: str) -> None:
    assert render(template, DATA, html=False) == text


def test_values_are_escaped_in_html_unless_they_stand_in_three_braces() -> None:
    assert render("{{name}} {{{name}}} {{&name}}", DATA, html=True) == (
        "Ann &amp; Bob Ann & Bob Ann & Bob"
    )


@pytest.mark.parametrize(
    ("template", "missing"),
    [
        ("{{absent}}", "absent"),
        ("{{user.street}}", "user.street"),
        ("{{#each items}}{{m}}{{/each}}", "m"),
        ("{{words.[9]}}", "words.[9]"),
    ],
)
def test_a_value_that_is_missing_is_a_rendering_error(template: str, missing: str) -> None:
    with pytest.raises(RenderingError) as caught:
        render(template, DATA, html=False)
    assert str(caught.value) == f"Attribute '{missing}' is not present in the rendering data."


@pytest.mark.parametrize(
    "template",
    [
        "{{#if a}}x",
        "{{/if}}",
        "{{else}}",
        "{{#if a}}x{{/each}}",
        "{{#loop a}}{{/loop}}",
        "{{a b}}",
        "{{#if a}}" * 5000 + "{{/if}}" * 5000,
    ],
)
def test_what_is_no_template_is_a_syntax_error(template: str) -> None:
    with pytest.raises(TemplateSyntaxError):
        check_syntax(template)


def test_inline_templates_have_no_blocks() -> None:
    check_syntax("{{a}}", plain=True)
    with pytest.raises(TemplateSyntaxError):
        check_syntax("{{#if a}}x{{/if}}", plain=True)
