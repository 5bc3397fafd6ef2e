"""Passwords and cookies of the operator: where they are sent, end to end, and that they are written nowhere."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

import pytest
from scrapy.settings import Settings
from scrapy.utils.project import get_project_settings

from conftest import FAST_SETTINGS, REPOSITORY, CrawlCommand, Result
from many import CrawlPool
from mockserver import MockServer, Reply, Request, page, redirect, robots, route
from test_network import Authority
from tinycrawl.credentials import Credentials, Mask
from tinycrawl.exceptions import UsageError
from tinycrawl.plan import make_plan

Server = Callable[..., MockServer]

# Every secret of every crawl here has this in it, in these spellings in whatever holds it.
SECRET = "s3cr3t-p\N{LATIN SMALL LETTER A WITH DIAERESIS}ss"
PERCENT = "s3cr3t-p%C3%A4ss"
BASIC = "Basic dXMgZXI6czNjcjN0LXDDpHNz"  # of the user "us er"
PROXY_BASIC = "Basic cHJveHk6czNjcjN0LXDDpHNz"  # of the user "proxy"
COOKIE = f"login={SECRET}"


def spellings() -> list[bytes]:
    """The secret in each form in which something could write it, in parts that its neighbours do not change."""
    raw = SECRET.encode()
    forms = [raw, SECRET.encode("latin-1"), quote(SECRET).encode(), quote(SECRET).lower().encode(), b"s3cr3t"]
    forms += [json.dumps(SECRET).strip('"').encode(), repr(raw)[2:-1].encode()]
    # Base64 spells three bytes at a time, so it depends on what is before: cut what is not the secret's alone.
    forms += [base64.b64encode(b"x" * before + raw[:9])[4:12] for before in (0, 1, 2)]
    return [*forms, BASIC[6:].encode(), PROXY_BASIC[6:].encode()]


def with_secret(place: Path) -> list[str]:
    """The files below a folder in which the secret is."""
    paths = sorted(place.rglob("*"))
    return [path.name for path in paths if path.is_file() and has_secret(path.read_bytes())]


def has_secret(data: bytes | str) -> bool:
    data = data if isinstance(data, bytes) else data.encode()
    return any(form in data for form in spellings())


class Crawls:
    """Crawls that write all they can: the log and cookies at DEBUG, events, a feed; below :attr:`output`."""

    def __init__(self, pool: CrawlPool, directory: Path) -> None:
        self.pool = pool
        self.output = directory / "output"
        self.input = directory / "input"
        self.input.mkdir()
        self.output.mkdir()

    def __call__(self, seed: str, depth: int, settings: dict[str, Any] | None = None, **arguments: Any) -> Result:
        """Crawl, and see to it that the secret is in nothing that was written but pages that say ``you sent:``."""
        number = len(list(self.output.glob("log-*")))
        output = {
            "LOG_LEVEL": "DEBUG",
            "LOG_FILE": str(self.output / f"log-{number}"),
            "COOKIES_DEBUG": True,
            "FEEDS": {str(self.output / f"feed-{number}.jsonl"): {"format": "jsonlines"}},
            "TINYCRAWL_OUTPUT_DIR": str(self.output / f"data-{number}"),
        }
        fast = {name: value for name, value in FAST_SETTINGS.items() if name.startswith(("DOWNLOAD", "CONCURRENT"))}
        given = {"seed": seed, "depth": depth, "events": str(self.output / f"events-{number}"), **arguments}
        answer = self.pool.run(given, {**fast, **output, **(settings or {})})
        assert answer["error"] is None
        self.log = (self.output / f"log-{number}").read_text()
        assert "Overridden settings" in self.log
        made = list((self.output / f"data-{number}").glob("*"))
        result = Result(0, "", "", Path(arguments.get("pagedir", made[0] if made else self.output / "none")))
        echoes = [name for name, content in result.files.items() if b"you sent:" in content]
        assert with_secret(self.output) == echoes
        assert not has_secret(self.pool.log())
        return result


@pytest.fixture(scope="module")
def pool() -> Iterator[CrawlPool]:
    with CrawlPool() as pool:
        yield pool


@pytest.fixture
def crawls(pool: CrawlPool, tmp_path: Path) -> Crawls:
    return Crawls(pool, tmp_path)


def sent(mock: MockServer, header: str = "authorization") -> dict[str, set[str]]:
    """What came in a header, by host and target."""
    values: dict[str, set[str]] = {}
    for request in mock.requests:
        values.setdefault(request.host + request.target, set()).add(request.headers.get(header, ""))
    return values


def reasons(result: Result) -> dict[str, str]:
    return {entry["url"]: entry["reason"] for entry in result.manifest[1:-1] if "reason" in entry}


def guarded(routes: dict[str, Any], authorization: str, *hosts: str) -> Callable[[Request], Reply | None]:
    """A site whose *hosts* want *authorization*, also for robots.txt."""
    handler = route(routes)

    def answer(request: Request) -> Reply | None:
        if request.host in hosts and request.headers.get("authorization") != authorization:
            return Reply(401, b"who are you?", headers=[("WWW-Authenticate", 'Basic realm="x", charset="UTF-8"')])
        return handler(request)

    return answer


# HTTP authentication


def test_password_of_the_seed_goes_to_its_host_and_port_alone(server: Server, crawls: Crawls) -> None:
    """With robots.txt, retries and redirects out and back; with no other host, subdomain or port."""
    mock, other = server({}), server({"/p": page()})
    away = [
        mock.url("/b", "b.test"),
        mock.url("/sub", "www.a.test"),
        mock.url("/up", "xa.test"),
        other.url("/p", "a.test"),
    ]
    routes = {
        "/robots.txt": robots("User-agent: *\nDisallow: /no"),
        "a.test/": page("/1", "/flaky", "/no", "/echo", "/out", *away),
        "a.test/1": page("/2"),
        "a.test/2": page(),
        "a.test/flaky": [Reply(503), Reply(500), page()],
        "a.test/echo": page(extra=f"you sent: {SECRET}"),
        "a.test/out": redirect(mock.url("/out", "b.test")),
        "b.test/out": redirect(mock.url("/back", "a.test")),
        "a.test/back": page(),
        "b.test/b": page(mock.url("/from-b", "a.test")),
        "a.test/from-b": page(),
        "www.a.test/sub": page(),
        "xa.test/up": page(),
    }
    mock.reset(guarded(routes, BASIC, "a.test"))

    result = crawls(mock.url("/", "a.test").replace("//", f"//us%20er:{PERCENT}@"), 2, scope="all")

    assert sent(mock) == {
        **{f"a.test{path}": {BASIC} for path in ("/", "/1", "/2", "/flaky", "/echo", "/out", "/back", "/from-b")},
        "a.test/robots.txt": {BASIC},
        **{f"b.test{path}": {""} for path in ("/robots.txt", "/b", "/out")},
        **{f"www.a.test{path}": {""} for path in ("/robots.txt", "/sub")},
        **{f"xa.test{path}": {""} for path in ("/robots.txt", "/up")},
    }
    assert sent(other) == {"a.test/robots.txt": {""}, "a.test/p": {""}}
    assert mock.targets().count("/flaky") == 3
    assert reasons(result) == {mock.url("/no", "a.test"): "robots"}
    assert result.manifest[0]["seed"] == mock.url("/", "a.test")
    assert result.directory.name == f"a.test_{mock.port}-2"
    assert [name for name in with_secret(result.directory) if name.isdigit()] == ["4"]  # the search does find


def test_password_is_no_part_of_the_crawl_and_is_needed_again(server: Server, crawls: Crawls) -> None:
    mock = server(guarded({"/": page("/1"), "/1": page("/2"), "/2": page()}, BASIC, "a.test"))
    plain = mock.url("/", "a.test")
    seed = plain.replace("//", f"//us%20er:{PERCENT}@")
    pages = {"pagedir": str(crawls.output / "pages")}

    crawls(seed, 0, **pages)
    without = crawls(plain, 1, **pages)
    again = crawls(seed, 1, **pages, recheck="failed")
    settings = {"TINYCRAWL_HTTP_USER": "us er", "TINYCRAWL_HTTP_PASSWORD": SECRET}
    whole = crawls(plain, 2, settings, **pages)

    assert [url for url, _ in without.pages] == [plain]
    assert reasons(without) == {mock.url("/1", "a.test"): "http 401"}
    assert [url for url, _ in again.pages] == [plain, mock.url("/1", "a.test")]
    assert [url for url, _ in whole.pages] == [plain, mock.url("/1", "a.test"), mock.url("/2", "a.test")]
    assert whole.manifest[0] == without.manifest[0]
    assert whole.files == crawls(seed, 2).files


@pytest.mark.parametrize(
    ("user_in_seed", "settings", "expected"),
    [
        pytest.param("", {}, None, id="none"),
        pytest.param("a:b@", {}, "a:b", id="seed"),
        pytest.param("a@", {}, "a:", id="seed-user-alone"),
        pytest.param(":b@", {}, ":b", id="seed-password-alone"),
        pytest.param("", {"USER": "c", "PASSWORD": "d%41"}, "c:d%41", id="settings-are-not-decoded"),
        pytest.param("", {"USER": "c"}, "c:", id="setting-user-alone"),
        pytest.param("a:b@", {"USER": "c", "PASSWORD": "d"}, "a:b", id="seed-wins"),
        pytest.param("a@", {"PASSWORD": "d"}, "a:d", id="user-in-seed-password-in-settings"),
        pytest.param("a@", {"USER": "a", "PASSWORD": "d"}, "a:d", id="same-user"),
        pytest.param("a@", {"USER": "c", "PASSWORD": "d"}, "a:", id="password-of-another-user"),
        pytest.param("a%40x:b%3Ac+%2F@", {}, "a@x:b:c+/", id="percent-decoded"),
    ],
)
def test_user_and_password_are_the_seeds_or_the_settings(
    user_in_seed: str, settings: dict[str, str], expected: str | None
) -> None:
    credentials = plan(f"http://{user_in_seed}h.test/", {f"TINYCRAWL_HTTP_{k}": v for k, v in settings.items()})

    header = credentials.authorization
    assert (header and base64.b64decode(header.removeprefix(b"Basic ")).decode()) == expected


def test_password_stays_on_https() -> None:
    http, https = (plan(f"{scheme}://a:b@h.test/") for scheme in ("http", "https"))

    def goes_to(credentials: Credentials, *urls: str) -> list[bool]:
        return [credentials.authorization_for(url) is not None for url in urls]

    assert goes_to(http, "http://h.test/x", "https://h.test/x", "https://h.test:8443/") == [True, True, False]
    assert goes_to(https, "https://h.test/x", "http://h.test/x", "http://h.test:443/") == [True, False, False]
    assert (
        goes_to(https, "https://www.h.test/", "https://test/", "https://xh.test/", "https://h.test.evil/")
        == [False] * 4
    )


# Proxies


class Proxy:
    """An HTTP proxy on loopback: absolute requests and CONNECT, to 127.0.0.1 at the port that *ports* says.

    :param ports: by ``host:port``; a port that is not there is taken as it is.
    :param authorization: what Proxy-Authorization must be, or the answer is 407.
    :param refuse: the status of every answer, in place of doing what was asked.
    :param patience: after so many requests it wants another authorization.
    """

    def __init__(
        self, ports: dict[str, int], authorization: str | None = None, refuse: int = 0, patience: int = 10_000
    ) -> None:
        self.ports = ports
        self.authorization = authorization
        self.refuse = refuse
        self.patience = patience
        self.seen: list[tuple[str, str]] = []  # method and target, Proxy-Authorization
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, name="proxy", daemon=True)

    def __enter__(self) -> Self:
        self.thread.start()
        starting = asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.server = asyncio.run_coroutine_threadsafe(starting, self.loop).result()
        self.port: int = self.server.sockets[0].getsockname()[1]
        return self

    def __exit__(self, *exc: object) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self.loop).result()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()

    async def _close(self) -> None:
        self.server.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await self._answer(reader, writer):
                pass
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer one request; returns whether there may be another."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = head.strip().split("\r\n")
        method, target, version = first.split(" ")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        authorization = headers.pop("proxy-authorization", "")
        self.seen.append((f"{method} {target}", authorization))
        if len(self.seen) > self.patience:
            self.authorization = "Basic another"
        if self.refuse or (self.authorization is not None and authorization != self.authorization):
            writer.write(b"HTTP/1.1 %d No\r\nContent-Length: 0\r\n\r\n" % (self.refuse or 407))
            return method != "CONNECT"
        if method == "CONNECT":
            there = await self._connect(target)
            writer.write(b"HTTP/1.1 200 Connected\r\n\r\n")
            await asyncio.gather(self._pipe(reader, there[1]), self._pipe(there[0], writer))
            return False
        authority, _, path = target.removeprefix("http://").partition("/")
        answers, site = await self._connect(authority if ":" in authority else f"{authority}:80")
        lines = [f"{name}: {value}" for name, value in headers.items()]
        site.write("\r\n".join([f"{method} /{path} {version}", *lines, "", ""]).encode("latin-1"))
        answer = await answers.readuntil(b"\r\n\r\n")
        length = next(int(line[15:]) for line in answer.split(b"\r\n") if line.startswith(b"Content-Length:"))
        writer.write(answer + await answers.readexactly(length))
        site.close()
        return True

    async def _connect(self, authority: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.ports.get(authority) or int(authority.split(":")[1]))

    @staticmethod
    async def _pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                writer.write(data)
        finally:
            writer.close()


@pytest.fixture
def tls(tmp_path: Path) -> ssl.SSLContext:
    return Authority(tmp_path).context("a.test", self_signed=True)


def test_crawl_through_a_proxy_with_a_password(server: Server, crawls: Crawls, tls: ssl.SSLContext) -> None:
    """From http to https on the same host, where the seed's password goes along; the proxy's is for the proxy alone."""
    secure = {
        "a.test/": page("/1", "https://b.test/b", "https://www.a.test/w", "http://a.test/plain"),
        "a.test/1": page(),
        "b.test/b": redirect("https://a.test/back"),
        "a.test/back": page(),
        "www.a.test/w": page(),
    }
    behind_http = server({"a.test/": redirect("https://a.test/"), "a.test/plain": page()})
    behind_https = server(guarded(secure, BASIC, "a.test"), tls=tls)
    hosts = ("a.test", "b.test", "www.a.test")
    ports = {f"{host}:80": behind_http.port for host in hosts} | {f"{host}:443": behind_https.port for host in hosts}
    settings = {"DOWNLOAD_VERIFY_CERTIFICATES": False}

    with Proxy(ports, PROXY_BASIC) as proxy:
        settings |= {"TINYCRAWL_PROXY": f"http://proxy:{PERCENT}@127.0.0.1:{proxy.port}"}
        up = crawls(f"http://us%20er:{PERCENT}@a.test/", 1, settings, scope="all")
        of_up = sent(behind_http), sent(behind_https)
        behind_http.requests.clear()
        down = crawls(f"https://us%20er:{PERCENT}@a.test/", 1, settings, scope="all")

    assert [url for url, _ in up.pages] == [
        *("https://a.test/", "https://a.test/1", "https://a.test/back", "https://www.a.test/w", "http://a.test/plain")
    ]
    assert [url for url, _ in down.pages] == [url for url, _ in up.pages]
    assert of_up[0] == {f"a.test{path}": {BASIC} for path in ("/robots.txt", "/", "/plain")}
    assert of_up[1] == {
        **{f"a.test{path}": {BASIC} for path in ("/robots.txt", "/", "/1", "/back")},
        **{key: {""} for key in ("b.test/robots.txt", "b.test/b", "www.a.test/robots.txt", "www.a.test/w")},
    }
    assert sent(behind_http) == {"a.test/robots.txt": {""}, "a.test/plain": {""}}  # an https seed's stays on https
    for mock in (behind_http, behind_https):
        assert set.union(*sent(mock, "proxy-authorization").values()) == {""}
    assert {authorization for _, authorization in proxy.seen} == {PROXY_BASIC}
    assert {target for target, _ in proxy.seen} >= {
        *("GET http://a.test/robots.txt", "CONNECT a.test:443", "CONNECT b.test:443", "CONNECT www.a.test:443")
    }


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_what_the_proxy_refuses_is_said_to_be_the_proxys(
    scheme: str, server: Server, crawls: Crawls, tls: ssl.SSLContext
) -> None:
    """A 407 to robots.txt does not mean that the site allows everything, nor is any of it the site's answer."""
    mock = server({"/": page()}, tls=tls if scheme == "https" else None)
    seed = mock.url("/", "a.test")

    def failure(proxy: int, **more: Any) -> str:
        result = crawls(seed, 1, {"TINYCRAWL_PROXY": f"http://proxy:{PERCENT}@127.0.0.1:{proxy}", **more})
        assert result.pages == []
        return str(json.loads(crawls.log[crawls.log.index('{"ending"') :].splitlines()[0])["reason"])

    with Proxy({}, "Basic other") as refusing, Proxy({}, refuse=502) as broken, Proxy({}) as willing:
        assert failure(refusing.port) == f"seed {seed}: robots.txt unreachable: proxy: http 407"
        assert failure(refusing.port, ROBOTSTXT_OBEY=False) == f"seed {seed}: proxy: http 407"
        assert len(refusing.seen) == 2  # once each: it will not think otherwise
        expected = "http 502" if scheme == "http" else "proxy: http 502"
        assert failure(broken.port) == f"seed {seed}: robots.txt unreachable: {expected}"
        assert len(broken.seen) == 3
        if scheme == "https":
            expected = "certificate: self-signed certificate"
            assert failure(willing.port) == f"seed {seed}: robots.txt unreachable: {expected}"
    assert failure(refusing.port) == f"seed {seed}: robots.txt unreachable: proxy: connection refused"
    assert mock.requests == []


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_proxy_that_no_longer_lets_us_through_is_an_outage(
    scheme: str, server: Server, crawls: Crawls, tls: ssl.SSLContext
) -> None:
    """What it refused stays open, and the crawl can go on."""
    links = [f"/{number}" for number in range(20)]
    # A tunnel could serve many requests; here each needs one of its own.
    site = {"/": page(*links, close=True), **{link: page("/", close=True) for link in links}}
    site["/robots.txt"] = Reply(404, close=True)
    mock = server(site, tls=tls if scheme == "https" else None)
    pages = {"pagedir": str(crawls.output / "pages")}
    settings = {"DOWNLOAD_VERIFY_CERTIFICATES": False, "TINYCRAWL_OUTAGE_AFTER": 3}

    def run(proxy: Proxy, **arguments: str) -> Result:
        return crawls(
            mock.url("/", "a.test"),
            1,
            {**settings, "TINYCRAWL_PROXY": f"http://proxy:{PERCENT}@127.0.0.1:{proxy.port}"},
            **arguments,
        )

    # After robots.txt and the seed: no answer that is on its way then can come between the refusals.
    with Proxy({}, PROXY_BASIC, patience=2) as tired:
        stopped = run(tired, **pages)
    with Proxy({}, PROXY_BASIC) as willing:
        whole = run(willing, **pages)
        undisturbed = run(willing)

    assert stopped.manifest[-1]["end"] == "stopped"
    assert len(stopped.pages) == 1
    assert reasons(stopped) == {}
    assert len(whole.pages) == 21
    assert whole.files == undisturbed.files


