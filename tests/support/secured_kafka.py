"""Kafka as a careful operator runs it: logins (SASL/PLAIN), and the standard authorizer, which wants an ACL for all.

With certificates also over TLS (SASL_SSL), where clients have to show one, too.
"""

import re
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import KafkaException
from confluent_kafka.admin import AclBinding, AdminClient

from connectors.embedded.data_dir import new_cluster_id
from connectors.embedded.ports import any_free
from tests.support.own_broker import OwnBroker
from tests.support.waiting import wait_until

ADMIN = "admin"

_DENIED = re.compile(r"Principal = User:(\S+) is Denied operation = (\S+) from host = \S+ on resource = (\S+)")


class Denied(NamedTuple):
    """What the authorizer has refused."""

    user: str
    operation: str
    resource: str


@dataclass(frozen=True)
class SecuredKafka:
    """A running broker. Every user's password is the name, twice."""

    bootstrap_servers: str
    process: OwnBroker
    users: Sequence[str] = ()
    certificates: "Certificates | None" = None

    def login(self, user: str) -> dict[str, str]:
        """librdkafka's options for a user."""
        login = {"sasl.mechanisms": "PLAIN", "sasl.username": user, "sasl.password": user + user}
        if self.certificates is None:
            return {"security.protocol": "SASL_PLAINTEXT", **login}
        return {"security.protocol": "SASL_SSL", **login, **self.certificates.of_clients()}

    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 0, **self.login(ADMIN)})

    def allow(self, acls: Sequence[AclBinding]) -> None:
        admin = self.admin()
        for answer in admin.create_acls(list(acls)).values():
            answer.result(30)

    def denied(self) -> list[Denied]:
        return [Denied(*found) for found in _DENIED.findall(self.process.log_path.read_text(errors="replace"))]

    def restart(self, admin_password: str = ADMIN + ADMIN) -> None:
        """Killed and started, maybe with another password of the administrator; not waited for."""
        self.process.kill()
        self.process.change(_logins(_protocol(self.certificates), self.users, admin_password))
        self.process.start()


@dataclass(frozen=True)
class Certificates:
    """An authority of its own in a directory, and what it has signed: the broker's certificate and the clients'."""

    directory: Path
    key_password: str

    @classmethod
    def made(cls, directory: Path, key_password: str) -> "Certificates":
        """With openssl. Clients' keys are encrypted."""
        certificates = cls(directory, key_password)
        certificates.make_authority("ca")
        certificates._sign("broker", "subjectAltName=IP:127.0.0.1")
        certificates._sign("client", "extendedKeyUsage=clientAuth")
        plain, encrypted = directory / "client.key", directory / "client-encrypted.key"
        certificates._openssl("pkcs8", "-topk8", "-in", plain, "-out", encrypted, "-passout", f"pass:{key_password}")
        return certificates

    def make_authority(self, name: str) -> Path:
        """Its certificate."""
        certificate = self.directory / f"{name}.crt"
        self._openssl(*self._new(name), "-x509", "-days", "2", "-out", certificate)
        return certificate

    def of_clients(self) -> dict[str, str]:
        return {
            "ssl.ca.location": str(self.directory / "ca.crt"),
            "ssl.certificate.location": str(self.directory / "client.crt"),
            "ssl.key.location": str(self.directory / "client-encrypted.key"),
            "ssl.key.password": self.key_password,
        }

    def of_broker(self, listener: str) -> dict[str, str]:
        """Kafka's properties; PEM files, key and certificate in one."""
        both = self.directory / "broker.pem"
        both.write_text((self.directory / "broker.key").read_text() + (self.directory / "broker.crt").read_text())
        return {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(both),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.directory / "ca.crt"),
            f"listener.name.{listener.lower()}.ssl.client.auth": "required",  # else SASL_SSL passes it over
        }

    def _sign(self, name: str, extension: str) -> None:
        request, extensions = self.directory / f"{name}.csr", self.directory / f"{name}.ext"
        extensions.write_text(extension)
        self._openssl(*self._new(name), "-out", request)
        authority = ("-CA", self.directory / "ca.crt", "-CAkey", self.directory / "ca.key", "-CAcreateserial")
        certificate = ("-out", self.directory / f"{name}.crt", "-days", "2", "-extfile", extensions)
        self._openssl("x509", "-req", "-in", request, *authority, *certificate)

    def _new(self, name: str) -> list[str | Path]:
        key = self.directory / f"{name}.key"
        return ["req", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-subj", f"/CN={name}"]

    @staticmethod
    def _openssl(*arguments: str | Path) -> None:
        subprocess.run(["openssl", *map(str, arguments)], capture_output=True, check=True)


def _protocol(certificates: Certificates | None) -> str:
    return "SASL_PLAINTEXT" if certificates is None else "SASL_SSL"


def _logins(protocol: str, users: Sequence[str], admin_password: str = ADMIN + ADMIN) -> dict[str, str]:
    """Who may log in, and as whom the broker does."""
    known = "".join(f' user_{user}="{user}{user}"' for user in users)
    module = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    admin = f'username="{ADMIN}" password="{admin_password}" user_{ADMIN}="{admin_password}"'
    return {f"listener.name.{protocol.lower()}.plain.sasl.jaas.config": f"{module} {admin}{known};"}


@contextmanager
def secured_kafka(
    directory: Path, users: Sequence[str], certificates: Certificates | None = None
) -> Iterator[SecuredKafka]:
    """A broker of its own in an empty directory, ended with the block."""
    protocol = _protocol(certificates)
    port, controller_port = any_free(), any_free()
    properties = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"{protocol}://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "listener.security.protocol.map": f"CONTROLLER:PLAINTEXT,{protocol}:{protocol}",
        "inter.broker.listener.name": protocol,
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        **_logins(protocol, users),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": f"User:{ADMIN};User:ANONYMOUS",  # the latter is the controller's own listener, on loopback
        "auto.create.topics.enable": "false",
        "group.initial.rebalance.delay.ms": "0",
        "offsets.topic.num.partitions": "4",
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.num.partitions": "4",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "log.cleaner.dedupe.buffer.size": "16777216",
        **({} if certificates is None else certificates.of_broker(protocol)),
    }
    tells_refusals = "-Dorg.slf4j.simpleLogger.log.kafka.authorizer.logger=info"
    process = OwnBroker(directory, new_cluster_id(), properties, (tells_refusals,))
    process.start()
    broker = SecuredKafka(f"127.0.0.1:{port}", process, users, certificates)
    try:
        admin = broker.admin()

        def answers() -> bool:
            process.assert_runs()
            try:
                return bool(admin.list_topics(timeout=1).brokers)
            except KafkaException:
                return False

        wait_until(answers, "the secured broker answers", 60, poll_s=0.2)
        yield broker
    finally:
        process.kill()
