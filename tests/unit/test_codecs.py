"""The codecs: what they encode comes back, in its place only, and says nothing to whoever lacks the keys."""

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import makegood as mg
from makegood.codecs import Chain, Compressed, Context, Elsewhere, Encrypted
from makegood.payload import envelopes

PLACE = Context("0000000000007", "input 0")
KEYS = {"k1": b"1" * 32}
CANARY = b'"canary-4711"'


class Bucket:
    """Where large values are kept."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}

    def put(self, name: str, data: bytes) -> None:
        """Keep an object."""
        self.objects[name] = data

    def get(self, name: str) -> bytes:
        """Return an object."""
        return self.objects[name]

    async def put_later(self, name: str, data: bytes) -> None:
        """Keep an object."""
        await asyncio.sleep(0)
        self.put(name, data)

    async def get_later(self, name: str) -> bytes:
        """Return an object."""
        await asyncio.sleep(0)
        return self.get(name)


def codecs() -> dict[str, Any]:
    bucket = Bucket()
    return {
        "encrypted": Encrypted(KEYS),
        "compressed": Compressed(above=10),
        "elsewhere": Elsewhere(10, bucket.put, bucket.get),
        "awaited": Elsewhere(10, bucket.put_later, bucket.get_later),
        "all": Chain(Compressed(above=10), Encrypted(KEYS), Elsewhere(10, bucket.put, bucket.get)),
    }


async def through(codec: Any, data: bytes, context: Context = PLACE, into: Context = PLACE) -> bytes:
    return await envelopes.decode(codec, await envelopes.encode(codec, data, context), into)


@pytest.mark.parametrize("name", codecs())
@given(data=st.binary(max_size=2000))
def test_what_is_encoded_comes_back_and_the_same_value_gives_the_same_bytes(name: str, data: bytes) -> None:
    codec = codecs()[name]

    async def run() -> None:
        assert await through(codec, data) == data
        assert await envelopes.encode(codec, data, PLACE) == await envelopes.encode(codec, data, PLACE)

    asyncio.run(run())


@pytest.mark.parametrize(
    "into", [PLACE._replace(task="0000000000008"), PLACE._replace(field="input 1"), Context("a", "b")]
)
async def test_a_value_decodes_in_its_place_only(into: Context) -> None:
    with pytest.raises(mg.CodecError, match=f"{into.field} of {into.task} was changed, or copied"):
        await through(Encrypted(KEYS), CANARY, PLACE, into)


async def test_an_envelope_that_names_a_subject_is_taken_only_where_that_may_be() -> None:
    codec, place = Encrypted(KEYS), Context("schedule shop/nightly", "input 0")
    envelope = await envelopes.encode(codec, CANARY, place, names_subject=True)
    assert await envelopes.decode(codec, envelope, PLACE, subjects=["schedule shop/"]) == CANARY
    for subjects in ([], ["schedule other/"], ["signals of shop"]):
        with pytest.raises(mg.CodecError, match="put there from elsewhere"):
            await envelopes.decode(codec, envelope, PLACE, subjects=subjects)
    forgery = envelope.replace(b"nightly", b"hourly")
    with pytest.raises(mg.CodecError, match="copied"):
        await envelopes.decode(codec, forgery, PLACE, subjects=["schedule shop/"])


@given(at=st.integers(min_value=0, max_value=200), bit=st.integers(min_value=0, max_value=7))
def test_no_byte_of_a_ciphertext_can_be_changed(at: int, bit: int) -> None:
    codec = Encrypted(KEYS)
    data = bytearray(codec.encode(CANARY * 3, PLACE))
    data[at % len(data)] ^= 1 << bit
    with pytest.raises(mg.CodecError):
        codec.decode(bytes(data), PLACE)


@given(st.binary(min_size=1, max_size=300), st.binary(min_size=1, max_size=300))
def test_a_nonce_is_never_used_for_two_values(one: bytes, other: bytes) -> None:
    codec = Encrypted(KEYS)
    pairs = [
        (one, PLACE),
        (other, PLACE),
        (one, PLACE._replace(field="input 1")),
        (one, PLACE._replace(task="8")),
    ]
    nonces = {codec.encode(data, context)[len(b"aes:k1:") :][:12] for data, context in pairs}
    assert len(nonces) == len(set(pairs))


def test_the_first_key_encrypts_and_all_decrypt() -> None:
    old, new = Encrypted(KEYS), Encrypted({"k2": b"2" * 32, **KEYS})
    assert new.decode(old.encode(CANARY, PLACE), PLACE) == CANARY
    assert new.encode(CANARY, PLACE).startswith(b"aes:k2:")
    with pytest.raises(
        mg.CodecError, match="encrypted with key k2, which this process does not have; it has k1"
    ):
        old.decode(new.encode(CANARY, PLACE), PLACE)


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ({}, "at least one key"),
        ({"k1": b"short"}, "key k1 is not 32 bytes"),
        ({"k:1": b"1" * 32}, "is not the id of a key"),
        ({"": b"1" * 32}, "is not the id of a key"),
        ({"k1": "1" * 32}, "key k1 is not 32 bytes"),
    ],
)
def test_keys_that_cannot_be_used_are_refused_without_showing_them(keys: Any, text: str) -> None:
    with pytest.raises(mg.ConfigError, match=text) as refusal:
        Encrypted(keys)
    assert "1111" not in str(refusal.value)
    assert "1111" not in repr(Encrypted(KEYS))


def test_wrong_options_are_refused() -> None:
    for make in (
        lambda: Encrypted(KEYS, errors="hide"),  # type: ignore[arg-type]
        lambda: Compressed(above=-1),
        lambda: Compressed(level=0),
        lambda: Elsewhere(-1, print, print),  # type: ignore[arg-type]
        lambda: Elsewhere(1, None, print),  # type: ignore[arg-type]
        Chain,
        lambda: Chain(3),  # type: ignore[arg-type]
    ):
        with pytest.raises(mg.ConfigError):
            make()
    with pytest.raises(mg.DefinitionError, match="a codec has encode"):
        mg.App("shop", codec=3)  # type: ignore[arg-type]


def test_compression_is_used_where_it_shortens() -> None:
    codec = Compressed(above=100)
    assert len(codec.encode(b"a" * 1000, PLACE)) < 100
    assert codec.encode(b"abc", PLACE) == b"raw::abc"
    with pytest.raises(mg.CodecError, match="decompressed"):
        codec.decode(b"zlib::no", PLACE)


async def test_large_values_are_kept_elsewhere_under_the_hash_of_what_is_kept() -> None:
    bucket = Bucket()
    codec = Chain(Encrypted(KEYS), Elsewhere(100, bucket.put, bucket.get))
    assert await through(codec, CANARY) == CANARY
    assert not bucket.objects
    assert await through(codec, CANARY * 100) == CANARY * 100
    assert await through(codec, CANARY * 100) == CANARY * 100
    ((name, content),) = bucket.objects.items()
    assert b"canary" not in content
    envelope = await envelopes.encode(codec, CANARY * 100, PLACE)
    bucket.objects[name] = b"another"
    with pytest.raises(mg.CodecError, match="not what was put there"):
        await envelopes.decode(codec, envelope, PLACE)
    bucket.objects.clear()
    with pytest.raises(mg.CodecError, match="cannot be decoded: KeyError"):
        await envelopes.decode(codec, envelope, PLACE)


async def test_an_error_of_a_codec_that_encodes_names_the_value_and_the_codec() -> None:
    """Its text only where the codec lets texts be kept."""

    class Strange:
        def encode(self, data: bytes, context: Context) -> bytes:
            raise OSError(f"no {data.decode()}")

        def decode(self, data: bytes, context: Context) -> bytes:
            return data

    def put(name: str, data: bytes) -> None:
        raise OSError("no route to the bucket")

    elsewhere = Elsewhere(1, put, dict[str, bytes]().__getitem__)
    for codec, text in (
        (elsewhere, "Elsewhere, so nothing was written: OSError: no route to the bucket"),
        (
            Chain(Compressed(), elsewhere),
            "Elsewhere, so nothing was written: OSError: no route to the bucket",
        ),
        (Strange(), "Strange, so nothing was written: OSError (its text is withheld)"),
        (Chain(Strange(), elsewhere), "Strange, so nothing was written: OSError (its text is withheld)"),
    ):
        with pytest.raises(mg.CodecError) as raised:
            await envelopes.encode(codec, CANARY, PLACE)
        assert str(raised.value).startswith(f"input 0 of 0000000000007 cannot be encoded by {text}. Repeat")
        assert isinstance(raised.value.__cause__, OSError)


def test_functions_that_are_awaited_are_refused_where_nothing_can_be() -> None:
    bucket = Bucket()
    codec = Elsewhere(1, bucket.put_later, bucket.get_later)
    call = codec.encode(CANARY, PLACE)
    with pytest.raises(mg.ConfigError, match="pass functions that block"):
        call.send(None)
    assert isinstance(Elsewhere(1, bucket.put, bucket.get), Elsewhere)


@pytest.mark.parametrize(
    ("codec", "text"),
    [
        (Encrypted(KEYS), "encrypted (key k1, "),
        (Chain(Compressed(), Encrypted(KEYS)), "encrypted (key k1, "),
        (Chain(Encrypted(KEYS), Elsewhere(10_000, print, print)), "encrypted (key k1, "),  # type: ignore[arg-type]
        (Compressed(above=1), "encoded ("),
    ],
    ids=["encrypted", "compressed first", "small", "compressed"],
)
async def test_people_see_what_an_envelope_is(codec: Any, text: str) -> None:
    envelope = (await envelopes.encode(codec, CANARY, PLACE)).decode()
    line = envelopes.describe(f"inputs  {envelope}, {envelope}")
    assert line.startswith(f'inputs  "{text}')
    assert "mg1:" not in line


async def test_a_process_without_the_codec_says_so() -> None:
    envelope = await envelopes.encode(Encrypted(KEYS), CANARY, PLACE)
    with pytest.raises(mg.CodecError, match="this process has no codec: pass the one of its app"):
        await envelopes.decode(None, envelope, PLACE)
    for strange in (b'"paid"', b"3", b'"mg1:!"', b"{"):
        with pytest.raises(mg.CodecError):
            await envelopes.decode(Encrypted(KEYS), strange, PLACE)


def test_texts_of_errors_are_withheld_unless_a_codec_says_otherwise() -> None:
    class Own:
        """A codec of somebody's own."""

    assert envelopes.withholds(Encrypted(KEYS))
    assert envelopes.withholds(Own())
    assert envelopes.withholds(Chain(Compressed(), Encrypted(KEYS)))
    assert not envelopes.withholds(Encrypted(KEYS, errors="keep"))
    assert not envelopes.withholds(Compressed())
    assert not envelopes.withholds(None)
