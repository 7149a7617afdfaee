"""Changes of an envelope and of its bytes. Each gives a body; some leave what is signed as it was, which the judge finds out."""

import base64
import json
import unicodedata
from collections.abc import Callable, Mapping
from random import Random
from typing import Any, Final

from cryptography.hazmat.primitives import hashes

from tests.fuzz.originals import Original
from tests.sns_signing import signed

Change = Callable[[Random, Original], bytes]

URLS: Final = (
    "http://sns.eu-central-1.amazonaws.com/SimpleNotificationService-0123456789abcdef0123456789abcdef.pem",
    "https://sns.eu-central-1.amazonaws.com.evil.example/SimpleNotificationService-0123456789abcdef.pem",
    "https://sns.eu-central-1.amazonaws.com@evil.example/SimpleNotificationService-0123456789abcdef.pem",
    "https://evil.example/SimpleNotificationService-0123456789abcdef0123456789abcdef.pem",
    "https://sns.eu-central-1.amazonaws.com:8443/SimpleNotificationService-0123456789abcdef.pem",
    "https://sns.eu-west-1.amazonaws.com/SimpleNotificationService-0123456789abcdef0123456789abcdef.pem",
    "https://bucket.s3.amazonaws.com/SimpleNotificationService-0123456789abcdef0123456789abcdef.pem",
    "https://sns.eu-central-1.amazonaws.com/x/../SimpleNotificationService-0123456789abcdef.pem",
    "https://sns.eu-central-1.amazonaws.com/SimpleNotificationService-0123456789abcdef.pem?x=1",
    "https://sns.eu-central-1.amazonaws.com/SimpleNotificationService-0123456789abcdef.pem#x",
    "https://sns.eu-central-1.amazonaws.com//SimpleNotificationService-0123456789abcdef.pem",
    "https://SNS.eu-central-1.amazonaws.com/SimpleNotificationService-0123456789abcdef.pem",
    "https://sns.eu-central-1.amazonaws.com./SimpleNotificationService-0123456789abcdef.pem",
    "https:\\\\sns.eu-central-1.amazonaws.com\\SimpleNotificationService-0123456789abcdef.pem",
    "https://sns.eu-central-1.amazonaws.com/SimpleNotificationService-0123456789abcdef.pem\r\nHost: x",
    "file:///etc/passwd",
    "http://169.254.169.254/latest/meta-data/",
    "//127.0.0.1/x.pem",
    "",
)
VALUES: Final[tuple[Any, ...]] = (
    *(None, True, False, 0, -1, 1.5, 10**30, -(2**63), [], {}, [None], {"a": {}}, "", " ", "\x00"),
    *(float("nan"), float("inf"), ["x"] * 100, {"Type": "Notification"}, "\ud800", "ﬁ", "a" * 5000),
    *("Notification", "SubscriptionConfirmation", "UnsubscribeConfirmation", "1", "2", "3", "٢"),
)
CONFUSABLE: Final = str.maketrans({"a": "а", "e": "е", "o": "о", "-": "‐", ":": "：", ".": "․"})


def field_flip(random: Random, original: Original) -> bytes:
    fields = dict(original.fields)
    name = random.choice([n for n, v in fields.items() if isinstance(v, str) and v])
    at = random.randrange(len(fields[name]))
    new = chr(random.choice([ord(fields[name][at]) ^ (1 << random.randrange(7)), 0, 0x20, 0xE9]))
    fields[name] = fields[name][:at] + new + fields[name][at + random.choice((0, 1)) :]
    return written(random, fields)


def byte_flip(random: Random, original: Original) -> bytes:
    body = bytearray(original.body)
    for _ in range(random.randint(1, 6)):
        at = random.randrange(len(body))
        match random.randrange(3):
            case 0:
                body[at] ^= 1 << random.randrange(8)
            case 1:
                body.insert(at, random.randrange(256))
            case _:
                del body[at : at + random.randint(1, 4)]
    return bytes(body)


def swap(random: Random, original: Original) -> bytes:
    fields = dict(original.fields)
    one, other = random.sample(list(fields), 2)
    fields[one], fields[other] = fields[other], fields[one]
    return written(random, fields)


def rename(random: Random, original: Original) -> bytes:
    fields = dict(original.fields)
    name = random.choice(list(fields))
    forms = (
        name.lower(),
        name.upper(),
        name + " ",
        "\ufeff" + name,
        name[:-1],
        name * 2,
        "a." + name,
    )
    fields[random.choice(forms)] = fields.pop(name)
    return written(random, fields)


