"""An independent decode of TOPS 1.6 over IEX-TP in a classic pcap, written for the tests alone.

Yields what a subscriber must print for each message, as dictionaries with the field names of the JSON
output.  Prices are exact: TOPS counts ten-thousandths.
"""
import decimal
import gzip
import struct

MESSAGE = {
    "S": (10, "<ccQ"), "D": (31, "<cBQ8sIQB"), "H": (22, "<ccQ8s4s"), "O": (18, "<ccQ8s"),
    "P": (19, "<cBQ8sc"), "Q": (42, "<cBQ8sIQQI"), "T": (38, "<cBQ8sIQQ"), "X": (26, "<ccQ8sQ"),
    "B": (38, "<cBQ8sIQQ"), "A": (80, "<ccQ8sIQQIcBIQQQQ"),
}


def price(n):
    return decimal.Decimal(n) / 10000


def side(p, qty):
    """TOPS says that a side is absent by price 0 with size 0."""
    return (None, None) if p == 0 and qty == 0 else (price(p), qty)


def packets(path):
    with open(path, "rb") as f:
        raw = f.read()
    if raw[:2] == b"\x1f\x8b":
        raw = gzip.decompress(raw)
    order = "<" if raw[:4] in (b"\xd4\xc3\xb2\xa1", b"\x4d\x3c\xb2\xa1") else ">"
    offset = 24
    while offset + 16 <= len(raw):
        _, _, caplen, _ = struct.unpack_from(order + "IIII", raw, offset)
        yield raw[offset + 16:offset + 16 + caplen]
        offset += 16 + caplen


def payloads(path):
    for frame in packets(path):
        if frame[12:14] != b"\x08\x00":
            continue
        ip = frame[14:]
        header = (ip[0] & 15) * 4
        length = struct.unpack_from(">H", ip, header + 4)[0]
        yield ip[header + 8:header + length]


def raw_messages(path):
    """(sequence, bytes) of every message, each once and in order."""
    expected = None
    for p in payloads(path):
        length, count = struct.unpack_from("<HH", p, 12)
        first = struct.unpack_from("<q", p, 24)[0]
        body, offset = p[40:40 + length], 0
        for i in range(count):
            n = struct.unpack_from("<H", body, offset)[0]
            if expected is None or first + i >= expected:
                expected = first + i + 1
                yield first + i, body[offset + 2:offset + 2 + n]
            offset += 2 + n


def conditions(flags):
    names = {0x80: "iso", 0x40: "extended_hours", 0x20: "odd_lot", 0x10: "trade_through_exempt",
             0x08: "single_price_cross"}
    return {name for bit, name in names.items() if flags & bit}


def text(raw):
    return raw.decode("ascii").rstrip(" ")


def decode(path):
    """One dictionary a message; sets stand for lists whose order is free."""
    for seq, m in raw_messages(path):
        kind = chr(m[0])
        if kind not in MESSAGE:
            continue
        size, layout = MESSAGE[kind]
        f = struct.unpack_from(layout, m)
        out = {"exchange_seq": seq & 0xFFFFFFFF, "exchange_ns": f[2], "venue": "IEXG",
               "symbol": text(f[3]) if kind != "S" else None}
        if kind == "Q":
            out["kind"] = "Quote"
            out["bid_qty"], out["bid_price"] = reversed(side(f[5], f[4]))
            out["ask_price"], out["ask_qty"] = side(f[6], f[7])
            out["flags"] = ({"event_end"} | ({"not_firm"} if f[1] & 0x80 else set()) |
                            ({"out_of_session"} if f[1] & 0x40 else set()))
        elif kind == "T":
            out.update(kind="Trade", qty=f[4], price=price(f[5]), match_id=f[6],
                       conditions=conditions(f[1]))
        elif kind == "B":
            out.update(kind="TradeCancel", qty=f[4], price=price(f[5]), match_id=f[6],
                       conditions=conditions(f[1]))
        elif kind == "H":
            out.update(kind="TradingStatus", scope="market", venue_status=f[1].decode(),
                       status={b"H": "halted", b"O": "paused", b"P": "paused", b"T": "trading"}[f[1]],
                       reason=text(f[4]) or None)
        elif kind == "O":
            out.update(kind="TradingStatus", scope="venue", venue_status=f[1].decode(),
                       status={b"O": "halted", b"N": "trading"}[f[1]])
        elif kind == "P":
            out.update(kind="ShortSaleStatus", detail=f[4].decode(), in_effect=bool(f[1]))
        elif kind == "X":
            out.update(kind="Statistic", price=price(f[4]),
                       type={b"Q": "official_open", b"M": "official_close"}[f[1]])
        elif kind == "A":
            out.update(kind="AuctionImbalance", paired_qty=f[4], imbalance_qty=f[7],
                       side={b"B": "buy", b"S": "sell", b"N": "none"}[f[8]], extensions=f[9],
                       scheduled_ns=f[10] * 1000000000)
            for name, n in (("reference_price", 5), ("near_price", 6), ("far_price", 11),
                            ("collar_reference_price", 12), ("lower_collar_price", 13),
                            ("upper_collar_price", 14)):
                out[name] = price(f[n]) if f[n] else None
        elif kind == "S":
            out.update(kind="SessionEvent", venue_event=f[1].decode())
        elif kind == "D":
            out.update(kind="InstrumentDefinition", round_lot_qty=f[4], reference_price=price(f[5]),
                       luld_tier=f[6])
        yield out
