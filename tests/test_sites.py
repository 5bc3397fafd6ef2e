"""Per-site files: found by host alone, and refused by name where they say something unknown."""

import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scrapy.settings import Settings

from conftest import REPOSITORY, CrawlCommand
from mockserver import MockServer, page
from tinycrawl.exceptions import UsageError
from tinycrawl.sitecheck import check_file, check_files, find_files, find_site_file
from tinycrawl.sites import Site, load_site
from tinycrawl.tomllines import key_lines

KNOWN = frozenset({"DOWNLOAD_DELAY", "DOWNLOAD_SLOTS", "TINYCRAWL_MAX_DEPTH", "TINYCRAWL_SITES_DIR", "lower"})


def load(host: str, directory: Path | None) -> Site:
    return load_site(host, directory, known_settings=KNOWN)


def write_site(directory: Path, text: str, name: str = "h.test.toml") -> Path:
    path = directory / name
    path.write_text(text, encoding="utf-8")
    return path


def refusal(directory: Path, text: str) -> str:
    """Return what refuses a file, without the path that it has to begin with."""
    path = write_site(directory, text)
    with pytest.raises(UsageError) as info:
        load("h.test", directory)
    message = str(info.value)
    assert message.startswith(f"{path}")
    assert len(message.splitlines()) == 1
    return message.removeprefix(str(path))


def test_file_is_read_with_its_types(tmp_path: Path) -> None:
    path = write_site(
        tmp_path,
        """
        [crawl]
        depth = 3
        domains = ["cdn.test"]
        exclude = '^/\\d'
        strict = true
        [settings]
        DOWNLOAD_DELAY = 2.5
        [settings.DOWNLOAD_SLOTS."h.test"]
        delay = 3
        """,
    )

    assert load("h.test", tmp_path) == Site(
        crawl={"depth": 3, "domains": ["cdn.test"], "exclude": "^/\\d", "strict": True},
        settings={"DOWNLOAD_DELAY": 2.5, "DOWNLOAD_SLOTS": {"h.test": {"delay": 3}}},
        path=str(path),
    )


def test_host_without_a_file_has_an_empty_site(tmp_path: Path) -> None:
    assert load("h.test", tmp_path) == load("h.test", None) == Site({}, {}, "")


def test_file_of_another_host_is_not_read(tmp_path: Path) -> None:
    write_site(tmp_path, "[crawl]\ndepth = 3\n")

    assert load("www.h.test", tmp_path) == Site()


def test_packaged_example_is_read_without_a_directory() -> None:
    site = load("www.example.org", None)

    assert site.crawl == {"depth": 2, "exclude": "^/search"}
    assert site.settings == {"DOWNLOAD_DELAY": 2.0}
    assert site.path.endswith("www.example.org.toml")


def test_directory_replaces_the_packaged_folder(tmp_path: Path) -> None:
    assert load("www.example.org", tmp_path) == Site()


@pytest.mark.parametrize("host", ["::1", "[::1]"])
def test_ipv6_address_names_its_file_without_brackets(host: str, tmp_path: Path) -> None:
    write_site(tmp_path, "[crawl]\ndepth = 4\n", "::1.toml")

    assert load(host, tmp_path).crawl == {"depth": 4}


@pytest.mark.parametrize(
    "host",
    [
        pytest.param("../h.test", id="parent"),
        pytest.param("..", id="dots"),
        pytest.param(".hidden", id="leading-dot"),
        pytest.param("a/h.test", id="slash"),
        pytest.param("a\\h.test", id="backslash"),
        pytest.param("h.test\0", id="nul"),
        pytest.param("h.test\n", id="newline"),
        pytest.param("h.test:80", id="port"),
        pytest.param("", id="empty"),
        pytest.param("a" * 251, id="too-long-for-a-file"),
        pytest.param("*", id="star"),
    ],
)
def test_host_never_leads_elsewhere(host: str, tmp_path: Path) -> None:
    (tmp_path / "sites" / "a").mkdir(parents=True)
    for name in ("h.test.toml", "sites/a/h.test.toml", "sites/.hidden.toml", "sites/...toml", "sites/.toml"):
        write_site(tmp_path, "[crawl]\ndepth = 9\n", name)

    assert load(host, tmp_path / "sites") == Site()


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        pytest.param(
            "\n[crawl]\ndept = 3\n",
            ":3: 'dept' in [crawl]: unknown, expected one of depth, pagedir, scope, domains, include, exclude, "
            "max_pages, order, duplicates, strict",
            id="argument",
        ),
        pytest.param(
            "[settings]\nDOWNLOAD_DELAY = 1\nDOWNLOAD_DELAI = 2\n",
            ":3: 'DOWNLOAD_DELAI' in [settings]: not a setting of Scrapy or of tinycrawl",
            id="setting",
        ),
        pytest.param(
            "[settings]\nlower = 1\n",
            ":2: 'lower' in [settings]: not a setting of Scrapy or of tinycrawl",
            id="setting-in-lower-case",
        ),
        pytest.param(
            "[crawler]\ndepth = 3\n",
            ":1: 'crawler': unknown, expected the tables [crawl], [settings] and [schedule]",
            id="table",
        ),
        pytest.param(
            "depth = 3\n",
            ":1: 'depth': unknown, expected the tables [crawl], [settings] and [schedule]",
            id="outside-a-table",
        ),
        pytest.param(
            "crawl = 3\n",
            ":1: 'crawl': unknown, expected the tables [crawl], [settings] and [schedule]",
            id="not-a-table",
        ),
        pytest.param(
            "[crawl]\ndepth = \n",
            ": Invalid value (at line 2, column 9)",
            id="syntax",
        ),
        pytest.param(
            "[crawl]\ndomains = [\n'a.test',\n\n", ":3: Invalid value (at end of document)", id="syntax-at-the-end"
        ),
        pytest.param("[crawl]\n\ndepth = 11_" + "1" * 5000, ":3: expected a shorter number", id="number-too-long"),
        pytest.param(
            "[crawl]\n\npagedir = '/data/{datum}'\n",
            ":3: `pagedir`: expected a path with no braces but those of {date} and {host}, got '/data/{datum}'",
            id="placeholder",
        ),
        pytest.param(
            "[crawl]\nscope = 'galaxy'\n",
            ":2: `scope`: expected host, domain, prefix or all, got 'galaxy'",
            id="value",
        ),
        pytest.param(
            "[settings]\nTINYCRAWL_SITES_DIR = 'x'\n",
            ":2: `TINYCRAWL_SITES_DIR` in [settings]: read before this file; give it by -s or in settings.py",
            id="too-late",
        ),
        pytest.param(
            "[settings]\nDOWNLOAD_DELAY = 'a\\u0000'\nDOWNLOAD_DELAY_ = 1".replace("'", '"'),
            ":2: `DOWNLOAD_DELAY` in [settings]: expected text without NUL",
            id="nul",
        ),
        pytest.param(
            '[crawl]\n"a\\nb" = 1\n',
            r":2: 'a\nb' in [crawl]: unknown, expected one of depth, pagedir, scope, domains, include, exclude, "
            "max_pages, order, duplicates, strict",
            id="newline-in-the-key",
        ),
    ],
)
def test_unknown_key_is_refused_with_file_and_line(text: str, rest: str, tmp_path: Path) -> None:
    assert refusal(tmp_path, text) == rest


@pytest.mark.parametrize("name", ["seed", "events", "recheck", "fresh", "_job"])
def test_argument_of_a_single_run_is_refused(name: str, tmp_path: Path) -> None:
    assert refusal(tmp_path, f"[crawl]\n{name} = 1\n").startswith(f":2: '{name}' in [crawl]: unknown")


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (b"[crawl]\npagedir = '\xff'\n", 2),
        (b"[crawl]\r\n\r\npagedir = '\xc3", 3),
        ("[crawl]\ndepth = 1\n".encode("utf-16"), 1),
    ],
)
def test_file_that_is_not_utf_8_is_refused_with_the_line(
    data: bytes, line: int, tmp_path: Path, project: Settings
) -> None:
    path = tmp_path / "h.test.toml"
    path.write_bytes(data)

    with pytest.raises(UsageError) as info:
        load("h.test", tmp_path)

    assert str(info.value) == f"{path}:{line}: expected UTF-8"
    assert [str(fault) for fault in check_file(path, project).faults] == [f"{path}:{line}: expected UTF-8"]


