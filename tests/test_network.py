"""What the network does to a crawl, end to end: silence, certificates, dead seeds, other schemes (N4 to N6)."""

from __future__ import annotations

import datetime
import ipaddress
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from scrapy.settings import Settings
from scrapy.utils.python import without_none_values

from conftest import CrawlCommand, Result
from mockserver import MockServer, Reply, page, redirect

Server = Callable[..., MockServer]


def reasons(result: Result) -> dict[str, str]:
    """Why what was not saved was not, by URL."""
    return {entry["url"]: entry["reason"] for entry in result.manifest[1:-1] if "reason" in entry}


# Silence


def test_one_page_that_never_answers_costs_only_itself(server: Server, crawl: CrawlCommand) -> None:
    links = [f"/{i}" for i in range(19)]
    mock = server({"/": page(*links), **dict.fromkeys(links, page()), "/7": Reply(never=True)})
    start = time.monotonic()

    result = crawl(mock.url(), 1, settings={"DOWNLOAD_TIMEOUT": 2})

    assert len(result.pages) == 19
    assert reasons(result) == {mock.url("/7"): "timeout"}
    assert mock.targets().count("/7") == 3
    assert time.monotonic() - start < 20
    assert "failed    1 (1 timeout)" in result.stderr


def test_each_kind_of_endlessness_ends(server: Server, crawl: CrawlCommand) -> None:
    whole = page(title="whole").body
    answers = {
        "/silent": Reply(never=True),
        "/late": page(delay=30),
        "/drip": Reply(body=whole, drip=0.1),
        "/drip-chunks": Reply(body=whole, drip=0.1, chunked=True),
        "/stops": Reply(body=whole, drip=0.01, headers=[("Content-Length", "100000")]),
        "/endless": Reply(body=b"<p>and on\n", endless=True),
        "/endless-slow": Reply(body=b"<p>and on\n", endless=True, drip=0.05),
        "/announced": Reply(body=b"<p>", headers=[("Content-Length", "5000000000")]),
        "/ok": page(),
    }
    mock = server({"/": page(*answers), **answers})

    result = crawl(mock.url(), 1, settings={"DOWNLOAD_TIMEOUT": 3, "DOWNLOAD_MAXSIZE": 1_000_000, "RETRY_TIMES": 0})

    assert result.listing(mock) == ["1: / @0", "2: /ok @1"]
    assert reasons(result) == {
        mock.url("/silent"): "timeout",
        mock.url("/late"): "timeout",
        mock.url("/drip"): "timeout",
        mock.url("/drip-chunks"): "timeout",
        mock.url("/stops"): "timeout",
        mock.url("/endless"): "too large",
        mock.url("/endless-slow"): "timeout",
        mock.url("/announced"): "too large",
    }


# Certificates


class Authority:
    """Makes certificates; what it signs is trusted by crawls with :attr:`environment`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.certificate = self._certificate("tests", self.key, None, is_authority=True)
        self.environment = {"SSL_CERT_FILE": str(directory / "authority.pem"), "SSL_CERT_DIR": str(directory)}
        (directory / "authority.pem").write_bytes(self.certificate.public_bytes(serialization.Encoding.PEM))

    def context(self, host: str, *, days: tuple[int, int] = (-1, 1), self_signed: bool = False) -> ssl.SSLContext:
        """A server's context with a certificate for *host*, valid from and until these days from now."""
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = self._certificate(host, key, None if self_signed else self.certificate, days=days)
        path = self.directory / f"{host}{days}{self_signed}.pem"
        path.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
            + certificate.public_bytes(serialization.Encoding.PEM)
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(path)
        return context

    def _certificate(
        self,
        host: str,
        key: ec.EllipticCurvePrivateKey,
        issuer: x509.Certificate | None,
        *,
        days: tuple[int, int] = (-1, 1),
        is_authority: bool = False,
    ) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)])
        name: x509.GeneralName = x509.DNSName(host)
        if host[0].isdigit():
            name = x509.IPAddress(ipaddress.ip_address(host))
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer.subject if issuer else subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now + datetime.timedelta(days=days[0]))
            .not_valid_after(now + datetime.timedelta(days=days[1]))
            .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName([name]), critical=False)
            .sign(self.key if issuer else key, hashes.SHA256())
        )


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def test_a_seed_with_a_bad_certificate_is_refused(server: Server, crawl: CrawlCommand, authority: Authority) -> None:
    bad = [
        (authority.context("h.test", self_signed=True), "self-signed certificate"),
        (authority.context("h.test", days=(-9, -2)), "certificate has expired"),
        (authority.context("other.test"), "not valid for this host"),
    ]
    running = []
    for context, cause in bad:
        mock = server({"/": page()}, tls=context)
        seed = mock.url("/", "h.test")
        one = crawl.start(seed, 1, env=authority.environment, settings={"LOG_LEVEL": "CRITICAL"})
        running.append((mock, one, f"seed {seed}: robots.txt unreachable: certificate: {cause}"))

    for mock, one, expected in running:
        result = one.wait()
        assert result.status == 1
        assert result.stderr.splitlines() == [f"tinycrawl: the crawl failed: {expected}"]
        assert mock.requests == []
        assert next(mock.connection_numbers) == 1  # tried once


