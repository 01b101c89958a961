"""Where the aggregator listens and executors connect, and how both prove who they are: from the configuration."""

import ipaddress
import ssl
from pathlib import Path

import grpc

from fedscale_ext.config.job_config import JobConfig
from fedscale_ext.core.errors import UserError
from fedscale_ext.transport.signing import Signer
from fedscale_ext.util.token import read_token


def address(config: JobConfig) -> str:
    """``ps_ip`` and ``ps_port`` as gRPC writes them."""
    host = config.fedscale.ps_ip
    return f"{f'[{host}]' if ':' in host else host}:{config.fedscale.ps_port}"


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address; a name other than localhost may mean anything."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def check_reach(config: JobConfig) -> None:
    """UserError where strangers could connect and nobody would ask who they are."""
    host = config.fedscale.ps_ip
    if not is_loopback(host) and config.job.token_file is None and config.job.tls_ca is None:
        raise UserError(
            f"ps_ip {host} is not a loopback address: set token_file, or tls_ca and its certificates, so that no "
            "stranger can join, or set ps_ip to 127.0.0.1"
        )


def limits(config: JobConfig) -> list[tuple[str, int]]:
    """gRPC's options for the largest message."""
    most = config.job.max_message_mb * 1024 * 1024
    return [("grpc.max_send_message_length", most), ("grpc.max_receive_message_length", most)]


def signer(config: JobConfig) -> Signer:
    """Signs with the job's token; UserError where its file cannot be used."""
    path = config.job.token_file
    return Signer(b"" if path is None else read_token(path), config.fedscale.job_name)


def listen(server: grpc.Server, config: JobConfig) -> None:
    """Open the port, with TLS that asks executors for a certificate too where ``tls_ca`` is set; UserError where
    it cannot be opened."""
    pair = _certificates(config, "aggregator")
    try:
        if pair is None:
            server.add_insecure_port(address(config))
        else:
            authority, certificate, key = pair
            credentials = grpc.ssl_server_credentials([(key, certificate)], authority, require_client_auth=True)
            server.add_secure_port(address(config), credentials)
    except RuntimeError:
        raise UserError(
            f"port {config.fedscale.ps_port} on {config.fedscale.ps_ip} is in use, or that is not an address of this "
            "machine: stop the other job, or choose another port with --set ps_port=…"
        ) from None


def channel_credentials(config: JobConfig) -> grpc.ChannelCredentials | None:
    """An executor's TLS; None where the configuration names no ``tls_ca``."""
    pair = _certificates(config, "executor")
    if pair is None:
        return None
    authority, certificate, key = pair
    return grpc.ssl_channel_credentials(authority, key, certificate)


def _certificates(config: JobConfig, side: str) -> tuple[bytes, bytes, bytes] | None:
    """Contents of the files of the authority, the side's certificate and its key; UserError unless they fit."""
    if config.job.tls_ca is None:
        return None
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
    return authority.read_bytes(), certificate.read_bytes(), key.read_bytes()


def _file(config: JobConfig, name: str) -> Path:
    given = getattr(config.job, name)
    if given is None:
        raise UserError(f"tls_ca is set but {name} is not: TLS needs a certificate and its key on both sides")
    path = Path(given).expanduser()
    try:
        path.open("rb").close()
    except OSError as error:
        raise UserError(f"{name} {path} cannot be read: {error.strerror}") from None
    return path
