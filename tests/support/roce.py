"""RoCE v2 frames in a capture: three judges that share no code with the product.

A parser and a CRC of our own, the checker of the shared folder, and Wireshark's InfiniBand dissector.
"""
import os
import shutil
import socket
import struct
import subprocess
import sys
import zlib

import tw

LIMIT_S = 120
QKEY = 0x01234567


class Frame:
    """One captured Ethernet frame, taken apart, with the ICRC as the specification words it."""

    def __init__(self, raw):
        ip = raw[14:]
        (self.total, self.id, self.frag) = struct.unpack(">HHH", ip[2:8])
        ip = ip[:self.total]
        assert ip[0] == 0x45 and len(ip) == self.total
        self.tos, self.ttl = ip[1], ip[8]
        self.src, self.dst = socket.inet_ntoa(ip[12:16]), socket.inet_ntoa(ip[16:20])
        self.sport, self.dport, self.udp_len, self.checksum = struct.unpack(">HHHH", ip[20:28])
        bth = ip[28:40]
        self.opcode, self.flags, self.pkey = bth[0], bth[1], bth[2:4]
        self.masked = bth[4]
        self.dest_qp = int.from_bytes(bth[5:8], "big")
        self.psn = int.from_bytes(bth[9:12], "big")
        self.qkey, = struct.unpack(">I", ip[40:44])
        self.source_qp = int.from_bytes(ip[45:48], "big")
        self.datagram = ip[48:-4]
        self.icrc, = struct.unpack("<I", ip[-4:])
        covered = bytearray(b"\xff" * 8 + ip[:-4])
        for at in (8 + 1, 8 + 8, 8 + 10, 8 + 11, 8 + 26, 8 + 27, 8 + 28 + 4):
            covered[at] = 0xFF
        self.icrc_right = zlib.crc32(bytes(covered)) & 0xFFFFFFFF


def is_roce(raw):
    return raw[12:14] == b"\x08\x00" and raw[23] == 17 and raw[36:38] == b"\x12\xb7"


def read_pcap(path):
    """The RoCE v2 frames of a classic Ethernet capture, which may still be being written."""
    with open(path, "rb") as f:
        raw = f.read()
    if len(raw) < 24:
        return []
    order = "<" if raw[:4] == b"\xd4\xc3\xb2\xa1" else ">"
    assert struct.unpack(order + "I", raw[:4])[0] == 0xA1B2C3D4 and struct.unpack(order + "I", raw[20:24])[0] == 1
    frames, at = [], 24
    while at + 16 <= len(raw):
        _, _, length, full = struct.unpack(order + "IIII", raw[at:at + 16])
        assert length == full
        at += 16 + length
        if at <= len(raw) and is_roce(raw[at - length:at]):
            frames.append(Frame(raw[at - length:at]))
    return frames


def rocev2_check(test, path, *args):
    """What the checker of the shared folder counted, having found nothing wrong; skips `test` where it is not at hand."""
    checker = os.path.join(tw.SHARED, "tools", "rocev2_check.py")
    if not os.path.exists(checker):
        test.skipTest("the shared RoCE v2 checker is not at hand")
    p = subprocess.run([sys.executable, checker, path, *args], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                       stderr=subprocess.STDOUT, text=True, timeout=LIMIT_S)
    test.assertEqual(p.returncode, 0, p.stdout)
    return p.stdout


def tshark(test, path, *fields):
    """The fields of each RoCE v2 frame as Wireshark's dissector reads them; skips `test` without it."""
    if shutil.which("tshark") is None:
        test.skipTest("tshark is not installed")
    argv = ["tshark", "-r", path, "-d", "udp.port==4791,infiniband", "-Y", "infiniband", "-T", "fields"]
    p = subprocess.run(argv + [w for f in fields for w in ("-e", f)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                       stderr=subprocess.DEVNULL, text=True, timeout=LIMIT_S)
    test.assertEqual(p.returncode, 0)
    return [line.split("\t") for line in p.stdout.splitlines()]
