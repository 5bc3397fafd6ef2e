"""``scrapy pages``: what is in a page directory."""

import argparse
import json
import sys

from scrapy.commands import ScrapyCommand
from scrapy.exceptions import UsageError

from tinycrawl.exceptions import DirectoryError
from tinycrawl.pagedir import PageDirectory
from tinycrawl.verification import find_faults


class Command(ScrapyCommand):
    """``verify DIR``: does it hold what its manifest says? Exit status 0: yes, 1: no, 2: usage."""

    requires_project = True
    requires_crawler_process = False

    def syntax(self) -> str:
        return "verify <directory>"

    def short_desc(self) -> str:
        return "Verify a page directory against its manifest"

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        super().add_options(parser)
        parser.add_argument("--json", action="store_true", help="one JSON object per fault, for programs")

    def run(self, args: list[str], opts: argparse.Namespace) -> None:
        if len(args) != 2 or args[0] != "verify":
            raise UsageError
        try:
            directory = PageDirectory(args[1])
            faults = list(find_faults(directory))
        except DirectoryError as error:
            print(f"tinycrawl: {error}", file=sys.stderr)
            self.exitcode = 1
            return
        for fault in faults:
            print(json.dumps({"name": fault.name, "problem": fault.problem}) if opts.json else fault)
        if not opts.json:
            print(f"{len(faults)} faults" if faults else f"{len(directory)} pages, all as recorded")
        self.exitcode = int(bool(faults))
