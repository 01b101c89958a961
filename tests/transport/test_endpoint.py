"""Where the aggregator listens, and with whose certificates."""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import grpc
import pytest
from aggregator_service import configuration, connection, registration, serving, stranger

from fedscale_ext.config.job_config import with_values
from fedscale_ext.core.errors import UserError
from fedscale_ext.transport import endpoint
from fedscale_ext.transport.joining import request_offer
from fedscale_ext.transport.signing import JOINING
from fedscale_ext.util.token import new_token


@pytest.mark.parametrize(
    ("host", "alone"),
    [("127.0.0.1", True), ("127.9.9.9", True), ("localhost", True), ("::1", True)]
    + [(host, False) for host in ("0.0.0.0", "10.0.0.1", "::", "node7", "127.0.0.1.example.org", "")],
)
def test_what_other_machines_cannot_reach(host: str, alone: bool) -> None:
    assert endpoint.is_loopback(host) == alone


def test_nobody_listens_to_the_world_without_knowing_who_calls(job_file: Path) -> None:
    for host in ("0.0.0.0", "10.0.0.1"):
        with pytest.raises(UserError, match="is not a loopback address: set token_file"):
            endpoint.check_reach(configuration(job_file, f"ps_ip={host}", "token_file=null"))
        endpoint.check_reach(configuration(job_file, f"ps_ip={host}"))
        endpoint.check_reach(configuration(job_file, f"ps_ip={host}", "token_file=null", "tls_ca=ca.pem"))


# elsewhere than on Linux, 127.0.0.1 is the only loopback address
@pytest.mark.parametrize("host", ["0.0.0.0", "localhost", "127.0.0.2" if sys.platform == "linux" else "127.0.0.1"])
def test_with_a_token_any_address_can_be_listened_on(job_file: Path, host: str) -> None:
    config = configuration(job_file, f"ps_ip={host}")
    with serving(config) as service:
        with connection(config) as stub:
            stub.CLIENT_REGISTER(registration("1"), wait_for_ready=True, timeout=10.0)
        assert service.infos.keys() == {"1"}


EVERYWHERE = "ps_ip=0.0.0.0"  # is no loopback address, and reaches this machine


def test_beyond_this_machine_the_token_encrypts_and_refuses_whoever_has_another(job_file: Path) -> None:
    config = configuration(job_file, EVERYWHERE)
    other = job_file.parent / "other" / "token"
    other.parent.mkdir()
    with serving(config) as service:
        with connection(config) as stub:
            stub.CLIENT_REGISTER(registration("1"), wait_for_ready=True, timeout=10.0)
        assert service.infos.keys() == {"1"}
        others: list[Any] = [
            stranger(config),
            connection(with_values(config, ps_ip="127.0.0.1")),  # signs with the right token, and does not encrypt
        ]
        for each in others:
            with each as stub, pytest.raises(grpc.RpcError) as raised:
                stub.CLIENT_REGISTER(registration("2"), timeout=5.0)
            assert raised.value.code() == grpc.StatusCode.UNAVAILABLE
        strange = with_values(config, token_file=str(new_token(other)))
        with connection(strange) as stub, pytest.raises(ConnectionError, match="made with another token"):
            stub.CLIENT_REGISTER(registration("2"), timeout=5.0)
        assert service.infos.keys() == {"1"}


@pytest.mark.parametrize(
    ("changes", "encrypted"),
    [({}, False), ({"ps_ip": "localhost"}, False), ({"ps_ip": "10.0.0.1"}, True), ({"ps_ip": "node7"}, True),
     ({"ps_ip": "10.0.0.1", "token_file": None}, False), ({"tls_ca": "ca.pem"}, True)],
)  # fmt: skip
def test_messages_that_leave_this_machine_are_encrypted(
    job_file: Path, changes: dict[str, Any], encrypted: bool
) -> None:
    assert endpoint.uses_tls(with_values(configuration(job_file), **changes)) == encrypted


def test_joining_with_another_token_or_from_loopback_is_one_sentence(job_file: Path) -> None:
    config = configuration(job_file, EVERYWHERE, "num_executors=0")
    other = job_file.parent / "other" / "token"
    other.parent.mkdir()
    with serving(config) as service:
        service.read_local_data()
        joins = with_values(config, this_rank=JOINING, job_name="unknown")
        assert request_offer(joins, 10.0).executor == 1
        with pytest.raises(UserError, match=r"do not accept each other .*made with another token"):
            request_offer(with_values(joins, token_file=str(new_token(other))), 10.0)
        with pytest.raises(UserError, match="a loopback one joins only jobs whose ps_ip is one"):
            request_offer(with_values(joins, ps_ip="127.0.0.1"), 1.0)


