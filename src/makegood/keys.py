"""What services say of idempotency keys: their form and length, where they go, how long they are remembered.

    @payments.action(complete_within="30s", key=mg.keys.SQUARE)

A preset is what its service documents, as of November 2026: read its page again before you rely on it. For a
service that is not here, or an endpoint that differs, write one, or change one:

    SHIPPER = mg.keys.Preset("Shipper", form="uuid", header="X-Request-Id", keeps="12h")
    SQUARE_TERMINAL = dataclasses.replace(mg.keys.SQUARE, limit=64)

What a service does not document is None. A limit matters for keys in the readable form only: every other form
has the same length in both directions.
"""

import re
from dataclasses import dataclass
from typing import Final, Literal, get_args

from makegood.base import service_keys
from makegood.base.arguments import judge_calls
from makegood.base.durations import Duration, seconds
from makegood.errors import ConfigError

Conflict = Literal["running", "done", "another"]
"""What a 409 means: the first request still runs (raise ``mg.Later``); it was done, and the answer names what
was made; or the key was used for another request.
"""


_FIELD: Final = re.compile(r"[^\s\x00-\x1f\x7f]{1,200}")
_HEADER: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", re.ASCII)


@judge_calls(ConfigError)
@dataclass(frozen=True, slots=True)
class Preset:
    """What a service says of idempotency keys. Raises ``ConfigError`` for values that make no sense."""

    service: str
    """Its name, for messages."""
    form: str = "plain"
    """"uuid" (version 5), "uuid4", "quoted" (a UUID in double quotes), "length=28" (letters and digits), or
    "plain": the readable key.
    """
    limit: int | None = None
    """The most characters of a key."""
    header: str | None = None
    """The HTTP header that carries it: ``call.headers`` has it there."""
    field: str | None = None
    """The field of the body, or the parameter of the query, that carries it: pass ``call.key``."""
    first_sent: str | None = None
    """The HTTP header for ``call.first_sent``, if the service wants one."""
    keeps: Duration | None = None
    """How long it remembers a key."""
    remembers: bool | None = None
    """Whether it remembers its answer for each key, refusals too: the action's ``remembers``, unless that is
    passed.
    """
    conflict: Conflict | None = None
    """What 409 means there."""

    def __post_init__(self) -> None:
        """Check everything."""
        if not isinstance(self.service, str) or not self.service.strip():
            raise ConfigError(f"Preset({self.service!r:.60}): the name of the service, a text")
        where = f"the keys of {self.service}"
        length = service_keys.length_of(service_keys.checked_form(self.form, where))
        if self.conflict not in (None, *get_args(Conflict)):
            raise ConfigError(
                f"{where}: conflict={self.conflict!r}: {', '.join(get_args(Conflict))}, or None"
            )
        if not isinstance(self.remembers, bool | None):
            raise ConfigError(
                f"{where}: remembers={self.remembers!r}: True, False, or None if it is not documented"
            )
        for option in ("header", "first_sent"):
            name = getattr(self, option)
            if name is not None and not (isinstance(name, str) and _HEADER.fullmatch(name)):
                raise ConfigError(f"{where}: {option}={name!r:.60} is not the name of an HTTP header")
        if self.field is not None and not (isinstance(self.field, str) and _FIELD.fullmatch(self.field)):
            raise ConfigError(f"{where}: field={self.field!r:.60} is not the name of a field")
        if self.header is not None and self.field is not None:
            raise ConfigError(
                f"{where}: header={self.header!r} and field={self.field!r}: a key goes in one place; drop the one that the service does not "
                "read"
            )
        if (
            self.header is not None
            and self.first_sent is not None
            and self.header.lower() == self.first_sent.lower()
        ):
            raise ConfigError(f"{where}: the key and first_sent cannot share the header {self.header}")
        if self.keeps is not None:
            seconds(self.keeps, name=f"{where}: keeps", least=0.001)
        if self.limit is None:
            return
        if not isinstance(self.limit, int) or isinstance(self.limit, bool) or self.limit < 1:
            raise ConfigError(f"{where}: limit={self.limit!r}: a whole number of characters, from 1")
        if length > self.limit:
            raise ConfigError(
                f"{where}: keys of the form {self.form!r} have {length} characters, more than the limit of {self.limit}"
            )


PLAIN: Final = Preset("the service")
"""A service of which nothing is known: the readable key, in the header Idempotency-Key."""

STRIPE: Final = Preset(
    "Stripe", limit=255, header="Idempotency-Key", keeps="24h", remembers=True, conflict="running"
)
"""API v1: docs.stripe.com/api/idempotent_requests (2026-09-30). It repeats its answer, failures too, once
execution began. (API v2 runs a failed request again: pass ``remembers=False``.)
"""

ADYEN: Final = Preset("Adyen", "uuid4", 64, "Idempotency-Key", keeps="31d")
"""docs.adyen.com/development-resources/api-idempotency. Keys belong to the company account and are not shared
between regions.
"""

PAYPAL_ORDERS: Final = Preset("PayPal orders v2", "uuid", 108, "PayPal-Request-Id", keeps="6h")
"""paypal-rest-api-specifications checkout_orders_v2 (2024-02-03). A repeated request returns the latest
status.
"""

PAYPAL_PAYMENTS: Final = Preset("PayPal payments v2", "uuid", 108, "PayPal-Request-Id", keeps="45d")
"""Captures, refunds, voids: paypal-rest-api-specifications payments_payment_v2 (2024-02-03)."""

PAYPAL_VAULT: Final = Preset("PayPal vault v3", "uuid", header="PayPal-Request-Id", keeps="3h")
"""paypal-rest-api-specifications (2024-02-03). It requires the key."""