def test_certificates_are_checked_unless_the_switch_says_not(
    server: Server, crawl: CrawlCommand, authority: Authority
) -> None:
    certificates = {
        "good.test": authority.context("good.test"),
        "127.0.0.1": authority.context("127.0.0.1"),
        "self-signed.test": authority.context("self-signed.test", self_signed=True),
        "expired.test": authority.context("expired.test", days=(-9, -2)),
        "future.test": authority.context("future.test", days=(2, 9)),
        "name.test": authority.context("www.name.test"),
        "127.0.0.2": authority.context("127.0.0.1"),
    }
    others = {host: server({"/x": page()}, tls=context) for host, context in certificates.items()}
    links = [mock.url("/x", host) for host, mock in others.items() if host != "127.0.0.2"]
    mock = server({"/": page(*links)})

    checked = crawl(mock.url(), 1, scope="all", env=authority.environment, settings={"ROBOTSTXT_OBEY": 0})
    unchecked = crawl(mock.url(), 1, scope="all", settings={"DOWNLOAD_VERIFY_CERTIFICATES": 0})

    assert [url for url, _ in checked.pages[1:]] == [
        others[host].url("/x", host) for host in ("good.test", "127.0.0.1")
    ]
    assert reasons(checked) == {
        others[host].url("/x", host): f"certificate: {reason}"
        for host, reason in {
            "self-signed.test": "self-signed certificate",
            "expired.test": "certificate has expired",
            "future.test": "certificate is not yet valid or the system clock is incorrect",
            "name.test": "not valid for this host",
        }.items()
    }
    assert [url for url, _ in unchecked.pages[1:]] == links


# Seeds


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A port of ours at which nobody listens."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


NO_ROBOTS = {"ROBOTSTXT_OBEY": 0}
SEEDS: dict[str, tuple[Reply, dict[str, int], str]] = {
    # the answer, settings, the cause
    "404": (Reply(404), {}, "http 404"),
    "500": (Reply(500), {}, "http 500"),
    "pdf": (Reply(body=b"%PDF-1.4", type="application/pdf"), {}, "not html: application/pdf"),
    "lost": (Reply(raw=b""), {}, "connection lost"),
    "silent": (Reply(never=True), {"DOWNLOAD_TIMEOUT": 2}, "timeout"),
    "no-http": (Reply(raw=b"220 mail.h.test ESMTP\r\n\r\n"), NO_ROBOTS, "not an HTTP answer"),
    "cut": (page(cut=10), {}, "truncated"),
    "redirect": (redirect("/gone"), {}, "http 404 ({url}gone)"),
}


def test_a_dead_seed_fails_the_crawl_with_its_cause(server: Server, crawl: CrawlCommand) -> None:
    mock = server({f"{name}.test/": answer for name, (answer, _, _) in SEEDS.items()})
    quick = {"RETRY_TIMES": 0, "LOG_LEVEL": "CRITICAL"}
    seeds = {name: mock.url("/", f"{name}.test") for name in SEEDS}
    running = {name: crawl.start(seeds[name], 1, settings=quick | SEEDS[name][1]) for name in SEEDS}

    results = {name: one.wait() for name, one in running.items()}

    assert {name: result.stderr for name, result in results.items()} == {
        name: f"tinycrawl: the crawl failed: seed {seeds[name]}: {cause.format(url=seeds[name])}\n"
        for name, (_, _, cause) in SEEDS.items()
    }
    assert {(result.status, len(result.pages)) for result in results.values()} == {(1, 0)}


