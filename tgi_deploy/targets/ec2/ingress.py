"""Checks the networks that may connect: they need EC2's form, and must not be the whole world by accident."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, Final

from tgi_deploy.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_Network = ipaddress.IPv4Network | ipaddress.IPv6Network

WORLD: Final = ("0.0.0.0/0",)
# No organization's own network is larger in total: IANA assigned IPv4 in /8 blocks (IANA IPv4 Address Space Registry),
# and a regional registry's whole IPv6 block is a /12 (IANA IPv6 Global Unicast Address Assignments).
_WIDEST_IPV4: Final = 8
_WIDEST_IPV6: Final = 16
_GLOBAL_IPV6: Final = ipaddress.IPv6Network("2000::/3")  # all routed addresses: RFC 4291, section 2.4
_IPV4_IN_IPV6: Final = ipaddress.IPv6Network("::ffff:0:0/96")  # no packets come from there: RFC 6890, section 2.2.3


def networks(given: Sequence[str], *, expose_to_world: bool) -> tuple[str, ...]:
    """Return the networks in `given` in EC2's form, without duplicates.

    Raises InputError `bad_option_value` for a form that EC2 rejects or changes, and `world_exposed` if they are larger
    in total than any organization's network, unless `expose_to_world`.
    """
    found = tuple(dict.fromkeys(_network(text) for text in given))
    wide = next((words for words in (_ipv4_excess(found), _ipv6_excess(found)) if words), None)
    if wide is not None and not expose_to_world:
        raise InputError(
            "world_exposed",
            f"--allow-cidr {' '.join(given)} opens the port to {wide}, which counts as the whole world",
            hint="name your own network, or add --expose-to-world to confirm",
        )
    return tuple(str(network) for network in found)


def _ipv4_excess(found: Iterable[_Network]) -> str | None:
    """Return how many IPv4 addresses there are, in words, if they are too many; else None."""
    together = ipaddress.collapse_addresses(item for item in found if isinstance(item, ipaddress.IPv4Network))
    addresses = sum(network.num_addresses for network in together)
    if addresses <= 2 ** (32 - _WIDEST_IPV4):
        return None
    return f"{addresses:,} addresses of IPv4, more than a /{_WIDEST_IPV4}"


def _ipv6_excess(found: Iterable[_Network]) -> str | None:
    """Return the same for global IPv6 addresses. Networks overlap only if one contains the other."""
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
    network = _likely_network(text)
    if network is None:
        raise _bad_cidr(text, "is not a network", "write 203.0.113.7/32")
    if isinstance(network, ipaddress.IPv6Network) and network.subnet_of(_IPV4_IN_IPV6):
        inside = ipaddress.IPv4Network((int(network.network_address) & 0xFFFFFFFF, network.prefixlen - 96))
        raise _bad_cidr(text, "is IPv4 written as IPv6 and would match no one", f"write {inside}")
    address, slash, length = text.partition("/")
    if not (slash and length.isdecimal()) or "%" in address or text != text.strip():
        raise _bad_cidr(text, "is not a network in EC2's form", f"write {network}")
    if ipaddress.ip_address(address) != network.network_address:
        one = ipaddress.ip_network(address)
        raise _bad_cidr(
            text, f"is an address inside {network}", f"use {one} for this address, {network} for the network"
        )
    return network


def _likely_network(text: str) -> _Network | None:
    """Return the network that the text most likely stands for."""
    address, slash, length = text.strip().partition("/")
    try:
        return ipaddress.ip_network(address.partition("%")[0] + slash + length, strict=False)
    except ValueError:
        return None


def _bad_cidr(text: str, why: str, hint: str) -> InputError:
    return InputError("bad_option_value", f"--allow-cidr {text[:60]!r} {why}", hint=hint)
