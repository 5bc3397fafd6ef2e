"""The spider that Scrapy's tutorial leads to, for comparison: every page of one site, each in a numbered file."""

from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from scrapy.http import Response
from scrapy.linkextractors import LinkExtractor
from scrapy.spiders import CrawlSpider, Rule


class PlainSpider(CrawlSpider):
    name = "plain"
    rules = (Rule(LinkExtractor(), callback="save", follow=True),)

    def __init__(self, seed: str, directory: str, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.start_urls = [seed]
        self.allowed_domains = [urlsplit(seed).hostname or ""]
        self.directory = Path(directory)
        self.saved = 0

    def save(self, response: Response) -> None:
        self.saved += 1
        (self.directory / str(self.saved)).write_bytes(response.url.encode() + b"\n" + response.body)

    parse_start_url = save
