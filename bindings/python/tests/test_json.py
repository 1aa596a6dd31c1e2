"""Decoding of JSON, compared with Python's `json`."""

from __future__ import annotations

import json
import math
import random
from typing import Any

import pytest

from loopstore._json import decode


def same(one: Any, other: Any) -> bool:
    """Return true if two values are equal, including their types and the order of their fields."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, float):
        return one == other and math.copysign(1, one) == math.copysign(1, other)
    return bool(one == other)


READ = [
    b"null", b"true", b"false", b"0", b"-0", b"-0.0", b"1.0", b"1E5", b"1e-7", b"0.1", b"5e-324", b"1e400",
    b"9223372036854775807", b"9223372036854775808", b"-9223372036854775809", b"1" + b"0" * 400,
    b"2.2250738585072011e-308", b"179769313486231580793e289", b'""', b'"a"', b'"\\u0000\\ud83d\\ude00\\/\\b"',
    b'"\\ud800"', b'"\\ud800\\u0041"', '"é😀\u2028"'.encode(), b"[]", b"{}", b" [ 1 , 2 ] ", b'\t{ "a" : [ ] }\r\n',
    b'{"a":1,"b":2,"a":3}', b'{"":{"":[{}]}}', b'{"\\u0061":1,"a":2}', b'[{"a":1},{"a":2,"ab":3},{"a\\"":4,"a":5}]',
    json.dumps({f"name {n}": {f"name {n + 1}": n} for n in range(100)}).encode(),
    b"[" * 300 + b"]" * 300, b'{"a":' * 300 + b"1" + b"}" * 300, b"\xef\xbb\xbf[1]", "[1]".encode("utf-16"),
    b'"\xed\xa0\x80"', b"NaN", b"-Infinity",
]  # fmt: skip


@pytest.mark.parametrize("text", READ)
def test_what_is_read_is_what_python_reads(text: bytes) -> None:
    if text == b"NaN":
        assert math.isnan(decode(text))
    else:
        assert same(decode(text), json.loads(text))


REFUSED = [
    b"", b" ", b"[", b"]", b"[1", b"[1,", b"[1,]", b"[,]", b"[1 2]", b"{", b'{"a"', b'{"a":', b'{"a":1', b'{"a":1,',
    b'{"a":1,}', b"{,}", b'{"a" 1}', b'{"a":1 "b":2}', b"{1:2}", b"{a:1}", b'"', b'"a', b'"\\"', b'"\\x"', b'"\\u12"',
    b'"\n"', b"01", b"-", b"+1", b"1.", b".5", b"1e", b"1e+", b"--1", b"1-1", b"tru", b"truex", b"nul", b"fals",
    b"1 1", b"[1]]", b"\xff", b'"\xff"', b"1" * 5000, b"'a'", b"[1]x", b"[" * 100_000,
]  # fmt: skip


@pytest.mark.parametrize("text", REFUSED, ids=range(len(REFUSED)))
def test_what_is_refused_is_what_python_refuses(text: bytes) -> None:
    with pytest.raises(Exception) as theirs:
        json.loads(text)
    with pytest.raises(theirs.type) as ours:
        decode(text)
    assert str(ours.value) == str(theirs.value)


def test_any_value_is_read_as_python_reads_it() -> None:
    chance = random.Random(7)
    characters = "aé😀\\\"/\n\r\t\b\f\x00\x1f\x7f\u2028 "

    def text() -> str:
        return "".join(chance.choice(characters) for _ in range(chance.choice([0, 1, 5, 31, 32, 33, 100])))

    def value(depth: int) -> Any:
        kind = chance.randrange(9 if depth else 7)
        if kind == 7:
            return [value(depth - 1) for _ in range(chance.randrange(5))]
        if kind == 8:
            return {text(): value(depth - 1) for _ in range(chance.randrange(5))}
        numbers = [chance.randrange(-9, 9), chance.getrandbits(64), chance.random(), chance.gauss(0, 1e200)]
        return [None, True, False, text(), text(), chance.choice(numbers), chance.choice(numbers)][kind]

    for _ in range(2000):
        given = value(5)
        whole = json.dumps(given, ensure_ascii=chance.random() < 0.5, indent=chance.choice([None, 1])).encode()
        assert same(decode(whole), given)
        cut = whole[: chance.randrange(len(whole) + 1)] + chance.choice([b"", b"}", b"]", b'"', b"0", b","])
        try:
            expected = json.loads(cut)
        except ValueError:
            with pytest.raises(ValueError):
                decode(cut)
        else:
            assert same(decode(cut), expected)
