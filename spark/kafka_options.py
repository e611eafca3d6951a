"""librdkafka's options, in which all commands speak, as the Java client of Spark's Kafka source calls them.

    librdkafka                                    Java
    sasl.mechanism(s)                             sasl.mechanism
    sasl.username, sasl.password                  sasl.jaas.config
    ssl.ca.location (PEM)                         ssl.truststore.location, type PEM
    ssl.certificate.location, ssl.key.location    ssl.keystore.certificate.chain, ssl.keystore.key, type PEM
    ssl.keystore.location (PKCS#12)               the same, type PKCS12
    enable.ssl.certificate.verification=false     no such thing: refused
    bootstrap.servers, security.protocol, …       the same name

What tunes librdkafka alone is left out. What only Java knows goes by its name after ``java.``, such as
``java.sasl.jaas.config``.
"""

from collections.abc import Mapping
from pathlib import Path

from spark.errors import AuditError

_SAME = (
    "bootstrap.servers",
    "security.protocol",
    "client.rack",
    "ssl.keystore.location",
    "ssl.keystore.password",
    "ssl.key.password",
    "ssl.endpoint.identification.algorithm",
    "sasl.kerberos.service.name",
)
_LOGIN_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}


def for_spark(options: Mapping[str, str]) -> dict[str, str]:
    """Options of the Kafka source, ``kafka.`` before each.

    Raises:
        AuditError: names an option that Spark cannot have, and what to do.
    """
    java = {name: options[name] for name in _SAME if name in options}
    java |= {name.removeprefix("java."): value for name, value in options.items() if name.startswith("java.")}
    if java.get("ssl.endpoint.identification.algorithm") == "none":
        java["ssl.endpoint.identification.algorithm"] = ""
    if "security.protocol" in java:
        java["security.protocol"] = java["security.protocol"].upper()
    if options.get("enable.ssl.certificate.verification", "true").lower() == "false":
        raise AuditError(
            "enable.ssl.certificate.verification=false has no counterpart in Spark's Kafka client; "
            "name the brokers' certificate in ssl.ca.location"
        )
    java = _sasl(options, java) | java
    java |= _ssl(options)
    return {f"kafka.{name}": value for name, value in java.items()}


def for_librdkafka(options: Mapping[str, str]) -> dict[str, str]:
    """What is meant for clients other than Java's."""
    return {name: value for name, value in options.items() if not name.startswith("java.")}


def _sasl(options: Mapping[str, str], java: Mapping[str, str]) -> dict[str, str]:
    mechanism = options.get("sasl.mechanism", options.get("sasl.mechanisms"))
    if mechanism is None:
        return {}
    if "sasl.jaas.config" in java:
        return {"sasl.mechanism": mechanism}
    if mechanism not in _LOGIN_MODULES or "sasl.username" not in options:
        raise AuditError(
            f"sasl.mechanism {mechanism} has no counterpart that is made of sasl.username and sasl.password; "
            "give Java's own as --kafka java.sasl.jaas.config=…"
        )
    user, password = (_quoted(options.get(name, "")) for name in ("sasl.username", "sasl.password"))
    return {
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": f"{_LOGIN_MODULES[mechanism]} required username={user} password={password};",
    }


def _ssl(options: Mapping[str, str]) -> dict[str, str]:
    java: dict[str, str] = {}
    if "ssl.ca.location" in options:
        java |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": options["ssl.ca.location"]}
    if "ssl.ca.pem" in options:
        java |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": options["ssl.ca.pem"]}
    chain = _pem(options, "ssl.certificate")
    key = _pem(options, "ssl.key")
    if chain and key:
        java |= {"ssl.keystore.type": "PEM", "ssl.keystore.certificate.chain": chain, "ssl.keystore.key": key}
    elif "ssl.keystore.location" in options:
        java["ssl.keystore.type"] = "PKCS12"
    return java


def _pem(options: Mapping[str, str], name: str) -> str | None:
    """A PEM text, given itself or as the name of its file."""
    if f"{name}.pem" in options:
        return options[f"{name}.pem"]
    path = options.get(f"{name}.location")
    if path is None:
        return None
    try:
        return Path(path).read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise AuditError(f"{name}.location {path} cannot be read: {error}") from error


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
