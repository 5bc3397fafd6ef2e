"""HtmlOnly: other bodies are not downloaded. Decided at the headers, or at the first bytes where they do not say."""

from scrapy import Request, Spider, signals
from scrapy.crawler import Crawler
from scrapy.exceptions import StopDownload
from scrapy.http import Headers

from tinycrawl.content import HTML_TYPES, SAVED_STATUS, SNIFF_BYTES, SNIFFED_TYPES, looks_like_html, media_type

_SHORT = 65_536  # bytes


class HtmlOnly:
    """Stops the download of a page's body that is no HTML, and keeps the response.

    A redirect needs no body, nor does a failure: a long one is stopped too, and followed or retried as ever.
    robots.txt is never stopped.
    """

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> "HtmlOnly":
        extension = cls()
        crawler.signals.connect(extension.headers_received, signal=signals.headers_received)
        crawler.signals.connect(extension.bytes_received, signal=signals.bytes_received)
        return extension

    def headers_received(self, headers: Headers, body_length: int, request: Request, spider: Spider) -> None:
        if "ask" not in request.meta:
            return
        request.meta.pop("first_bytes", None)  # of an earlier try
        if body_length == 0:
            return
        if request.meta.get("status") not in SAVED_STATUS:
            if not isinstance(body_length, int) or body_length > _SHORT:
                raise StopDownload(fail=False)
            return  # to read it is cheaper than another connection
        kind = media_type(headers.getlist("Content-Type"))
        if kind in HTML_TYPES:
            return
        if kind not in SNIFFED_TYPES:
            raise StopDownload(fail=False)
        if "Content-Encoding" not in headers:  # what is compressed cannot be looked at yet; DOWNLOAD_MAXSIZE caps it
            request.meta["first_bytes"] = b""

    def bytes_received(self, data: bytes, request: Request, spider: Spider) -> None:
        start = request.meta.get("first_bytes")
        if start is None:
            return
        start += data
        if len(start) < SNIFF_BYTES:
            request.meta["first_bytes"] = start
            return
        del request.meta["first_bytes"]
        if not looks_like_html(start[:SNIFF_BYTES]):
            raise StopDownload(fail=False)