def test_the_environments_proxies_go_on_working(server: Server, crawl: CrawlCommand, tmp_path: Path) -> None:
    """The real command, with all that it prints; and the commands that look at what it left."""
    mock = server({"a.test/": page(), "b.test/": page()})
    mock.reset({"a.test/": page("/1", mock.url("/2", "b.test")), "a.test/1": page(), "b.test/2": page()})

    with Proxy({}, PROXY_BASIC) as proxy:
        result = crawl(
            mock.url("/", "a.test").replace("//", f"//us%20er:{PERCENT}@"),
            1,
            scope="all",
            events="-",
            settings={"LOG_LEVEL": "DEBUG", "COOKIES_DEBUG": 1, "TINYCRAWL_COOKIES": json.dumps({"login": SECRET})},
            env={"http_proxy": f"http://proxy:{PERCENT}@127.0.0.1:{proxy.port}", "no_proxy": "b.test"},
            options=["-O", str(tmp_path / "feed.jsonl")],
        )

    assert len(result.pages) == 3
    assert [target for target, _ in proxy.seen] == [
        f"GET {mock.url(path, 'a.test')}" for path in ("/robots.txt", "/", "/1")
    ]
    assert {authorization for _, authorization in proxy.seen} == {PROXY_BASIC}
    assert set.union(*sent(mock, "proxy-authorization").values()) == {""}
    assert sent(mock, "cookie")["a.test/1"] == {COOKIE.encode().decode("latin-1")}
    verify = subprocess.run(
        [sys.executable, "-m", "scrapy", "pages", "verify", str(result.directory)],
        cwd=REPOSITORY,
        capture_output=True,
        check=True,
    )
    (tmp_path / "verify").write_bytes(verify.stdout + verify.stderr)
    assert b"3 pages" in verify.stdout
    assert "Cookies sent to <GET " in result.stderr
    assert with_secret(tmp_path) == []


