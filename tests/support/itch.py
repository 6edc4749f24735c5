"""An independent decode of TotalView-ITCH 5.0, written for the tests alone: from BinaryFILE or MoldUDP64 in
a classic pcap to what a subscriber must get, as dictionaries of integers and bytes with the field names of
the messages.  image() makes the very bytes of such a message, shown() what JSON output says of it.
"""
import datetime
import decimal
import struct
import zoneinfo

NONE = (1 << 63) - 1
EVENT_END, BOOK_BAD, TS_BAD, PRINTABLE = 1, 4, 8, 16
FLAGS = {1: "event_end", 2: "snapshot", 4: "book_bad", 8: "ts_bad", 16: "printable", 32: "not_firm",
         64: "out_of_session"}
CONDITIONS = {0x8: "open_cross", 0x10: "close_cross", 0x20: "halt_cross", 0x800: "intraday_cross"}

# Type: length and fields after stock locate, tracking number and timestamp.
# i: integer, p: price in 1e-4, q: price in 1e-8, a: text.
FIELDS = {
    "S": (12, "eventcode a1"),
    "R": (39, "stock a8 marketcategory a1 financialstatusindicator a1 roundlotsize i4 roundlotsonly a1 "
              "issueclassification a1 issuesubtype a2 authenticity a1 shortsalethresholdindicator a1 "
              "ipoflag a1 luldreferencepricetier a1 etpflag a1 etpleveragefactor i4 inverseindicator a1"),
    "H": (25, "stock a8 tradingstate a1 reserved a1 reason a4"),
    "Y": (20, "stock a8 regshoaction a1"),
    "L": (26, "mpid a4 stock a8 primarymarketmaker a1 marketmakermode a1 marketparticipantstate a1"),
    "V": (35, "level1 q8 level2 q8 level3 q8"),
    "W": (12, "breachedlevel a1"),
    "K": (28, "stock a8 ipoquotationreleasetime i4 ipoquotationreleasequalifier a1 ipoprice p4"),
    "J": (35, "stock a8 auctioncollarreferenceprice p4 upperauctioncollarprice p4 lowerauctioncollarprice p4 "
              "auctioncollarextension i4"),
    "h": (21, "stock a8 marketcode a1 operationalhaltaction a1"),
    "A": (36, "orderreferencenumber i8 buysellindicator a1 shares i4 stock a8 price p4"),
    "F": (40, "orderreferencenumber i8 buysellindicator a1 shares i4 stock a8 price p4 attribution a4"),
    "E": (31, "orderreferencenumber i8 executedshares i4 matchnumber i8"),
    "C": (36, "orderreferencenumber i8 executedshares i4 matchnumber i8 printable a1 executionprice p4"),
    "X": (23, "orderreferencenumber i8 canceledshares i4"),
    "D": (19, "orderreferencenumber i8"),
    "U": (35, "originalorderreferencenumber i8 neworderreferencenumber i8 shares i4 price p4"),
    "P": (44, "orderreferencenumber i8 buysellindicator a1 shares i4 stock a8 price p4 matchnumber i8"),
    "Q": (40, "crossshares i8 stock a8 crossprice p4 matchnumber i8 crosstype a1"),
    "B": (19, "matchnumber i8"),
    "I": (50, "pairedshares i8 imbalanceshares i8 imbalancedirection a1 stock a8 farprice p4 nearprice p4 "
              "currentreferenceprice p4 crosstype a1 pricevariationindicator a1"),
    "N": (20, "stock a8 interestflag a1"),
    "O": (48, "stock a8 openeligibilitystatus a1 minimumallowableprice p4 maximumallowableprice p4 "
              "nearexecutionprice p4 nearexecutiontime i8 lowerpricerangecollar p4 upperpricerangecollar p4"),
}


def fields(raw):
    """One message as a dictionary; prices stay the venue's integers."""
    size, spec = FIELDS[chr(raw[0])]
    assert len(raw) >= size, raw
    out = {"messagetype": chr(raw[0])}
    at = 1
    words = ("stocklocate i2 trackingnumber i2 timestamp i6 " + spec).split()
    for name, kind in zip(words[::2], words[1::2]):
        n = int(kind[1:])
        part = raw[at:at + n]
        out[name] = part.decode("ascii").rstrip(" ") if kind[0] == "a" else int.from_bytes(part, "big")
        at += n
    assert at == size, (raw, at)
    return out