def test_a_seed_that_nobody_serves_fails_the_crawl(closed_port: int, crawl: CrawlCommand) -> None:
    refused = f"http://h.test:{closed_port}/"
    causes = {
        ("http://nowhere.invalid/", 0): "no such host",
        ("http://nowhere.invalid/", 1): "robots.txt unreachable: no such host",
        (refused, 0): "connection refused",
        (refused.replace("http:", "https:"), 1): "robots.txt unreachable: connection refused",
    }
    running = [
        crawl.start(seed, 1, settings={"ROBOTSTXT_OBEY": obey, "LOG_LEVEL": "CRITICAL"}) for seed, obey in causes
    ]

    for ((seed, _), cause), result in zip(causes.items(), [one.wait() for one in running], strict=True):
        assert result.status == 1
        assert result.stderr.splitlines() == [f"tinycrawl: the crawl failed: seed {seed}: {cause}"]


def test_schemes_that_do_not_fit_the_port_are_told(
    server: Server, nginx: Callable[[Path], str], crawl: CrawlCommand, authority: Authority, tmp_path: Path
) -> None:
    plain = nginx(tmp_path).replace("http:", "https:")
    secure = server({"/": page()}, tls=authority.context("h.test"))
    settings = {"LOG_LEVEL": "CRITICAL", "RETRY_TIMES": 0, **NO_ROBOTS}

    tls_to_plain = crawl(f"{plain}/", 0, check=1, settings=settings)
    plain_to_tls = crawl(f"http://h.test:{secure.port}/", 0, check=1, settings=settings)

    assert tls_to_plain.stderr.splitlines() == [
        f"tinycrawl: the crawl failed: seed {plain}/: TLS: wrong version number"
    ]
    assert plain_to_tls.stderr.splitlines() == [
        f"tinycrawl: the crawl failed: seed http://h.test:{secure.port}/: connection lost"
    ]


def test_links_to_dead_hosts_have_their_reasons(server: Server, crawl: CrawlCommand, closed_port: int) -> None:
    mock = server({})
    links = {
        "http://nowhere.invalid/": "robots.txt unreachable: no such host",
        f"http://h.test:{closed_port}/": "robots.txt unreachable: connection refused",
        f"http://{'a' * 64}.invalid/": "robots.txt unreachable: no such host",
        mock.url("/lost"): "connection lost",
        mock.url("/no-http"): "not an HTTP answer",
        mock.url("/no-status"): "not an HTTP answer",
    }
    mock.reset(
        {
            "/": page(*links, "/ok"),
            "/lost": Reply(raw=b""),
            "/no-http": Reply(raw=b"<html>an old server's page</html>\r\n\r\n"),
            "/no-status": Reply(raw=b"HTTP/1.1 OK\r\n\r\n"),
            "/ok": page(),
        }
    )

    result = crawl(mock.url(), 1, scope="all", settings={"RETRY_TIMES": 0})

    assert result.listing(mock) == ["1: / @0", "2: /ok @1"]
    assert reasons(result) == links


# Schemes


def test_nothing_but_http_is_ever_opened(server: Server, crawl: CrawlCommand, tmp_path: Path) -> None:
    """Neither by link, frame, refresh and base nor by redirect, also after a retry, which sets ``dont_filter``."""
    secret = tmp_path / "secret.html"
    secret.write_text("<html>the secret</html>")
    ftp = server({})
    bad = {
        "file": f"file://{secret}",
        "file-host": f"file://127.0.0.1{secret}",
        "ftp": f"ftp://127.0.0.1:{ftp.port}/secret.html",
        "data": "data:text/html,the secret",
        "s3": "s3://bucket/secret.html",
        "javascript": "javascript:void(0)",
    }
    redirects = {f"/to-{name}": [Reply(503), redirect(url)] for name, url in bad.items()}
    mock = server(
        {
            "/": page(*bad.values(), "/chain", *redirects, extra=f'<iframe src="{bad["file"]}"></iframe>'),
            **redirects,
            "/chain": redirect("/chain/2", 301),
            "/chain/2": redirect(bad["file"], 307),
        }
    )

    result = crawl(mock.url(), 2, scope="all")

    assert result.listing(mock) == ["1: / @0"]
    assert reasons(result) == {
        mock.url(f"/to-{name}"): f"redirect to a {url.partition(':')[0]}: URL" for name, url in bad.items()
    } | {mock.url("/chain"): "redirect to a file: URL"}
    assert next(ftp.connection_numbers) == 0
    for name, content in result.files.items():
        assert b"the secret" not in content.replace(b"data:text/html,the secret", b""), name


def test_there_are_handlers_for_http_and_https_alone() -> None:
    settings = Settings()
    settings.setmodule("tinycrawl.settings", priority="project")

    handlers = without_none_values(settings.getwithbase("DOWNLOAD_HANDLERS"))

    assert set(handlers) == {"http", "https"}
