"""Content types, sniffing and content decoding: whole and right, or refused."""

import gzip
import random
import tracemalloc
import zlib
from collections.abc import Callable
from contextlib import suppress

import brotli
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinycrawl.content import ContentError, decode_content, looks_like_html, media_type, zstd

PAGE = b"<!doctype html><title>t</title>" + b"".join(b"<p>%d" % number for number in range(500))


def zip_gzip(data: bytes) -> bytes:
    return gzip.compress(data, mtime=0)


def zip_raw(data: bytes) -> bytes:
    deflater = zlib.compressobj(wbits=-15)
    return deflater.compress(data) + deflater.flush()


ENCODERS: dict[bytes, Callable[[bytes], bytes]] = {
    b"gzip": zip_gzip,
    b"x-gzip": zip_gzip,
    b"deflate": zlib.compress,
    b"Deflate": zip_raw,
    b"br": brotli.compress,
    b"zstd": zstd.compress,
    b"identity": bytes,
}
each_encoder = pytest.mark.parametrize("name", [name for name in ENCODERS if name != b"identity"])


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        pytest.param([], "", id="C2-nothing"),
        pytest.param([b""], "", id="C2-empty"),
        pytest.param([b"application/octet-stream"], "application/octet-stream", id="C2-octet-stream"),
        pytest.param([b"TEXT/HTML"], "text/html", id="C2-upper-case"),
        pytest.param([b"text/html, text/html"], "text/html", id="C2-twice"),
        pytest.param([b"text/html", b"application/pdf"], "application/pdf", id="two-headers"),
        pytest.param(
            [b'application/pdf;x=",text/plain"', b"text/html, */*, html"], "text/html", id="the-last-that-is-one"
        ),
        pytest.param([b" text/html ;charset=utf-8"], "text/html", id="parameter"),
        pytest.param([b"text/html;charset=a,b"], "text/html", id="comma-in-parameter"),
        pytest.param([b"; charset=utf-8"], "", id="parameter-only"),
        pytest.param([b"text/\xe9"], "invalid type", id="latin-1"),
    ],
)
def test_media_type(values: list[bytes], expected: str) -> None:
    assert media_type(values) == expected


@pytest.mark.parametrize(
    "start",
    [
        *[
            pytest.param(b"<%b>" % name, id=name.decode())
            for name in b"html head script iframe h1 div font table a style title b body br p !--".split()
        ],
        b"<!DOCTYPE html>",
        b"<!doctype HTML PUBLIC",
        b"<A href=x",
        b"\t\r\n\f <P>",
        b"\xef\xbb\xbf <html>",
        b"\xff\xfe" + "\n<html>é".encode("utf-16-le"),
        b"\xfe\xff" + "<!doctype html>".encode("utf-16-be"),
        b'<?xml version="1.0"?>\n<!DOCTYPE html PUBLIC',
        b'<?xml version="1.0"?><html xmlns="http://www.w3.org/1999/xhtml">',
        b"<?xml version='1.0'?>" + b" " * 980 + b"<html\n",
    ],
)
def test_looks_like_html(start: bytes) -> None:
    assert looks_like_html(start)


@pytest.mark.parametrize(
    "start",
    [
        b"",
        b"<",
        b"<htm>",
        b"<html",
        b"<html5>",
        b"<abbr>",
        b"<section>",
        b"hello <p>",
        b"%PDF-1.7 <html>",
        b"{}",
        b"\0<html>",
        b"\xff\xfe\x00",
        b"<?xml version='1.0'?><rss><item>",
        b"<?xml version='1.0'?>" + b" " * 1024 + b"<html>",
        b"<?xml-stylesheet?><html>",
        "<html>".encode("utf-16-le"),
    ],
)
def test_does_not_look_like_html(start: bytes) -> None:
    assert not looks_like_html(start)


