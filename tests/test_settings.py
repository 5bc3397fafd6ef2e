"""Settings that are of no use: one line before the first request, by the command, for a site's file, from a script."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import scrapy.settings.default_settings as defaults
from scrapy.settings import Settings

import tinycrawl.settings as project_settings
from conftest import CrawlCommand
from many import CrawlPool
from mockserver import MockServer, page
from tinycrawl.exceptions import UsageError
from tinycrawl.settingcheck import check_setting, check_values
from tinycrawl.sitecheck import check_file
from tinycrawl.sites import TOO_LATE

Server = Callable[..., MockServer]

NO_MODULE = "expected the import path of a class or function (ModuleNotFoundError: No module named 'nope')"
LEVELS = "expected one of DEBUG, INFO, WARNING, ERROR, CRITICAL"


def project() -> Settings:
    settings = Settings()
    settings.setmodule("tinycrawl.settings", priority="project")
    return settings


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        pytest.param("USER_AGENT", 5, "expected text, got 5", id="text-number"),
        pytest.param("USER_AGENT", ["x"], "expected text, got 'x'", id="text-list"),
        pytest.param("USER_AGENT", "a\nb", r"expected text without control characters, got 'a\nb'", id="header-line"),
        pytest.param("LOG_FILE", 5, "expected text, got 5", id="none-number"),
        pytest.param(
            "TINYCRAWL_OUTPUT_DIR", "/a/{host}", "expected a path without braces, got '/a/{host}'", id="no-placeholder"
        ),
        pytest.param("DOWNLOAD_DELAY", "abc", "expected a number, 0 or more, got 'abc'", id="number-text"),
        pytest.param("DOWNLOAD_DELAY", float("nan"), "expected a number, 0 or more, got nan", id="nan"),
        pytest.param("DOWNLOAD_DELAY", "inf", "expected a number, 0 or more, got 'inf'", id="infinite"),
        pytest.param("DOWNLOAD_DELAY", "1e999", "expected a number, 0 or more, got '1e999'", id="too-large"),
        pytest.param("DOWNLOAD_DELAY", -1, "expected a number, 0 or more, got -1", id="negative"),
        pytest.param("DNS_TIMEOUT", True, "expected a number, 1 or more, got True", id="flag-for-a-number"),
        pytest.param("CONCURRENT_REQUESTS", "many", "expected a whole number, 0 or more, got 'many'", id="whole-text"),
        pytest.param("CONCURRENT_REQUESTS", 1.5, "expected a whole number, 0 or more, got 1.5", id="whole-fraction"),
        pytest.param("CONCURRENT_ITEMS", "abc", "expected a whole number, 0 or more, got 'abc'", id="items"),
        pytest.param("REACTOR_THREADPOOL_MAXSIZE", 0, "expected a whole number, 1 or more, got 0", id="no-threads"),
        pytest.param("DEPTH_PRIORITY", "x", "expected a whole number, got 'x'", id="any-sign"),
        pytest.param("LOG_ENABLED", "perhaps", "expected 0 or 1, got 'perhaps'", id="flag"),
        pytest.param("TELNETCONSOLE_ENABLED", "perhaps", "expected 0 or 1, got 'perhaps'", id="flag-with-1"),
        pytest.param("TWISTED_REACTOR_ENABLED", "0", "expected 1, got '0'", id="reactor"),
        pytest.param("LOG_LEVEL", "LOUD", f"{LEVELS}, got 'LOUD'", id="level"),
        pytest.param("LOG_LEVEL", "15", f"{LEVELS}, got '15'", id="level-number-as-text"),
        pytest.param("RETRY_GIVE_UP_LOG_LEVEL", "nope", f"{LEVELS}, got 'nope'", id="other-level"),
        pytest.param(
            "LOG_FORMAT",
            "%(nope)s",
            "expected a format of Python's logging, like %(levelname)s: %(message)s, got '%(nope)s'",
            id="format",
        ),
        pytest.param("LOG_ENCODING", "nope", "expected an encoding, like utf-8, got 'nope'", id="encoding"),
        pytest.param("FEED_EXPORT_ENCODING", "", "expected an encoding, like utf-8, got ''", id="no-encoding"),
        pytest.param("DOWNLOAD_BIND_ADDRESS", "nope", "expected an IP address, got 'nope'", id="address"),
        pytest.param(
            "DOWNLOAD_TLS_MIN_VERSION",
            "2",
            "expected one of TLSv1.0, TLSv1.1, TLSv1.2, TLSv1.3, got '2'",
            id="tls-version",
        ),
        pytest.param("STATS_CLASS", "nope.X", f"{NO_MODULE}, got 'nope.X'", id="class"),
        pytest.param(
            "STATS_CLASS",
            "scrapy.statscollectors.Nope",
            "expected the import path of a class or function (NameError: Module 'scrapy.statscollectors' doesn't define"
            " any object named 'Nope'), got 'scrapy.statscollectors.Nope'",
            id="class-not-there",
        ),
        pytest.param("FEED_URI_PARAMS", "nope.x", f"{NO_MODULE}, got 'nope.x'", id="class-without-default"),
        pytest.param("RETRY_EXCEPTIONS", ["nope.X"], f"{NO_MODULE}, got 'nope.X'", id="list-of-classes"),
        pytest.param("RETRY_HTTP_CODES", "503,x", "expected whole numbers separated by commas, got '503,x'", id="list"),
        pytest.param("TELNETCONSOLE_PORT", [True], "expected whole numbers separated by commas, got True", id="ports"),
        pytest.param("EXTENSIONS", "nope", "expected a JSON object, got 'nope'", id="table-text"),
        pytest.param("EXTENSIONS", ["ab", "cd"], "expected a JSON object, got 'ab', 'cd'", id="table-list"),
        *(
            pytest.param(name, '{"nope.X": 5}', f"""{NO_MODULE}, got '{{"nope.X": 5}}'""", id=name)
            for name in ("EXTENSIONS", "SPIDER_MIDDLEWARES", "ADDONS", "ITEM_PIPELINES", "DOWNLOADER_MIDDLEWARES")
        ),
        *(
            pytest.param(name, {"x": "nope.X"}, f"{NO_MODULE}, got {{'x': 'nope.X'}}", id=name)
            for name in ("FEED_EXPORTERS", "FEED_STORAGES", "DOWNLOAD_HANDLERS")
        ),
        pytest.param(
            "EXTENSIONS",
            {"scrapy.extensions.corestats.CoreStats": "x"},
            "expected a number or null for each class, not so 'scrapy.extensions.corestats.CoreStats', got"
            " {'scrapy.extensions.corestats.CoreStats': 'x'}",
            id="priority",
        ),
        pytest.param(
            "DOWNLOAD_SLOTS",
            {"h.test": 5},
            "expected a JSON object for each entry, not so 'h.test', got {'h.test': 5}",
            id="slot",
        ),
        pytest.param(
            "DOWNLOAD_SLOTS",
            {"h.test": {"delay": "x"}},
            "expected a number, 0 or more, for 'delay', got {'h.test': {'delay': 'x'}}",
            id="slot-delay",
        ),
        pytest.param(
            "DEFAULT_REQUEST_HEADERS", "s3cr3t", "expected a JSON object, got what is not shown", id="headers"
        ),
        pytest.param(
            "DEFAULT_REQUEST_HEADERS",
            {"X-Key": "s3cr3t\n"},
            "expected text without control characters for each header, not so 'X-Key', got what is not shown",
            id="header-with-a-newline",
        ),
        pytest.param("FTP_PASSWORD", 53, "expected text, got what is not shown", id="password-number"),
        pytest.param("AWS_SECRET_ACCESS_KEY", ["s3cr3t"], "expected text, got what is not shown", id="key-list"),
        pytest.param("FEEDS", "s3cr3t", "expected a JSON object, got what is not shown", id="feeds-text"),
        pytest.param(
            "FEEDS",
            {"ftp://me:s3cr3t@h.test/x": "json"},
            "expected a JSON object for each entry, not so 'ftp://***@h.test/x', got what is not shown",
            id="feeds-of-text",
        ),
    ],
)
def test_value_of_no_use_is_refused_in_one_line_by_crawl_and_check(
    name: str, value: Any, problem: str, tmp_path: Path
) -> None:
    settings = project()
    settings.attributes[name].value = value  # Scrapy itself takes less
    path = tmp_path / "h.test.toml"
    path.write_text(f"[settings]\n{name} = {in_toml(value)}\n")

    with pytest.raises(UsageError) as info:
        check_values(settings)

    assert str(info.value) == f"setting `{name}`: {problem}"
    if name not in TOO_LATE:
        assert [str(fault) for fault in check_file(path, project()).faults] == [f"{path}:2: {info.value}"]


def in_toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"'{key}' = {in_toml(entry)}" for key, entry in value.items()) + "}"
    return json.dumps(value).replace("NaN", "nan")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("USER_AGENT", ""),
        ("LOG_FILE", None),
        ("LOG_LEVEL", 10),
        ("DOWNLOAD_DELAY", "0.5"),
        ("DEPTH_PRIORITY", "-1"),
        ("AWS_USE_SSL", "0"),
        ("TELNETCONSOLE_PORT", "6023, 6073"),
        ("FEED_EXPORT_FIELDS", "url,title"),
        ("FEED_EXPORT_FIELDS", {"url": "URL"}),
        ("FEED_EXPORT_ENCODING", "latin-1"),
        ("FEEDS", {Path("x.json"): {"format": "json"}}),
        ("RETRY_EXCEPTIONS", [OSError, "scrapy.exceptions.CannotResolveHostError"]),
        ("EXTENSIONS", {"nope.X": None, "scrapy.extensions.corestats.CoreStats": 0.5}),
        ("STATS_CLASS", "scrapy.statscollectors.DummyStatsCollector"),
        ("DEFAULT_REQUEST_HEADERS", {"Accept": None, "X-Key": ["a", "b"], "X-Number": 5}),
        ("DOWNLOAD_SLOTS", {"h.test": {"delay": 2, "concurrency": 1, "jitter": 0}}),
        ("DOWNLOAD_BIND_ADDRESS", ("127.0.0.1", 0)),
        ("REFERRER_POLICY", "no-referrer"),
        ("NO_SETTING_OF_SCRAPY", object()),
    ],
)
def test_value_that_scrapy_takes_is_accepted(name: str, value: object) -> None:
    check_setting(name, value)


def test_every_default_of_scrapy_and_of_the_project_is_accepted() -> None:
    names = [(module, name) for module in (defaults, project_settings) for name in vars(module) if name.isupper()]
    for module, name in names:
        check_setting(name, getattr(module, name))

    check_values(project())
    assert len(names) > 200


# The real command


def test_the_command_refuses_each_in_one_line_before_anything_is_created(
    server: Server, crawl: CrawlCommand, tmp_path: Path
) -> None:
    site = server({"/": page()})
    (tmp_path / "127.0.0.1.toml").write_text('[settings]\nEXTENSIONS = {"nope.Nope" = 5}\n')
    feed = tmp_path / "new" / "x.jsonl"
    rows: list[tuple[dict[str, object], list[str], str]] = [
        ({"EXTENSIONS": '{"nope.Nope": 5}'}, [], f"setting `EXTENSIONS`: {NO_MODULE}, got "),
        (
            {"TINYCRAWL_SITES_DIR": tmp_path},
            [],
            f"{tmp_path}/127.0.0.1.toml:2: setting `EXTENSIONS`: {NO_MODULE}, got ",
        ),
        ({"HTTPCACHE_ENABLED": "perhaps"}, [], "setting `HTTPCACHE_ENABLED`: expected 0 or 1, got 'perhaps'\n"),
        ({"SPIDER_MODULES": "nope"}, [], "setting `SPIDER_MODULES`: expected the names of modules (ModuleNotFoundE"),
        ({"LOG_FILE": "/no/such/x"}, [], "setting `LOG_FILE`: expected a file that can be written, got '/no/such/x'\n"),
        ({"LOG_FILE": tmp_path}, [], f"setting `LOG_FILE`: expected a file that can be written, got '{tmp_path}'\n"),
        ({"FEEDS": "no JSON"}, [], "setting `FEEDS`: expected a JSON object, got what is not shown\n"),
        ({}, ["--logfile", "/no/such/x"], "option --logfile: expected a file that can be written, got '/no/such/x'\n"),
        ({}, ["--pidfile", "/no/such/x"], "option --pidfile: expected a file that can be written, got '/no/such/x'\n"),
        ({}, ["-s", "s3cr3t"], "option -s: expected NAME=VALUE\n"),
        ({}, ["-a", "s3cr3t"], "option -a: expected NAME=VALUE\n"),
        ({}, ["-O", f"{feed}:nope"], f"feed '{feed}:nope': expected FILE or FILE:FORMAT, with a format of json, "),
        ({}, ["-O", str(feed), "-o", "-:csv"], "options -o and -O: expected one or the other\n"),
        ({}, ["-O", f"{feed}", "-O", f"{feed}:csv"], f"feed '{feed}:csv': expected a file of its own, another feed h"),
        ({}, ["-O", f"{tmp_path}:csv"], f"feed '{tmp_path}': expected a file that can be written, got '{tmp_path}'\n"),
    ]

    crawls = [
        crawl.start(site.url(), 0, settings=settings, options=options, pagedir=tmp_path / "new" / "pages")
        for settings, options, _ in rows
    ]

    for (_, _, expected), running in zip(rows, crawls, strict=True):
        result = running.wait()
        assert result.stderr.startswith(f"tinycrawl: {expected}"), result.stderr
        assert (result.stderr.count("\n"), result.status, result.stdout) == (1, 2, "")
    assert not (tmp_path / "new").exists()
    assert site.requests == []


# A script


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"CONCURRENT_ITEMS": "abc"}, "setting `CONCURRENT_ITEMS`: expected a whole number, 0 or more, got 'abc'"),
        ({"EXTENSIONS": '{"nope.X": 5}'}, f"setting `EXTENSIONS`: {NO_MODULE}, got {{'nope.X': 5}}"),
        ({"FEEDS": '{"x": {"format": "nope"}}'}, "feed 'x': expected a format of json, "),
    ],
)
def test_a_script_is_refused_before_the_first_request(
    settings: dict[str, str], problem: str, server: Server, tmp_path: Path, pool: CrawlPool
) -> None:
    site = server({"/": page()})

    answer = pool.run({"seed": site.url(), "depth": 0, "pagedir": str(tmp_path / "pages")}, settings)

    assert "UsageError" in answer["error"]
    assert problem in answer["error"].replace("\\'", "'")
    assert (site.requests, (tmp_path / "pages").exists()) == ([], False)


@pytest.fixture(scope="module")
def pool() -> Any:
    with CrawlPool() as pool:
        yield pool
