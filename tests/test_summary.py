"""The end of a crawl: what failed, and where it was found."""

import json
from collections.abc import Callable

from conftest import CrawlCommand
from mockserver import MockServer, Reply, page, redirect

ServerFactory = Callable[..., MockServer]


def test_summary_names_the_first_ten_broken_urls_with_the_page_that_has_the_link(
    server: ServerFactory, crawl: CrawlCommand
) -> None:
    gone = [f"/gone{n}" for n in range(11)]
    site = server({"/": page("/a", "/off", *gone[:2]), "/a": page(*gone), "/off": redirect("/gone10")})

    broken = crawl(site.url("/"), 2)
    site.reset({path: page("/") for path in ("/", "/a", "/off", *gone)})
    recovered = crawl(site.url("/"), 2, pagedir=broken.directory, recheck="failed")
    again = crawl(site.url("/"), 2, pagedir=broken.directory, fresh=1)

    shown = broken.stderr.replace(site.url(""), "")
    assert (
        shown[shown.index("  links ") : shown.index("  took ")]
        == f"""\
  links     15 seen, 11 URLs broken
  broken    /off (http 404), found on /
            /gone0 (http 404), found on /
            /gone1 (http 404), found on /
            /gone2 (http 404), found on /a
            /gone3 (http 404), found on /a
            /gone4 (http 404), found on /a
            /gone5 (http 404), found on /a
            /gone6 (http 404), found on /a
            /gone7 (http 404), found on /a
            /gone8 (http 404), found on /a
            and 1 more; all, with every page that links to them: scrapy pages broken {broken.directory}
"""
    )
    assert [" seen\n  took " in result.stderr for result in (recovered, again)] == [True, True]


def test_summary_of_a_crawl_that_is_gone_on_with_counts_what_was_read_back(
    server: ServerFactory, crawl: CrawlCommand
) -> None:
    site = server({"/": page("/dead", "/a"), "/dead": Reply(410), "/a": page("/b"), "/b": page()})

    stopped = crawl(site.url("/"), 1)
    deeper = crawl(site.url("/"), 2, pagedir=stopped.directory)

    facts = [
        json.loads(result.stderr[result.stderr.index('{"ending"') :].splitlines()[0]) for result in (stopped, deeper)
    ]
    dead = {"url": site.url("/dead"), "reason": "http 410", "parent": site.url("/")}
    assert [fact["broken"] for fact in facts] == [[dead], [dead]]
    assert [fact["links"] for fact in facts] == [2, 3]