# Cookies


def cookie_line(host: str, *fields: str) -> str:
    """A line of a cookies.txt: of *fields*, subdomains, path, secure, expires, name and value, the first may lack."""
    return "\t".join([host, *("FALSE", "/", "FALSE", "0", "login", SECRET)[: 6 - len(fields)], *fields])


def write_cookies(path: Path, *lines: str) -> Path:
    path.write_text("# Netscape HTTP Cookie File\n\n" + "".join(f"{line}\n" for line in lines), encoding="utf-8")
    path.chmod(0o600)
    return path


def test_cookies_of_a_file_go_where_they_say_with_every_request(
    server: Server, crawls: Crawls, tls: ssl.SSLContext
) -> None:
    """Whatever the site sets; robots.txt, retries and redirects included. And TINYCRAWL_COOKIES beside them."""
    secure = server({"/s": page()}, tls=tls)
    mock = server({})

    def setting(reply: Reply) -> Reply:
        reply.headers = [*reply.headers, ("Set-Cookie", "login=stolen; Path=/"), ("Set-Cookie", "site=1; Path=/")]
        return reply

    mock.reset(
        {
            "a.test/": setting(page("/x/1", "/xy", mock.url("/b", "b.test"), secure.url("/s", "a.test"))),
            "a.test/x/1": [Reply(500), setting(redirect("/x/2"))],
            "a.test/x/2": page(),
            "a.test/xy": setting(redirect(mock.url("/w", "www.a.test"))),
            "www.a.test/w": page(),
            "b.test/b": page(),
        }
    )
    cookies = write_cookies(
        crawls.input / "cookies.txt",
        cookie_line("#HttpOnly_a.test"),
        cookie_line(".A.test", "TRUE", "/", "FALSE", "4000000000", "wide", SECRET),
        cookie_line("a.test", "/x", "FALSE", "0", "deep", SECRET),
        cookie_line("a.test", "TRUE", "0", "https", SECRET),
        cookie_line("a.test", "1000000000", "old", SECRET),
        cookie_line("b.test", "empty", ""),
        "# a.test\tFALSE\t/\tFALSE\t0\tcomment\tx",
    )
    settings = {
        "TINYCRAWL_COOKIES_FILE": str(cookies),
        "TINYCRAWL_COOKIES": json.dumps({"json": SECRET}),
        "DOWNLOAD_VERIFY_CERTIFICATES": False,
    }

    result = crawls(mock.url("/", "a.test"), 1, settings, scope="all")

    assert len(result.pages) == 5
    host, wide, deep = f"login={SECRET}", f"wide={SECRET}", f"deep={SECRET}"
    own = {host, wide, f"json={SECRET}"}

    def received(server: MockServer) -> dict[str, set[frozenset[str]]]:
        return {
            address: {frozenset(value.encode("latin-1").decode().split("; ")) for value in values}
            for address, values in sent(server, "cookie").items()
        }

    assert received(mock) == {
        "a.test/robots.txt": {frozenset(own)},
        "a.test/": {frozenset(own)},
        "a.test/x/1": {frozenset(own | {deep})},
        "a.test/x/2": {frozenset(own | {deep, "site=1"})},
        "a.test/xy": {frozenset(own)},
        "www.a.test/robots.txt": {frozenset({wide})},
        "www.a.test/w": {frozenset({wide})},
        "b.test/robots.txt": {frozenset({"empty="})},
        "b.test/b": {frozenset({"empty="})},
    }
    assert received(secure) == {
        f"a.test{path}": {frozenset(own | {f"https={SECRET}"})} for path in ("/robots.txt", "/s")
    }
    (first,) = {value.partition("=")[0] for value in sent(mock, "cookie")["a.test/x/1"]}
    assert first == "deep"  # the longest path first
    assert f"Cookies file {cookies}: 6 cookies, 1 expired" in crawls.log
    assert "Cookies sent to <GET " in crawls.log
    assert "Cookies received from <" in crawls.log
    assert "can read" not in crawls.log


