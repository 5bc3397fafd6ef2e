"""What the headers and the first bytes of an answer say about its body, and how to decode that body."""

import re
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from io import BytesIO

try:
    import brotli  # type: ignore[import-untyped]  # it has no type hints
except ImportError:
    import brotlicffi as brotli  # type: ignore[import-not-found]  # stands in for it on PyPy

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

XHTML_TYPE = "application/xhtml+xml"
HTML_TYPES = frozenset({"text/html", XHTML_TYPE})
# Types that say nothing: the first bytes decide (https://mimesniff.spec.whatwg.org/#mime-type-sniffing-algorithm).
SNIFFED_TYPES = frozenset({"", "application/octet-stream", "application/unknown", "unknown/unknown"})
SNIFF_BYTES = 1024
SAVED_STATUS = frozenset({200, 203})

# RFC 6838, 4.2
_MEDIA_TYPE = re.compile(rb"[a-z0-9][a-z0-9!#$&^_.+-]{0,126}/[a-z0-9][a-z0-9!#$&^_.+-]{0,126}")
# What is between commas, but for those within quotes.
_PART = re.compile(rb"""(?:[^,"]++|"(?:[^"\\]++|\\.)*+(?:"|\\?\Z))++""", re.DOTALL)
_TYPE_END = re.compile(rb"[;( \t]")
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_UTF16_BOMS = {b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}
# https://mimesniff.spec.whatwg.org/#identifying-a-resource-with-an-unknown-mime-type
_HTML_START = re.compile(
    rb"[\t\n\f\r ]*<(?:!doctype html|html|head|script|iframe|h1|div|font|table|a|style|title|b|body|br|p|!--)[ >]",
    re.IGNORECASE,
)
_XML_START = re.compile(rb"[\t\n\f\r ]*<\?xml[\t\n\f\r ]")
_XHTML_TAG = re.compile(rb"<(?:html|!doctype[\t\n\f\r ]+html)[\t\n\f\r >]", re.IGNORECASE)

_CHUNK = 65_536  # bytes decoded in one step
_MAX_MEMBERS = 1_000  # parts of one gzip or zstd body; each costs time, even where nothing is in it
_MAX_ENCODINGS = 5  # as in curl; a page has one
_GZIP_MAGIC = b"\x1f\x8b"
_ZSTD_WINDOW_LOG = 23  # RFC 9659: a zstd stream in HTTP needs no more than 8 MiB of window


class ContentError(Exception):
    """A body that cannot be decoded: raised by `decode_content`.

    *reason* is for the manifest. *retry* is true for cut or corrupt data, which another try may get whole.
    """

    def __init__(self, reason: str, *, retry: bool) -> None:
        super().__init__(reason)
        self.reason = reason
        self.retry = retry


def media_type(values: Sequence[bytes]) -> str:
    """Return the type that Content-Type header *values* declare, in lower case; "" if they declare none.

    Of several the last one counts that has a slash and is not ``*/*`` (https://fetch.spec.whatwg.org/#concept-header-extract-mime-type).

    >>> media_type([b"TEXT/HTML; charset=utf-8"]), media_type([b"\\x1b[31m/x"]), media_type([b"image/png, text/html,"])
    ('text/html', 'invalid type', 'text/html')
    """
    found = b""
    for part in _PART.findall(b",".join(values)):
        kind = _TYPE_END.split(part.strip(b"\t\n\r "), maxsplit=1)[0].lower()
        if b"/" in kind and kind != b"*/*":
            found = kind
    return found.decode() if not found or _MEDIA_TYPE.fullmatch(found) else "invalid type"


def looks_like_html(start: bytes) -> bool:
    """Whether a body with these first bytes, already decoded, is HTML; only `SNIFF_BYTES` of them count.

    A tag of the MIME Sniffing standard comes first, or the body is XML and soon has an ``<html>`` or its doctype.
    """
    start = start[:SNIFF_BYTES].removeprefix(b"\xef\xbb\xbf")
    if encoding := _UTF16_BOMS.get(start[:2]):
        start = start[2:].decode(encoding, "replace").encode("ascii", "replace")
    if _HTML_START.match(start):
        return True
    return _XML_START.match(start) is not None and _XHTML_TAG.search(start) is not None


