"""CRC32C (Castagnoli) of a few kilobytes; ops compute it for whole files."""


def _entry(crc: int) -> int:
    for _ in range(8):
        crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc


_TABLE = [_entry(byte) for byte in range(256)]


def crc32c(data: bytes) -> int:
    """Returns the checksum, 0 to 2^32 - 1."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF
