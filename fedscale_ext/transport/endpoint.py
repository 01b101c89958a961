"""The aggregator's address, message limits, token and TLS certificates, as the configuration has them."""

import contextlib
import ipaddress
import socket
import ssl
from pathlib import Path

import grpc
import psutil

from fedscale_ext.config.job_config import JobConfig
from fedscale_ext.config.keys import JobKeys
from fedscale_ext.core.errors import UserError
from fedscale_ext.transport.job_tls import NAME, Certificates, derived
from fedscale_ext.transport.signing import Signer
from fedscale_ext.util.token import read_token

# the aggregator's options for :func:`keepalive`: gRPC would allow one ping in five minutes
ANY_PINGS = [("grpc.http2.min_ping_interval_without_data_ms", 1), ("grpc.http2.max_ping_strikes", 0)]


def address(config: JobConfig) -> str:
    """Return ``ps_ip`` and ``ps_port`` in gRPC's notation."""
    host = config.fedscale.ps_ip
    return f"{f'[{host}]' if ':' in host else host}:{config.fedscale.ps_port}"


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches a host; a name other than localhost may be any host."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def host_address() -> str:
    """An IPv4 address of this machine that others reach, where it has one."""
    addresses = [a.address for every in psutil.net_if_addrs().values() for a in every if a.family == socket.AF_INET]
    with contextlib.suppress(OSError):
        addresses.insert(0, socket.gethostbyname(socket.gethostname()))
    return next((address for address in addresses if not is_loopback(address)), "127.0.0.1")


def check_reach(config: JobConfig) -> None:
    """Raise UserError if other machines could connect without a token or certificate."""
    host = config.fedscale.ps_ip
    if not is_loopback(host) and config.job.token_file is None and config.job.tls_ca is None:
        raise UserError(
            f"ps_ip {host} is not a loopback address: set token_file, or tls_ca and its certificates, so that no "
            "stranger can join, or set ps_ip to 127.0.0.1"
        )


def limits(config: JobConfig) -> list[tuple[str, int]]:
    """Return gRPC's options for the largest message."""
    size = max_bytes(config.job)
    return [("grpc.max_send_message_length", size), ("grpc.max_receive_message_length", size)]


def max_bytes(job: JobKeys) -> int:
    """Return the size of the largest message."""
    return job.max_message_mb * 1024 * 1024


def keepalive(config: JobConfig) -> list[tuple[str, int]]:
    """Return gRPC's options by which an executor notices that its connection is dead, however long a call takes.

    The answer to a ping waits behind what lies in the buffers of the way, which takes minutes on a slow line.
    """
    lease_ms = 1000 * config.job.lease_s
    return [
        ("grpc.keepalive_time_ms", round(lease_ms / 3)),
        ("grpc.http2.ping_timeout_ms", round(4 * lease_ms)),
        ("grpc.http2.max_pings_without_data", 0),
    ]


def signer(config: JobConfig) -> Signer:
    """Return a signer with the job's token; raise UserError if its file cannot be used."""
    return Signer(_token(config), config.fedscale.job_name)


def joining_signer(config: JobConfig) -> Signer:
    """Return the signer of executors that join, which do not know the job's name yet; otherwise as :func:`signer`."""
    return Signer(_token(config), "")


def _token(config: JobConfig) -> bytes:
    path = config.job.token_file
    return b"" if path is None else read_token(path)


def listen(server: grpc.Server, config: JobConfig) -> None:
    """Open the aggregator's port; with TLS (see :func:`uses_tls`), both sides must have a certificate.

    Args:
        server: The gRPC server that listens on it.
        config: The job's configuration.

    Raises:
        UserError: If the port cannot be opened, or a certificate cannot be used.

    """
    certificates = _certificates(config, "aggregator")
    try:
        if certificates is None:
            server.add_insecure_port(address(config))
        else:
            authority, certificate, key = certificates
            credentials = grpc.ssl_server_credentials([(key, certificate)], authority, require_client_auth=True)
            server.add_secure_port(address(config), credentials)
    except RuntimeError:
        raise UserError(
            f"port {config.fedscale.ps_port} on {config.fedscale.ps_ip} is in use, or that is not an address of this "
            "machine: stop the other job, or choose another port with --set ps_port=…"
        ) from None


def channel_security(config: JobConfig) -> tuple[grpc.ChannelCredentials | None, list[tuple[str, str]]]:
    """Return an executor's TLS credentials, None without TLS, and options of its channel that belong to them.

    Args:
        config: The job's configuration.

    Raises:
        UserError: If a certificate or the token cannot be used.

    """
    certificates = _certificates(config, "executor")
    if certificates is None:
        return None, []
    authority, certificate, key = certificates
    # certificates of a token name the job, and no host
    options = [("grpc.ssl_target_name_override", NAME)] if config.job.tls_ca is None else []
    return grpc.ssl_channel_credentials(authority, key, certificate), options


def uses_tls(config: JobConfig) -> bool:
    """Return whether messages are encrypted: with ``tls_ca``, and with a token wherever they leave this machine."""
    leaves = not is_loopback(config.fedscale.ps_ip)
    return config.job.tls_ca is not None or (config.job.token_file is not None and leaves)


def _certificates(config: JobConfig, side: str) -> Certificates | None:
    """The certificates of a side, from files or the job's token; None without TLS. UserError unless they fit."""
    if not uses_tls(config):
        return None
    if config.job.tls_ca is None:
        return derived(_token(config))
    authority, certificate, key = (_file(config, name) for name in ("tls_ca", f"tls_{side}_cert", f"tls_{side}_key"))
    check = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # gRPC would say only that it failed
    try:
        check.load_verify_locations(authority)
    except (OSError, ValueError):
        raise UserError(f"tls_ca {authority} holds no certificate in PEM") from None
    try:
        check.load_cert_chain(certificate, key, password=lambda: "")
    except (OSError, ValueError):
        raise UserError(
            f"tls_{side}_cert {certificate} and tls_{side}_key {key} are not a certificate and its key, in PEM and "
            "without a password"
        ) from None
    return Certificates(authority.read_bytes(), certificate.read_bytes(), key.read_bytes())


def _file(config: JobConfig, name: str) -> Path:
    configured = getattr(config.job, name)
    if configured is None:
        raise UserError(f"tls_ca is set but {name} is not: TLS needs a certificate and its key on both sides")
    path = Path(configured).expanduser()
    try:
        path.open("rb").close()
    except OSError as error:
        raise UserError(f"{name} {path} cannot be read: {error.strerror}") from None
    return path