def test_a_sites_file_gives_all_of_them(server: Server, crawls: Crawls, tmp_path: Path) -> None:
    """A cookies file is found beside it, and is warned of where every user may read it."""
    mock = server(guarded({"/": page()}, BASIC, "a.test"))
    cookies = write_cookies(crawls.input / "mine.txt", cookie_line("a.test"))
    cookies.chmod(0o644)

    with Proxy({}, PROXY_BASIC) as proxy:
        (crawls.input / "a.test.toml").write_text(
            "[settings]\n"
            'TINYCRAWL_COOKIES_FILE = "mine.txt"\n'
            'TINYCRAWL_HTTP_USER = "us er"\n'
            f'TINYCRAWL_HTTP_PASSWORD = "{SECRET}"\n'
            f'TINYCRAWL_PROXY = "http://proxy:{PERCENT}@127.0.0.1:{proxy.port}"\n'
            f'TINYCRAWL_COOKIES = {{json = "{SECRET}"}}\n',
            encoding="utf-8",
        )
        result = crawls(mock.url("/", "a.test"), 0, {"TINYCRAWL_SITES_DIR": str(crawls.input)})

    assert len(result.pages) == 1
    assert len(proxy.seen) == 2
    assert set(sent(mock, "cookie")) == {"a.test/robots.txt", "a.test/"}
    (value,) = sent(mock, "cookie")["a.test/"]
    assert set(value.encode("latin-1").decode().split("; ")) == {COOKIE, f"json={SECRET}"}
    assert f"WARNING: Cookies file {cookies}: every user of this machine can read it" in crawls.log