def test_file_of_an_editor_that_writes_a_byte_order_mark_is_read(tmp_path: Path, project: Settings) -> None:
    path = tmp_path / "h.test.toml"
    path.write_bytes(b"\xef\xbb\xbf[crawl]\r\ndepth = 3\r\n")

    assert load("h.test", tmp_path).crawl == {"depth": 3}
    assert check_file(path, project).faults == []


def test_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "folder.test.toml").mkdir()
    (tmp_path / "link.test.toml").symlink_to(tmp_path / "nowhere")
    os.mkfifo(tmp_path / "pipe.test.toml")

    for host in ("folder.test", "link.test", "pipe.test"):
        with pytest.raises(UsageError, match=rf"{host}\.toml: cannot be read: not a file$"):
            load(host, tmp_path)


def test_directory_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as info:
        load("h.test", tmp_path / "none")

    assert str(info.value) == f"setting `TINYCRAWL_SITES_DIR`: expected a directory, got '{tmp_path / 'none'}'"


# On which line a key is


TOML = """\
top = 1

[crawl]           # [settings]
depth = 2
exclude = '''
depth = 3
[settings]
'''
"include" = "a # \\" = b"
domains = [
  "a.test",  # depth = 9
  "b = c",
]

[settings]
depth = 7
DOWNLOAD_SLOTS."h.test".delay = 1
TINYCRAWL_COOKIES = { depth = "x", 'a"b' = "]", "\\u00e9" = { deep = [1, { deeper = 2 }] } }
text = \"\"\"
[nothing]
\\\"\"\" depth = 3 \"\"\"\"
at = 1979-05-27 07:32:00

[settings . "DOWNLOAD_HANDLERS" ]
depth.of.it = 1
[[list]]
a = 1
[[list]]
b = 2
"""

LINES = {
    ("top",): 1,
    ("crawl",): 3,
    ("crawl", "depth"): 4,
    ("crawl", "exclude"): 5,
    ("crawl", "include"): 9,
    ("crawl", "domains"): 10,
    ("settings",): 15,
    ("settings", "depth"): 16,
    ("settings", "DOWNLOAD_SLOTS"): 17,
    ("settings", "DOWNLOAD_SLOTS", "h.test"): 17,
    ("settings", "DOWNLOAD_SLOTS", "h.test", "delay"): 17,
    ("settings", "TINYCRAWL_COOKIES"): 18,
    ("settings", "TINYCRAWL_COOKIES", "depth"): 18,
    ("settings", "TINYCRAWL_COOKIES", 'a"b'): 18,
    ("settings", "TINYCRAWL_COOKIES", "é"): 18,
    ("settings", "TINYCRAWL_COOKIES", "é", "deep"): 18,
    ("settings", "TINYCRAWL_COOKIES", "é", "deep", "deeper"): 18,
    ("settings", "text"): 19,
    ("settings", "at"): 22,
    ("settings", "DOWNLOAD_HANDLERS"): 24,
    ("settings", "DOWNLOAD_HANDLERS", "depth"): 25,
    ("settings", "DOWNLOAD_HANDLERS", "depth", "of"): 25,
    ("settings", "DOWNLOAD_HANDLERS", "depth", "of", "it"): 25,
    ("list",): 26,
    ("list", "a"): 27,
    ("list", "b"): 29,
}


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_keys_are_found_on_their_lines(end: str) -> None:
    text = TOML.replace("\n", end)
    tomllib.loads(text)

    assert key_lines(text) == LINES


KEYS = st.text(st.sampled_from("ab-1. é\"'\\#=[]"), min_size=1, max_size=4)
VALUES = st.sampled_from(
    [
        "1",
        "-2.5e3",
        "true",
        '"#]"',
        "'\\'",
        '"""\n]= \\""""',
        "''''\n'''",
        "[1, 2]",
        "[\n 1, # [\n [2],\n]",
        "{}",
        "1979-05-27",
    ]
)


@given(st.dictionaries(KEYS, st.dictionaries(KEYS, VALUES, max_size=4), max_size=4), st.data())
def test_every_key_of_a_file_is_found(tables: dict[str, dict[str, str]], data: st.DataObject) -> None:
    text, expected = "", {}
    for table, values in tables.items():
        text += data.draw(st.sampled_from(["", "\n", "# [x]\n"]))
        expected[(table,)] = text.count("\n") + 1
        text += f"[ {json.dumps(table)} ] # = \n"
        for key, value in values.items():
            text += data.draw(st.sampled_from(["", " ", "\t\n"]))
            expected[table, key] = text.count("\n") + 1
            text += f"{json.dumps(key)}={value}\n"
    tomllib.loads(text)

    assert key_lines(text) == expected


