"""Who may connect to an endpoint: networks in the form that EC2 takes, and never the whole world by accident."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, Final

from tgi_deploy.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_Network = ipaddress.IPv4Network | ipaddress.IPv6Network

WORLD: Final = ("0.0.0.0/0",)
# Wider than this in sum is not a network of one's own: IANA handed out IPv4 by the /8 (IANA IPv4 Address Space
# Registry), and a /16 is a sixteenth of a whole regional registry's IPv6 (/12, IANA IPv6 Global Unicast Address
# Assignments).
_WIDEST_IPV4: Final = 8
_WIDEST_IPV6: Final = 16
_GLOBAL_IPV6: Final = ipaddress.IPv6Network("2000::/3")  # all that is routed: RFC 4291, section 2.4
_IPV4_IN_IPV6: Final = ipaddress.IPv6Network("::ffff:0:0/96")  # no packet comes from there: RFC 6890, section 2.2.3


def networks(given: Sequence[str], *, expose_to_world: bool) -> tuple[str, ...]:
    """Return the networks in `given` as EC2 writes them, each once.

    Raises InputError `bad_cidr` for a form that EC2 refuses or would change, and `world_exposed` for what in sum is
    wider than anybody's own network, unless `expose_to_world`.
    """
    found = tuple(dict.fromkeys(_network(text) for text in given))
    wide = next((words for words in (_ipv4_excess(found), _ipv6_excess(found)) if words), None)
    if wide is not None and not expose_to_world:
        raise InputError(
            "world_exposed",
            f"--allow-cidr {' '.join(given)} lets in {wide}: that counts as the whole world",
            hint="name your own network, or add --expose-to-world if you mean it",
        )
    return tuple(str(network) for network in found)


def _ipv4_excess(found: Iterable[_Network]) -> str | None:
    """What is too much of IPv4, None for what is not."""
    together = ipaddress.collapse_addresses(item for item in found if isinstance(item, ipaddress.IPv4Network))
    addresses = sum(network.num_addresses for network in together)
    if addresses <= 2 ** (32 - _WIDEST_IPV4):
        return None
    return f"{addresses:,} addresses of IPv4, more than a /{_WIDEST_IPV4}"


def _ipv6_excess(found: Iterable[_Network]) -> str | None:
    """What is too much of global IPv6, None for what is not. Two networks overlap only where one holds the other."""
    together = ipaddress.collapse_addresses(item for item in found if isinstance(item, ipaddress.IPv6Network))
    addresses = sum(
        min(network, _GLOBAL_IPV6, key=lambda one: one.num_addresses).num_addresses
        for network in together
        if network.overlaps(_GLOBAL_IPV6)
    )
    if addresses <= 2 ** (128 - _WIDEST_IPV6):
        return None
    return f"more of global IPv6 than a /{_WIDEST_IPV6}"


def _network(text: str) -> _Network:
    meant = _meant(text)
    if meant is None:
        raise _refused(text, "is not a network", "write 203.0.113.7/32")
    if isinstance(meant, ipaddress.IPv6Network) and meant.subnet_of(_IPV4_IN_IPV6):
        inside = ipaddress.IPv4Network((int(meant.network_address) & 0xFFFFFFFF, meant.prefixlen - 96))
        raise _refused(text, "is IPv4 written as IPv6: it would let nobody in", f"write {inside}")
    address, slash, length = text.partition("/")
    if not (slash and length.isdecimal()) or "%" in address or text != text.strip():
        raise _refused(text, "is not a network as EC2 takes it", f"write {meant}")
    if ipaddress.ip_address(address) != meant.network_address:
        one = ipaddress.ip_network(address)
        raise _refused(text, f"names an address inside {meant}", f"write {one} for it alone, {meant} for all of them")
    return meant


def _meant(text: str) -> _Network | None:
    """The network that the text most likely stands for."""
    address, slash, length = text.strip().partition("/")
    try:
        return ipaddress.ip_network(address.partition("%")[0] + slash + length, strict=False)
    except ValueError:
        return None


def _refused(text: str, why: str, hint: str) -> InputError:
    return InputError("bad_cidr", f"--allow-cidr {text[:60]!r} {why}", hint=hint)
