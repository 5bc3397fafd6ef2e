"""Content encodings, strictly: a body that was cut or corrupted is never taken as if it were whole."""

from scrapy import Request, Spider
from scrapy.crawler import Crawler
from scrapy.downloadermiddlewares.httpcompression import HttpCompressionMiddleware
from scrapy.downloadermiddlewares.retry import get_retry_request
from scrapy.http import Response

from tinycrawl.content import ContentError, decode_content
from tinycrawl.failures import FailedResponse


class StrictCompressionMiddleware(HttpCompressionMiddleware):
    """Decodes as `tinycrawl.content.decode_content` does; what fails is asked for again, then failed with a reason."""

    def __init__(self, *, crawler: Crawler) -> None:
        super().__init__(crawler=crawler)
        self.crawler = crawler

    def process_response(
        self, request: Request, response: Response, spider: Spider | None = None
    ) -> Request | Response:
        encodings = response.headers.getlist("Content-Encoding")
        if not encodings or not response.body or not 200 <= response.status < 300:
            return response  # nobody reads the body of a redirect or an error
        try:
            body = decode_content(response.body, encodings, request.meta.get("download_maxsize", self._max_size))
        except ContentError as error:
            return self._again(request, error) or FailedResponse(request.url, reason=error.reason, request=request)
        headers = response.headers.copy()
        del headers["Content-Encoding"]
        # Not `replace`: it would first find out the encoding of what is compressed, which takes milliseconds.
        same = {name: getattr(response, name) for name in Response.attributes}
        return type(response)(**{**same, "headers": headers, "body": body})

    def _again(self, request: Request, error: ContentError) -> Request | None:
        spider = self.crawler.spider
        return get_retry_request(request, spider=spider, reason=error.reason) if error.retry and spider else None