# All faults of all files


@pytest.fixture(scope="module")
def project() -> Settings:
    settings = Settings()
    settings.setmodule("tinycrawl.settings", priority="project")
    return settings


def faults(directory: Path, text: str, project: Settings, name: str = "h.test.toml") -> list[str]:
    path = write_site(directory, text, name)
    checked = check_file(path, project)
    assert all(fault.path == str(path) for fault in checked.faults)
    return [f"{fault.line}: {fault.problem}" for fault in checked.faults]


def test_settings_that_are_text_must_be_text(tmp_path: Path, project: Settings) -> None:
    text = '[settings]\nUSER_AGENT = 5\nSTATS_CLASS = true\nLOG_LEVEL = 10\nLOG_ENCODING = "utf-8"\n'

    assert [line.split(" (")[0] for line in faults(tmp_path, text, project)] == [
        "2: setting `USER_AGENT`: expected text, got 5",
        "3: setting `STATS_CLASS`: expected the import path of a class or function",
    ]


def test_settings_that_a_sites_file_sets_too_late_are_refused(tmp_path: Path, project: Settings) -> None:
    names = ["DNS_TIMEOUT", "TINYCRAWL_SITES_DIR", "REACTOR_THREADPOOL_MAXSIZE", "TWISTED_DNS_RESOLVER", "EDITOR"]
    text = "[settings]\n" + "".join(f"{name} = {project[name]!r}\n" for name in names if project[name] is not None)

    assert faults(tmp_path, f"{text}{names[1]} = '/srv'\n", project) == [
        f"{number}: `{name}` in [settings]: read before this file; give it by -s or in settings.py"
        for number, name in enumerate([names[0], *names[2:], names[1]], 2)
    ]


def test_all_faults_of_a_file_are_found_with_their_lines(tmp_path: Path, project: Settings) -> None:
    text = """\
other = 1
[crawl]
depth = 11
scope = "galaxy"
include = '('
max_pages = true
domains = [
  "ok.test",
  "not a domain",
]
seed = "http://h.test/"
[settings]
DOWNLOAD_DELAY = "fast"
depth = 3
"ROBOTSTXT_OBEY" = "perhaps"
DEPTH_STATS_VERBOSE = "perhaps"
TINYCRAWL_AHEAD = 0
TINYCRAWL_COOKIES = "sid=geheim"
SCHEDULER = "other"
TINYCRAWL_NONE = 1
[schedule]
cron = "61 * * * *"
seed = "http://www.h.test/"
often = true
"""

    found = faults(tmp_path, text, project)

    assert [line.split(": expected")[0] for line in found] == [
        "1: 'other': unknown, expected the tables [crawl], [settings] and [schedule]",
        "3: `depth`",
        "4: `scope`",
        "5: `include`",
        "6: `max_pages`",
        "7: `domains`",
        "11: 'seed' in [crawl]: unknown, expected one of depth, pagedir, scope, domains, include, exclude, max_pages,"
        " order, duplicates, strict",
        "13: setting `DOWNLOAD_DELAY`",
        "14: 'depth' in [settings]: not a setting of Scrapy or of tinycrawl",
        "15: setting `ROBOTSTXT_OBEY`",
        "16: setting `DEPTH_STATS_VERBOSE`",
        "17: setting `TINYCRAWL_AHEAD`",
        "18: setting `TINYCRAWL_COOKIES`",
        "19: setting `SCHEDULER`",
        "20: 'TINYCRAWL_NONE' in [settings]: not a setting of Scrapy or of tinycrawl",
        "21: [schedule] needs `pagedir` in [crawl]",
        "22: `cron` in [schedule]",
        "23: `seed` in [schedule]",
        "24: 'often' in [schedule]: unknown, expected one of seed, cron, timezone, keep, diff, fresh",
    ]
    assert "geheim" not in "".join(found)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        pytest.param(
            '[settings]\nLOG_LEVEL = "INFO"\nTINYCRAWL_HTTP_PASSWORD = "geheim"\n',
            "3: setting `TINYCRAWL_HTTP_USER`: expected the user of `TINYCRAWL_HTTP_PASSWORD`, got nothing",
            id="password-without-user",
        ),
        pytest.param(
            "[crawl]\ndepth = 2\n[settings]\nDEPTH_LIMIT = 3\n",
            "4: setting `DEPTH_LIMIT`: expected the same as the argument depth=2, got 3",
            id="two-depths",
        ),
        pytest.param(
            "[crawl]\npagedir = '/data/{Date}/{host}'\n",
            "2: `pagedir`: expected a path with no braces but those of {date} and {host}, got '/data/{Date}/{host}'",
            id="placeholder",
        ),
        pytest.param(
            "[crawl]\npagedir = '/data/{date}/{host}'\n",
            "2: `pagedir`: expected a path with {date} once, in its last part, got '/data/{date}/{host}'",
            id="date-in-the-middle",
        ),
        pytest.param("[crawl]\ndepth = \n", "2: Invalid value (at line 2, column 9)", id="syntax"),
        pytest.param(
            "[schedule]\n[crawl]\ndepth 3\n",
            "3: Expected '=' after a key in a key/value pair (at line 3, column 7)",
            id="syntax-with-a-schedule",
        ),
        pytest.param(
            "\nx = " + "[" * 20_000, "2: expected at most 50 tables and arrays in each other", id="too-deep-without-end"
        ),
        pytest.param(
            "[settings]\nLOG_LEVEL = 'INFO'\nTINYCRAWL_COOKIES_FILE = '/dev/null'\n",
            "3: cookies file '/dev/null': expected a regular file",
            id="cookies-file",
        ),
    ],
)
def test_fault_of_the_whole_file_is_found(text: str, fault: str, tmp_path: Path, project: Settings) -> None:
    assert faults(tmp_path, text, project) == [fault]