@pytest.mark.parametrize(
    ("body", "encodings", "expected"),
    [
        pytest.param(b"abc", [], b"abc", id="none"),
        pytest.param(b"abc", [b""], b"abc", id="empty-header"),
        pytest.param(b"abc", [b"Identity"], b"abc", id="identity"),
        pytest.param(b"", [b"gzip"], b"", id="C8-empty-body"),
        pytest.param(zip_gzip(b""), [b"gzip"], b"", id="gzip-of-nothing"),
        pytest.param(zip_gzip(b"abc"), [b" GZip "], b"abc", id="case-and-space"),
        pytest.param(zip_gzip(b"ab") + zip_gzip(b"c"), [b"gzip"], b"abc", id="two-members"),
        pytest.param(zip_gzip(b"abc") + bytes(100_000), [b"gzip"], b"abc", id="zero-padding"),
        pytest.param(zip_gzip(b"ab") + bytes(9) + zip_gzip(b"c"), [b"gzip"], b"abc", id="zeros-between-members"),
        pytest.param(zip_gzip(zip_gzip(b"abc")), [b"gzip"], b"abc", id="C5-twice-under-one-header"),
        pytest.param(zip_gzip(zip_gzip(b"abc")), [b"x-gzip"], b"abc", id="C5-x-gzip"),
        pytest.param(zip_gzip(zip_gzip(b"abc")), [b"gzip, gzip"], b"abc", id="twice-declared"),
        pytest.param(zlib.compress(zip_gzip(b"abc")), [b"deflate"], zip_gzip(b"abc"), id="only-if-gzip-was-said"),
        pytest.param(brotli.compress(zip_gzip(b"abc")), [b"gzip", b"br"], b"abc", id="two-headers"),
        pytest.param(zstd.compress(b"ab") + zstd.compress(b"c"), [b"zstd"], b"abc", id="two-zstd-frames"),
        pytest.param(b"\x50\x2a\x4d\x18\1\0\0\0x" + zstd.compress(b"ab"), [b"zstd"], b"ab", id="skippable-frame"),
    ],
)
def test_decode_content(body: bytes, encodings: list[bytes], expected: bytes) -> None:
    assert decode_content(body, encodings, 0) == expected


@pytest.mark.parametrize(
    ("body", "encodings", "reason", "retry"),
    [
        pytest.param(b"abc", [b"foo"], "unknown content-encoding: foo", False, id="C5-unknown"),
        pytest.param(zip_gzip(b"abc"), [b"gzip, \xe9"], "unknown content-encoding: invalid", False, id="one-unknown"),
        pytest.param(b"abc", [b"x" * 99], "unknown content-encoding: " + "x" * 40, False, id="long-name"),
        pytest.param(b"abc", [b"gzip,br"] * 1000, "too many content-encodings: 2000", False, id="too-many"),
        pytest.param(zip_gzip(PAGE)[:-10], [b"gzip"], "truncated gzip", True, id="C6-cut-10-bytes-short"),
        pytest.param(zip_gzip(b"ab") + zip_gzip(PAGE)[:-1], [b"gzip"], "truncated gzip", True, id="second-member-cut"),
        pytest.param(zip_gzip(b"ab") + b"\x1f", [b"gzip"], "truncated gzip", True, id="second-member-begun"),
        pytest.param(zip_gzip(b"ab")[:-8] + b"\1" * 8, [b"gzip"], "bad gzip", True, id="gzip-checksum"),
        pytest.param(PAGE, [b"gzip"], "bad gzip", True, id="not-compressed"),
        pytest.param(bytes(100), [b"gzip"], "bad gzip", True, id="zeros-only"),
        pytest.param(zip_gzip(b"ab") + b"junk", [b"gzip"], "bad gzip", True, id="gzip-and-junk"),
        pytest.param(zip_gzip(zip_gzip(PAGE)[:-1]), [b"gzip"], "truncated gzip", True, id="C5-inner-cut"),
        pytest.param(zip_gzip(b"abc"), [b"gzip, gzip"], "bad gzip", True, id="once-but-declared-twice"),
        pytest.param(zlib.compress(b"ab") + b"junk", [b"deflate"], "bad deflate", True, id="deflate-and-junk"),
        pytest.param(zlib.compress(b"ab")[:-1] + b"\0", [b"deflate"], "bad deflate", True, id="deflate-checksum"),
        pytest.param(b"\xff\xff\xff", [b"deflate"], "bad deflate", True, id="not-deflate"),
        pytest.param(brotli.compress(b"ab") + b"junk", [b"br"], "bad br", True, id="br-and-junk"),
        pytest.param(PAGE, [b"br"], "bad br", True, id="not-br"),
        pytest.param(zstd.compress(b"ab") + b"junk", [b"zstd"], "bad zstd", True, id="zstd-and-junk"),
        pytest.param(PAGE, [b"zstd"], "bad zstd", True, id="not-zstd"),
        pytest.param(b"\x28\xb5\x2f\xfd\0\x88" + b"\1\0\0", [b"zstd"], "bad zstd", True, id="zstd-window-128-mib"),
    ],
)
def test_decode_content_refuses(body: bytes, encodings: list[bytes], reason: str, retry: bool) -> None:
    with pytest.raises(ContentError) as caught:
        decode_content(body, encodings, 0)

    assert (caught.value.reason, caught.value.retry, str(caught.value)) == (reason, retry, reason)