# ---- framing: (number, receive time, message) ----

def binaryfile(path):
    """The receive time is None: it is the venue's own."""
    with open(path, "rb") as f:
        data = f.read()
    at, seq = 0, 0
    while at + 2 <= len(data):
        n = int.from_bytes(data[at:at + 2], "big")
        if n == 0:
            return
        seq += 1
        yield seq, None, data[at + 2:at + 2 + n]
        at += 2 + n


def moldudp64(path):
    with open(path, "rb") as f:
        data = f.read()
    order = "<" if data[:4] in (b"\x4d\x3c\xb2\xa1", b"\xd4\xc3\xb2\xa1") else ">"
    unit = 1 if data[:4] in (b"\x4d\x3c\xb2\xa1", b"\xa1\xb2\x3c\x4d") else 1000
    at, expected = 24, None
    while at + 16 <= len(data):
        seconds, fraction, size, _ = struct.unpack_from(order + "IIII", data, at)
        frame = data[at + 16:at + 16 + size]
        at += 16 + size
        ip = 14
        while frame[ip - 2:ip] == b"\x81\x00":
            ip += 4
        udp = ip + (frame[ip] & 15) * 4
        payload = frame[udp + 8:udp + struct.unpack_from(">H", frame, udp + 4)[0]]
        seq, count = struct.unpack_from(">QH", payload, 10)
        block = 20
        for i in range(count):
            n = int.from_bytes(payload[block:block + 2], "big")
            number = seq + i if seq != 0 else 0
            if seq == 0 or expected is None or number >= expected:
                expected = number + 1
                yield number, seconds * 10**9 + fraction * unit, payload[block + 2:block + 2 + n]
            block += 2 + n


# ---- what it means ----

