"""How a caught message is shown: links that can be followed, pictures that are there, nothing that runs. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from urllib.parse import unquote

from markupsafe import Markup, escape

# Slack's <address|words> and <address>, else an address as it stands. Only http and https: nothing else is a link.
_LINK = re.compile(r"<(https?://[^|>\s]+)(?:\|([^>\n]*))?>|(https?://[^\s<>\"')\]]+)")
_CID = re.compile(r"""(?P<quote>["'])cid:(?P<name>[^"']+)(?P=quote)""", re.IGNORECASE)
_TRAILING = ".,;:"


def linked(text: str) -> Markup:
    """The text with its addresses as links that open beside the page; everything else is escaped."""
    shown, end = Markup(), 0
    for found in _LINK.finditer(text):
        address, words = found[1] or found[3], found[2]
        tail = address[len(address.rstrip(_TRAILING)) :] if found[3] else ""
        address = address.removesuffix(tail)
        link = Markup('<a href="{}" target="_blank" rel="noopener">{}</a>').format(address, words or address)
        shown += escape(text[end : found.start()]) + link + tail
        end = found.end()
    return shown + escape(text[end:])


def framed(html: str, *, parts: Collection[str], address_of: Callable[[str], str]) -> str:
    """A mail's HTML for a frame: its links open beside the page, and a picture that came with it is taken from here.

    `parts` are the Content-IDs that came (RFC 2392: `cid:` plus that name), `address_of` where one is served.
    """

    def place(found: re.Match[str]) -> str:
        name = unquote(found["name"])
        quote = found["quote"]
        return f"{quote}{address_of(name)}{quote}" if name in parts else found[0]

    return '<base target="_blank">' + _CID.sub(place, html)