def openssl(folder: Path, *arguments: str) -> None:
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True, timeout=60)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """ca, aggregator and executor, signed by it, and another authority's executor."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    folder = tmp_path_factory.mktemp("tls")
    new = ("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    for authority, sides in (("ca", ("aggregator", "executor")), ("strange_ca", ("strange",))):
        openssl(
            folder, *new, "-x509", "-days", "3650", "-subj", f"/CN={authority}",
            "-keyout", f"{authority}.key", "-out", f"{authority}.pem",
        )  # fmt: skip
        for side in sides:
            (folder / "names").write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\n")
            openssl(folder, *new, "-subj", f"/CN={side}", "-keyout", f"{side}.key", "-out", f"{side}.csr")
            openssl(
                folder, "x509", "-req", "-in", f"{side}.csr", "-CA", f"{authority}.pem", "-CAkey", f"{authority}.key",
                "-CAcreateserial", "-days", "3650", "-extfile", "names", "-out", f"{side}.pem",
            )  # fmt: skip
    return folder


def tls(folder: Path, **changes: str) -> list[str]:
    files = {"tls_ca": "ca.pem"}
    for side in ("aggregator", "executor"):
        files |= {f"tls_{side}_cert": f"{side}.pem", f"tls_{side}_key": f"{side}.key"}
    return [f"{key}={folder / name}" for key, name in (files | changes).items()]


def test_both_sides_prove_who_they_are(job_file: Path, certificates: Path) -> None:
    config = configuration(job_file, *tls(certificates))
    with serving(config) as service:
        with connection(config) as stub:
            stub.CLIENT_REGISTER(registration("1"), wait_for_ready=True, timeout=10.0)
        assert service.infos.keys() == {"1"}
        others: list[Any] = [
            stranger(config),  # without TLS
            connection(
                configuration(
                    job_file,
                    *tls(certificates, tls_executor_cert="strange.pem", tls_executor_key="strange.key"),
                    f"ps_port={config.fedscale.ps_port}",
                )
            ),
        ]
        for other in others:
            with other as stub, pytest.raises(grpc.RpcError) as raised:
                stub.CLIENT_REGISTER(registration("2"), timeout=5.0)
            assert raised.value.code() == grpc.StatusCode.UNAVAILABLE
        distrusts = configuration(
            job_file, *tls(certificates, tls_ca="strange_ca.pem"), f"ps_port={config.fedscale.ps_port}"
        )
        with connection(distrusts) as stub, pytest.raises(ConnectionError, match="by another authority than tls_ca"):
            stub.CLIENT_REGISTER(registration("2"), timeout=5.0)
        assert service.infos.keys() == {"1"}


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"tls_aggregator_cert": "none.pem"}, "tls_aggregator_cert .*none.pem cannot be read"),
        ({"tls_ca": "ca.key"}, "tls_ca .*ca.key holds no certificate"),
        ({"tls_aggregator_key": "executor.key"}, "are not a certificate and its key"),
        ({"tls_aggregator_key": "aggregator.pem"}, "are not a certificate and its key"),
    ],
)
def test_files_that_cannot_be_used_are_named(
    job_file: Path, certificates: Path, changes: dict[str, str], sentence: str
) -> None:
    config = configuration(job_file, *tls(certificates, **changes))
    with pytest.raises(UserError, match=sentence), serving(config):
        pass


def test_one_file_alone_is_not_enough(job_file: Path, certificates: Path) -> None:
    config = configuration(job_file, f"tls_ca={certificates / 'ca.pem'}")
    with pytest.raises(UserError, match="tls_executor_cert is not"):
        endpoint.channel_security(config)


def test_a_process_joins_a_job_with_its_certificate(job_file: Path, certificates: Path) -> None:
    config = configuration(job_file, *tls(certificates), "num_executors=0")
    with serving(config) as service:
        service.read_local_data()
        joins = with_values(config, this_rank=JOINING, job_name="unknown", tls_aggregator_cert=None)
        assert request_offer(joins, 10.0).executor == 1
        plain = with_values(joins, tls_ca=None)
        with pytest.raises(UserError, match="or give --tls-ca, --tls-cert and --tls-key if it uses TLS"):
            request_offer(plain, 0.2)
