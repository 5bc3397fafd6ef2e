"""Why a certificate was refused: OpenSSL knows it, but the error that pyOpenSSL raises does not say it."""

from typing import Any

from OpenSSL import SSL
from twisted.internet.interfaces import IOpenSSLClientConnectionCreator
from twisted.web.iweb import IPolicyForHTTPS
from zope.interface import implementer  # type: ignore[import-untyped]  # it has no type hints


class CertificateRefused(SSL.Error):
    """Raised by the handshake. *problem* is in OpenSSL's words, like ``certificate has expired``."""

    def __init__(self, error: SSL.Error, problem: str) -> None:
        super().__init__(*error.args)  # Twisted reads them
        self.problem = problem


@implementer(IPolicyForHTTPS)
class ExplainingPolicy:
    """Does as another policy says, and has it explained when that refuses a certificate."""

    def __init__(self, policy: Any) -> None:
        self._policy = policy

    def creatorForNetloc(self, hostname: bytes, port: int) -> "_ExplainingCreator":
        return _ExplainingCreator(self._policy.creatorForNetloc(hostname, port))


@implementer(IOpenSSLClientConnectionCreator)
class _ExplainingCreator:
    def __init__(self, creator: Any) -> None:
        self._creator = creator

    def clientConnectionForTLS(self, tlsProtocol: Any) -> Any:
        connection = self._creator.clientConnectionForTLS(tlsProtocol)
        handshake = connection.do_handshake

        def do_handshake() -> None:
            try:
                handshake()
            except SSL.Error as error:
                if any("certificate verify failed" in words for words in _words(error)):
                    raise CertificateRefused(error, _problem(connection)) from error
                raise

        connection.do_handshake = do_handshake
        return connection


def _words(error: SSL.Error) -> list[Any]:
    return list(error.args[0]) if error.args and isinstance(error.args[0], list) else []


def _problem(connection: Any) -> str:
    """The result of the verification. pyOpenSSL has no public name for it; `tests/test_network.py` sees it break."""
    pyopenssl: Any = SSL
    result = pyopenssl._lib.SSL_get_verify_result(connection._ssl)
    text: bytes = pyopenssl._ffi.string(pyopenssl._lib.X509_verify_cert_error_string(result))
    return text.decode()