def leave_out(random: Random, original: Original) -> bytes:
    fields = dict(original.fields)
    for name in random.sample(list(fields), random.randint(1, 3)):
        del fields[name]
    return written(random, fields)


def truncate(random: Random, original: Original) -> bytes:
    body = original.body
    start = random.choice((0, 0, random.randrange(len(body))))
    return body[start : random.randrange(start, len(body))]


def duplicate_keys(random: Random, original: Original) -> bytes:
    """Readers disagree on which one counts: whichever it is, it is the one whose signature is checked."""
    name = random.choice(list(original.fields))
    value = random.choice([*VALUES, original.fields[random.choice(list(original.fields))]])
    pair = f"{json.dumps(name)}: {json.dumps(value)}"
    text = original.body.decode()
    return (f"{{{pair}, {text[1:]}" if random.random() < 0.5 else f"{text[:-1]}, {pair}}}").encode()


def other_type(random: Random, original: Original) -> bytes:
    fields = dict(original.fields)
    for name in random.sample(list(fields), random.randint(1, 3)):
        fields[name] = random.choice(VALUES)
    return written(random, fields)


def unicode_trick(random: Random, original: Original) -> bytes:
    fields = dict(original.fields)
    name = random.choice([n for n, v in fields.items() if isinstance(v, str)])
    value = fields[name]
    at = random.randint(0, len(value))
    fields[name] = random.choice(
        (
            unicodedata.normalize("NFD", value),
            unicodedata.normalize("NFKC", value),
            value.translate(CONFUSABLE),
            value.upper(),
            value.casefold(),
            value[:at]
            + random.choice(("\u200b", "\u202e", "\ud800", "\udfff", "\x00", "\u0301"))
            + value[at:],
            value + random.choice(("\n", "\r", " ", "\u00a0", "\ufeff")),
            "\ufeff" + value,
        )
    )
    return written(random, fields)


def encoding(random: Random, original: Original) -> bytes:
    text = json.dumps(dict(original.fields), ensure_ascii=False)
    return random.choice(
        (
            lambda: b"\xef\xbb\xbf" + text.encode(),
            lambda: text.encode("utf-16"),
            lambda: text.encode("utf-32"),
            lambda: text.encode("utf-16-le"),
            lambda: text.encode("latin-1", "replace"),
            lambda: text.encode("utf-7"),
            lambda: text.encode().replace(b"{", b"\xc1\xbb", 1),
            lambda: text.encode() + b"\x00",
            lambda: text.encode() * 2,
            lambda: b"\x00" * 40 + text.encode(),
            lambda: b")]}',\n" + text.encode(),
            lambda: b"// x\n" + text.encode(),
        )
    )()


def nesting(random: Random, original: Original) -> bytes:
    depth = random.choice((10, 200, 900, 1023, 1025, 5000, 100_000))
    opening, closing = random.choice((("[", "]"), ('{"a":', "}")))
    inner = "1" if opening != "[" else ""
    deep = opening * depth + inner + closing * depth
    where = random.randrange(4)
    if where == 0:
        return deep.encode()
    if where == 1:
        return (original.body.decode()[:-1] + f', "Deep": {deep}}}').encode()
    fields = dict(original.fields)
    if where == 2:
        fields["Message"] = f'{{"eventType": "Delivery", "mail": {deep[:100_000]}}}'
        return written(random, fields)
    return (original.body.decode()[:-1] + f', "Message": {deep}}}').encode()


def number(random: Random, original: Original) -> bytes:
    digits = random.choice((1, 20, 400, 4300, 4301, 50_000))
    form = random.choice(
        ("{0}", "-{0}", "{0}.{0}", "1e{0}", "1e-{0}", "0{0}", "+{0}", "0x{0}", "{0}E+")
    )
    text = form.format("9" * digits)
    name = random.choice(["Timestamp", "SignatureVersion", "Subject", "New", "MessageId", "Type"])
    return (original.body.decode()[:-1] + f", {json.dumps(name)}: {text}}}").encode()


