"""A failed request is an answer like any other: it comes to the spider's callback as a FailedResponse.

What an errback yields does not pass through the spider middlewares, so requests made there would get no depth. But
the page that fails may be the one that all others wait for.
"""

from collections.abc import Iterator
from typing import Any

from OpenSSL import SSL
from scrapy import Request, Spider
from scrapy.exceptions import (
    CannotResolveHostError,
    DownloadCancelledError,
    DownloadConnectionRefusedError,
    DownloadFailedError,
    DownloadTimeoutError,
    IgnoreRequest,
    ResponseDataLossError,
)
from scrapy.http import Response
from service_identity import VerificationError
from twisted.internet.error import ConnectError, ConnectionDone, ConnectionLost, NoRouteError
from twisted.web._newclient import ParseError
from twisted.web.client import ResponseNeverReceived

from tinycrawl.certificates import CertificateRefused
from tinycrawl.wire import HeadersTooLarge


class FailedResponse(Response):
    """No response: *reason* says why in a few words.

    *is_offline*: no server answered at all. *is_unsent*: none was asked, since the crawl is being stopped.
    """

    def __init__(
        self, url: str, *, reason: str = "", is_offline: bool = False, is_unsent: bool = False, **kwargs: Any
    ) -> None:
        super().__init__(url, status=kwargs.pop("status", 0), **kwargs)
        self.reason = reason
        self.is_offline = is_offline
        self.is_unsent = is_unsent


class Unsent(IgnoreRequest):
    """Raised by the handler for a request that is not begun any more: the crawl is being stopped."""


class TooSlow(IgnoreRequest):
    """Raised by the handler for a page whose requests have taken too long together."""


class FailureMiddleware:
    """The outermost downloader middleware: turns the failure of a page's request into a FailedResponse."""

    def process_exception(
        self, request: Request, exception: Exception, spider: Spider | None = None
    ) -> Response | None:
        if "ask" not in request.meta:
            return None
        reason, is_offline = reason_of(exception)
        return FailedResponse(
            request.url,
            reason=reason,
            is_offline=is_offline,
            is_unsent=isinstance(exception, Unsent),
            request=request,
        )


def reason_of(exception: BaseException) -> tuple[str, bool]:
    """The reason of a failure in a few words, the same on every machine, and whether no server answered."""
    causes = list(_causes(exception))
    for cause in causes:
        if isinstance(cause, VerificationError):
            return "certificate: not valid for this host", False
        if isinstance(cause, CertificateRefused):
            return f"certificate: {cause.problem}", False
        if isinstance(cause, SSL.Error):
            return _tls_reason(cause), False
    match exception:
        case IgnoreRequest():
            return str(exception) or "ignored", getattr(exception, "is_offline", False)
        case CannotResolveHostError():
            return "no such host", True
        case DownloadConnectionRefusedError():
            return "connection refused", True
        case DownloadTimeoutError():
            return "timeout", True
        case ResponseDataLossError():
            return "truncated", False
        case DownloadCancelledError():
            return "too large", False
    if any(isinstance(cause, HeadersTooLarge) for cause in causes):
        return "headers too large", False
    # Lengths that contradict each other are a ValueError of Twisted's, transfer codings it does not know a KeyError.
    if any(isinstance(cause, ParseError | ValueError | KeyError) for cause in causes):
        return "not an HTTP answer", False
    if any(isinstance(cause, NoRouteError | ConnectError) for cause in causes):
        return "no connection", True
    if isinstance(exception, DownloadFailedError) or any(
        isinstance(cause, ResponseNeverReceived | ConnectionLost | ConnectionDone) for cause in causes
    ):
        return "connection lost", False
    return type(exception).__name__, False


def is_final(exception: BaseException) -> bool:
    """Would asking again give the same?"""
    return reason_of(exception)[0].startswith(("certificate", "headers too large"))


def _causes(exception: BaseException) -> Iterator[BaseException]:
    """*exception*, what caused it, and the reasons that Twisted wraps in its own."""
    seen: set[int] = set()
    queue: list[BaseException | None] = [exception]
    while queue:
        one = queue.pop(0)
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        queue.append(one.__cause__)
        queue += [failure.value for failure in getattr(one, "reasons", None) or ()]


def _tls_reason(error: SSL.Error) -> str:
    """OpenSSL's words: ``TLS: wrong version number``."""
    words = [part[2] for part in error.args[0] if part[2]] if error.args and isinstance(error.args[0], list) else []
    return f"TLS: {words[0]}" if words else "TLS"
