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
from scrapy.settings import SETTINGS_PRIORITIES, BaseSettings
from scrapy.spiderloader import get_spider_loader
from scrapy.utils.reactor import install_reactor

import tinycrawl.settings as project
from tinycrawl.arguments import show_value
from tinycrawl.exceptions import UsageError
from tinycrawl.feedcheck import check_outputs
from tinycrawl.plan import make_plan
from tinycrawl.settingcheck import check_file, check_setting, check_values
from tinycrawl.summary import conclude, log_refusal


class Command(CrawlCommand):
    """Exit status 0: complete, 1: failed, 2: usage, 3: stopped early with something left to do, 4: skipped."""

    def process_options(self, args: list[str], opts: argparse.Namespace) -> None:
        if sys.stderr is None:  # closed by whoever started us; much of what we stand on takes it for granted
            sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115  # for as long as the process lives
        assert self.settings is not None
        given = dict(pair.split("=", 1) for pair in opts.set if "=" in pair)
        try:
            self._check_options(opts, given, self.settings)
            super().process_options(args, opts)
            check_values(self.settings)
            spiders = get_spider_loader(self.settings).list()
            if len(args) == 1 and args[0] not in spiders:
                raise UsageError(f"spider: expected {' or '.join(spiders)}, got {show_value(args[0])}")
            if args == ["site"]:
                with_site = self.settings.copy()
                make_plan(with_site, opts.spargs)
                for name in with_site:  # Scrapy opens the log before the spider reads the site's file
                    if name.startswith("LOG_") and with_site.getpriority(name) == SETTINGS_PRIORITIES["spider"]:
                        self.settings.set(name, with_site[name], priority="spider")
        except (UsageError, ScrapyUsageError) as error:
            if given.get("LOG_FILE"):  # not taken in with the others, if it failed there
                self.settings.set("LOG_FILE", given["LOG_FILE"], priority="cmdline")
            log_refusal(self.settings, str(error))
            print(f"tinycrawl: {error}", file=sys.stderr)
            sys.exit(2)

    def _check_options(self, opts: argparse.Namespace, given: dict[str, str], settings: BaseSettings) -> None:
        """What Scrapy would end with a traceback, or with more than the line that says what is wrong."""
        for option, pairs in (("-s", opts.set), ("-a", opts.spargs)):
            if not all("=" in pair for pair in pairs):
                raise UsageError(f"option {option}: expected NAME=VALUE")
        for option, path in (("--logfile", opts.logfile), ("--pidfile", opts.pidfile), ("--profile", opts.profile)):
            if path:
                check_file(f"option {option}", path)
        # What is imported to be checked may import the reactor, which must be ours by then.
        check_setting("ASYNCIO_EVENT_LOOP", given.get("ASYNCIO_EVENT_LOOP"))
        check_setting("TWISTED_REACTOR_ENABLED", given.get("TWISTED_REACTOR_ENABLED", True))
        install_reactor(project.TWISTED_REACTOR, given.get("ASYNCIO_EVENT_LOOP") or settings["ASYNCIO_EVENT_LOOP"])
        for name, value in given.items():
            check_setting(name, value)
        if opts.output and opts.overwrite_output:
            raise UsageError("options -o and -O: expected one or the other")
        outputs = opts.output or opts.overwrite_output
        if outputs:
            exporters = BaseSettings({name: settings[name] for name in ("FEED_EXPORTERS", "FEED_EXPORTERS_BASE")})
            exporters.setdict({name: value for name, value in given.items() if name in exporters}, priority="cmdline")
            check_outputs(outputs, exporters)

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