def signature(random: Random, original: Original) -> bytes:
    fields = dict(original.fields)
    good = fields["Signature"]
    raw = base64.b64decode(good)
    at = random.randrange(len(raw))
    flipped = raw[:at] + bytes([raw[at] ^ (1 << random.randrange(8))]) + raw[at + 1 :]
    fields["Signature"] = random.choice(
        (
            base64.b64encode(flipped).decode(),
            good[:-1],
            good + "=",
            good.rstrip("="),
            good + "\n",
            " " + good,
            base64.urlsafe_b64encode(raw).decode(),
            base64.b64encode(raw[:-1]).decode(),
            base64.b64encode(raw + b"\x00").decode(),
            base64.b64encode(b"\x00" * len(raw)).decode(),
            base64.b64encode(b"\x00" * 63 + b"\x01").decode(),
            "",
            "é" + good,
            good * 50,
        )
    )
    if random.random() < 0.3:
        fields["SignatureVersion"] = random.choice(("1", "2", "3", "", 1, 2, "1 ", "02"))
    return written(random, fields)


def forged(random: Random, original: Original) -> bytes:
    """Signed by another key, with another hash, or without the last newline; or of another topic or text."""
    fields = {name: value for name, value in original.fields.items() if name != "Signature"}
    match random.randrange(4):
        case 0:
            return signed(fields, key="attacker")
        case 1:
            other = {"1": hashes.SHA256(), "2": hashes.SHA1()}[fields["SignatureVersion"]]  # noqa: S303
            return signed(fields, algorithm=other)
        case 2:
            return signed(fields, final_newline=False)
        case _:
            other_topic = fields["TopicArn"].replace("111122223333", "999988887777")
            return signed({**fields, "TopicArn": other_topic})


def certificate_url(random: Random, original: Original) -> bytes:
    fields = dict(original.fields)
    good = fields["SigningCertURL"]
    choice = random.randrange(4)
    if choice == 0:
        fields["SigningCertURL"] = random.choice(URLS)
    elif choice == 1:
        at = random.randrange(len(good))
        fields["SigningCertURL"] = good[:at] + random.choice("/.@:#?%\\ \x00aé") + good[at + 1 :]
    elif choice == 2:
        name = f"SimpleNotificationService-{random.randrange(16**8):032x}.pem"
        fields["SigningCertURL"] = good.rpartition("/")[0] + "/" + name
    else:
        fields["SigningCertURL"] = random.choice((good + "\n", good + "/", good[:-1], good.upper()))
    return written(random, fields)


def neutral(random: Random, original: Original) -> bytes:
    """What is signed stays: order of names, blanks, escapes, fields that nobody signs."""
    fields: dict[str, Any] = dict(original.fields)
    pairs = list(fields.items())
    random.shuffle(pairs)
    fields = dict(pairs)
    for name in ("UnsubscribeURL", "MessageAttributes", "SequenceNumber", "New", "Signature2", ""):
        if random.random() < 0.4:
            fields[name] = random.choice([v for v in VALUES if v != "\ud800"])
    text = json.dumps(
        fields,
        ensure_ascii=random.random() < 0.5,
        indent=random.choice((None, None, 0, 2, "\t")),
        separators=random.choice((None, (",", ":"), (" , ", " : "))),
    )
    return random.choice(("", " ", "\r\n\t")).encode() + text.encode() + b"\n"


def large(random: Random, original: Original) -> bytes:
    size = random.choice((100_000, 600_000, 1_638_400, 1_638_401, 2_000_000))
    pad = " " * max(0, size - len(original.body))
    return random.choice((original.body + pad.encode(), b"a" * size, b"[" * size, b'"' * size))


def noise(random: Random, _original: Original) -> bytes:
    return random.choice(
        (
            random.randbytes(random.randrange(300)),
            b"",
            b"null",
            b"{}",
            b"[]",
            b'"x"',
            b"1",
            b"a=b&Type=Notification",
            b"<Type>Notification</Type>",
        )
    )


def written(random: Random, fields: Mapping[str, Any]) -> bytes:
    text = json.dumps(dict(fields), ensure_ascii=random.random() < 0.7)
    return text.encode(errors="surrogatepass")


CHANGES: Final[Mapping[str, tuple[Change, int]]] = {
    "field-flip": (field_flip, 12),
    "byte-flip": (byte_flip, 12),
    "swap": (swap, 6),
    "rename": (rename, 5),
    "leave-out": (leave_out, 5),
    "truncate": (truncate, 6),
    "duplicate-keys": (duplicate_keys, 8),
    "other-type": (other_type, 8),
    "unicode": (unicode_trick, 8),
    "encoding": (encoding, 3),
    "nesting": (nesting, 1),
    "number": (number, 3),
    "signature": (signature, 7),
    "forged": (forged, 3),
    "certificate-url": (certificate_url, 6),
    "neutral": (neutral, 8),
    "large": (large, 1),
    "noise": (noise, 3),
}
