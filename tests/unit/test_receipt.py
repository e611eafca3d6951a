"""The receipt: one opaque word."""

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors import receipt as receipt_module
from connectors.receipt import Receipt, ReceiptError

RECEIPT = Receipt(schedule_topic="SCHEDULE_TOPIC_XXXX-1", partition=3, id="a1", topic="orders", deliver_ms=1_700_000)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


def a_word(fields: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(fields).encode()).decode().rstrip("=")


@given(
    st.builds(
        Receipt,
        schedule_topic=TEXT,
        partition=st.integers(0, 2**31 - 1),
        id=TEXT,
        topic=TEXT,
        deliver_ms=st.integers(0, 2**63 - 1),
        key=st.none() | st.binary(max_size=40),
        cancellable=st.booleans(),
    )
)
def test_a_receipt_is_one_word_that_reads_back(receipt: Receipt) -> None:
    word = receipt.encode()
    assert word.isascii()
    assert not set(word) & set("+/= \n'\"")
    assert Receipt.decode(word) == receipt
    assert Receipt.decode(f"  {word}\n") == receipt


def test_a_null_key_and_an_empty_key_are_told_apart() -> None:
    words = {
        Receipt(schedule_topic="s", partition=0, id="i", topic="t", deliver_ms=0, key=key).encode()
        for key in (None, b"")
    }
    assert {Receipt.decode(word).key for word in words} == {None, b""}


@pytest.mark.parametrize(
    "word",
    [
        "",
        "   ",
        "x",
        "é",
        "orders",
        "a b",
        "%%%%",
        "e30",
        "bnVsbA",
        RECEIPT.encode()[:-3],
        RECEIPT.encode() + "AAAA",
        RECEIPT.encode()[:8] + "!" + RECEIPT.encode()[8:],
        a_word([]),
        a_word({"s": "t", "p": "0", "i": "a", "t": "o", "d": 0}),
        a_word({"s": "t", "p": 0, "i": None, "t": "o", "d": 0}),
        a_word({"s": "t", "p": 0, "i": "a", "t": "o"}),
        base64.urlsafe_b64encode(b'{"x":' + b"[" * 50_000 + b"]" * 50_000 + b"}").decode(),
        base64.urlsafe_b64encode(b"\xff\xfe").decode(),
    ],
)
def test_any_other_word_is_refused(word: str) -> None:
    with pytest.raises(ReceiptError, match='is not a receipt; pass the value of "receipt"'):
        Receipt.decode(word)


@pytest.mark.parametrize("version", [0, 2])
def test_a_receipt_of_another_version_is_refused_with_words(version: int) -> None:
    word = a_word({"s": "t", "p": 0, "i": "a", "t": "o", "d": 0, "v": version})
    with pytest.raises(ReceiptError, match=f"of version {version}; this Timewheel reads 1"):
        Receipt.decode(word)


def test_commands_show_the_word_and_what_it_stands_for() -> None:
    assert RECEIPT.to_dict() == {
        "receipt": RECEIPT.encode(),
        "id": "a1",
        "topic": "orders",
        "partition": 3,
        "deliver_ms": 1_700_000,
    }


def test_the_receipt_of_a_level_record_says_that_it_cannot_be_cancelled() -> None:
    receipt = Receipt(schedule_topic="s", partition=0, id="a", topic="t", deliver_ms=0, cancellable=False)
    assert receipt.to_dict()["cancellable"] is False
    assert Receipt.decode(receipt.encode()).cancellable is False


def test_a_receipt_as_text_is_its_word() -> None:
    assert f"{RECEIPT}" == RECEIPT.encode()


def test_a_receipt_says_of_which_version_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as newer:
        newer.setattr(receipt_module, "_VERSION", 2)
        word = Receipt(schedule_topic="t", partition=0, id="a", topic="o", deliver_ms=0).encode()
        assert Receipt.decode(word).encode() == word
    with pytest.raises(ReceiptError, match="of version 2; this Timewheel reads 1"):
        Receipt.decode(word)
