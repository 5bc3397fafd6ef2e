"""``scrapy sites``: the files of the sites, and their schedules.

Scrapy imports every command before it runs any, so what this one needs is imported where it is used.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from scrapy.commands import ScrapyCommand
from scrapy.exceptions import UsageError as ScrapyUsageError

from tinycrawl.arguments import one_line
from tinycrawl.exceptions import TinycrawlError, UsageError

if TYPE_CHECKING:
    from tinycrawl.schedule import Target
    from tinycrawl.sitecheck import CheckedFile

CRON_FILE = "tinycrawl.cron"
_UNITS: tuple[str, ...] = (".timer", ".service")
_CRONTABS: tuple[str, ...] = (CRON_FILE,)


class Command(ScrapyCommand):
    """Exit status 0: done and nothing to complain of, 1: a site's file is wrong, 2: usage."""

    requires_project = True
    requires_crawler_process = False

    def syntax(self) -> str:
        return "check [file or folder ...] | show <host> | schedule --target <url> [-o <folder>]"

    def short_desc(self) -> str:
        return "Check the sites' files, show what a crawl would use, make timers of their schedules"

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        super().add_options(parser)
        parser.add_argument("--json", action="store_true", help="check, show: JSON, for programs")
        group = parser.add_argument_group("schedule")
        group.add_argument("--target", metavar="URL", help="the scrapyd that is to crawl")
        group.add_argument("--project", default="tinycrawl", help="its name there (default: %(default)s)")
        group.add_argument("--netrc", metavar="FILE", help="user and password for scrapyd, readable by you alone")
        group.add_argument("--format", choices=["systemd", "cron"], default="systemd", help="(default: %(default)s)")
        group.add_argument(
            "-o",
            "--output",
            metavar="FOLDER",
            help="write the files there, and remove those of ours whose schedule is gone; without it they are printed",
        )

    def run(self, args: list[str], opts: argparse.Namespace) -> None:
        try:
            match args:
                case ["check", *places]:
                    self._check([Path(place) for place in places], opts)
                case ["show", host]:
                    self._show(host, opts)
                case ["schedule"]:
                    self._schedule(opts)
                case _:
                    raise ScrapyUsageError
        except TinycrawlError as error:
            print(f"tinycrawl: {error}", file=sys.stderr)
            self.exitcode = 2 if isinstance(error, UsageError) else 1

    def _check(self, places: list[Path], opts: argparse.Namespace) -> None:
        checked = self._check_files(places)
        faults = [fault for file in checked for fault in file.faults]
        for fault in faults:
            print(json.dumps(asdict(fault)) if opts.json else fault)
        if not opts.json:
            schedules = sum(file.schedule is not None for file in checked)
            print(f"{len(checked)} files, {schedules} schedules: {len(faults) or 'no'} faults")
        self.exitcode = int(bool(faults))

    def _check_files(self, places: list[Path]) -> list[CheckedFile]:
        from tinycrawl.sitecheck import check_files, find_files, sites_directory

        assert self.settings is not None
        folders: Sequence[Path | None] = places or [sites_directory(self.settings)]
        return check_files([file for place in folders for file in find_files(place)], self.settings)

    def _show(self, host: str, opts: argparse.Namespace) -> None:
        from tinycrawl.sitecheck import explain, find_site_file

        assert self.settings is not None
        found = find_site_file(host, self.settings)
        values, schedule = explain(host, self.settings)
        if not found.file:
            print(f"tinycrawl: {found}", file=sys.stderr)
        next_times = [time.isoformat() for time in schedule.next_times(datetime.now(UTC), 3)] if schedule else []
        if opts.json:
            facts = {
                "file": found.file or None,
                "values": [asdict(value) for value in values],
                "schedule": asdict(schedule) if schedule else None,
                "next": next_times,
            }
            print(json.dumps(facts, default=str))
            return
        width = max(len(value.name) for value in values)
        for kind in ("argument", "setting"):
            print(f"{kind}s")
            for value in values:
                if value.kind == kind:
                    shown = "" if value.value is None else one_line(str(value.value))
                    print(f"  {value.name:<{width}}  {shown}  ({one_line(value.source)})")
        if schedule:
            print(f"schedule\n  {schedule.cron} {schedule.timezone}: next {', '.join(next_times)}")

    def _schedule(self, opts: argparse.Namespace) -> None:
        from tinycrawl.schedule import render_cron, render_systemd, write_generated
        from tinycrawl.sitecheck import sites_directory

        assert self.settings is not None
        if not opts.target:
            raise UsageError("--target: expected the URL of a scrapyd, got nothing")
        checked = self._check_files([])
        faults = [fault for file in checked for fault in file.faults]
        if faults:
            for fault in faults:
                print(fault, file=sys.stderr)
            raise TinycrawlError("the sites' files are not in order; no schedule was made or removed")
        schedules = [file.schedule for file in checked if file.schedule is not None]
        if not schedules and sites_directory(self.settings) is None:  # forgotten, it would cost all that is there
            raise TinycrawlError(
                "setting `TINYCRAWL_SITES_DIR`: expected the folder of the sites' files, got nothing,"
                " and no packaged file has a schedule; none was made or removed"
            )
        target = self._target(opts)
        if opts.format == "cron":
            files, suffixes = {CRON_FILE: render_cron(schedules, target)}, _CRONTABS
        else:
            files, suffixes = render_systemd(schedules, target), _UNITS
        if opts.output is None:
            print("\n".join(f"# {name}\n{text}" if opts.format == "systemd" else text for name, text in files.items()))
            return
        done = write_generated(Path(opts.output), files, suffixes=suffixes)
        print("\n".join([*done, f"{len(schedules)} schedules in {opts.output}"]))

    def _target(self, opts: argparse.Namespace) -> Target:
        from tinycrawl.schedule import parse_target
        from tinycrawl.sitecheck import sites_directory

        assert self.settings is not None
        directory = sites_directory(self.settings)
        settings = (("TINYCRAWL_SITES_DIR", str(directory)),) if directory is not None else ()
        target = parse_target(opts.target, opts.project, opts.netrc, settings)
        if target.netrc is None:
            problem = "without --netrc, jobs are asked for without the password that scrapyd.conf demands"
            print(f"tinycrawl: {problem}; it is in scrapyd-data/netrc", file=sys.stderr)
        elif not target.has_password():
            host = urlsplit(target.url).hostname
            print(f"tinycrawl: --netrc: {target.netrc} has no user and password for {host}", file=sys.stderr)
        return target
