"""What the README says of reading a page directory and of the three ancestors: each of its commands is run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from conftest import REPOSITORY, read_page_files
from mockserver import MockServer, Reply, page, redirect, robots

README = (REPOSITORY / "README.md").read_text(encoding="utf-8")
TIME_LIMIT = 120  # seconds for one command


def commands(heading: str) -> list[str]:
    """The indented lines of the section or sub-section that begins with *heading*."""
    section = re.search(rf"^{re.escape(heading)}\n(.*?)(?=^##|\Z)", README, re.MULTILINE | re.DOTALL)
    assert section is not None, heading
    return re.findall(r"^ {4}(\S.*)$", section[1], re.MULTILINE)


READING = commands("## Reading a page directory")
SEARCH_ENGINE = commands("### The crawler of the Tiny Search Engine")
SPIDER = commands("### The blog's spider")
COLLECTOR = commands("### The Perl collector, `findURLs.pl`")


def test_the_sections_have_these_commands_and_no_others() -> None:
    assert [line.split()[:3] for line in READING] == [
        ["scrapy", "pages", action]
        for action in ("ls", "show", "verify", "duplicates", "broken", "links", "diff", "report")
    ]
    assert [line.split()[0] for line in SEARCH_ENGINE] == ["scrapy", "grep", "scrapy", "diff"]
    assert [line.split()[1] for line in SPIDER] == ["crawl", "crawl", "pages", "pages", "crawl"]
    assert [line.split()[1] for line in COLLECTOR] == ["crawl"]


@dataclass
class Shell:
    """Runs the README's lines in an empty folder, with ``https://example.org/`` on our server, and no delay."""

    folder: Path
    server: MockServer

    def url(self, path: str, host: str = "example.test") -> str:
        return self.server.url(path, host)

    def __call__(self, line: str, status: int = 0) -> str:
        """Return stdout and stderr."""
        for name, ours in {
            "https://example.org/": self.url("/"),
            "example.net": "net.test",
            "example.com": "com.test",
        }.items():
            line = line.replace(name, ours)
        done = subprocess.run(
            ["sh", "-c", line],
            cwd=self.folder,
            env={
                **os.environ,
                "PATH": f"{self.folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
                "PYTHONPATH": f"{REPOSITORY}{os.pathsep}{REPOSITORY / 'tests'}",
                "SCRAPY_SETTINGS_MODULE": "tinycrawl.settings",
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=TIME_LIMIT,
            check=False,
        )
        assert done.returncode == status, f"{line}\n{done.stdout[-3000:]}"
        return done.stdout

    def paths(self, directory: str) -> list[str]:
        """The pages as paths, those of other hosts as ``host/path``."""
        port = f":{self.server.port}"
        urls = [url.removeprefix("http://").replace(port, "") for url, _ in read_page_files(self.folder / directory)]
        return [url.removeprefix("example.test") for url in urls]


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    script = tmp_path / "bin" / "scrapy"
    script.parent.mkdir()
    fast = "-s DOWNLOAD_DELAY=0 -s TWISTED_DNS_RESOLVER=testresolver.TestResolver"
    script.write_text(f'#!/bin/sh\n[ "$1" = crawl ] && set -- "$@" {fast}\nexec "{sys.executable}" -m scrapy "$@"\n')
    script.chmod(0o755)
    with ExitStack() as stack:
        server = stack.enter_context(MockServer({}))
        net, com, org = (server.url("", host) for host in ("net.test", "com.test", "example.test"))
        links = ("/a", "/b", "/old", "/gone", "/copy", "/hidden", "/file.pdf", "/private/1", "/run.cgi")
        server.reset(
            {
                "example.test/robots.txt": robots("User-agent: *\nDisallow: /hidden"),
                "example.test/": page(*links, f"{net}/", f"{com}/", "http://www.other.test/"),
                "example.test/a": page("/", "/gone", "/b"),
                "example.test/b": page("/deep", title="Twin"),
                "example.test/copy": page("/deep", title="Twin"),
                "example.test/old": redirect("/lost"),
                "example.test/deep": page("/deeper"),
                "example.test/deeper": page("/lost"),
                "example.test/file.pdf": Reply(body=b"%PDF-1.4", type="application/pdf"),
                "example.test/private/1": page(title="Private"),
                "example.test/run.cgi": page(),
                "net.test/robots.txt": robots("User-agent: *\nDisallow: /hidden"),
                "net.test/": page("/hidden", "/open", org),
                "net.test/open": page(),
                "com.test/": page(f"{net}/open"),
            }
        )
        yield Shell(tmp_path, server)


LOCAL = ["/", "/a", "/b", "/copy", "/private/1", "/run.cgi", "/deep", "/deeper"]


def test_the_search_engine_s_crawler(shell: Shell) -> None:
    crawl, grep, again, compare = SEARCH_ENGINE

    shell(crawl)
    added = shell(grep)
    shell(again)
    difference = shell(compare)

    assert shell.paths("data/tse") == LOCAL[:7]
    assert [line.rpartition(str(shell.server.port))[2] for line in added.splitlines()] == [
        *("/a", "/b", "/old", "/gone", "/copy", "/hidden", "/file.pdf", "/private/1", "/run.cgi", "/deep"),
    ]
    assert difference == ""
    assert {request.host for request in shell.server.requests} == {"example.test"}
    bad = shell(again.replace("depth=2", "depth=two").replace("again", "none"), status=2)
    assert bad == "tinycrawl: spider argument `depth`: expected an integer from 0 to 10, got 'two'\n"
    assert not (shell.folder / "data" / "none").exists()


def test_the_blog_s_spider(shell: Shell) -> None:
    local, everywhere, broken, duplicates, folded = SPIDER

    told = shell(local)
    shell(everywhere)
    shell(folded)

    assert shell.paths("data/local") == LOCAL
    assert "  failed    2 (2 http 404)\n" in told
    assert "  links     19 seen, 2 URLs broken\n" in told
    assert shell.paths("data/all") == [*LOCAL[:6], "net.test/", "com.test/", "/deep", "net.test/open"]
    asked = {(request.host, request.target) for request in shell.server.requests}
    assert {(host, "/robots.txt") for host in ("example.test", "net.test", "com.test")} <= asked
    assert not {("example.test", "/hidden"), ("net.test", "/hidden")} & asked
    one, other = shell.url("/gone"), shell.url("/lost")
    assert [line.split() for line in shell(broken).splitlines()[1:]] == [
        ["http", "404", other, shell.url("/")],
        [shell.url("/deeper")],
        ["http", "404", one, shell.url("/")],
        [shell.url("/a")],
        ["2", "URLs", "failed"],
    ]
    assert [line.split()[-1] for line in shell(duplicates).splitlines()[1:3]] == [shell.url("/b"), shell.url("/copy")]
    assert shell.paths("data/folded") == [path for path in LOCAL if path != "/copy"]
    shown = shell(f"scrapy pages show data/folded {shell.url('/copy')}")
    assert "reason: duplicate of 3\n" in shown


def test_the_perl_collector(shell: Shell) -> None:
    (collect,) = COLLECTOR
    traversed = shell.folder / "traversed.txt"
    port = shell.server.port

    def lines() -> list[str]:
        return [line.removeprefix("http://").replace(f":{port}", "") for line in traversed.read_text().splitlines()]

    whole = ["/", "/a", "/b", "/copy", "net.test/", "com.test/", "/deep", "net.test/open", "/deeper"]
    assert "tinycrawl: stopped at max_pages=4" in shell(collect.replace("max_pages=500", "max_pages=4"), status=3)
    assert lines() == [f"example.test{path}" for path in whole[:4]]
    shell(collect)

    assert lines() == [path if path[0] != "/" else f"example.test{path}" for path in whole]
    agents = {request.headers["user-agent"] for request in shell.server.requests}
    assert agents == {f"collector/1.0 (+{shell.url('/bot')})"}
    assert not {"/private/1", "/run.cgi"} & set(shell.server.targets())


def test_the_commands_that_read_a_page_directory(shell: Shell) -> None:
    ls, show, verify, duplicates, broken, links, diff, report = READING
    crawl = "scrapy crawl site -a seed=https://example.org/ -a depth=10 -a pagedir=data/"
    shell(f"{crawl}example.org-2")
    routes = {"/": page("/a", "/b"), "/b": page(title="Twin, changed"), "/a": page("/", "/gone", "/b")}
    shell.server.reset(routes)
    shell(f"{crawl}later")

    assert [line.split()[-1] for line in shell(ls).splitlines()[1:]] == [shell.url(path) for path in LOCAL]
    assert shell(show).startswith(f"doc_id: 1\nurl: {shell.url('/')}\n")
    assert shell(verify) == "8 pages, all as recorded\n"
    assert shell(duplicates).endswith("\n1 groups of pages with the same bytes\n")
    assert shell(broken).endswith("\n2 URLs failed\n")
    assert shell(links) == ""
    first = (shell.folder / "links.csv").read_text().splitlines()[:2]
    assert first == ["source,target,kind,status", f"{shell.url('/')},{shell.url('/a')},link,saved"]
    assert [line.split() for line in shell(diff, status=1).splitlines()[1:]] == [
        *(["gone", shell.url(path), "not", "crawled"] for path in LOCAL[3:]),
        *(["changed", shell.url(path)] for path in ("/", "/b")),
    ]
    assert shell(report) == ""
    assert (shell.folder / "report.html").read_bytes().startswith(b"<!DOCTYPE html>")