@pytest.mark.parametrize("depth", [51, 330, 450, 20_000])
@pytest.mark.parametrize(
    "value",
    [
        pytest.param(lambda depth: f" = {'[' * depth}1, 2.5, 3.5, 4.5{']' * depth}\n", id="arrays"),
        pytest.param(lambda depth: f" = {'{a=' * depth}1{'}' * depth}\n", id="tables"),
        pytest.param(lambda depth: f"{'.a' * depth} = '[[['\n", id="dots"),
        pytest.param(lambda depth: f" = [\n'}}', # }}\n{'[' * depth}{']' * depth}]\n", id="lines"),
    ],
)
def test_tables_and_arrays_too_deep_in_each_other_are_a_fault_of_their_line(
    depth: int, value: Callable[[int], str], tmp_path: Path, project: Settings
) -> None:
    text = f"[crawl]\ndepth = 1 # [\n[settings]\nTINYCRAWL_COOKIES{value(depth)}"
    line = 4 + value(depth)[:-1].count("\n")

    (found,) = faults(tmp_path, text, project)

    assert found == f"{line}: expected at most 50 tables and arrays in each other"


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("[::1].toml", "0: its name is not as URLs have the host; expected ::1.toml"),
        ("0:0:0:0:0:0:0:1.toml", "0: its name is not as URLs have the host; expected ::1.toml"),
        *(
            (name, f"0: its name has a port, and a file is for all ports of its host; expected {expected}.toml")
            for name, expected in {
                "h.test:80.toml": "h.test",
                "[::1]:8080.toml": "::1",
                "[::1]_8080.toml": "::1",
                "localhost_8080.toml": "localhost",
                "127.0.0.1_8080.toml": "127.0.0.1",
                "WWW.h.test_443.toml": "www.h.test",
            }.items()
        ),
        ("[h.test].toml", "0: its name is not as URLs have the host; expected h.test.toml"),
        ("::g.toml", "0: its name is no host; expected one like www.example.org.toml"),
        ("H.test.toml", "0: its name is not as URLs have the host; expected h.test.toml"),
        ("bücher.test.toml", "0: its name is not as URLs have the host; expected xn--bcher-kva.test.toml"),
        ("https h.test.toml", "0: its name is no host; expected one like www.example.org.toml"),
        ("a@h.test.toml", "0: its name is not as URLs have the host; expected h.test.toml"),
        ("127.1.toml", "0: its name is not as URLs have the host; expected 127.0.0.1.toml"),
        ("h.test.TOML", "0: its name is not as URLs have the host; expected h.test.toml"),
    ],
)
def test_name_that_no_host_would_find_is_a_fault(name: str, fault: str, tmp_path: Path, project: Settings) -> None:
    assert faults(tmp_path, "[crawl]\ndepth = 1\n", project, name) == [fault]