PRICE, TEXT, CHAR, SETS, ENUM, RAW, BOOL = "price", "text", "char", "set", "enum", "raw", "bool"
SIDE = {0: "none", 1: "buy", 2: "sell"}
# Kind: template id, then name, struct format and meaning of each field after the common head.
LAYOUT = {
    "InstrumentDefinition": (1, [
        ("symbol", "32s", TEXT), ("raw_id", "Q", None), ("mic", "4s", TEXT), ("currency", "4s", TEXT),
        ("tick_price", "q", PRICE), ("display_factor", "q", PRICE), ("multiplier", "q", PRICE),
        ("round_lot_qty", "Q", None), ("expiry_ns", "Q", None), ("strike_price", "q", PRICE),
        ("reference_price", "q", PRICE), ("group", "8s", TEXT), ("underlying_id", "I", None),
        ("trading_date", "I", None), ("depth_levels", "H", None),
        ("action", "B", {1: "add", 2: "modify", 3: "delete"}),
        ("class", "B", {0: "unknown", 1: "equity", 2: "etp"}), ("put_call", "B", CHAR), ("test", "B", BOOL),
        ("luld_tier", "B", None), ("venue_flags", "B", None)]),
    "OrderAdd": (4, [("order_id", "Q", None), ("price", "q", PRICE), ("qty", "Q", None),
                     ("priority", "Q", None), ("participant", "8s", TEXT), ("side", "B", SIDE), ("", "7x", None)]),
    "OrderModify": (5, [("order_id", "Q", None), ("price", "q", PRICE), ("qty", "Q", None),
                        ("priority", "Q", None), ("side", "B", SIDE), ("keeps_priority", "B", BOOL), ("", "6x", None)]),
    "OrderReplace": (6, [("order_id", "Q", None), ("new_order_id", "Q", None), ("price", "q", PRICE),
                         ("qty", "Q", None), ("priority", "Q", None), ("participant", "8s", TEXT),
                         ("side", "B", SIDE), ("", "7x", None)]),
    "OrderDelete": (7, [("order_id", "Q", None), ("side", "B", SIDE), ("", "7x", None)]),
    "OrderExecute": (8, [("order_id", "Q", None), ("price", "q", PRICE), ("qty", "Q", None),
                         ("remaining_qty", "Q", None), ("match_id", "Q", None), ("conditions", "I", SETS),
                         ("side", "B", SIDE), ("aggressor", "B", SIDE), ("", "2x", None),
                         ("venue_conditions", "8s", RAW)]),
    "Trade": (11, [("price", "q", PRICE), ("qty", "Q", None), ("match_id", "Q", None), ("conditions", "I", SETS),
                   ("aggressor", "B", SIDE), ("", "3x", None), ("venue_conditions", "8s", RAW)]),
    "TradeCancel": (12, [("price", "q", PRICE), ("qty", "Q", None), ("match_id", "Q", None),
                         ("conditions", "I", SETS), ("", "4x", None), ("venue_conditions", "8s", RAW)]),
    "TradingStatus": (13, [("status", "B", {0: "unknown", 1: "trading", 2: "halted", 3: "paused", 4: "quote_only"}),
                           ("scope", "B", {1: "market", 2: "venue"}), ("venue_status", "B", CHAR), ("", "x", None),
                           ("reason", "4s", TEXT)]),
    "PriceLimits": (14, [("reference_price", "q", PRICE), ("lower_price", "q", PRICE), ("upper_price", "q", PRICE),
                         ("limit_kind", "B", {1: "luld", 2: "auction_collar", 3: "market_wide", 4: "daily"}),
                         ("level", "B", None), ("", "2x", None), ("extension", "I", None)]),
    "ShortSaleStatus": (15, [("status", "B", {0: "unrestricted", 1: "restricted", 2: "restricted_continued"}),
                             ("detail", "B", CHAR), ("venue_status", "B", CHAR), ("", "5x", None)]),
    "ParticipantStatus": (16, [("participant", "8s", TEXT), ("primary", "B", BOOL), ("mode", "B", CHAR),
                               ("state", "B", CHAR), ("", "5x", None)]),
    "AuctionImbalance": (17, [("paired_qty", "Q", None), ("imbalance_qty", "Q", None),
                              ("reference_price", "q", PRICE), ("near_price", "q", PRICE), ("far_price", "q", PRICE),
                              ("collar_reference_price", "q", PRICE), ("lower_collar_price", "q", PRICE),
                              ("upper_collar_price", "q", PRICE), ("scheduled_ns", "Q", None),
                              ("auction", "B", {0: None, 1: "open", 2: "close", 3: "ipo", 4: "halt"}),
                              ("side", "B", SIDE), ("extensions", "B", None), ("venue_auction", "B", CHAR),
                              ("variation", "B", CHAR), ("", "3x", None)]),
    "Statistic": (18, [("price", "q", PRICE), ("qty", "Q", None),
                       ("type", "H", {8: "ipo_price", 9: "retail_interest"}), ("venue_type", "B", CHAR), ("", "5x", None)]),
    "SessionEvent": (19, [("trading_date", "I", None),
                          ("event", "B", {1: "begin", 2: "system_start", 3: "market_open", 4: "market_close",
                                          5: "system_end", 6: "end"}),
                          ("venue_event", "B", CHAR), ("", "2x", None)]),
}


def image(msg):
    """The bytes of a message, SBE header and all."""
    template, layout = LAYOUT[msg["kind"]]
    body = b""
    for name, fmt, _ in layout:
        body += struct.pack("<" + fmt, *([] if name == "" else [msg.get(name, b"" if "s" in fmt else 0)]))
    head = struct.pack("<IHHQIi", msg["instrument_id"], msg["venue_id"], msg["flags"], msg["exchange_ns"],
                       msg["exchange_seq"] & 0xFFFFFFFF, msg["recv_delta_ns"])
    return struct.pack("<HHHH", len(head) + len(body), template, 0x5457, 0) + head + body


