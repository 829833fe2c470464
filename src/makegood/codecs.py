"""What becomes of payloads before they are stored: encrypted, compressed, kept elsewhere.

    keys = {"2026-11": new_key, "2026-05": old_key}  # 32 bytes each; the first encrypts, all decrypt
    shop = mg.App("shop", codec=mg.codecs.Chain(mg.codecs.Compressed(), mg.codecs.Encrypted(keys)))

Whoever submits, runs an action or reads a result has the codec. Scheduler, Supervisor and store never open a
value. A codec of your own has two methods, ``encode(data, context)`` and ``decode(data, context)``, which may
be ``async``; for the same value in the same context ``encode`` returns the same bytes.
"""

import asyncio
import hashlib
import hmac
import inspect
import zlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Literal

from makegood.base.arguments import judge_calls
from makegood.base.contexts import running_loop
from makegood.base.extras import optional
from makegood.errors import CodecError, ConfigError
from makegood.payload.envelopes import Codec, Context, encode_body, is_codec

__all__ = ("Chain", "Codec", "Compressed", "Context", "Elsewhere", "Encrypted")

Errors = Literal["withhold", "keep"]
"""What becomes of the texts of errors."""

_KEY_SIZE: Final = 32
_NONCE_SIZE: Final = 12
_AES, _ZLIB, _PLAIN, _AT = b"aes:", b"zlib::", b"raw::", b"at::"


@judge_calls(ConfigError)
class Encrypted:
    """Encrypts with AES-256-GCM, by the package ``cryptography`` (``pip install 'makegood[encrypt]'``).

    ``keys``: 32 bytes each, by their ids. The first one encrypts, all decrypt: to rotate, add the new key as
    the last one everywhere, then make it the first one. ``errors``: "withhold", so that of an exception only
    the class is stored in clear text, and its text is encrypted; or "keep", for exceptions that never quote
    payloads: their texts stay in clear text.

    The context is authenticated: a value that was copied to another task or field is refused. The nonce is a
    keyed hash of the value and its context, so the same value in the same place is the same ciphertext, and
    a repeated call writes the same bytes. Raises ``ConfigError`` for keys that cannot be used.
    """

    def __init__(self, keys: Mapping[str, bytes], *, errors: Errors = "withhold") -> None:
        if not keys or not isinstance(keys, Mapping):
            raise ConfigError("Encrypted(keys): pass at least one key, {id: 32 bytes}")
        for name, key in keys.items():
            if (
                not isinstance(name, str)
                or not name.isascii()
                or not name.isprintable()
                or not 1 <= len(name) <= 64
                or set(name) & set(": ")
            ):
                raise ConfigError(
                    f"Encrypted(keys): {name!r:.80} is not the id of a key: 1 to 64 ASCII characters without ':' and spaces"
                )
            if not isinstance(key, bytes) or len(key) != _KEY_SIZE:
                raise ConfigError(
                    f"Encrypted(keys): key {name} is not 32 bytes: make one with secrets.token_bytes(32)"
                )
        if errors not in ("withhold", "keep"):
            raise ConfigError(f'Encrypted(errors={errors!r}): "withhold" or "keep"')
        aead = optional(
            "cryptography.hazmat.primitives.ciphers.aead", "cryptography",
            "Encrypted needs the package cryptography: pip install 'makegood[encrypt]'",
        )  # fmt: skip
        self.errors: Errors = errors
        self._current = next(iter(keys))
        self._ciphers: dict[str, Any] = {name: aead.AESGCM(key) for name, key in keys.items()}
        self._nonce_key = hmac.digest(keys[self._current], b"makegood nonce", "sha256")

    def __repr__(self) -> str:
        return f"<encrypted, keys {', '.join(self._ciphers)}>"

    def encode(self, data: bytes, context: Context) -> bytes:
        """Return the ciphertext, with the key's id and the nonce before it."""
        associated = context.associated_data
        nonce = hmac.digest(self._nonce_key, associated + b"\0" + data, "sha256")[:_NONCE_SIZE]
        ciphertext: bytes = self._ciphers[self._current].encrypt(nonce, data, associated)
        return b"%b%b:%b%b" % (_AES, self._current.encode(), nonce, ciphertext)

    def decode(self, data: bytes, context: Context) -> bytes:
        """Return the value. Raises ``CodecError`` for an unknown key, and for a changed or moved value."""
        name, colon, nonce_and_ciphertext = data.removeprefix(_AES).partition(b":")
        if not (data.startswith(_AES) and colon):
            raise CodecError(f"{context.field} of {context.task} was not encrypted by mg.codecs.Encrypted")
        cipher = self._ciphers.get(name.decode(errors="replace"))
        if cipher is None:
            raise CodecError(
                f"{context.field} of {context.task} is encrypted with key {name.decode(errors='replace')}, which this process does not have; it has "
                f"{', '.join(self._ciphers)}: add the key to Encrypted(keys)"
            )
        try:
            value: bytes = cipher.decrypt(
                nonce_and_ciphertext[:_NONCE_SIZE],
                nonce_and_ciphertext[_NONCE_SIZE:],
                context.associated_data,
            )
        except Exception:  # noqa: BLE001 - whatever it raises, the ciphertext does not belong there
            raise CodecError(
                f"{context.field} of {context.task} was changed, or copied there from another task or field, and cannot be decrypted"
            ) from None
        return value