def test_relative_cookies_file_of_the_command_line_starts_at_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sites").mkdir()
    (tmp_path / "sites" / "a.test.toml").write_text('[settings]\nTINYCRAWL_COOKIES_FILE = "c.txt"\n')
    write_cookies(tmp_path / "sites" / "c.txt", cookie_line("a.test", "of-site", "1"))
    write_cookies(tmp_path / "c.txt", cookie_line("a.test", "of-line", "1"))
    sites = {"TINYCRAWL_SITES_DIR": "sites"}

    assert [cookie.name for cookie in plan("http://a.test/", sites).cookies] == ["of-site"]
    assert [cookie.name for cookie in plan("http://a.test/", {**sites, "TINYCRAWL_COOKIES_FILE": "c.txt"}).cookies] == [
        "of-line"
    ]


# Refusals


def plan(seed: str, settings: dict[str, Any] | None = None) -> Credentials:
    """What a crawl would send, read as the command does, wherever it is started."""
    project = Settings()
    project.setmodule("tinycrawl.settings", priority="project")
    project.setdict(settings or {}, priority="cmdline")
    return make_plan(project, {"seed": seed, "depth": "0"}).credentials


def refusal(settings: dict[str, Any], seed: str = "http://h.test/") -> str:
    with pytest.raises(UsageError) as info:
        plan(seed, settings)
    message = str(info.value)
    assert len(message.splitlines()) == 1
    assert not has_secret(message)
    return message


