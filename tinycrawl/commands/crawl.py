"""``scrapy crawl``, with the arguments checked first and exit statuses that say what came of it."""

import argparse
import os
import signal
import sys
from pathlib import Path

from scrapy import Spider
from scrapy.commands.crawl import Command as CrawlCommand
from scrapy.crawler import Crawler
from scrapy.exceptions import UsageError as ScrapyUsageError
from scrapy.spiderloader import get_spider_loader

from tinycrawl.arguments import show_value
from tinycrawl.exceptions import UsageError
from tinycrawl.plan import make_plan
from tinycrawl.summary import conclude, log_refusal


class Command(CrawlCommand):
    """Exit status 0: complete, 1: failed, 2: usage, 3: stopped early with something left to do, 4: skipped."""

    def process_options(self, args: list[str], opts: argparse.Namespace) -> None:
        if sys.stderr is None:  # closed by whoever started us; much of what we stand on takes it for granted
            sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115  # for as long as the process lives
        assert self.settings is not None
        try:
            super().process_options(args, opts)
        except ScrapyUsageError as error:
            for name, _, value in (setting.partition("=") for setting in opts.set):
                if name == "LOG_FILE":  # not taken in with the others
                    self.settings.set(name, value, priority="cmdline")
            log_refusal(self.settings, str(error))
            raise
        try:
            spiders = get_spider_loader(self.settings).list()
            if len(args) == 1 and args[0] not in spiders:
                raise UsageError(f"spider: expected {' or '.join(spiders)}, got {show_value(args[0])}")
            if args == ["site"]:
                make_plan(self.settings.copy(), opts.spargs)
        except UsageError as error:
            log_refusal(self.settings, str(error))
            print(f"tinycrawl: {error}", file=sys.stderr)
            sys.exit(2)

    def run(self, args: list[str], opts: argparse.Namespace) -> None:
        super().run(args, opts)
        for number in (signal.SIGINT, signal.SIGTERM):  # it has ended: a second signal must not take its exit status
            signal.signal(number, signal.SIG_IGN)
        if not self.exitcode:
            self.exitcode = getattr(self._crawler.spider, "exit_status", 0)
        conclude(self._crawler)

    def _create_crawler(self, spidercls: type[Spider] | str) -> Crawler:
        self._crawler = super()._create_crawler(spidercls)
        return self._crawler
