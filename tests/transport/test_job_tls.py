"""TLS from a token: two processes that share it trust each other, and nobody else."""

import contextlib
import datetime
import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from hypothesis import given, settings
from hypothesis import strategies as st

from fedscale_ext.transport.job_tls import NAME, Certificates, derived

TOKEN, OTHER = bytes(range(32)), bytes(range(1, 33))


def context(folder: Path, certificates: Certificates, side: int) -> ssl.SSLContext:
    """OpenSSL's check of one side's peer, as strict as gRPC's on both sides."""
    files = {name: folder / f"{side}-{name}.pem" for name in certificates._fields}
    for name, path in files.items():
        path.write_bytes(getattr(certificates, name))
    context = ssl.SSLContext(side)
    context.load_verify_locations(files["authority"])
    context.load_cert_chain(files["certificate"], files["key"])
    context.verify_mode = ssl.CERT_REQUIRED
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    return context


def shake_hands(folder: Path, server: Certificates, client: Certificates) -> None:
    """A TLS handshake in memory; ssl.SSLError where a side does not trust the other."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    there = context(folder, server, ssl.PROTOCOL_TLS_SERVER).wrap_bio(to_server, to_client, server_side=True)
    here = context(folder, client, ssl.PROTOCOL_TLS_CLIENT).wrap_bio(to_client, to_server, server_hostname=NAME)
    for side in (here, there, here, there):
        with contextlib.suppress(ssl.SSLWantReadError):
            side.do_handshake()
    here.write(b"hello")
    assert there.read(5) == b"hello" and there.version() == "TLSv1.3"


def test_processes_with_one_token_trust_each_other(tmp_path: Path) -> None:
    shake_hands(tmp_path, derived(TOKEN), derived(TOKEN))


@pytest.mark.parametrize("stranger", ["client", "server"])
def test_a_process_with_another_token_is_trusted_by_neither_side(tmp_path: Path, stranger: str) -> None:
    tokens = {"client": TOKEN, "server": TOKEN} | {stranger: OTHER}
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(tmp_path, derived(tokens["server"]), derived(tokens["client"]))


@pytest.mark.parametrize("stranger", ["client", "server"])
def test_a_certificate_of_another_token_is_not_trusted_under_the_right_authority(tmp_path: Path, stranger: str) -> None:
    forged = derived(OTHER)._replace(authority=derived(TOKEN).authority)
    sides = {"client": derived(TOKEN), "server": derived(TOKEN)} | {stranger: forged}
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(tmp_path, **sides)


def test_keys_are_drawn_anew_and_authorities_are_not() -> None:
    one, other = derived(TOKEN), derived(TOKEN)
    authorities = [x509.load_pem_x509_certificate(each.authority) for each in (one, other, derived(OTHER))]
    keys = [each.public_key().public_numbers() for each in authorities]  # type: ignore[union-attr]
    assert keys[0] == keys[1] != keys[2]
    assert one.key != other.key and one.certificate != other.certificate


@settings(max_examples=20, deadline=None)
@given(st.binary(min_size=32, max_size=32))
def test_a_certificate_is_of_a_process_and_signs_no_others(token: bytes) -> None:
    certificates = derived(token)
    authority, certificate = map(x509.load_pem_x509_certificate, (certificates.authority, certificates.certificate))
    certificate.verify_directly_issued_by(authority)
    key = load_pem_private_key(certificates.key, None)
    assert key.public_key() == certificate.public_key()
    assert not certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert authority.extensions.get_extension_for_class(x509.BasicConstraints).value.path_length == 0
    now = datetime.datetime.now(datetime.UTC)
    assert certificate.not_valid_before_utc < now < certificate.not_valid_after_utc