PROXY_FORM = (
    "setting `TINYCRAWL_PROXY`: expected http://host:port or http://user:password@host:port, with what is special in"
    " user and password percent-encoded; what it got is not shown"
)


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(f"http://me:{SECRET}@", id="no-host"),
        pytest.param(f"http://me:{SECRET}", id="host-forgotten"),
        pytest.param(f"http://me:{SECRET}/{SECRET}@h.test:1", id="slash-in-the-password"),
        pytest.param(f"http://me:#{SECRET}@h.test:1", id="hash-in-the-password"),
        pytest.param(f"http://:{SECRET}@h.test:1", id="no-user"),
        pytest.param(f"http://me:{SECRET}@h.test:99999", id="port"),
        pytest.param(f"http://me:{SECRET}@h.test:1/path", id="path"),
        pytest.param(f"me:{SECRET}@h.test:1", id="no-scheme"),
        pytest.param(f"https://me:{SECRET}@h.test:1", id="https"),
        pytest.param(f"socks5://me:{SECRET}@h.test:1", id="socks"),
        pytest.param(SECRET, id="no-url"),
    ],
)
def test_proxy_that_cannot_be_is_refused_without_being_shown(value: str) -> None:
    assert refusal({"TINYCRAWL_PROXY": value}) == PROXY_FORM


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        pytest.param(
            {"TINYCRAWL_HTTP_PASSWORD": SECRET},
            "setting `TINYCRAWL_HTTP_USER`: expected the user of `TINYCRAWL_HTTP_PASSWORD`, got nothing",
            id="password-without-user",
        ),
        pytest.param(
            {"TINYCRAWL_HTTP_USER": f"a:{SECRET}"},
            "setting `TINYCRAWL_HTTP_USER`: expected one without a colon, and no control characters",
            id="colon",
        ),
        pytest.param(
            {"TINYCRAWL_HTTP_USER": "a", "TINYCRAWL_HTTP_PASSWORD": f"{SECRET}\n"},
            "setting `TINYCRAWL_HTTP_USER`: expected one without a colon, and no control characters",
            id="newline",
        ),
        pytest.param(
            {"TINYCRAWL_HTTP_USER": "a", "TINYCRAWL_HTTP_PASSWORD": 1234},
            "setting `TINYCRAWL_HTTP_PASSWORD`: expected text",
            id="number",
        ),
        pytest.param(
            {"HTTPAUTH_USER": "a", "HTTPAUTH_PASS": SECRET},
            "setting `HTTPAUTH_USER`: Scrapy would log it, expected `TINYCRAWL_HTTP_USER` in its place",
            id="scrapys-user",
        ),
        pytest.param(
            {"HTTPAUTH_PASS": SECRET},
            "setting `HTTPAUTH_PASS`: Scrapy would log it, expected `TINYCRAWL_HTTP_PASSWORD` in its place",
            id="scrapys-password",
        ),
        pytest.param(
            {"TINYCRAWL_PROXY": "http://h.test:1", "HTTPPROXY_ENABLED": "0"},
            "settings `TINYCRAWL_PROXY` and `HTTPPROXY_ENABLED`: expected one or the other, got a proxy and 0",
            id="proxies-off",
        ),
        pytest.param(
            {"TINYCRAWL_COOKIES": f'{{"login": "{SECRET}"'},
            "setting `TINYCRAWL_COOKIES`: expected a JSON object, got what is not shown",
            id="cookies-malformed",
        ),
        pytest.param(
            {"TINYCRAWL_COOKIES": {"login": [SECRET]}},
            "setting `TINYCRAWL_COOKIES`: expected names and values as text, not so 'login'",
            id="cookie-of-a-list",
        ),
        pytest.param(
            {"TINYCRAWL_COOKIES": {"login": f"{SECRET}\r\nX: y"}},
            "setting `TINYCRAWL_COOKIES`: expected values without ; and control characters, not so 'login'",
            id="cookie-with-a-newline",
        ),
        pytest.param(
            {"TINYCRAWL_COOKIES": {"login": SECRET}, "COOKIES_ENABLED": "0"},
            "setting `COOKIES_ENABLED`: expected 1 where cookies are given, got 0",
            id="cookies-off",
        ),
        pytest.param(
            {"TINYCRAWL_COOKIES_FILE": "/nonexistent/c.txt"},
            "cookies file '/nonexistent/c.txt': cannot be read: No such file or directory",
            id="no-cookies-file",
        ),
        pytest.param(
            {"TINYCRAWL_COOKIES_FILE": "/dev/null"},
            "cookies file '/dev/null': expected a regular file",
            id="cookies-of-a-device",
        ),
        pytest.param(
            {"TINYCRAWL_COOKIES_FILE": "~no-such-user/c.txt"},
            "setting `TINYCRAWL_COOKIES_FILE`: no such home directory",
            id="cookies-of-nobody",
        ),
    ],
)
def test_setting_that_cannot_be_is_refused_without_being_shown(settings: dict[str, Any], expected: str) -> None:
    assert refusal(settings) == expected


