"""Builds the parts of one simulator and joins them."""

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from random import Random

from aiohttp import web

from streams.simulator.acceptance import SendingState
from streams.simulator.account import Account, CallLimit
from streams.simulator.account_api import AccountApi
from streams.simulator.configuration_set_api import ConfigurationSetApi
from streams.simulator.configuration_sets import (
    ConfigurationSet,
    ConfigurationSets,
    EventDestination,
    EventType,
)
from streams.simulator.control_api import ControlApi
from streams.simulator.control_resources import ResourceControl, Subscribe
from streams.simulator.control_sending import SendingControl
from streams.simulator.control_state import ControlState
from streams.simulator.event_publisher import EventPublisher
from streams.simulator.event_records import SendingAccount
from streams.simulator.faults import AnswerGate, FaultScript
from streams.simulator.forgery import Forger
from streams.simulator.identities import Identities
from streams.simulator.identity_api import IdentityApi
from streams.simulator.ledger import Ledger
from streams.simulator.outcomes import Rule
from streams.simulator.regions import partition, sns_host
from streams.simulator.rules import read_rules
from streams.simulator.send_api import SendApi
from streams.simulator.ses_api import Operation, SesApi
from streams.simulator.settings import SimulatorSettings
from streams.simulator.signing_process import ProcessSigner
from streams.simulator.sigv4 import SignatureVerifier
from streams.simulator.sns_api import SnsApi
from streams.simulator.sns_delivery import DeliverySettings, SnsDeliveries
from streams.simulator.sns_signing import Signer, SigningIdentity, ThreadSigner, make_identity
from streams.simulator.sns_subscription_actions import SnsSubscriptionActions
from streams.simulator.sns_topic import Topics
from streams.simulator.sns_topic_actions import SnsTopicActions
from streams.simulator.sqs_api import SqsApi
from streams.simulator.sqs_queue import Queues
from streams.simulator.strict import Fields, read_document
from streams.simulator.suppression_list import Suppressed, SuppressionList
from streams.simulator.template_api import TemplateApi
from streams.simulator.templates import Templates

