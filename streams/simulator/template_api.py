"""SES v2 calls on templates."""

import time
from email.message import EmailMessage

from streams.simulator.members import Members, missing, required_text, structure
from streams.simulator.refusals import bad_request
from streams.simulator.ses_api import Operation, SesCall, page
from streams.simulator.template_language import RenderingError
from streams.simulator.templates import Template, Templates, read_data, read_template

_PATH = "/v2/email/templates"


class TemplateApi:
    def __init__(self, templates: Templates) -> None:
        self._templates = templates

    def operations(self) -> list[Operation]:
        one = _PATH + "/{name}"
        return [
            Operation("POST", _PATH, self._create),
            Operation("GET", _PATH, self._list),
            Operation("GET", one, self._get),
            Operation("PUT", one, self._update),
            Operation("DELETE", one, self._delete),
            Operation("POST", one + "/render", self._render),
        ]

    def _create(self, call: SesCall) -> Members:
        name = required_text(call.members, "TemplateName")
        self._templates.create(name, _content(call.members), time.time())
        return {}

    def _list(self, call: SesCall) -> Members:
        shown = [
            {"TemplateName": name, "CreatedTimestamp": round(at, 3)}
            for name, at in self._templates.created()
        ]
        return page(call, "TemplatesMetadata", shown)

    def _get(self, call: SesCall) -> Members:
        name = call.path("name")
        return {"TemplateName": name, "TemplateContent": self._templates.get(name).as_json()}

    def _update(self, call: SesCall) -> Members:
        self._templates.update(call.path("name"), _content(call.members))
        return {}

    def _delete(self, call: SesCall) -> Members:
        self._templates.delete(call.path("name"))
        return {}

    def _render(self, call: SesCall) -> Members:
        """The MIME text; what would be a rendering failure after sending is refused here."""
        template = self._templates.get(call.path("name"))
        data = read_data(required_text(call.members, "TemplateData"))
        try:
            rendered = template.rendered(data)
        except RenderingError as error:
            raise bad_request(str(error)) from error
        message = EmailMessage()
        message["Subject"] = " ".join(rendered.subject.split())
        message.set_content(rendered.text or "")
        if rendered.html is not None:
            message.add_alternative(rendered.html, subtype="html")
        return {"RenderedTemplate": message.as_string()}


def _content(members: Members) -> Template:
    content = structure(members, "TemplateContent")
    if content is None:
        raise missing("TemplateContent")
    return read_template(content)
