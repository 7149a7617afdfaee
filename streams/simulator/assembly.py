"""Builds the parts of one simulator and joins them."""

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from random import Random

from aiohttp import web

from streams.simulator.account import Account, CallLimit
from streams.simulator.control_api import ControlApi
from streams.simulator.event_publisher import EventPublisher
from streams.simulator.event_records import SendingAccount
from streams.simulator.faults import AnswerGate, FaultScript
from streams.simulator.ledger import Ledger
from streams.simulator.outcomes import Rule, read_rules
from streams.simulator.regions import sns_host
from streams.simulator.send_api import SendApi, SendingState
from streams.simulator.ses_api import SesApi
from streams.simulator.settings import SimulatorSettings
from streams.simulator.signing_process import ProcessSigner
from streams.simulator.sigv4 import SignatureVerifier, ses_scope
from streams.simulator.sns_api import SnsApi
from streams.simulator.sns_delivery import DeliverySettings, SnsDeliveries
from streams.simulator.sns_signing import Signer, SigningIdentity, ThreadSigner, make_identity
from streams.simulator.sns_topic import Topic
from streams.simulator.sqs_api import SqsApi
from streams.simulator.sqs_queue import Queues
from streams.simulator.strict import Fields, read_document
from streams.simulator.suppression_list import Suppressed, SuppressionList

MAX_BODY_BYTES = 64 * 1024 * 1024

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What lives as long as one run."""

    app: web.Application
    state: SendingState
    send_api: SendApi
    sns_api: SnsApi
    events: EventPublisher
    deliveries: SnsDeliveries
    signer: Signer


async def assemble(settings: SimulatorSettings, subscribe: Callable[[str], None]) -> Parts:
    """Everything but the socket; `subscribe` is asked to subscribe an endpoint."""
    random = Random(settings.seed)  # noqa: S311 - spread, not secrecy
    identity = make_identity(settings.key_bits, time.time())
    signer = await _signer(settings, identity)
    topic = Topic(
        arn=settings.topic_arn, region=settings.region, versions=settings.signature_version
    )
    queues = Queues(region=settings.region, account_id=settings.account_id)
    deliveries = SnsDeliveries(
        queues=queues, signer=signer, settings=_delivery(settings, identity), random=random
    )
    state = _sending_state(settings)
    events = EventPublisher(
        topic=topic,
        deliveries=deliveries,
        account=SendingAccount(
            region=settings.region, account_id=settings.account_id, caller=settings.access_key
        ),
        suppress=_suppressor(settings, state),
        random=random,
    )
    events.times = settings.event_times
    verifier = SignatureVerifier(access_key=settings.access_key, secret_key=settings.secret_key)
    send_api = SendApi(settings=settings, state=state, events=events, verifier=verifier)
    sns_api = SnsApi(
        settings=settings,
        topic=topic,
        deliveries=deliveries,
        verifier=verifier,
        confirmed=events.validate_topic,
    )
    app = web.Application(client_max_size=MAX_BODY_BYTES)
    app.router.add_post("/v2/email/outbound-emails", send_api.handle)
    app.router.add_routes(_ses_api(settings, state, verifier).routes())
    control = ControlApi(
        state=state,
        events=events,
        deliveries=deliveries,
        topic=topic,
        subscribe=subscribe,
        seed=settings.seed,
    )
    app.router.add_routes(control.routes())
    app.router.add_get("/health", _health)
    app.router.add_get(identity.certificate_path, _certificate(identity))
    sqs_api = SqsApi(
        queues=queues,
        account_id=settings.account_id,
        region=settings.region,
        verifier=verifier,
    )
    app.router.add_post("/", _query(sqs_api, sns_api))
    app.router.add_post(f"/{settings.account_id}/{{queue}}", sqs_api.handle)
    app.router.add_get("/", sns_api.handle)
    return Parts(
        app=app,
        state=state,
        send_api=send_api,
        sns_api=sns_api,
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
        ledger=Ledger(kept_content_bytes=settings.kept_content_bytes),
        faults=FaultScript(),
        answers=AnswerGate(),
        rules=_rules(settings),
    )


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


def _ses_api(
    settings: SimulatorSettings, state: SendingState, verifier: SignatureVerifier
) -> SesApi:
    return SesApi(
        account=state.account,
        suppression=state.suppression,
        verifier=verifier,
        scope=ses_scope(settings.region),
        limit=CallLimit(per_second=settings.other_calls_per_s),
    )


def _query(sqs_api: SqsApi, sns_api: SnsApi) -> Handler:
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