def decode_content(body: bytes, encodings: Sequence[bytes], max_size: int) -> bytes:
    """Undo the Content-Encoding header values *encodings*; an empty *body* stays empty.

    Strict: what is cut short, damaged or followed by anything else is refused, never returned as if whole. A body
    that was zipped twice under one gzip is unzipped twice.

    :param max_size: the most bytes to decode to; 0 is no limit.
    :raises ContentError: an unknown encoding, cut or corrupt data, more than *max_size* bytes.
    """
    if not body:
        return b""
    stated = [name.strip().lower() for name in b",".join(encodings).decode("latin-1").split(",")]
    names = [name for name in stated if name not in {"", "identity"}]
    if len(names) > _MAX_ENCODINGS:
        raise ContentError(f"too many content-encodings: {len(names)}", retry=False)
    for name in names:
        if name not in _DECODERS:
            shown = name[:40] if _TOKEN.fullmatch(name) else "invalid"
            raise ContentError(f"unknown content-encoding: {shown}", retry=False)
    chunks = _slices(body)
    for name in reversed(names):
        # What lies between two encodings may be somewhat larger than what comes out in the end.
        chunks = _bound(_DECODERS[name](chunks), 2 * max_size + _CHUNK if max_size else 0)
    content = _collect(chunks, max_size)
    if content.startswith(_GZIP_MAGIC) and not {"gzip", "x-gzip"}.isdisjoint(names):
        content = _collect(_decode_gzip(_slices(content)), max_size)
    return content


def _slices(data: bytes) -> Iterator[bytes]:
    return (data[start : start + _CHUNK] for start in range(0, len(data), _CHUNK))


def _bound(chunks: Iterator[bytes], max_size: int) -> Iterator[bytes]:
    size = 0
    for chunk in chunks:
        size += len(chunk)
        if max_size and size > max_size:
            raise ContentError("too large", retry=False)
        yield chunk


def _collect(chunks: Iterator[bytes], max_size: int) -> bytes:
    file = BytesIO()
    file.writelines(_bound(chunks, max_size))
    return file.getvalue()


def _decode_gzip(chunks: Iterator[bytes]) -> Iterator[bytes]:
    member = zlib.decompressobj(wbits=31)
    members = 1
    for chunk in chunks:
        while True:
            if member.eof:
                chunk = chunk.lstrip(b"\0")  # padding, as gzip(1) allows
                if not chunk:
                    break
                members += 1
                member = zlib.decompressobj(wbits=31)
                if members > _MAX_MEMBERS:
                    raise ContentError("bad gzip", retry=False)
            try:
                data = member.decompress(chunk, _CHUNK)
            except zlib.error:
                raise ContentError("bad gzip", retry=True) from None
            yield data
            chunk = member.unused_data if member.eof else member.unconsumed_tail
            if not chunk and len(data) < _CHUNK:
                break
    if not member.eof:
        raise ContentError("truncated gzip", retry=True)


def _decode_deflate(chunks: Iterator[bytes]) -> Iterator[bytes]:
    stream = None
    for chunk in chunks:
        if stream is None and chunk:
            # The low bits of a zlib header are 8; raw deflate, which some servers send, does not start so.
            stream = zlib.decompressobj(wbits=15 if chunk[0] & 15 == 8 else -15)
        while stream is not None:
            try:
                data = stream.decompress(chunk, _CHUNK)
            except zlib.error:
                raise ContentError("bad deflate", retry=True) from None
            yield data
            chunk = stream.unconsumed_tail
            if stream.eof or (not chunk and len(data) < _CHUNK):
                break
        if stream is not None and stream.unused_data:
            raise ContentError("bad deflate", retry=True)
    if stream is None or not stream.eof:
        raise ContentError("truncated deflate", retry=True)


def _decode_brotli(chunks: Iterator[bytes]) -> Iterator[bytes]:
    stream = brotli.Decompressor()
    for chunk in chunks:
        while True:
            try:
                data = stream.process(chunk, output_buffer_limit=_CHUNK)
            except brotli.error:
                raise ContentError("bad br", retry=True) from None
            yield data
            chunk = b""
            if stream.is_finished() or (not data and stream.can_accept_more_data()):
                break
    if not stream.is_finished():
        raise ContentError("truncated br", retry=True)


def _decode_zstd(chunks: Iterator[bytes]) -> Iterator[bytes]:
    options: dict[int, int] = {zstd.DecompressionParameter.window_log_max: _ZSTD_WINDOW_LOG}
    frame = zstd.ZstdDecompressor(options=options)
    frames = 1
    for chunk in chunks:
        while True:
            if frame.eof:
                if not chunk:
                    break
                frames += 1
                frame = zstd.ZstdDecompressor(options=options)
                if frames > _MAX_MEMBERS:
                    raise ContentError("bad zstd", retry=False)
            try:
                data = frame.decompress(chunk, _CHUNK)
            except zstd.ZstdError:
                raise ContentError("bad zstd", retry=True) from None
            yield data
            chunk = frame.unused_data if frame.eof else b""
            if not chunk and (frame.eof or frame.needs_input):
                break
    if not frame.eof:
        raise ContentError("truncated zstd", retry=True)


_DECODERS: dict[str, Callable[[Iterator[bytes]], Iterator[bytes]]] = {
    "gzip": _decode_gzip,
    "x-gzip": _decode_gzip,
    "deflate": _decode_deflate,
    "br": _decode_brotli,
    "zstd": _decode_zstd,
}