def test_user_of_the_seed_that_cannot_be_sent_is_refused() -> None:
    assert (
        refusal({}, f"http://a%3Ab:{PERCENT}@h.test/")
        == "spider argument `seed`: expected a user without a colon, and no control characters"
    )


def test_the_command_refuses_in_one_line(crawl: CrawlCommand, tmp_path: Path) -> None:
    result = crawl("http://h.test/", 1, settings={"TINYCRAWL_PROXY": f"http://me:{SECRET}"}, check=2)

    assert result.stderr == f"tinycrawl: {PROXY_FORM}\n"
    assert result.stdout == ""
    assert not result.directory.exists()


# Scrapy's own settings


def test_secrets_in_settings_of_scrapy_are_written_nowhere(server: Server, crawl: CrawlCommand, tmp_path: Path) -> None:
    """Each has one of its own, by -s or in the site's file; feeds fail, so that what they are told is logged."""
    site = server({"/": page(title="t")})
    (tmp_path / "sites").mkdir()
    (tmp_path / "sites" / "127.0.0.1.toml").write_text(
        "[settings]\n"
        'FTP_PASSWORD = "toml-1-geheim"\n'
        'MAIL_PASS = "toml 2 geheim with blanks, so long that Scrapy has to break its line somewhere within, geheim"\n'
        'AWS_SESSION_TOKEN = "toml-3-geheim"\n'
        'DEFAULT_REQUEST_HEADERS = { Authorization = "Bearer toml-4-geheim" }\n'
    )
    given = {
        "TINYCRAWL_SITES_DIR": tmp_path / "sites",
        "LOG_LEVEL": "DEBUG",
        "STATS_DUMP": 1,
        "FTP_USER": "geheim-5",
        "AWS_ACCESS_KEY_ID": "geheim-6",
        "AWS_SECRET_ACCESS_KEY": "geheim/7+x=",
        "GCS_PROJECT_ID": "geheim-8",
        "MAIL_USER": "geheim-9",
        "TELNETCONSOLE_PASSWORD": "geheim-10",
        "REDIS_URL": "redis://:geheim-11@h.test:1/0",
        "HTTPPROXY_PASSWORD": "geheim-12",
        "AWS_ENDPOINT_URL": "http://me:geheim-13@127.0.0.1:1/",
    }
    feeds = {
        "ftp://me:geheim-14@127.0.0.1:1/x.json": {"format": "json"},
        "ftp://me:p%C3%A4-geheim-15%40@127.0.0.1:1/y.json": {"format": "json"},
        "nowhere://me:geheim-16@h.test/geheim%2F7%2Bx%3D/toml-3-geheim": {"format": "json"},
    }
    settings = {
        **given,
        "FEEDS": json.dumps(feeds),
        "FEED_STORAGES": json.dumps({"nowhere": "test_secrets.TellingStorage"}),
    }
    on_terminal = crawl(site.url(), 0, settings=settings, events=tmp_path / "events", check=1)
    in_file = crawl(site.url(), 0, settings={**settings, "LOG_FILE": tmp_path / "log"}, events="-", check=1)
    refused = crawl(site.url(), 0, settings={**settings, "DNS_TIMEOUT": "x", "LOG_FILE": tmp_path / "log2"}, check=2)

    log = (tmp_path / "log").read_text()
    for text in (on_terminal.stderr, log):
        assert "Overridden settings" in text
        assert "'AWS_ACCESS_KEY_ID': '***'" in text
        assert "Error storing json feed (1 items) in: ftp://***@127.0.0.1:1/x.json" in text
        assert "Error storing json feed (1 items) in: nowhere://***@h.test/***/***" in text
        assert "OSError: nowhere://***@h.test/***/***" in text
        assert '"reason": "a feed could not be written"' in text
    shown = on_terminal.stderr + on_terminal.stdout + in_file.stderr + in_file.stdout + refused.stderr + refused.stdout
    assert "geheim" not in shown
    files = [path for path in tmp_path.rglob("*") if path.is_file() and path.suffix != ".toml"]
    assert [path.name for path in files if b"geheim" in path.read_bytes()] == []
    assert {"log", "log2", "events", "1", ".crawler"} <= {path.name for path in files}
    assert {request.headers["authorization"] for request in site.requests} == {"Bearer toml-4-geheim"}


