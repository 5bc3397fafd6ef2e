"""How answers are read off the wire: as browsers do where servers are sloppy, and never more than is bounded.

Twisted and Scrapy have no public place for this, so the classes here extend private ones of theirs; nothing else in
the project knows those. `tests/test_behaviours.py` has hundreds of odd servers, and fails if this stops working.
"""

import sys
from collections.abc import Callable
from typing import Any

from scrapy.core.downloader.handlers.http11 import (
    _LenientHTTP11ClientFactory,
    _LenientHTTP11ClientProtocol,
    _LenientHTTPClientParser,
)
from twisted.internet.error import ConnectionDone
from twisted.python.failure import Failure
from twisted.web._newclient import HEADER, STATUS, ParseError, ResponseFailed
from twisted.web.http import _ChunkedTransferDecoder, _DataLoss
from twisted.web.http_headers import InvalidHeaderName

_BLANK_LINES = 2  # that may come before an answer, as in Chromium
_failure: Any = Failure  # it has no type hints


class HeadersTooLarge(Exception):
    """Raised by the parser: what comes before the body, 1xx answers included, has no end within the limit."""


class BoundedParser(_LenientHTTPClientParser):
    """Parses one answer.

    *max_headers* in bytes; *head_received* is told the status before anybody sees the response.
    """

    MAX_LENGTH = sys.maxsize  # of a line: headers are bounded as a whole
    max_headers = 0
    head_received: Callable[[int], None] = staticmethod(lambda status: None)
    _head_size = 0
    _blank_lines = 0

    def dataReceived(self, data: bytes) -> None:
        if self.max_headers and self.state in (STATUS, HEADER):
            self._head_size += len(data)
            start = data if self._head_size <= self.max_headers else data[: self.max_headers - self._head_size]
            super().dataReceived(start)  # type: ignore[no-untyped-call]
            if len(start) == len(data):
                return
            if self.state in (STATUS, HEADER):
                raise HeadersTooLarge
            data = data[len(start) :]
        super().dataReceived(data)  # type: ignore[no-untyped-call]

    def parseVersion(self, strversion: bytes) -> Any:
        version = super().parseVersion(strversion)  # type: ignore[no-untyped-call]
        if version[0].upper() != b"HTTP":
            raise ParseError("another protocol", strversion)  # type: ignore[no-untyped-call]
        return version

    def lineReceived(self, line: bytes) -> None:
        if self.state == STATUS and line in (b"", b"\r") and self._blank_lines < _BLANK_LINES:
            self._blank_lines += 1
            return
        if self.state == HEADER and self._partialHeader is None and line[:1] in (b" ", b"\t"):
            return  # the continuation of nothing
        super().lineReceived(line)

    def headerReceived(self, name: bytes, value: bytes) -> None:
        try:
            super().headerReceived(name, value)  # type: ignore[no-untyped-call]
        except InvalidHeaderName:
            return  # browsers skip such a line too

    def allHeadersReceived(self) -> None:
        if self.response.code >= 200:
            self.head_received(self.response.code)
        codings = self.connHeaders.getRawHeaders(b"Transfer-Encoding", ())
        if codings and all(coding.strip().lower() == b"identity" for coding in codings):
            self.connHeaders.removeHeader(b"Transfer-Encoding")
        super().allHeadersReceived()  # type: ignore[no-untyped-call]

    def _finished(self, rest: bytes) -> None:
        if rest:  # nobody asked for more: what comes next on this connection would not be the answer to our question
            self.connHeaders.addRawHeader(b"connection", b"close")
        super()._finished(rest)  # type: ignore[no-untyped-call]

    def connectionLost(self, reason: Any = None) -> None:
        has_no_length = getattr(self.bodyDecoder, "contentLength", 0) is None
        if has_no_length and reason is not None and not reason.check(ConnectionDone):
            # Only a clean end says that the body is whole.
            lost: Any = ResponseFailed([reason, _failure(_DataLoss())], self.response)  # type: ignore[no-untyped-call]
            self.response._bodyDataFinished(_failure(lost))
        else:
            super().connectionLost(reason)


class JoinedChunks(_ChunkedTransferDecoder):
    """Passes on what has come in one piece, however small its chunks.

    Lines may end with LF alone, as in browsers, and after a chunk's size are blanks and extensions.
    """

    def __init__(self, dataCallback: Callable[[bytes], None], finishCallback: Callable[[bytes], None]) -> None:
        self._chunks: list[bytes] = []
        self._deliver, self._end = dataCallback, finishCallback
        super().__init__(self._chunks.append, self._finish)

    def dataReceived(self, data: bytes) -> None:
        try:
            super().dataReceived(data)
        finally:
            self._flush()

    def _dataReceived_CHUNK_LENGTH(self) -> bool:
        end = self._complete_line()
        if end > 0:
            self._buffer[:end] = self._buffer[:end].partition(b";")[0].rstrip(b" \t")
        return super()._dataReceived_CHUNK_LENGTH()

    def _dataReceived_CRLF(self) -> bool:
        self._complete_line()
        return super()._dataReceived_CRLF()

    def _dataReceived_TRAILER(self) -> bool:
        self._complete_line()
        return super()._dataReceived_TRAILER()

    def _complete_line(self) -> int:
        """Have the first line, if it is whole, end with CRLF; return where, or -1."""
        end = self._buffer.find(b"\n", self._start)
        if end < 0 or self._buffer[end - 1 : end] == b"\r":
            return end - (end > 0)
        self._buffer[end:end] = b"\r"
        return end

    def _finish(self, rest: bytes) -> None:
        self._flush()
        self._end(rest)

    def _flush(self) -> None:
        if self._chunks:
            data = b"".join(self._chunks)
            self._chunks.clear()
            self._deliver(data)


BoundedParser._transferDecoders = {b"chunked": JoinedChunks}


class BoundedProtocol(_LenientHTTP11ClientProtocol):
    """A connection; *head_received* is for the answer that is to come."""

    max_headers = 0
    head_received: Callable[[int], None] = staticmethod(lambda status: None)

    def request(self, request: Any) -> Any:
        if request.uri.startswith(b"//"):
            # Twisted puts the parts together by urlunparse, which since Python 3.12.4 has an empty host before them.
            parts = request._parsedURI
            request.uri = parts.path + (b";" + parts.params if parts.params else b"")
            request.uri += b"?" + parts.query if parts.query else b""
        answer = super().request(request)
        parser: Any = self._parser
        parser.__class__ = BoundedParser  # as Scrapy does: Twisted names its class in the middle of a method
        parser.max_headers = self.max_headers
        parser.head_received = self.head_received
        return answer


def make_factory(max_headers: int) -> type[_LenientHTTP11ClientFactory]:
    """The class of a factory for an HTTPConnectionPool; *max_headers* in bytes, 0 is no limit."""

    class Protocol(BoundedProtocol):
        pass

    Protocol.max_headers = max_headers

    class Factory(_LenientHTTP11ClientFactory):
        def buildProtocol(self, addr: Any) -> BoundedProtocol:
            return Protocol(self._quiescentCallback)  # type: ignore[no-untyped-call]

    return Factory