@pytest.mark.parametrize("name", ENCODERS)
@pytest.mark.parametrize("size", [1, 65_535, 65_536, 65_537, 131_072, 200_000])
def test_size_limit_is_exact(name: bytes, size: int) -> None:
    for data in (bytes(size), random.Random(size).randbytes(size)):
        body = ENCODERS[name](data)

        assert decode_content(body, [name], size) == data
        assert decode_content(body, [name], 0) == data
        if size > 1:
            with pytest.raises(ContentError, match=r"^too large$") as caught:
                decode_content(body, [name], size - 1)
            assert not caught.value.retry


@each_encoder
@pytest.mark.parametrize("size", [100, 65_535, 65_536, 131_072])
def test_junk_after_the_end_is_refused(name: bytes, size: int) -> None:
    body = ENCODERS[name](random.Random(size).randbytes(size) + bytes(size)) + b"junk"

    with pytest.raises(ContentError, match="bad ") as caught:
        decode_content(body, [name], 0)
    assert caught.value.retry


@each_encoder
def test_every_prefix_is_refused(name: bytes) -> None:
    body = ENCODERS[name](PAGE)

    assert decode_content(body, [name], 0) == PAGE
    for length in range(1, len(body)):
        with pytest.raises(ContentError) as caught:
            decode_content(body[:length], [name], 0)
        assert caught.value.retry


names = st.sampled_from(sorted(ENCODERS))
# An HTML page does not begin with the magic of gzip; what does is unzipped once more.
contents = st.binary(min_size=1).filter(lambda data: data[:2] != b"\x1f\x8b")


@given(contents, names, names)
def test_decoding_undoes_a_stack_of_two(data: bytes, first: bytes, second: bytes) -> None:
    body = ENCODERS[second](ENCODERS[first](data))

    assert decode_content(body, [first + b"," + second], len(data)) == data
    assert decode_content(body, [first, second], 0) == data


@given(contents, names.filter(lambda name: name != b"identity"), st.data())
def test_a_prefix_of_anything_is_refused(data: bytes, name: bytes, draw: st.DataObject) -> None:
    body = ENCODERS[name](data)
    cut = draw.draw(st.integers(1, len(body) - 1))

    with pytest.raises(ContentError) as caught:
        decode_content(body[:cut], [name], 0)
    assert caught.value.retry


@given(st.binary(), st.lists(names | st.binary(max_size=5), max_size=3))
def test_any_bytes_give_content_or_a_content_error(body: bytes, encodings: list[bytes]) -> None:
    with suppress(ContentError):
        assert len(decode_content(body, encodings, 1000)) <= 1000


ONE_MIB = 1 << 20
BOMB = zip_gzip(bytes(102 * ONE_MIB))


@pytest.mark.parametrize(
    ("body", "encodings"),
    [
        pytest.param(BOMB, [b"gzip"], id="T6"),
        pytest.param(zip_gzip(BOMB), [b"gzip"], id="T6-twice-under-one-header"),
        pytest.param(zip_gzip(BOMB), [b"gzip, gzip"], id="T6-twice-declared"),
        pytest.param(zip_gzip(zip_gzip(PAGE) + bytes(20 * ONE_MIB)), [b"gzip, gzip"], id="T6-in-between"),
        pytest.param(zlib.compress(bytes(20 * ONE_MIB)), [b"deflate"], id="T6-deflate"),
        pytest.param(brotli.compress(bytes(20 * ONE_MIB), quality=1), [b"br"], id="T6-br"),
        pytest.param(zstd.compress(bytes(20 * ONE_MIB)), [b"zstd"], id="T6-zstd"),
    ],
)
def test_a_bomb_is_refused_in_little_memory(body: bytes, encodings: list[bytes]) -> None:
    assert len(body) < 200_000

    tracemalloc.start()
    try:
        with pytest.raises(ContentError, match=r"^too large$") as caught:
            decode_content(body, encodings, ONE_MIB)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert not caught.value.retry
    assert peak < 4 * ONE_MIB