class TellingStorage:
    """A feed's storage whose error says all that it was told."""

    def __init__(self, uri: str, *, feed_options: dict[str, Any] | None = None) -> None:
        self.uri = uri

    def open(self, spider: object) -> BytesIO:
        return BytesIO()

    def store(self, file: BytesIO) -> None:
        raise OSError(self.uri)


@pytest.mark.parametrize(
    ("settings", "text", "shown"),
    [
        pytest.param(
            {}, "http://a:b@h.test/ http://h.test/@b x@y", "http://***@h.test/ http://h.test/@b x@y", id="url"
        ),
        pytest.param({"FTP_PASSWORD": "geheim"}, "geheim, ungeheim", "***, un***", id="value"),
        pytest.param({"FTP_PASSWORD": "p/ä geheim"}, "p%2F%C3%A4%20geheim p/%C3%A4%20geheim", "*** ***", id="percent"),
        pytest.param({"FTP_PASSWORD": "geheim\\"}, r"'geheim\\'", "'***'", id="repr"),
        pytest.param({"FTP_PASSWORD": "päss-wort"}, r'{"p\u00e4ss-wort": 1}', '{"***": 1}', id="json"),
        pytest.param({"FTP_PASSWORD": "guest"}, "guest", "guest", id="default"),
        pytest.param({"FTP_PASSWORD": "abc"}, "abcd", "abcd", id="part-of-too-many-words"),
        pytest.param({"FTP_USER": "anna-x"}, "/anna-x", "/anna-x", id="user"),
        pytest.param({"FEEDS": {"ftp://u:geheim@h/x": {}}}, "530 geheim", "530 ***", id="feed"),
        pytest.param(
            {"DEFAULT_REQUEST_HEADERS": {"X-Key": "geheim", "Accept": "text/html"}},
            "text/html geheim",
            "text/html ***",
            id="header",
        ),
    ],
)
def test_secret_is_taken_out_of_a_text(settings: dict[str, Any], text: str, shown: str) -> None:
    assert Mask(Settings(settings))(text) == shown


def test_nothing_shows_what_it_holds(tmp_path: Path) -> None:
    """As a traceback, a debugger or a log would."""
    cookies = write_cookies(tmp_path / "c.txt", cookie_line("h.test"))
    settings = {
        "TINYCRAWL_PROXY": f"http://me:{PERCENT}@h.test",
        "TINYCRAWL_COOKIES": {"a": SECRET},
        "TINYCRAWL_COOKIES_FILE": str(cookies),
    }
    project = get_project_settings()
    project.setdict(settings, priority="cmdline")

    whole = make_plan(project, {"seed": f"http://us%20er:{PERCENT}@h.test/", "depth": "0"})

    assert whole.credentials.authorization == BASIC.encode()
    shown = repr(whole) + repr(whole.credentials.cookies) + repr(whole.credentials.cookies_file)
    assert not has_secret(shown)