@judge_calls(ConfigError)
class Compressed:
    """Compresses values of at least ``above`` bytes, with zlib at ``level`` (1 to 9)."""

    errors: Errors = "keep"

    def __init__(self, *, above: int = 512, level: int = 6) -> None:
        if not isinstance(above, int) or above < 0:
            raise ConfigError(f"Compressed(above={above!r}): a number of bytes")
        if level not in range(1, 10):
            raise ConfigError(f"Compressed(level={level!r}): a whole number from 1 to 9")
        self._above = above
        self._level = level

    def encode(self, data: bytes, context: Context) -> bytes:  # noqa: ARG002 - a codec's
        """Return the value compressed, if that makes it shorter."""
        if len(data) >= self._above:
            packed = _ZLIB + zlib.compress(data, self._level)
            if len(packed) < len(data):
                return packed
        return _PLAIN + data

    def decode(self, data: bytes, context: Context) -> bytes:
        """Return the value. Raises ``CodecError`` for anything else than ``encode`` returns."""
        if data.startswith(_PLAIN):
            return data.removeprefix(_PLAIN)
        try:
            return zlib.decompress(data.removeprefix(_ZLIB))
        except zlib.error as error:
            raise CodecError(f"{context.field} of {context.task} cannot be decompressed: {error}") from None


Put = Callable[[str, bytes], Awaitable[None] | None]
"""Keeps bytes under a name; the same name always comes with the same bytes."""
Get = Callable[[str], Awaitable[bytes] | bytes]
"""Returns the bytes that are kept under a name."""


class Elsewhere:
    """Keeps values of more than ``limit`` bytes elsewhere, such as in a bucket, and their name in the store.

    ``put(name, data)`` and ``get(name)`` may be ``async``; functions that block run in a thread. A value is
    put before its task, or its result, is committed. Its name is a hash of its bytes, so a value that is put
    again is the same object. makegood deletes no object: expire them by a rule of the bucket, later than
    ``retention`` lets their tasks live.

    makegood compares a value with the limit of payloads before it encodes the value: for larger values, raise
    ``mg.App(payload_limit=...)``.
    """

    errors: Errors = "keep"

    def __init__(self, limit: int, put: Put, get: Get) -> None:
        if not isinstance(limit, int) or isinstance(limit, bool) or limit < 0:
            raise ConfigError(f"Elsewhere(limit={limit!r}): a number of bytes")
        if not (callable(put) and callable(get)):
            raise ConfigError(
                "Elsewhere(limit, put, get): put and get are functions, put(name, data) and get(name)"
            )
        self._limit = limit
        self._put = put
        self._get = get

    async def encode(self, data: bytes, context: Context) -> bytes:  # noqa: ARG002 - a codec's
        """Return the value, or the name under which it is kept elsewhere. Raises what ``put`` raises."""
        if len(data) <= self._limit:
            return _PLAIN + data
        name = hashlib.sha256(data).hexdigest()
        await _call(self._put, name, data)
        return _AT + name.encode()

    async def decode(self, data: bytes, context: Context) -> bytes:
        """Return the value. Raises ``CodecError`` if what is kept is not what was put."""
        if data.startswith(_PLAIN):
            return data.removeprefix(_PLAIN)
        name = data.removeprefix(_AT).decode(errors="replace")
        value: bytes = await _call(self._get, name)
        if hashlib.sha256(value).hexdigest() != name:
            raise CodecError(
                f"{context.field} of {context.task}: what is kept elsewhere as {name} is not what was put there"
            )
        return value


async def _call(fn: Callable[..., Any], *arguments: object) -> Any:
    """Call a function. One that blocks runs in a thread if there is an event loop that it would hold up.

    Raises ``ConfigError`` for one that is async where nothing can be awaited.
    """
    if running_loop() is None:  # in the transaction of a caller whose driver blocks
        if inspect.iscoroutinefunction(fn):
            raise ConfigError(
                "Elsewhere: put and get are async, and the connection= of this call blocks: pass functions that block"
            )
        return fn(*arguments)
    value = fn(*arguments) if inspect.iscoroutinefunction(fn) else await asyncio.to_thread(fn, *arguments)
    return await value if inspect.isawaitable(value) else value


class Chain:
    """Several codecs, one after the other: ``Chain(Compressed(), Encrypted(keys))`` compresses, then
    encrypts.

    Texts of errors are withheld if one of them says so.
    """

    def __init__(self, *codecs: Codec) -> None:
        if not codecs or not all(map(is_codec, codecs)):
            raise ConfigError(
                "Chain(...): pass codecs, each with encode(data, context) and decode(data, context), such as Compressed()"
            )
        self.codecs = codecs
        keep = all(getattr(codec, "errors", "withhold") == "keep" for codec in codecs)
        self.errors: Errors = "keep" if keep else "withhold"

    def __repr__(self) -> str:
        return f"<chain of {', '.join(map(repr, self.codecs))}>"

    async def encode(self, data: bytes, context: Context) -> bytes:
        """Return the value, encoded by the first codec to the last. Raises ``CodecError`` if one raises."""
        for codec in self.codecs:
            data = await encode_body(codec, data, context, withhold=self.errors == "withhold")
        return data

    async def decode(self, data: bytes, context: Context) -> bytes:
        """Return the value, decoded by the last codec to the first. Raises what they raise."""
        for codec in reversed(self.codecs):
            decoded = codec.decode(data, context)
            data = await decoded if inspect.isawaitable(decoded) else decoded
        return data
