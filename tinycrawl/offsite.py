"""Scope, checked on every request that is about to be sent: links, redirects, retries."""

from scrapy import Request, Spider
from scrapy.downloadermiddlewares.offsite import OffsiteMiddleware
from scrapy.exceptions import IgnoreRequest

from tinycrawl.scope import OUT_OF_SCOPE


class ScopeMiddleware(OffsiteMiddleware):
    """Asks the spider's scope instead of ``allowed_domains``, which lets in every subdomain, port and scheme.

    ``dont_filter`` does not switch it off: Scrapy sets that on every retry and copies it to redirects. The spider
    checks before it makes a request; this is the second lock on the door, and the only one for robots.txt.
    """

    def process_request(self, request: Request, spider: Spider | None = None) -> None:
        assert self.crawler.spider is not None
        if not self.should_follow(request, self.crawler.spider):
            self.stats.inc_value("offsite/filtered")
            raise IgnoreRequest(OUT_OF_SCOPE)

    def should_follow(self, request: Request, spider: Spider) -> bool:
        if not request.url.startswith(("http://", "https://")):
            return False
        link = request.meta.get("link")
        is_requestable = getattr(spider, "is_requestable", None)
        if link is None or is_requestable is None:  # robots.txt, which may lie elsewhere; `scrapy shell`
            return True
        return bool(is_requestable(link, request.url))
