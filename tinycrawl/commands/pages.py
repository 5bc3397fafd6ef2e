"""``scrapy pages``: what is in a page directory, for people as tables, for programs as JSON lines.

Scrapy imports every command before it runs any, so what this one needs is imported where it is used.
"""

import argparse
import io
import json
import os
import sys
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from scrapy.commands import ScrapyCommand

from tinycrawl.arguments import one_line, show_value
from tinycrawl.exceptions import DirectoryError, TinycrawlError, UsageError
from tinycrawl.manifest import describe
from tinycrawl.pagedir import MARKER, PageDirectory, is_locked
from tinycrawl.printing import complain, print_body, print_facts, print_json, print_table
from tinycrawl.urls import normalise_url


class Command(ScrapyCommand):
    """Exit status 0: done; 1: a fault or trouble; 2: usage. Of ``diff`` 0: the same, 1: different, 2: trouble.

    What is damaged is trouble, but for a last line that is torn, as a kill leaves it. What can be read is read.
    """

    requires_project = True
    requires_crawler_process = False

    def syntax(self) -> str:
        return "{ls,show,verify,duplicates,broken,links,diff,report} <directory> ..."

    def short_desc(self) -> str:
        return "Read page directories: list, show, verify, compare, report"

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        super().add_options(parser)
        actions = parser.add_subparsers(dest="action", metavar="action", required=True, prog="scrapy pages")

        def add(name: str, text: str, *directories: str, has_json: bool = True) -> argparse.ArgumentParser:
            action: argparse.ArgumentParser = actions.add_parser(name, help=text, description=text)
            for directory in directories or ("directory",):
                action.add_argument(directory, help="a page directory")
            if has_json:
                action.add_argument("--json", action="store_true", help="one JSON object per line, for programs")
            return action

        action = add("ls", "list the pages")
        action.add_argument("--all", action="store_true", help="the URLs that are no pages too, each with its reason")
        action.add_argument("--titles", action="store_true", help="the titles too, which takes longer")
        action = add("show", "show what is known about one URL")
        action.add_argument("which", metavar="docID|URL", help="a page's number, or any URL that was found")
        action.add_argument("--body", action="store_true", help="then an empty line and the page, byte for byte")
        add("verify", "compare every page with the manifest; exit status 1 if there is a fault")
        add("duplicates", "group the pages with the same bytes")
        add("broken", "name each URL that failed, and the pages that link to it")
        action = add("links", "write the link graph: source, target, kind, status")
        action.add_argument("-o", "--output", metavar="FILE", help="into this file, .csv or .jsonl")
        add("diff", "tell new, gone, changed and moved pages; exit status 0: none, 1: some, 2: trouble", "a", "b")
        action = add("report", "write a report to read in a browser", has_json=False)
        action.add_argument("-o", "--output", metavar="FILE", required=True, help="the HTML file; - for stdout")

    def run(self, args: list[str], opts: argparse.Namespace) -> None:
        try:
            if args:
                raise UsageError(f"{show_value(args[0])}: not known to `scrapy pages {opts.action}`")
            if sys.stdout is None:
                raise TinycrawlError("stdout is closed")
            if isinstance(sys.stdout, io.TextIOWrapper):  # a title need not be in the terminal's charset
                sys.stdout.reconfigure(errors="backslashreplace")
            self._opened: list[PageDirectory] = []
            self._is_damaged = False
            self.exitcode = getattr(self, f"_{opts.action}")(opts)
            sys.stdout.flush()
            self._tell_lost()
            if self._is_damaged:
                self.exitcode = 2 if opts.action == "diff" else 1
        except BrokenPipeError:  # whoever read it has gone; what is left must not be an error again
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        except TinycrawlError as error:
            self._fail(str(error), opts.action, is_usage=isinstance(error, UsageError))
        except OSError as error:
            self._fail(f"{error.filename or 'stdout'}: {error.strerror}", opts.action)

    def _fail(self, message: str, action: str, *, is_usage: bool = False) -> None:
        complain(message)
        self.exitcode = 2 if is_usage or action == "diff" else 1

    def _open(self, path: str) -> PageDirectory:
        """:raises DirectoryError: it is no page directory, or another crawler's, which says nothing of its pages."""
        directory = PageDirectory(path)
        if directory.identity is None:
            raise DirectoryError(f"page directory {path} is not one of tinycrawl: its {MARKER} is not ours")
        self._opened.append(directory)
        problems = directory.problems()
        if problems and not is_locked(directory.path):
            if problems[0].is_torn:
                torn = problems[0].size
                complain(f"page directory {path}: {torn} bytes of its {MARKER} cannot be read, and are left out")
            else:
                complain(describe(problems))
                self._is_damaged = True
        return directory

    def _tell_lost(self) -> None:
        for directory in self._opened:
            if directory.lost:
                (doc_id, problem), more = min(directory.lost.items()), len(directory.lost) - 1
                rest = f" (and {more} more pages cannot be read)" if more else ""
                complain(f"page directory {directory.path}: {doc_id} {problem}{rest}")
                self._is_damaged = True

    def _ls(self, opts: argparse.Namespace) -> int:
        from tinycrawl.analysis import entries

        found = (entry for entry in entries(self._open(opts.directory), opts.titles) if opts.all or entry.doc_id)
        titles = ["title"] if opts.titles else []
        if opts.json:
            print_json({k: v for k, v in asdict(e).items() if k != "title" or titles} for e in found)
            return 0
        rows = ((e.doc_id or None, e.depth, e.length, e.reason or e.status, e.final, e.title) for e in found)
        heads = ["docID", "depth", "bytes", "status", "URL", *titles]
        print_table(heads, (row[: len(heads)] for row in rows))
        return 0

    def _show(self, opts: argparse.Namespace) -> int:
        from tinycrawl.analysis import find

        if opts.json and opts.body:
            raise UsageError("options `--json` and `--body`: expected one of them")
        directory, which = self._open(opts.directory), opts.which
        is_number = which.isascii() and which.isdigit()
        with suppress(ValueError):  # as the crawl would have it: with a slash after the host, without a fragment
            which = normalise_url(which)
        entry = find(directory, int(which) if is_number else which)
        if entry is None:
            raise TinycrawlError(f"page directory {directory.path} has no {'page' if is_number else 'URL'} {which}")
        if opts.body and not entry.doc_id:
            raise TinycrawlError(f"{entry.url} is no page: {entry.reason}")
        if opts.json:
            print_json([asdict(entry)])
            return 0
        print_facts({name: value for name, value in asdict(entry).items() if (name, value) != ("doc_id", 0)})
        if opts.body:
            print()
            print_body(directory.read_body(entry.doc_id))
        return 0

    def _verify(self, opts: argparse.Namespace) -> int:
        from tinycrawl.verification import find_faults

        directory = PageDirectory(opts.directory)
        faults = list(find_faults(directory))
        for fault in faults:
            print(json.dumps({"name": fault.name, "problem": fault.problem}) if opts.json else one_line(str(fault)))
        if not opts.json:
            print(f"{len(faults)} faults" if faults else f"{len(directory)} pages, all as recorded")
        return int(bool(faults))

    def _duplicates(self, opts: argparse.Namespace) -> int:
        from tinycrawl.analysis import duplicates

        groups = duplicates(self._open(opts.directory))
        if opts.json:
            print_json(
                {
                    "sha256": group[0].sha256,
                    "length": group[0].length,
                    "pages": [{"doc_id": entry.doc_id, "url": entry.final} for entry in group],
                }
                for group in groups
            )
            return 0
        rows = ((n, e.doc_id or None, group[0].length, e.final) for n, group in enumerate(groups, 1) for e in group)
        print_table(["group", "docID", "bytes", "URL"], rows)
        print(f"{len(groups)} groups of pages with the same bytes")
        return 0

    def _broken(self, opts: argparse.Namespace) -> int:
        from tinycrawl.analysis import broken

        found = broken(self._open(opts.directory))
        if opts.json:
            print_json(map(asdict, found))
            return 0
        rows = (
            (("" if n else one.reason), ("" if n else one.url), source)
            for one in found
            for n, source in enumerate(one.sources or [""])
        )
        print_table(["reason", "URL", "linked from"], rows)
        print(f"{len(found)} URLs failed")
        return 0

    def _links(self, opts: argparse.Namespace) -> int:
        from tinycrawl.analysis import edges
        from tinycrawl.linkgraph import COLUMNS, write_links

        if opts.output is not None:
            if opts.json:
                raise UsageError("options `--json` and `--output`: expected one of them")
            write_links(self._open(opts.directory), Path(opts.output))
            return 0
        found = edges(self._open(opts.directory))
        if opts.json:
            print_json(map(asdict, found))
        else:
            print_table(COLUMNS, ([getattr(edge, name) for name in COLUMNS] for edge in found))
        return 0

    def _diff(self, opts: argparse.Namespace) -> int:
        from tinycrawl.analysis import difference

        a, b = self._open(opts.a), self._open(opts.b)
        for directory in (a, b):
            if (directory.end or {}).get("end") != "complete":
                complain(f"{directory.path} holds no complete crawl: what it lacks may only not be found yet")
        changes = difference(a, b)
        if opts.json:
            print_json(map(asdict, changes))
        else:
            rows = ((c.kind, c.url, f"from {c.before}" if c.before else c.reason) for c in changes)
            print_table(["change", "URL", ""], rows)
        return int(bool(changes))

    def _report(self, opts: argparse.Namespace) -> int:
        from tinycrawl.report import write_report

        write_report(self._open(opts.directory), Path(opts.output))
        return 0
