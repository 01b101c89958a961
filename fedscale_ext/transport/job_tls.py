"""Mutual TLS from only a job's token, for messages that leave this machine.

The token is a secret of 32 random bytes. All processes of a job derive the same authority from it: HKDF (RFC 5869)
makes the authority's private key, on the curve P-256. Each process draws a key of its own and certifies it in this
authority's name. A certificate proves that its owner knows the token, and nothing else is trusted. Keys stay in memory.

TLS 1.3 agrees on fresh keys for each connection: whoever learns the token later cannot read what was sent before.
"""

from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

NAME = "job.fedscale"  # of every process in its certificate: who has the token may be any of them

_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551  # of P-256
_SCALAR_BYTES = 48  # 16 more than the order has: the remainder is as good as uniform (FIPS 186-5, A.2.1)
_SKEW, _VALID = timedelta(days=1), timedelta(days=3650)
_USAGE = dict.fromkeys(
    ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement", "encipher_only", "decipher_only"),
    False,
)


class Certificates(NamedTuple):
    """Of one side: the authority that it trusts, its own certificate and that one's key, in PEM."""

    authority: bytes
    certificate: bytes
    key: bytes


def derived(token: bytes) -> Certificates:
    """Return certificates for one process of the job with this token; two calls differ, and trust each other."""
    authority = ec.derive_private_key(_scalar(token), ec.SECP256R1())
    key = ec.generate_private_key(ec.SECP256R1())
    return Certificates(
        _certificate(authority, authority.public_key(), is_authority=True),
        _certificate(authority, key.public_key(), is_authority=False),
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
    )


def _scalar(token: bytes) -> int:
    """The authority's private key, from 1 to the order less 1."""
    material = HKDF(SHA256(), _SCALAR_BYTES, salt=None, info=b"fedscale_ext tls authority").derive(token)
    return 1 + int.from_bytes(material, "big") % (_ORDER - 1)


def _certificate(authority: ec.EllipticCurvePrivateKey, key: ec.EllipticCurvePublicKey, *, is_authority: bool) -> bytes:
    """A certificate of ``key`` by the authority: of the authority itself, or of a process."""
    issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "authority of a fedscale job")])
    subject = issuer if is_authority else x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, NAME)])
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder(issuer, subject, key, x509.random_serial_number(), now - _SKEW, now + _VALID)
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=0 if is_authority else None), critical=True)
        .add_extension(
            x509.KeyUsage(digital_signature=not is_authority, key_cert_sign=is_authority, crl_sign=False, **_USAGE),
            critical=True,
        )
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key()), critical=False)
    )
    if not is_authority:
        builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(NAME)]), critical=False)
        uses = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        builder = builder.add_extension(x509.ExtendedKeyUsage(uses), critical=False)
    return builder.sign(authority, SHA256()).public_bytes(Encoding.PEM)