PAYPAL_SUBSCRIPTIONS: Final = Preset("PayPal subscriptions", "uuid", header="PayPal-Request-Id", keeps="3d")
"""paypal-rest-api-specifications (2024-02-03)."""

PAYPAL_PAYOUTS: Final = Preset("PayPal payouts", "uuid", 1000, "PayPal-Request-Id", keeps="30d")
"""paypal-rest-api-specifications (2024-02-03)."""

SQUARE: Final = Preset("Square", "uuid", 45, field="idempotency_key", keeps="24h")
"""Payments and refunds: square/connect-api-specification (api.json, 5733f66). How long a key is remembered is
not documented: ``keeps`` is an assumption. ``CancelPaymentByIdempotencyKey`` takes ``call.undoes``.
"""

CHECKOUT: Final = Preset("Checkout.com", "uuid4", header="Cko-Idempotency-Key", keeps="24h")
"""checkout.com/docs, retry a payment (2026-01-07). It runs a request that failed again."""

MOLLIE: Final = Preset("Mollie", "uuid4", header="Idempotency-Key")
"""mollie/openapi specs.yaml (cfbba47)."""

GOCARDLESS: Final = Preset("GoCardless", "uuid", header="Idempotency-Key", conflict="done")
"""gocardless.com/blog/idempotency-keys; gocardless-pro 3.22.0. It never repeats an answer: 409
idempotent_creation_conflict names what was made. Its SDK replaces a header that is spelt otherwise.
"""

KLARNA: Final = Preset("Klarna", "uuid", header="Klarna-Idempotency-Key", keeps="24h")
"""docs.klarna.com/api/escalation-and-retry-policy: a UUID of version 5."""

WORLDLINE: Final = Preset(
    "Worldline Direct", "uuid", 40, "X-GCS-Idempotence-Key", keeps="24h", conflict="running"
)
"""docs.direct.worldline-solutions.com, idempotent requests. It repeats its answer for another body too."""

RAZORPAY: Final = Preset("Razorpay payouts", "uuid", 36, "X-Payout-Idempotency", conflict="running")
"""razorpay.com/docs/api/x/payout-idempotency: 4 to 36 letters, digits, hyphens; required since 2025-03-15."""

MERCADO_PAGO: Final = Preset("Mercado Pago", "uuid", 64, "X-Idempotency-Key")
"""mercadopago 3.6.0; required, for refunds too."""

PLAID: Final = Preset("Plaid transfer", "uuid", 50, field="idempotency_key", keeps="48h")
"""The key of the authorization: plaid/plaid-openapi 2020-09-14.yml (2026-06-10)."""

WISE: Final = Preset("Wise", "uuid", 36, field="customerTransactionId")
"""docs.wise.com/guides/product/send-money."""

MODERN_TREASURY: Final = Preset(
    "Modern Treasury", "uuid", header="Idempotency-Key", keeps="24h", conflict="running"
)
"""docs.moderntreasury.com/reference/idempotent-requests. Keys belong to the API key, over all endpoints."""

DWOLLA: Final = Preset("Dwolla", "uuid", header="Idempotency-Key", keeps="24h", conflict="running")
"""developers.dwolla.com, idempotency key. With another body it is another request."""

AWS: Final = Preset("AWS", "uuid", field="ClientToken")
"""botocore 1.44.8: of 1,530 operations with a token none refuses a UUID. Most spell it ``ClientToken`` or
``clientToken``; how long it is remembered differs.
"""

DYNAMODB: Final = Preset("DynamoDB TransactWriteItems", "uuid", 36, field="ClientRequestToken", keeps="10m")
"""botocore 1.44.8. After ten minutes the same token is a new request."""

SQS: Final = Preset("SQS FIFO", "uuid", 128, field="MessageDeduplicationId", keeps="5m")
"""botocore 1.44.8. Within five minutes a repeated message is accepted and dropped."""

GOOGLE: Final = Preset("Google Cloud", "uuid4", 36, field="request_id", keeps="60m")
"""AIP-155; cloud.google.com/python/docs. Some services check the version of the UUID."""

AZURE: Final = Preset(
    "Azure", "uuid", 36, "Repeatability-Request-ID", first_sent="Repeatability-First-Sent", keeps="5m",
    conflict="running",
)  # fmt: skip
"""learn.microsoft.com/rest/api/communication/repeatable-requests. Five minutes after the first request it
answers 412; it repeats answers of 2xx and 4xx, and runs again what ended in 5xx.
"""

RESEND: Final = Preset("Resend", limit=256, header="Idempotency-Key", keeps="24h")
"""resend.com/docs/dashboard/emails/idempotency-keys."""

SPARKPOST: Final = Preset("SparkPost", "uuid", 255, "Idempotency-Key", keeps="24h", conflict="running")
"""SparkPost/developers.sparkpost.com#590 (2026-08-03): letters, digits, dot, hyphen, underscore. 409 with
code 1601 means that the first request still runs, with 1600 that its body was another one.
"""

EXPEDIA: Final = Preset("Expedia Rapid", "length=28", 28, field="affiliate_reference_id")
"""ExpediaGroup/rapid-java-sdk (7fcc20a): 3 to 28 characters, for the life of the booking. A repeated
reference is refused; a booking is found by it.
"""

QUICKBOOKS: Final = Preset("QuickBooks", "uuid", 50, field="requestid")
"""A parameter of the query: blogs.intuit.com/blog/2015/04/06/15346. In a batch 36 characters."""

XERO: Final = Preset("Xero", "uuid", 128, "Idempotency-Key")
"""XeroAPI/Xero-OpenAPI (2026-07-13)."""

IETF: Final = Preset("the IETF draft", "quoted", header="Idempotency-Key", conflict="running")
"""draft-ietf-httpapi-idempotency-key-header-07: a string of a structured field, hence the quotes."""
