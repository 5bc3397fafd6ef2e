"""Recurring crawls: a directory for each run, named by its date; the last one gone on with, the oldest deleted."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

import pytest

from conftest import CrawlCommand, Result
from many import CrawlPool
from mockserver import MockServer, Reply, page
from tinycrawl.exceptions import RunSkipped, UsageError
from tinycrawl.pagedir import PageDirectory
from tinycrawl.runs import Series, choose_run, exceeded_limit, fill_host, is_finished

STAMP = re.compile(r"\d{4}-\d\d-\d\dT\d{6}")


@pytest.fixture(scope="module")
def pool() -> Iterator[CrawlPool]:
    with CrawlPool() as pool:
        yield pool


class Site:
    """A small site whose file has a schedule, and its runs."""

    def __init__(self, server: MockServer, folder: Path, pool: CrawlPool) -> None:
        self.server = server
        self.pool = pool
        self.runs = folder / "runs"
        self.sites = folder / "sites"
        self.sites.mkdir()

    def write(self, crawl: str = "", schedule: str = "") -> None:
        depth = "" if "depth" in crawl else "depth = 1"
        (self.sites / "127.0.0.1.toml").write_text(
            f'[crawl]\n{depth}\npagedir = "{self.runs}/{{host}}-{{date}}"\n{crawl}\n'
            f'[schedule]\nseed = "{self.server.url("/")}"\ncron = "0 0 * * *"\n{schedule}\n'
        )

    @property
    def settings(self) -> dict[str, object]:
        return {"TINYCRAWL_SITES_DIR": str(self.sites), "DOWNLOAD_DELAY": 0}

    def crawl(self, settings: Mapping[str, object] | None = None, /, **arguments: object) -> None:
        """One run; with a *pagedir* of an earlier date, what was then."""
        given = {name: str(value) for name, value in arguments.items()}
        result = self.pool.run({"seed": self.server.url("/"), **given}, {**self.settings, **(settings or {})})
        assert result["error"] is None, result

    def at(self, date: str) -> Path:
        return self.runs / f"127.0.0.1-{date}"

    def dates(self) -> list[str]:
        """Of all runs; that of a new one is `now`."""
        names = sorted(path.name for path in self.runs.iterdir() if not path.name.startswith("."))
        begun = datetime.now(UTC).strftime("%Y-%m-%d")
        return [re.sub(rf"127\.0\.0\.1-({begun}T\d{{6}})?", lambda m: "now" if m[1] else "", name) for name in names]


@pytest.fixture
def site(server: Callable[..., MockServer], tmp_path: Path, pool: CrawlPool) -> Site:
    served = server({"/": page("/a", "/b"), "/a": page(), "/b": page()})
    site = Site(served, tmp_path, pool)
    site.write()
    return site


def files_of(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def logged(pool: CrawlPool, pattern: str) -> list[str]:
    return re.findall(pattern, pool.log(), re.MULTILINE)


def test_a_run_has_a_directory_of_its_own_named_by_its_date(site: Site) -> None:
    site.crawl(pagedir=site.at("2020-01-01T000000"))
    before = datetime.now(UTC)
    site.crawl()
    after = datetime.now(UTC)

    old, new = sorted(path for path in site.runs.iterdir() if not path.name.startswith("."))
    assert old == site.at("2020-01-01T000000")
    assert f"127.0.0.1-{before:%Y-%m-%dT%H%M%S}" <= new.name <= f"127.0.0.1-{after:%Y-%m-%dT%H%M%S}"
    assert {path.name: path.read_bytes() for path in new.iterdir()} == {
        path.name: path.read_bytes() for path in old.iterdir()
    }


def test_a_run_that_was_stopped_is_gone_on_with(site: Site) -> None:
    """As a kill leaves it: two records, the second without its page, and no end."""
    killed = site.at("2020-02-01T000000")
    site.crawl(pagedir=site.at("2020-01-01T000000"))
    site.crawl(pagedir=killed)
    lines = (killed / ".crawler").read_bytes().splitlines(keepends=True)
    (killed / ".crawler").write_bytes(b"".join(lines[:2]))
    for name in ("2", "3"):
        (killed / name).unlink()
    site.server.requests.clear()

    site.crawl()

    assert site.dates() == ["2020-01-01T000000", "2020-02-01T000000"]
    assert (killed / ".crawler").read_bytes() == b"".join(lines)
    assert [request.target for request in site.server.requests if request.target != "/robots.txt"] == ["/a", "/b"]


def test_a_run_that_got_as_far_as_it_may_is_finished(site: Site) -> None:
    site.write("max_pages = 2")
    site.crawl(pagedir=site.at("2020-01-01T000000"))
    site.crawl()
    assert site.dates() == ["2020-01-01T000000", "now"]

    site.write()
    site.pool.run(
        {"seed": site.server.url("/"), "pagedir": str(site.at("2030-01-01T000000"))},
        {**site.settings, "TINYCRAWL_MAX_BYTES": len(page("/a", "/b").body) + 1},
    )
    assert PageDirectory(site.at("2030-01-01T000000")).end == {
        "end": "stopped",
        "saved": 1,
        "depth": 1,
        "max_pages": None,
        "limit": "TINYCRAWL_MAX_BYTES",
    }
    site.crawl()
    assert len(site.dates()) == 4


def test_a_crawl_that_is_another_by_now_begins_a_series_of_its_own(site: Site) -> None:
    site.crawl(pagedir=site.at("2020-01-01T000000"), max_pages=1)
    site.write("exclude = '^/b'", "keep = 1")
    site.crawl()

    assert site.dates() == ["2020-01-01T000000", "now"]
    assert sorted(path.name for path in max(site.runs.iterdir()).iterdir()) == [".crawler", "1", "2"]


def test_only_finished_runs_of_the_crawl_beyond_the_number_are_deleted(site: Site) -> None:
    for month in (1, 2, 3, 4):
        site.crawl(pagedir=site.at(f"2020-0{month}-01T000000"))
    site.crawl(pagedir=site.at("2020-05-01T000000"), exclude="^/b")
    foreign = site.at("2020-02-01T000000") / "notes.txt"
    foreign.write_text("mine")
    hidden = site.at("2020-03-01T000000") / ".notes"
    hidden.write_text("mine")
    (site.runs / "127.0.0.1-2019-01-01T000000").mkdir()
    (site.runs / "127.0.0.1-2020-01-01T000000.diff.jsonl").touch()
    (site.runs / "127.0.0.1-latest").symlink_to(site.at("2020-04-01T000000"))
    site.write(schedule="keep = 2")

    site.crawl()

    assert site.dates() == [
        "2019-01-01T000000",  # no crawl wrote it
        "2020-02-01T000000",  # holds what no crawl wrote
        "2020-03-01T000000",  # the same, hidden
        "2020-04-01T000000",
        "2020-05-01T000000",  # another crawl
        "now",
        "latest",
    ]
    assert (foreign.read_text(), hidden.read_text()) == ("mine", "mine")
    assert (site.at("2020-02-01T000000") / "1").exists()
    assert [path.name for path in hidden.parent.iterdir()] == [".notes"]
    assert [path.name for path in site.runs.iterdir() if path.name.startswith(".")] == [".127.0.0.1-runs.lock"]


def test_a_run_never_deletes_itself_though_another_has_a_later_date(site: Site) -> None:
    site.crawl(pagedir=site.at("2131-01-01T000000"))  # a clock was wrong
    site.write(schedule="keep = 1\ndiff = true")

    site.crawl()

    assert site.dates() == ["now", "now.diff.jsonl"]


def test_what_a_death_left_of_a_deletion_goes_with_the_next(site: Site) -> None:
    site.crawl(pagedir=site.at("2020-01-01T000000"))
    site.at("2020-01-01T000000").rename(site.runs / ".127.0.0.1-2020-01-01T000000.expired")
    (site.runs / ".127.0.0.1-2020-01-01T000000.expired" / "3").unlink()
    site.write(schedule="keep = 5")

    site.crawl()

    assert site.dates() == ["now"]
    assert [path.name for path in site.runs.iterdir() if path.name.startswith(".")] == [".127.0.0.1-runs.lock"]


def test_a_run_is_compared_with_the_one_before(site: Site) -> None:
    site.crawl(pagedir=site.at("2020-01-01T000000"))
    site.server.reset({"/": page("/a", "/c"), "/a": page(), "/c": Reply(body=b"<p>other")})
    site.write(schedule="diff = true")

    site.crawl()

    (written,) = site.runs.glob("*.diff.jsonl")
    assert STAMP.search(written.name)
    changes = [json.loads(line) for line in written.read_text().splitlines()]
    prefix = site.server.url("")
    assert [(change["kind"], change["url"].removeprefix(prefix)) for change in changes] == [
        ("new", "/c"),
        ("gone", "/b"),
        ("changed", "/"),
    ]
    (counts,) = logged(site.pool, rf"Runs: against {re.escape(str(site.at('2020-01-01T000000')))}: (.*); in")
    assert counts == "1 changed, 1 gone, 1 new"


@pytest.mark.parametrize(
    ("crawl", "arguments", "settings", "kinds", "said"),
    [
        pytest.param("exclude = '^/b'", {}, {}, [("gone", "/b", "excluded")], "exclude", id="filter"),
        pytest.param(
            "", {}, {"TINYCRAWL_MAX_LINKS": 1}, [("gone", "/b", "not crawled")], "TINYCRAWL_MAX_LINKS", id="policy"
        ),
        pytest.param("scope = 'prefix'\nmax_pages = 2", {}, {}, None, "scope, another max_pages", id="scope-and-limit"),
        pytest.param("", {"depth": 0}, {}, None, "depth", id="depth"),
    ],
)
def test_runs_under_other_terms_are_compared_and_one_line_says_what_differs(
    site: Site,
    crawl: str,
    arguments: dict[str, object],
    settings: dict[str, object],
    kinds: list[tuple[str, str, str]] | None,
    said: str,
) -> None:
    before = site.at("2020-01-01T000000")
    site.crawl(pagedir=before)
    site.write(crawl, "diff = true")

    site.crawl(settings, **arguments)

    lines = logged(site.pool, rf"WARNING: Runs: ({re.escape(str(before))} is compared .*)$")
    assert lines == [f"{before} is compared though it was crawled with another {said}"]
    (written,) = site.runs.glob("*.diff.jsonl")
    changes = [json.loads(line) for line in written.read_text().splitlines()]
    prefix = site.server.url("")
    found = [(change["kind"], change["url"].removeprefix(prefix), change["reason"]) for change in changes]
    assert kinds is None or found == kinds
    assert found


def test_a_damaged_run_is_compared_and_one_line_says_so(site: Site) -> None:
    before = site.at("2020-01-01T000000")
    site.crawl(pagedir=before)
    lines = (before / ".crawler").read_bytes().splitlines(keepends=True)
    (before / ".crawler").write_bytes(b"".join([*lines[:2], b"x" + lines[2][1:], *lines[3:]]))
    site.write(schedule="diff = true")

    site.crawl()

    (line,) = logged(site.pool, rf"WARNING: Runs: {re.escape(str(before))}/.crawler, (.*)$")
    assert line == "line 3: damaged: it is no JSON of the manifest; what was there is missing in the comparison"
    (written,) = site.runs.glob("*.diff.jsonl")
    assert json.loads(written.read_text())["kind"] == "new"


def test_a_run_that_cannot_be_compared_says_why(site: Site) -> None:
    site.write(schedule="diff = true")
    site.crawl(pagedir=site.at("2020-01-01T000000"))
    site.crawl(pagedir=site.at("2020-02-01T000000"), seed=site.server.url("/a"))

    site.crawl(seed=site.server.url("/b"))

    assert [path.name for path in site.runs.glob("*.jsonl")] == []
    (line,) = logged(site.pool, rf"INFO: Runs: {re.escape(str(site.runs))}/.* (is compared .*)$")
    assert line == "is compared with none: no other run at this seed is finished"


def test_recheck_looks_at_the_last_run_again(site: Site) -> None:
    site.server.reset({"/": page("/a", "/b"), "/a": Reply(status=404), "/b": page()})
    site.crawl(pagedir=site.at("2020-01-01T000000"))
    site.server.reset({"/": page("/a", "/b"), "/a": page(), "/b": page()})

    site.crawl(recheck="failed")

    assert site.dates() == ["2020-01-01T000000"]
    assert len(PageDirectory(site.at("2020-01-01T000000"))) == 3


def test_fresh_begins_a_new_run_beside_one_that_was_stopped(site: Site) -> None:
    site.crawl(pagedir=site.at("2020-01-01T000000"))
    marker = site.at("2020-01-01T000000") / ".crawler"
    marker.write_bytes(b"".join(marker.read_bytes().splitlines(keepends=True)[:-1]))

    site.crawl(fresh=1)

    assert site.dates() == ["2020-01-01T000000", "now"]


def test_a_run_that_begins_while_the_last_one_works_is_skipped_and_says_so(
    crawl: CrawlCommand, site: Site, tmp_path: Path
) -> None:
    site.server.reset({"/a": Reply(never=True), "/": page("/a", "/b"), "/b": page()})
    running = crawl.start(site.server.url("/"), None, pagedir=False, settings=site.settings)
    deadline = time.monotonic() + 60
    while not any(request.target == "/a" for request in site.server.requests):
        assert time.monotonic() < deadline
        assert running.process.poll() is None
        time.sleep(0.02)
    (working,) = [path for path in site.runs.iterdir() if not path.name.startswith(".")]
    before = sorted(site.runs.iterdir())

    skipped: Result = crawl(site.server.url("/"), None, pagedir=False, settings=site.settings, check=4)

    said = f"skipped: the run in {working} is still working; nothing was done"
    assert skipped.stderr.count(f"tinycrawl: {said}\n") == 1
    facts = json.loads(re.findall(r"INFO: (\{.*\})$", skipped.stderr, re.MULTILINE)[-1])
    assert (facts["ending"], facts["exit_status"], facts["directory"]) == ("skipped", 4, str(working))
    assert sorted(site.runs.iterdir()) == before
    assert sum(request.target == "/" for request in site.server.requests) == 1
    running.kill()
    assert not (tmp_path / "data").exists()


# The rules, without a crawl


@pytest.mark.parametrize(
    ("pagedir", "expected"),
    [
        ("/d/{host}/{date}", "/d/h.test/{date}"),
        ("/d/{date}/", "/d/{date}/"),
        ("x-{date}-{host}", "x-{date}-h.test"),
    ],
)
def test_host_is_filled_in(pagedir: str, expected: str) -> None:
    assert fill_host(pagedir, "h.test", "`pagedir`") == expected


@pytest.mark.parametrize(
    ("pagedir", "expected"),
    [
        *(
            (path, "with {date} once, in its last part")
            for path in ("/{date}/{host}", "/{date}/{date}", "/{date}-{date}")
        ),
        *(
            (path, "with no braces but those of {date} and {host}")
            for path in (
                "/{host}-{Date}",
                "/{date}{}",
                "/{datum}",
                "/{hosts}/x",
                "/{ date }",
                "/{date",
                "/date}",
                "/${HOME}",
            )
        ),
        *((path, "with no braces but those of {date} and {host}") for path in ("/{a/b}", "/{{date}}", "/{{host}}")),
    ],
)
def test_placeholders_that_are_unknown_or_make_no_series_are_refused(pagedir: str, expected: str) -> None:
    with pytest.raises(UsageError) as info:
        fill_host(pagedir, "h.test", "`pagedir`")

    assert str(info.value) == f"`pagedir`: expected a path {expected}, got '{pagedir}'"


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        ({"end": "complete", "saved": 5, "depth": 1, "max_pages": None}, True),
        ({"end": "stopped", "saved": 5, "depth": 1, "max_pages": 5}, True),
        ({"end": "stopped", "saved": 4, "depth": 1, "max_pages": 5}, False),
        ({"end": "stopped", "saved": 5, "depth": 1, "max_pages": None}, False),
        ({"end": "stopped", "saved": 5, "depth": 1, "max_pages": None, "limit": "TINYCRAWL_MAX_BYTES"}, True),
        ({"end": "failed", "saved": 0, "depth": 1, "max_pages": None}, False),
    ],
)
def test_a_run_is_finished_when_nothing_is_left_within_its_limits(end: dict[str, object], expected: bool) -> None:
    assert is_finished(end) is expected


@pytest.mark.parametrize(
    ("limits", "end", "expected"),
    [
        ({"depth": 2, "max_pages": None}, {"depth": 2, "max_pages": 3}, None),
        ({"depth": 2, "max_pages": 3}, {"depth": 1, "max_pages": 3}, None),
        ({"depth": 1, "max_pages": None}, {"depth": 2, "max_pages": None}, "depth"),
        ({"depth": 1, "max_pages": 9}, {"depth": 1, "max_pages": None}, "max_pages"),
    ],
)
def test_smaller_limits_do_not_go_on(limits: dict[str, int | None], end: dict[str, int], expected: str | None) -> None:
    assert exceeded_limit(limits, end) == expected


def test_a_run_that_went_further_than_the_file_now_says_is_left_as_it_is(site: Site) -> None:
    """It could never be gone on with: every later run would fail at it."""
    stopped = site.at("2020-01-01T000000")
    site.crawl(pagedir=stopped)
    marker = stopped / ".crawler"
    marker.write_bytes(b"".join(marker.read_bytes().splitlines(keepends=True)[:-1]))
    site.write()
    identity = PageDirectory(stopped).identity or {}
    now = datetime(2026, 12, 1, 3, 30, tzinfo=UTC)

    chosen = [
        choose_run(
            Series(site.runs / "127.0.0.1-{date}", identity, {"depth": depth, "max_pages": None}),
            now,
            fresh=False,
            recheck=False,
        ).directory
        for depth in (0, 1)
    ]

    assert chosen == [site.at("2026-12-01T033000"), stopped]


@pytest.mark.parametrize(
    ("crawl", "arguments", "why"),
    [
        pytest.param("depth = 0", {}, "it was crawled with depth=1, and now depth=0", id="smaller-depth"),
        pytest.param(
            "depth = 1\nmax_pages = 2", {}, "it was crawled with max_pages=3, and now max_pages=2", id="fewer-pages"
        ),
        pytest.param("depth = 1\nexclude = '^/b'", {}, "it was crawled with another exclude", id="filter"),
        pytest.param(
            "depth = 1\nexclude = '^/b'\nscope = 'prefix'",
            {"recheck": "failed"},
            "it was crawled with another exclude, another scope",
            id="recheck",
        ),
        pytest.param("depth = 1", {"fresh": 1}, "fresh=1", id="fresh"),
    ],
)
def test_an_unfinished_run_that_a_change_leaves_behind_is_named_with_the_reason(
    site: Site, crawl: str, arguments: dict[str, object], why: str
) -> None:
    stopped = site.at("2020-01-01T000000")
    site.crawl(pagedir=stopped)
    marker = stopped / ".crawler"
    marker.write_bytes(b"".join(marker.read_bytes().splitlines(keepends=True)[:-1]))
    before = files_of(stopped)
    site.write(crawl)

    site.crawl(**arguments)
    site.crawl()  # and then never again

    assert site.dates() == ["2020-01-01T000000", "now", "now"]
    assert files_of(stopped) == before
    assert logged(site.pool, rf"WARNING: Runs: ({re.escape(str(stopped))} .*)$") == [
        f"{stopped} was not finished and is left behind: {why}; a new run begins"
    ]


def test_a_finished_run_that_recheck_cannot_go_on_with_is_named(site: Site) -> None:
    finished = site.at("2020-01-01T000000")
    site.crawl(pagedir=finished)
    site.write("depth = 0")

    site.crawl(recheck="failed")

    assert site.dates() == ["2020-01-01T000000", "now"]
    assert logged(site.pool, rf"WARNING: Runs: ({re.escape(str(finished))} .*)$") == [
        f"{finished} is not looked at again: it was crawled with depth=1, and now depth=0; a new run begins"
    ]


def test_runs_that_were_left_behind_go_when_all_that_are_kept_are_newer(site: Site) -> None:
    for month in (1, 2, 3, 4, 5):
        site.crawl(pagedir=site.at(f"2020-0{month}-01T000000"), depth=int(month != 5))
    for month in (2, 4):
        marker = site.at(f"2020-0{month}-01T000000") / ".crawler"
        marker.write_bytes(b"".join(marker.read_bytes().splitlines(keepends=True)[:-1]))
    site.crawl(pagedir=site.at("2019-01-01T000000"), exclude="^/b")
    other = site.at("2019-02-01T000000")
    site.crawl(pagedir=other, exclude="^/a")
    site.write(schedule="keep = 3")

    site.crawl()

    assert site.dates() == [
        "2019-01-01T000000",
        "2019-02-01T000000",
        "2020-03-01T000000",
        "2020-04-01T000000",  # not as old as all that are kept
        "2020-05-01T000000",
        "now",
    ]
    said = logged(site.pool, rf"INFO: Runs: ({re.escape(str(site.runs))}/.* deleted.*)$")
    assert said == [
        f"{site.at('2020-01-01T000000')} deleted, 3 are kept",
        f"{site.at('2020-02-01T000000')} deleted though not finished, 3 are kept",
    ]
    assert logged(site.pool, rf"INFO: Runs: (keep does not count .*{re.escape(str(other))}.*)$") == [
        f"keep does not count 2 runs of other crawls, like {other} (exclude)"
    ]


def test_of_two_runs_that_begin_at_once_one_is_skipped(tmp_path: Path) -> None:
    """Both have looked before either began; and one more looked before the first had ended."""
    series = Series(tmp_path / "runs" / "{date}", {}, {})
    now = datetime(2026, 12, 1, 3, 30, tzinfo=UTC)
    first, second, third = (choose_run(series, now, fresh=False, recheck=False) for _ in range(3))
    assert first.directory == second.directory == tmp_path / "runs" / "2026-12-01T033000"

    lock = first.begin()
    with pytest.raises(RunSkipped, match=r"^another run in .* is still working; nothing was done$"):
        second.begin()
    first.directory.mkdir()
    lock.close()
    with pytest.raises(RunSkipped, match=r"^another run of .* has just begun or ended; nothing was done$"):
        third.begin()

    assert sorted(path.name for path in series.pattern.parent.iterdir()) == [".runs.lock", "2026-12-01T033000"]
    later = choose_run(series, now, fresh=False, recheck=False)
    assert later.directory.name == "2026-12-01T033001"  # the name is taken
    later.begin().close()