@pytest.mark.parametrize(
    "name",
    [
        "h.test.toml",
        "::1.toml",
        "::8080.toml",
        "127.0.0.1.toml",
        "xn--bcher-kva.test.toml",
        "a_1.test.toml",
        "a_1.toml",
    ],
)
def test_file_that_is_right_has_no_fault(name: str, tmp_path: Path, project: Settings) -> None:
    assert faults(tmp_path, "[crawl]\ndepth = 1\n[settings]\nDOWNLOAD_DELAY = 2\n", project, name) == []


def test_two_sites_never_share_a_directory_however_it_is_spelled(tmp_path: Path, project: Settings) -> None:
    """Neither may one be within another's, where a crawl expects pages alone."""
    sites, data = tmp_path / "sites", tmp_path / "data"
    sites.mkdir()
    (data / "real").mkdir(parents=True)
    (data / "link").symlink_to("real")
    pagedirs = {
        "1.0.0.0": "data/x",
        "2.0.0.0": "data/./x",
        "3.0.0.0": "data/link/../real/y",
        "4.0.0.0": "data/link/y",
        "5.0.0.0": "data/{host}",
        "6.0.0.0": "data/5.0.0.0",
        "7.0.0.0": "data//real/{date}",
        "8.0.0.0": "data/link/{date}/",
        "9.0.0.0": "data/x/deeper/{date}",
        "9.1.0.0": "data/fine/{host}",
        "9.2.0.0": "data/fine/{host}",
        "::1": "data/{host}",
        "::2": "data/___1_",
    }
    for number, (host, pagedir) in enumerate(pagedirs.items()):
        lines = "\n" * number
        write_site(sites, f'{lines}[crawl]\ndepth = 1\npagedir = "{tmp_path}/{pagedir}"\n', f"{host}.toml")

    checked = check_files([*find_files(sites), sites / "1.0.0.0.toml"], project)

    assert [str(fault).removeprefix(f"{sites}/") for file in checked for fault in file.faults] == [
        f"2.0.0.0.toml:4: `pagedir`: expected one of its own, {sites}/1.0.0.0.toml has it too",
        f"4.0.0.0.toml:6: `pagedir`: expected one of its own, {sites}/3.0.0.0.toml has it too",
        f"6.0.0.0.toml:8: `pagedir`: expected one of its own, {sites}/5.0.0.0.toml has it too",
        f"8.0.0.0.toml:10: `pagedir`: expected one of its own, {sites}/7.0.0.0.toml has it too",
        f"9.0.0.0.toml:11: `pagedir`: expected one that is not within that of {sites}/1.0.0.0.toml, {data}/x",
        f"::2.toml:15: `pagedir`: expected one of its own, {sites}/::1.toml has it too",
    ]


@pytest.mark.parametrize("pagedir", ["{folder}/loop/a", "~no-such-user/a", "{folder}/" + "x" * 300])
def test_a_directory_that_leads_nowhere_is_a_fault(pagedir: str, tmp_path: Path, project: Settings) -> None:
    (tmp_path / "loop").symlink_to("loop")
    text = f"[crawl]\ndepth = 1\npagedir = '{pagedir.replace('{folder}', str(tmp_path))}'\n"

    (found,) = faults(tmp_path, text, project)

    assert found.startswith("3: spider argument `pagedir`: ")


