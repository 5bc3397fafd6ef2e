"""``scrapy crawl``, with the arguments checked first and exit statuses that say what came of it."""

import argparse
import sys

from scrapy import Spider
from scrapy.commands.crawl import Command as CrawlCommand
from scrapy.crawler import Crawler

from tinycrawl.exceptions import UsageError
from tinycrawl.plan import make_plan


class Command(CrawlCommand):
    """Exit status 0: complete, 1: failed, 2: usage, 3: stopped early with something left to do."""

    def process_options(self, args: list[str], opts: argparse.Namespace) -> None:
        super().process_options(args, opts)
        if args != ["site"]:
            return
        assert self.settings is not None
        try:
            make_plan(self.settings.copy(), opts.spargs)
        except UsageError as error:
            print(f"tinycrawl: {error}", file=sys.stderr)
            sys.exit(2)

    def run(self, args: list[str], opts: argparse.Namespace) -> None:
        super().run(args, opts)
        if not self.exitcode:
            self.exitcode = getattr(self._crawler.spider, "exit_status", 0)

    def _create_crawler(self, spidercls: type[Spider] | str) -> Crawler:
        self._crawler = super()._create_crawler(spidercls)
        return self._crawler
