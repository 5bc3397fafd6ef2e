"""Per-site files: found by host alone, and refused by name where they say something unknown."""

from pathlib import Path

import pytest

from tinycrawl.exceptions import UsageError
from tinycrawl.sites import Site, load_site

KNOWN = frozenset({"DOWNLOAD_DELAY", "DOWNLOAD_SLOTS", "TINYCRAWL_MAX_DEPTH", "lower"})


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
            ":1: 'crawler': unknown, expected the tables [crawl] and [settings]",
            id="table",
        ),
        pytest.param(
            "depth = 3\n", ":1: 'depth': unknown, expected the tables [crawl] and [settings]", id="outside-a-table"
        ),
        pytest.param(
            "crawl = 3\n", ":1: 'crawl': unknown, expected the tables [crawl] and [settings]", id="not-a-table"
        ),
        pytest.param(
            "[crawl]\ndepth = \n",
            ": Invalid value (at line 2, column 9)",
            id="syntax",
        ),
        pytest.param(
            '[crawl]\n"a\\nb" = 1\n',
            r": 'a\nb' in [crawl]: unknown, expected one of depth, pagedir, scope, domains, include, exclude, "
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


def test_file_that_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "h.test.toml"
    path.write_bytes(b"[crawl]\npagedir = '\xff'\n")

    with pytest.raises(UsageError, match=r"h\.test\.toml: expected UTF-8$"):
        load("h.test", tmp_path)


def test_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "h.test.toml").mkdir()

    with pytest.raises(UsageError, match=r"h\.test\.toml: cannot be read: Is a directory$"):
        load("h.test", tmp_path)


def test_directory_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as info:
        load("h.test", tmp_path / "none")

    assert str(info.value) == f"setting `TINYCRAWL_SITES_DIR`: expected a directory, got '{tmp_path / 'none'}'"