def shown(msg):
    """What the JSON output says of a message, but for raw bytes; sets stand for lists."""
    out = {n: msg[n] for n in ("kind", "instrument_id", "exchange_ns", "exchange_seq", "recv_delta_ns")}
    out["flags"] = {name for bit, name in FLAGS.items() if msg["flags"] & bit}
    for name, fmt, meaning in LAYOUT[msg["kind"]][1]:
        if name == "" or meaning == RAW:
            continue
        v = msg.get(name, b"" if "s" in fmt else 0)
        if meaning == PRICE:
            v = None if v == NONE else decimal.Decimal(v) / 10**9
        elif meaning == TEXT:
            v = v.decode("ascii") or None
        elif meaning == CHAR:
            v = chr(v) if v else None
        elif meaning == BOOL:
            v = bool(v)
        elif meaning == SETS:
            v = {n for bit, n in CONDITIONS.items() if v & bit}
        elif isinstance(meaning, dict):
            v = meaning[v]
            if v is None:
                continue
        out[name] = v
    return out


def price4(n):
    return n * 10**5


def price4_or_none(n):
    return NONE if n == 0 else price4(n)


class Decoder:
    """What a feedhandler that begins here must say.  `trading_date`: of a file without receive times."""

    def __init__(self, venue_id=1, mic=b"XNAS", trading_date=None):
        self.venue_id, self.mic, self.trading_date = venue_id, mic, trading_date
        self.orders = {}       # reference: [locate, side, price, qty, participant, priority]
        self.symbols = {}      # locate: symbol
        self.whole = False     # whether books are known from the day's beginning
        self.arrivals = 0
        self.unknown = dict.fromkeys("ECXDU", 0)
        self.unnamed = 0

    def midnight_ns(self, recv_ns):
        zone = zoneinfo.ZoneInfo("America/New_York")
        if recv_ns is None:
            day = datetime.datetime.strptime(str(self.trading_date), "%Y%m%d")
        else:
            day = datetime.datetime.fromtimestamp(recv_ns // 10**9, zone).replace(tzinfo=None)
        day = datetime.datetime(day.year, day.month, day.day, tzinfo=zone)
        return int(day.timestamp()) * 10**9, int(day.strftime("%Y%m%d"))

    def messages(self, seq, recv_ns, f):
        """The messages that one of the venue's becomes."""
        kind = f["messagetype"]
        self.midnight, self.date = self.midnight_ns(recv_ns)
        exchange = self.midnight + f["timestamp"]
        delta = 0 if recv_ns is None else recv_ns - exchange
        flags = EVENT_END
        if not -2**31 <= delta < 2**31:
            flags, delta = flags | TS_BAD, max(-2**31, min(2**31 - 1, delta))
        self.head = {"instrument_id": f["stocklocate"], "venue_id": self.venue_id, "flags": flags,
                     "exchange_ns": exchange, "exchange_seq": seq, "recv_delta_ns": delta}
        self.seq = seq
        out = []
        locate = f["stocklocate"]
        self.first = "stock" in f and locate != 0 and locate not in self.symbols
        if self.first:
            self.symbols[locate] = f["stock"]
            if kind != "R":
                out.append(self.definition(locate, action=1))
        for m in getattr(self, "on_" + kind)(f):
            # flags of a message come on top of the common ones, or go where they are negative
            more = m.get("flags", 0)
            out.append({**self.head, **m, "flags": flags | more if more >= 0 else flags & ~-more})
        return out

    def definition(self, locate, action, **more):
        return {**self.head, "kind": "InstrumentDefinition", "symbol": self.symbols[locate].encode(),
                "raw_id": locate, "mic": self.mic, "currency": b"USD", "tick_price": NONE,
                "display_factor": 10**9, "multiplier": 10**9, "strike_price": NONE, "reference_price": NONE,
                "trading_date": self.date, "action": action, **more}

    def book_bad(self):
        return 0 if self.whole else BOOK_BAD

    def priority(self):
        if self.seq != 0:
            return self.seq
        self.arrivals += 1
        return self.arrivals

    def order(self, f, kind):
        order = self.orders.get(f["orderreferencenumber"])
        if order is None or order[0] != f["stocklocate"]:
            self.unknown[kind] += 1
            return None
        return order

    def on_S(self, f):
        code = f["eventcode"]
        if code == "O":
            self.whole = True
        yield {"kind": "SessionEvent", "trading_date": self.date, "event": 1 + "OSQMEC".index(code),
               "venue_event": ord(code)}

    def on_R(self, f):
        group = f["marketcategory"] + f["issueclassification"] + f["issuesubtype"]
        debt = f["issueclassification"] in "BINQT"
        yield self.definition(
            f["stocklocate"], 1 if self.first else 2, group=group.encode(), round_lot_qty=f["roundlotsize"],
            test=int(f["authenticity"] == "T"), luld_tier=int(f["luldreferencepricetier"] or 0),
            **{"class": 2 if f["etpflag"] == "Y" else 0 if debt else 1})

    def on_V(self, f):
        for level in (1, 2, 3):
            yield {"kind": "PriceLimits", "flags": 0 if level == 3 else -EVENT_END, "reference_price": NONE,
                   "lower_price": f[f"level{level}"] * 10, "upper_price": NONE, "limit_kind": 3, "level": level}

    def on_W(self, f):
        yield {"kind": "TradingStatus", "status": 0, "scope": 1, "venue_status": ord(f["breachedlevel"]),
               "reason": b"MWC" + f["breachedlevel"].encode()}

    def on_h(self, f):
        if f["marketcode"] == "Q":
            yield {"kind": "TradingStatus", "status": {"H": 2, "T": 1}[f["operationalhaltaction"]], "scope": 2,
                   "venue_status": ord(f["operationalhaltaction"])}

    def on_K(self, f):
        locate = next(n for n, symbol in self.symbols.items() if symbol == f["stock"])
        release = f["ipoquotationreleasetime"]
        yield {"kind": "Statistic", "instrument_id": locate, "price": price4_or_none(f["ipoprice"]), "type": 8,
               "qty": self.midnight + release * 10**9 if release else 0,
               "venue_type": ord(f["ipoquotationreleasequalifier"])}

    def on_O(self, f):
        yield {"kind": "PriceLimits", "flags": -EVENT_END, "reference_price": NONE, "limit_kind": 4,
               "lower_price": price4_or_none(f["minimumallowableprice"]),
               "upper_price": price4_or_none(f["maximumallowableprice"])}
        yield {"kind": "PriceLimits", "reference_price": price4_or_none(f["nearexecutionprice"]), "limit_kind": 2,
               "lower_price": price4_or_none(f["lowerpricerangecollar"]),
               "upper_price": price4_or_none(f["upperpricerangecollar"])}

    def on_H(self, f):
        yield {"kind": "TradingStatus", "status": {"H": 2, "P": 3, "Q": 4, "T": 1}[f["tradingstate"]], "scope": 1,
               "venue_status": ord(f["tradingstate"]), "reason": f["reason"].encode()}

    def on_Y(self, f):
        yield {"kind": "ShortSaleStatus", "status": int(f["regshoaction"]), "venue_status": ord(f["regshoaction"])}

    def on_L(self, f):
        yield {"kind": "ParticipantStatus", "participant": f["mpid"].encode(),
               "primary": int(f["primarymarketmaker"] == "Y"), "mode": ord(f["marketmakermode"]),
               "state": ord(f["marketparticipantstate"])}

    def on_J(self, f):
        yield {"kind": "PriceLimits", "reference_price": price4_or_none(f["auctioncollarreferenceprice"]),
               "lower_price": price4_or_none(f["lowerauctioncollarprice"]),
               "upper_price": price4_or_none(f["upperauctioncollarprice"]), "limit_kind": 2,
               "extension": f["auctioncollarextension"]}

    def on_A(self, f):
        side = {"B": 1, "S": 2}[f["buysellindicator"]]
        mpid = f.get("attribution", "").encode()
        order = [f["stocklocate"], side, f["price"], f["shares"], mpid, self.priority()]
        self.orders[f["orderreferencenumber"]] = order
        yield {"kind": "OrderAdd", "flags": self.book_bad(), "order_id": f["orderreferencenumber"],
               "price": price4(f["price"]), "qty": f["shares"], "priority": order[5], "participant": mpid,
               "side": side}

    on_F = on_A

    def execution(self, f, kind, price, printable, raw):
        order = self.order(f, kind)
        flags = (PRINTABLE if printable else 0) | (BOOK_BAD if order is None else self.book_bad())
        m = {"kind": "OrderExecute", "flags": flags, "order_id": f["orderreferencenumber"],
             "qty": f["executedshares"], "match_id": f["matchnumber"], "price": price, "venue_conditions": raw}
        if order is None:
            self.unnamed += f["stocklocate"] not in self.symbols
            yield m
            return
        order[3] -= f["executedshares"]
        if order[3] == 0:
            del self.orders[f["orderreferencenumber"]]
        yield {**m, "price": price4(order[2]) if price == NONE else price, "remaining_qty": order[3],
               "side": order[1], "aggressor": 3 - order[1] if printable else 0}

    def on_E(self, f):
        return self.execution(f, "E", NONE, True, b"")

    def on_C(self, f):
        return self.execution(f, "C", price4(f["executionprice"]), f["printable"] == "Y",
                              f["printable"].encode())

    def on_X(self, f):
        order = self.order(f, "X")
        if order is None:
            return
        order[3] -= f["canceledshares"]
        if order[3] == 0:
            yield from self.gone(f["orderreferencenumber"], order)
            return
        yield {"kind": "OrderModify", "flags": self.book_bad(), "order_id": f["orderreferencenumber"],
               "price": price4(order[2]), "qty": order[3], "priority": order[5], "side": order[1],
               "keeps_priority": 1}

    def gone(self, ref, order):
        del self.orders[ref]
        yield {"kind": "OrderDelete", "flags": self.book_bad(), "order_id": ref, "side": order[1]}

    def on_D(self, f):
        order = self.order(f, "D")
        if order is not None:
            yield from self.gone(f["orderreferencenumber"], order)

    def on_U(self, f):
        f = {**f, "orderreferencenumber": f["originalorderreferencenumber"]}
        order = self.order(f, "U")
        if order is None:
            return
        del self.orders[f["orderreferencenumber"]]
        order[2], order[3], order[5] = f["price"], f["shares"], self.priority()
        self.orders[f["neworderreferencenumber"]] = order
        yield {"kind": "OrderReplace", "flags": self.book_bad(), "order_id": f["orderreferencenumber"],
               "new_order_id": f["neworderreferencenumber"], "price": price4(f["price"]), "qty": f["shares"],
               "priority": order[5], "participant": order[4], "side": order[1]}

    def on_P(self, f):
        yield {"kind": "Trade", "flags": PRINTABLE, "price": price4(f["price"]), "qty": f["shares"],
               "match_id": f["matchnumber"]}

    def on_Q(self, f):
        yield {"kind": "Trade", "flags": PRINTABLE if f["crossshares"] else 0,
               "price": price4_or_none(f["crossprice"]), "qty": f["crossshares"], "match_id": f["matchnumber"],
               "conditions": {"O": 0x8, "C": 0x10, "H": 0x20, "I": 0x800}[f["crosstype"]],
               "venue_conditions": f["crosstype"].encode()}

    def on_B(self, f):
        self.unnamed += f["stocklocate"] not in self.symbols
        yield {"kind": "TradeCancel", "price": NONE, "match_id": f["matchnumber"]}

    def on_I(self, f):
        yield {"kind": "AuctionImbalance", "paired_qty": f["pairedshares"], "imbalance_qty": f["imbalanceshares"],
               "reference_price": price4_or_none(f["currentreferenceprice"]),
               "near_price": price4_or_none(f["nearprice"]), "far_price": price4_or_none(f["farprice"]),
               "collar_reference_price": NONE, "lower_collar_price": NONE, "upper_collar_price": NONE,
               "auction": {"O": 1, "C": 2, "H": 4, "A": 0}[f["crosstype"]],
               "side": {"B": 1, "S": 2}.get(f["imbalancedirection"], 0), "venue_auction": ord(f["crosstype"]),
               "variation": ord(f["pricevariationindicator"] or " ")}

    def on_N(self, f):
        yield {"kind": "Statistic", "price": NONE, "qty": {"N": 0, "B": 1, "S": 2, "A": 3}[f["interestflag"]],
               "type": 9, "venue_type": ord(f["interestflag"])}


def decode(records, decoder):
    """The messages of (number, receive time, message) records."""
    for seq, recv_ns, raw in records:
        yield from decoder.messages(seq, recv_ns, fields(raw))


def fnv1a(images):
    """64-bit FNV-1a over the bytes of all messages, one after the other."""
    h = 0xCBF29CE484222325
    for data in images:
        for byte in data:
            h = (h ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return h
