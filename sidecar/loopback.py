"""Which host names stay on this machine."""

from ipaddress import ip_address


def is_loopback(host: str) -> bool:
    """Whether a host, as in a URL but without brackets, is ``localhost`` or a loopback address."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