MAX_BODY_BYTES = 64 * 1024 * 1024

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What lives as long as one run."""

    app: web.Application
    state: SendingState
    topics: Topics
    send_api: SendApi
    subscriptions: SnsSubscriptionActions
    control: ControlApi
    events: EventPublisher
    deliveries: SnsDeliveries
    signer: Signer


async def assemble(settings: SimulatorSettings, subscribe: Subscribe) -> Parts:
    """Everything but the socket; `subscribe` is asked to subscribe an endpoint."""
    random = Random(settings.seed)  # noqa: S311 - spread, not secrecy
    region, account_id = settings.region, settings.account_id
    topics = Topics(region=region, account_id=account_id)
    topics.create(settings.topic_name, settings.signature_version)
    state = _sending_state(settings)
    identity = make_identity(settings.key_bits, time.time())
    signer = await _signer(settings, identity)
    queues = Queues(region=region, account_id=account_id)
    deliveries = SnsDeliveries(
        queues=queues, signer=signer, settings=_delivery(settings, identity), random=random
    )
    events = EventPublisher(
        topics=topics,
        identity_topic=settings.topic_arn,
        sets=state.sets,
        deliveries=deliveries,
        account=SendingAccount(region=region, account_id=account_id, caller=settings.access_key),
        suppress=_suppressor(settings, state),
        random=random,
    )
    events.times = settings.event_times
    verifier = SignatureVerifier(access_key=settings.access_key, secret_key=settings.secret_key)
    send_api = SendApi(region=region, state=state, events=events, verifier=verifier)
    topic_actions = SnsTopicActions(topics=topics, account_id=account_id, deliveries=deliveries)
    subscriptions = SnsSubscriptionActions(
        topics=topics,
        account_id=account_id,
        deliveries=deliveries,
        confirmed=events.validate_subscription,
    )
    sending = SendingControl(state=state, events=events, seed=settings.seed)
    control = ControlApi(
        state=state,
        shown=ControlState(
            state=state,
            events=events,
            deliveries=deliveries,
            topics=topics,
            queues=queues,
            holding=sending.holding,
        ),
        sending=sending,
        resources=ResourceControl(
            state=state,
            topics=topics,
            default_topic=settings.topic_arn,
            queues=queues,
            subscribe=subscribe,
            validate_topic=events.validate_topic,
        ),
        forger=Forger(deliveries=deliveries, signer=signer, queues=queues),
    )
    ses_api = SesApi(
        operations=_operations(state, topics, events),
        verifier=verifier,
        region=region,
        limit=CallLimit(per_second=settings.other_calls_per_s),
    )
    app = web.Application(client_max_size=MAX_BODY_BYTES)
    app.router.add_post("/v2/email/outbound-emails", send_api.send_email)
    app.router.add_post("/v2/email/outbound-bulk-emails", send_api.send_bulk_email)
    app.router.add_routes(ses_api.routes())
    app.router.add_routes(control.routes())
    app.router.add_get("/health", _health)
    app.router.add_get(identity.certificate_path, _certificate(identity))
    sqs_api = SqsApi(queues=queues, account_id=account_id, region=region, verifier=verifier)
    sns_api = SnsApi(
        region=region,
        verifier=verifier,
        actions={**topic_actions.actions, **subscriptions.actions},
    )
    app.router.add_post("/", _by_target(sqs_api, sns_api))
    app.router.add_get("/", sns_api.handle)
    app.router.add_post(f"/{account_id}/{{queue}}", sqs_api.handle)
    return Parts(
        app=app,
        state=state,
        topics=topics,
        send_api=send_api,
        subscriptions=subscriptions,
        control=control,
        events=events,
        deliveries=deliveries,
        signer=signer,
    )


async def _signer(settings: SimulatorSettings, identity: SigningIdentity) -> Signer:
    if settings.signing_processes > 0:
        return await ProcessSigner.start(identity, settings.signing_processes)
    return ThreadSigner(identity.key)


def _delivery(settings: SimulatorSettings, identity: SigningIdentity) -> DeliverySettings:
    return DeliverySettings(
        timeout_s=settings.delivery_timeout_s,
        retry_time_scale=settings.retry_time_scale,
        concurrency=settings.concurrent_deliveries,
        host=sns_host(settings.region),
        certificate_path=identity.certificate_path,
    )


def _sending_state(settings: SimulatorSettings) -> SendingState:
    return SendingState(
        account=Account(
            rate=settings.rate, burst_s=settings.burst_s, daily_quota=settings.daily_quota
        ),
        suppression=SuppressionList(),
        sets=_configuration_sets(settings),
        identities=Identities(
            checked=settings.verify_identities or settings.verified_identities is not None,
            verified=settings.verified_identities or (),
        ),
        templates=Templates(_template_arn(settings)),
        ledger=Ledger(kept_content_bytes=settings.kept_content_bytes),
        faults=FaultScript(),
        answers=AnswerGate(),
        rules=_rules(settings),
    )


def _template_arn(settings: SimulatorSettings) -> str:
    region = settings.region
    return f"arn:{partition(region)}:ses:{region}:{settings.account_id}:template/"


def _configuration_sets(settings: SimulatorSettings) -> ConfigurationSets:
    """Those that are there from the start publish everything to the default topic."""
    sets = ConfigurationSets()
    for name in settings.configuration_sets:
        made = ConfigurationSet(name=name)
        made.add(
            EventDestination(
                name="sns",
                topic_arn=settings.topic_arn,
                event_types=tuple(EventType),
                enabled=True,
            )
        )
        sets.create(made)
    return sets


def _operations(state: SendingState, topics: Topics, events: EventPublisher) -> list[Operation]:
    sets = ConfigurationSetApi(sets=state.sets, topics=topics, created=events.validate_topic)
    return [
        *AccountApi(account=state.account, suppression=state.suppression).operations(),
        *sets.operations(),
        *IdentityApi(identities=state.identities, sets=state.sets).operations(),
        *TemplateApi(state.templates).operations(),
    ]


def _rules(settings: SimulatorSettings) -> tuple[Rule, ...]:
    if settings.rules_file is None:
        return ()
    fields = Fields(read_document(settings.rules_file.read_bytes()))
    rules = read_rules(fields.documents("rules"), fields.text("seed", settings.seed))
    fields.done()
    return rules


def _suppressor(settings: SimulatorSettings, state: SendingState) -> Callable[[Suppressed], None]:
    """Puts bounces and complaints on the account's list, if the account has that on."""

    def suppress(entry: Suppressed) -> None:
        wanted = settings.suppress_bounces_and_complaints
        if wanted and entry.reason in state.account.suppressed_reasons:
            state.suppression.put(entry)

    return suppress


def _by_target(sqs_api: SqsApi, sns_api: SnsApi) -> Handler:
    async def handle(request: web.Request) -> web.StreamResponse:
        api = sqs_api if sqs_api.wants(request) else sns_api
        return await api.handle(request)

    return handle


def _certificate(identity: SigningIdentity) -> Handler:
    async def certificate(_request: web.Request) -> web.StreamResponse:
        return web.Response(body=identity.certificate_pem, content_type="application/x-pem-file")

    return certificate


async def _health(_request: web.Request) -> web.StreamResponse:
    return web.json_response({"status": "ok"})
