#!/usr/bin/env python3
"""Compares every field of the recorded ITCH messages with someone else's decoder, and prints the golden
hashes of tests/unit/test_itch_data.c, which are made from that decoder's fields.

usage: tests/support/itch_omi.py DISSECTOR.lua DATA_DIR

DISSECTOR.lua is the Open Markets Initiative's Nasdaq_NsmEquities_TotalView_Itch_v5_0_2017_Dissector.lua
(https://github.com/Open-Markets-Initiative/wireshark-lua), which is not part of this project; DATA_DIR is the
folder `nasdaq` of the shared data.  Needs tshark; run as root it drops to nobody, because tshark loads no
Lua scripts as root.
"""
import decimal
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import itch

PREFIX = "nasdaq.nsmequities.totalview.itch.v5.0.2017."
PER_PACKET = 20


def wrap(records, path):
    """Messages of a BinaryFILE in MoldUDP64 in a pcap, for a dissector of captures."""
    records = list(records)
    with open(path, "wb") as f:
        f.write(struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 65535, 1))
        for i in range(0, len(records), PER_PACKET):
            part = records[i:i + PER_PACKET]
            payload = b"0000000001" + struct.pack(">QH", part[0][0], len(part))
            payload += b"".join(struct.pack(">H", len(raw)) + raw for _, _, raw in part)
            udp = struct.pack(">HHHH", 26477, 26477, 8 + len(payload), 0) + payload
            ip = struct.pack(">BBHHHBBHII", 0x45, 0, 20 + len(udp), 0, 0x4000, 16, 17, 0, 0x0A000001, 0xE9360C6F)
            frame = bytes.fromhex("01005e360c6f0200000000010800") + ip + udp
            f.write(struct.pack("<IIII", 1577716200, 0, len(frame), len(frame)) + frame)


def value_of(name, shown):
    kinds = {n: k for _, spec in itch.FIELDS.values() for n, k in zip(spec.split()[::2], spec.split()[1::2])}
    kind = "a" if name == "messagetype" else kinds[name][0] if name in kinds else "i"
    if kind == "a":
        return shown.rstrip(" ")
    if kind in "pq":
        scaled = decimal.Decimal(shown) * 10 ** (4 if kind == "p" else 8)
        assert scaled == scaled.to_integral_value(), (name, shown)
        return int(scaled)
    return int(shown)


def dissected(path, lua):
    """The dissector's fields of every message."""
    command = ["tshark", "-r", path, "-X", "lua_script:" + lua, "--disable-protocol", "uaudp", "-T", "pdml"]
    if os.geteuid() == 0:
        command = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"] + command
    env = dict(os.environ, HOME=os.path.dirname(lua))
    text = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True, env=env).stdout
    assert b"Lua Error" not in text, path
    for field in xml.etree.ElementTree.fromstring(text).iter("field"):
        if field.get("name") == PREFIX + "message":
            yield {name[len(PREFIX):]: value_of(name[len(PREFIX):], leaf.get("show"))
                   for leaf in field.iter("field") for name in [leaf.get("name")]
                   if len(leaf) == 0 and not name.endswith(("messageindex", "messagelength"))}


def primed(decoder, seq, recv_ns, fields):
    """The same where the order that a message names was added just before, if it was not known."""
    ref = fields.get("originalorderreferencenumber", fields.get("orderreferencenumber"))
    if fields["messagetype"] in "ECXDU" and ref not in decoder.orders:
        yield from decoder.messages(seq, recv_ns, {
            "messagetype": "A", "stocklocate": fields["stocklocate"], "trackingnumber": 0,
            "timestamp": fields["timestamp"], "orderreferencenumber": ref, "buysellindicator": "BS"[ref % 2],
            "shares": 1000000, "stock": "PRIMED", "price": 10000 + ref % 1000})
    yield from decoder.messages(seq, recv_ns, fields)


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    data = sys.argv[2]
    # where nobody may read
    with tempfile.TemporaryDirectory() as d:
        os.chmod(d, 0o755)
        lua = shutil.copy(sys.argv[1], os.path.join(d, "dissector.lua"))
        os.chmod(lua, 0o644)
        names = [os.path.join(r, n) for r, _, found in os.walk(data) for n in found]
        total = 0
        for name in sorted(names):
            pcap = os.path.join(d, "capture.pcap")
            if name.endswith(".pcap"):
                records, date = list(itch.moldudp64(name)), None
                shutil.copy(name, pcap)
            else:
                records, date = list(itch.binaryfile(name)), 20191230
                wrap(records, pcap)
            plain, known = itch.Decoder(trading_date=date), itch.Decoder(trading_date=date)
            os.chmod(pcap, 0o644)
            theirs = list(dissected(pcap, lua))
            assert len(theirs) == len(records), (name, len(theirs), len(records))
            images, known_images = [], []
            for (seq, recv_ns, raw), fields in zip(records, theirs):
                ours = itch.fields(raw)
                # two names for one field, by message
                same = {"reasoncode": "reason", "locatecode": "stocklocate", "cancelledshares": "canceledshares"}
                fields = {same.get(k, k): v for k, v in fields.items()}
                assert ours == fields, (name, seq, ours, fields)
                images += [itch.image(m) for m in plain.messages(seq, recv_ns, fields)]
                known_images += [itch.image(m) for m in primed(known, seq, recv_ns, fields)]
            total += len(theirs)
            print(f'	{{ "{os.path.relpath(name, data)}", {len(theirs)}, {len(images)}, '
                  f'UINT64_C(0x{itch.fnv1a(images):016x}), {len(known_images)}, '
                  f'UINT64_C(0x{itch.fnv1a(known_images):016x}) }},')
        print(f"/* {total} messages equal, field by field */", file=sys.stderr)


main()