def test_the_home_of_a_user_is_a_spelling_too(
    tmp_path: Path, project: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for host, pagedir in (("a.test", "~/{date}"), ("b.test", f"{tmp_path}/{{date}}")):
        write_site(
            tmp_path,
            f'[schedule]\nseed = "http://{host}/"\ncron = "0 0 * * *"\n[crawl]\ndepth = 1\npagedir = "{pagedir}"\n',
            f"{host}.toml",
        )

    checked = check_files(find_files(tmp_path), project)

    assert [str(fault) for file in checked for fault in file.faults] == [
        f"{tmp_path}/b.test.toml:6: `pagedir`: expected one of its own, {tmp_path}/a.test.toml has it too"
    ]


def test_packaged_files_have_no_fault(project: Settings) -> None:
    files = check_files(find_files(None), project)

    assert [(file.host, file.faults) for file in files] == [("www.example.org", [])]


# The commands


def run_sites(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "scrapy", "sites", *map(str, arguments)]
    environment = {**os.environ, **environment}
    return subprocess.run(
        command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, timeout=60, check=False
    )


def test_check_names_every_fault_by_file_and_line_and_fails(tmp_path: Path) -> None:
    write_site(tmp_path, "[crawl]\ndept = 1\ndepth = 'x'\n", "a.test.toml")
    write_site(tmp_path, "[crawl]\ndepth = 1\n", "b.test.toml")
    write_site(tmp_path, "no toml\n", "notes.txt")

    wrong = run_sites("check", "-s", f"TINYCRAWL_SITES_DIR={tmp_path}")
    right = run_sites("check", tmp_path / "b.test.toml")
    machine = run_sites("check", "--json", tmp_path)

    problems = [
        "'dept' in [crawl]: unknown, expected one of depth, pagedir, scope, domains, include, exclude, max_pages,"
        " order, duplicates, strict",
        "`depth`: expected an integer from 0 to 10, got 'x'",
    ]
    path = f"{tmp_path}/a.test.toml"
    assert (wrong.returncode, wrong.stderr) == (1, "")
    assert wrong.stdout.splitlines() == [
        f"{path}:2: {problems[0]}",
        f"{path}:3: {problems[1]}",
        "2 files, 0 schedules: 2 faults",
    ]
    assert (right.returncode, right.stdout) == (0, "1 files, 0 schedules: no faults\n")
    assert [json.loads(line) for line in machine.stdout.splitlines()] == [
        {"path": path, "line": 2, "problem": problems[0]},
        {"path": path, "line": 3, "problem": problems[1]},
    ]
    assert machine.returncode == 1


def test_show_says_where_each_value_is_from_and_no_secret(tmp_path: Path) -> None:
    path = write_site(
        tmp_path,
        """\
[settings]
DOWNLOAD_DELAY = 2.5
RETRY_TIMES = 4
TINYCRAWL_HTTP_USER = "me"
TINYCRAWL_HTTP_PASSWORD = "geheim1"
TINYCRAWL_COOKIES = { sid = "geheim2" }
DEFAULT_REQUEST_HEADERS = { X-Key = "geheim3" }
[crawl]
depth = 3
pagedir = "/data/{host}/{date}"
[schedule]
seed = "http://h.test/start"
cron = "30 3 * * 1"
timezone = "Europe/Berlin"
""",
    )
    options = ["-s", f"TINYCRAWL_SITES_DIR={tmp_path}", "-s", "RETRY_TIMES=7"]

    machine = run_sites("show", "h.test", "--json", *options, http_proxy="http://u:geheim4@p.test:1")
    people = run_sites("show", "http://h.test/other", *options)
    unknown = run_sites("show", "h test", *options)

    assert (machine.returncode, machine.stderr) == (0, "")
    facts = json.loads(machine.stdout)
    assert facts["file"] == str(path)
    values = {value["name"]: (value["value"], value["source"]) for value in facts["values"]}
    assert values["seed"] == ("http://h.test/start", f"{path}:12")
    assert values["depth"] == (3, f"{path}:9")
    assert values["scope"] == ("host", "default")
    assert re.fullmatch(r"/data/h\.test/\d{4}-\d\d-\d\dT\d{6}", values["pagedir"][0])
    assert values["DOWNLOAD_DELAY"] == (2.5, f"{path}:2")
    assert values["RETRY_TIMES"] == ("7", "command line")
    assert values["ROBOTSTXT_OBEY"] == (True, "tinycrawl/settings.py")
    assert values["TINYCRAWL_HTTP_USER"] == ("me", f"{path}:4")
    assert values["TINYCRAWL_HTTP_PASSWORD"] == ("(set)", f"{path}:5")
    assert values["TINYCRAWL_COOKIES"] == ("(set)", f"{path}:6")
    assert values["DEFAULT_REQUEST_HEADERS"] == ("(set)", f"{path}:7")
    assert values["TINYCRAWL_PROXY"] == ("(set)", "environment: http_proxy")
    assert facts["schedule"]["cron"] == "30 3 * * 1"
    assert len(facts["next"]) == 3
    assert people.returncode == 0
    assert re.search(r"^  seed +http://h\.test/other  \(-a seed=\)$", people.stdout, re.MULTILINE)
    assert re.search(rf"^  DOWNLOAD_DELAY +2\.5  \({re.escape(str(path))}:2\)$", people.stdout, re.MULTILINE)
    assert "geheim" not in machine.stdout + people.stdout
    assert (unknown.returncode, unknown.stdout) == (2, "")
    assert unknown.stderr == "tinycrawl: host: expected one like www.example.org, or a seed, got 'h test'\n"


def test_show_says_that_there_is_no_file_and_which_are_near(tmp_path: Path, project: Settings) -> None:
    for name in ("www.h.test", "h.test", "ww.h.test", "[::1]", "bücher.test", "other.example"):
        write_site(tmp_path, "[crawl]\n", f"{name}.toml")
    project = project.copy()
    project.set("TINYCRAWL_SITES_DIR", str(tmp_path))

    said = {
        host: str(find_site_file(host, project)).removeprefix(f"no file for {host} in {tmp_path}, what follows is ")
        for host in ("www.h.test", "http://h.test:8080/x", "www.other.example", "[::1]", "xn--bcher-kva.test", "q")
    }

    assert said == {
        "www.h.test": f"{tmp_path}/www.h.test.toml",
        "http://h.test:8080/x": f"{tmp_path}/h.test.toml",
        "www.other.example": "without one; near to it: other.example.toml",
        "[::1]": "without one; near to it: [::1].toml",
        "xn--bcher-kva.test": "without one; near to it: bücher.test.toml",
        "q": "without one",
    }
    for same in ("h.test:8080", "H.test"):
        assert find_site_file(same, project).file == f"{tmp_path}/h.test.toml"
    assert find_site_file("::1", project) == find_site_file("[::1]:8080", project)


def test_show_without_a_file_still_shows_what_a_crawl_would_use(tmp_path: Path) -> None:
    write_site(tmp_path, "[crawl]\n", "www.h.test.toml")
    options = ["-s", f"TINYCRAWL_SITES_DIR={tmp_path}"]

    people = run_sites("show", "h.test", *options)

    line = f"tinycrawl: no file for h.test in {tmp_path}, what follows is without one; near to it: www.h.test.toml\n"
    assert (people.returncode, people.stderr) == (0, line)
    assert re.search(r"^  DOWNLOAD_DELAY +1\.0  \(tinycrawl/settings\.py\)$", people.stdout, re.MULTILINE)


def test_the_log_is_as_the_sites_file_says(tmp_path: Path, server: type[MockServer], crawl: CrawlCommand) -> None:
    """Scrapy opens it before the spider reads that file."""
    site = server({"/": page()})
    log = tmp_path / "site.log"
    write_site(
        tmp_path,
        f'[settings]\nLOG_LEVEL = "WARNING"\nLOG_FORMAT = "%(levelname)s! %(message)s"\nLOG_FILE = "{log}"\n',
        "127.0.0.1.toml",
    )
    sites = {"TINYCRAWL_SITES_DIR": tmp_path, "LOG_LEVEL": None}

    crawl(site.url("/"), 0, settings=sites)
    (line,) = log.read_text().splitlines()
    crawl(site.url("/"), 0, settings={**sites, "LOG_LEVEL": "INFO", "LOG_FILE": tmp_path / "command.log"}, fresh=1)

    assert json.loads(line.removeprefix("INFO! "))["ending"] == "complete"
    lines = (tmp_path / "command.log").read_text().splitlines()
    assert any(line.startswith("INFO! Page directory: ") for line in lines)
    assert log.read_text().splitlines() == [line]


def test_an_unknown_placeholder_is_refused_by_a_crawl(tmp_path: Path, crawl: CrawlCommand) -> None:
    path = write_site(tmp_path, "[crawl]\ndepth = 1\npagedir = '/data/{hosts}'\n")
    problem = "`pagedir`: expected a path with no braces but those of {date} and {host}, got '/data/{hosts}'"

    sites = {"TINYCRAWL_SITES_DIR": tmp_path}
    by_file = crawl("http://h.test/", None, pagedir=False, settings=sites, check=2)
    given = crawl("http://other.test/", 0, pagedir="/data/{hosts}", check=2)

    assert by_file.stderr.splitlines()[-1] == f"tinycrawl: {path}:3: {problem}"
    assert given.stderr.splitlines()[-1] == f"tinycrawl: spider argument {problem}"
