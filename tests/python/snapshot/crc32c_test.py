"""The checksum of manifests."""

import pytest

from lodestar.snapshot.crc32c import crc32c


# From RFC 3720, appendix B.4, and the check value of the polynomial.
@pytest.mark.parametrize(
    "data, wanted",
    [
        (b"", 0),
        (b"123456789", 0xE3069283),
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
        (bytes(range(31, -1, -1)), 0x113FDB5C),
    ],
)
def test_known_values(data, wanted):
    assert crc32c(data) == wanted
