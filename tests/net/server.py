"""What stands on the other side of a test's links: a DHCP server on each and a metadata service, scripted, with faults.

    server.py LOG

The first line of its input is JSON: {"dhcp": {link: {…}}, "ra": {link: prefix or {prefix, dns}}, "dns": {name: address}, "http": {…},
"cable": [link, …]}. On the links of "cable" frames leave whole: no checksum is left to an offload, which a virtual
machine's NIC does not have. Each DHCP message, DNS question and HTTP request becomes a line of JSON in LOG. Prints
"ready" once everything listens.
"""

import array
import base64
import fcntl
import json
import socket
import struct
import sys
import threading
import time

LOCK = threading.Lock()


class Log:
    def __init__(self, path):
        self.file = open(path, "w", buffering=1)

    def say(self, **what):
        with LOCK:
            self.file.write(json.dumps(dict(what, time=time.monotonic())) + "\n")


def checksum(data):
    data += b"\0" * (len(data) % 2)
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total > 0xFFFF:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def whole_frames(link):
    """Switches the link's checksum offload off, and with it what depends on it: segmentation."""
    siocethtool, ethtool_stxcsum = 0x8946, 0x17
    value = array.array("I", [ethtool_stxcsum, 0])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, siocethtool, struct.pack("16sP16x", link.encode(), value.buffer_info()[0]))


class Dhcp(threading.Thread):
    """A DHCP server on one link. Script (all optional): address (a `*` in it is the last byte of the client's MAC address), prefix,
    server, options {code: hex}, and faults:
    silent, drop (how many messages are ignored), nak (how many requests are refused; -1: all), rapid, delay (seconds),
    garbage (answers that no DHCP message is), wrong_xid, wrong_mac (answers to another machine), long (options split in two)."""

    def __init__(self, link, script, log, cable=False):
        super().__init__(daemon=True)
        self.link, self.script, self.log, self.cable = link, script, log, cable
        self.drop, self.nak = script.get("drop", 0), script.get("nak", 0)
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0800))
        self.socket.bind((link, 0x0800))

    def run(self):
        while True:
            try:
                frame = self.socket.recv(2048)
            except OSError:
                # The link is down for now.
                time.sleep(0.05)
                continue
            ip = frame[14:]
            if len(ip) < 28 or ip[9] != 17:
                continue
            udp = ip[(ip[0] & 15) * 4:]
            if struct.unpack("!HH", udp[:4]) != (68, 67):
                continue
            self.answer(frame[6:12], udp[8:])

    def answer(self, mac, message):
        options, at = {}, 240
        while at < len(message) and message[at] != 255:
            if message[at] == 0:
                at += 1
                continue
            code, length = message[at], message[at + 1]
            options[code] = message[at + 2:at + 2 + length]
            at += 2 + length
        kind = options[53][0]
        self.log.say(dhcp=self.link, kind=kind, secs=struct.unpack("!H", message[8:10])[0],
                     xid=message[4:8].hex(), parameters=list(options.get(55, b"")))
        if self.script.get("silent"):
            return
        if self.drop > 0:
            self.drop -= 1
            return
        if kind == 1:
            rapid = self.script.get("rapid") and 80 in options
            self.reply(mac, message, 5 if rapid else 2, rapid)
        elif kind == 3:
            if self.nak:
                self.nak -= 1
                self.reply(mac, message, 6, False)
            else:
                self.reply(mac, message, 5, False)

    def reply(self, mac, message, kind, rapid):
        script = self.script
        xid = b"\xde\xad\xbe\xef" if script.get("wrong_xid") else message[4:8]
        address = b"\0" * 4 if kind == 6 else socket.inet_aton(script["address"].replace("*", str(mac[5])))
        server = socket.inet_aton(script.get("server", "10.0.0.1"))
        mask = (0xFFFFFFFF << (32 - script.get("prefix", 24))) & 0xFFFFFFFF
        options = [(53, bytes([kind])), (54, server)]
        if kind != 6:
            options += [(51, struct.pack("!I", 3600)), (1, struct.pack("!I", mask))]
            options += [(int(code), bytes.fromhex(value)) for code, value in script.get("options", {}).items()]
        if rapid:
            options.append((80, b""))
        body = struct.pack("!BBBB4sHH4s4s4s4s16s192x", 2, 1, 6, 0, xid, 0, 0x8000, b"\0" * 4, address, server,
                           b"\0" * 4, (bytes(6) if script.get("wrong_mac") else mac) + b"\0" * 10)
        body += bytes([99, 130, 83, 99])
        for code, value in options:
            parts = [value[:len(value) // 2], value[len(value) // 2:]] if script.get("long") and len(value) > 8 else [value]
            for part in parts:
                body += bytes([code, len(part)]) + part
        body += b"\xff"
        if script.get("garbage"):
            body = bytes((b * 7 + 13) & 255 for b in body)
        # Within a machine the checksum is left partial, as offload leaves it.
        udp = struct.pack("!HHHH", 67, 68, 8 + len(body), 0 if self.cable else 0xABCD) + body
        if self.cable:
            pseudo = server + b"\xff" * 4 + struct.pack("!HH", 17, len(udp))
            udp = udp[:6] + struct.pack("!H", checksum(pseudo + udp) or 0xFFFF) + udp[8:]
        ip = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(udp), 0, 0, 64, 17, 0, server, b"\xff" * 4)
        ip = ip[:10] + struct.pack("!H", checksum(ip)) + ip[12:]
        mine = self.socket.getsockname()[4]
        frame = b"\xff" * 6 + mine + b"\x08\x00" + ip + udp
        delay = script.get("delay", 0)
        threading.Timer(delay, self.socket.send, [frame]).start() if delay else self.socket.send(frame)


class Dns(threading.Thread):
    """Answers A and AAAA questions from a table of one address for each name; everything else has no such name."""

    def __init__(self, table, log):
        super().__init__(daemon=True)
        self.table, self.log = table, log
        self.socket = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
        self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        self.socket.bind(("::", 53))

    def run(self):
        while True:
            message, peer = self.socket.recvfrom(1500)
            labels, at = [], 12
            while message[at]:
                labels.append(message[at + 1:at + 1 + message[at]].decode())
                at += 1 + message[at]
            kind = struct.unpack("!H", message[at + 1:at + 3])[0]
            name = ".".join(labels)
            self.log.say(dns=name, kind=kind)
            address = self.table.get(name)
            known = address is not None
            answer = b""
            if known and kind == (28 if ":" in address else 1):
                data = socket.inet_pton(socket.AF_INET6 if kind == 28 else socket.AF_INET, address)
                answer = b"\xc0\x0c" + struct.pack("!HHIH", kind, 1, 60, len(data)) + data
            flags = 0x8180 if known else 0x8183
            head = message[:2] + struct.pack("!HHHHH", flags, 1, 1 if answer else 0, 0, 0)
            self.socket.sendto(head + message[12:at + 5] + answer, peer)


class Router(threading.Thread):
    """Answers each router solicitation on a link with an advertisement of itself and of a /64 (RFC 4861), and where the script
    has {"prefix": …, "dns": address} of a name server (RFC 8106)."""

    def __init__(self, link, script, log):
        super().__init__(daemon=True)
        script = script if isinstance(script, dict) else {"prefix": script}
        self.link, self.prefix, self.dns, self.log = link, script["prefix"], script.get("dns"), log
        self.socket = socket.socket(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_ICMPV6)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, link.encode())
        self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_HOPS, 255)
        index = socket.if_nametoindex(link)
        group = socket.inet_pton(socket.AF_INET6, "ff02::2") + struct.pack("@I", index)
        self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, group)
        self.index = index

    def run(self):
        while True:
            message, _ = self.socket.recvfrom(1500)
            if message[:1] != b"\x85":
                continue
            self.log.say(solicited=self.link)
            advert = struct.pack("!BBHBBHII", 134, 0, 0, 64, 0, 1800, 0, 0)
            advert += struct.pack("!BBBBIII", 3, 4, 64, 0xC0, 3600, 3600, 0) + socket.inet_pton(socket.AF_INET6, self.prefix)
            if self.dns:
                advert += struct.pack("!BBHI", 25, 3, 0, 600) + socket.inet_pton(socket.AF_INET6, self.dns)
            try:
                self.socket.sendto(advert, ("ff02::1", 0, 0, self.index))
            except OSError as error:
                # The link's own address is not settled yet. The host asks again.
                self.log.say(unsent=str(error))


class Http:
    """Script: port or ports, docs {path: text or {"base64": …} or {"status": n, "method": …}}, token (IMDSv2 is required), and faults:
    {"fault": name, "path": substring or absent for all, "times": how often, -1 for ever}, of which `slow` has "seconds" and is answered
    after them; rate [n, seconds]: more requests than n in
    that time get 429, or the status of `shed` {"status": n, "headers": {…}}; down [from, until]: between these seconds after the first
    request nothing listens."""

    def __init__(self, script, log):
        self.script, self.log = script, log
        self.faults = [dict(f) for f in script.get("faults", [])]
        self.token, self.recent, self.first, self.connections = None, [], threading.Event(), set()
        self.wrap = lambda connection: connection

    def serve(self, listener, port):
        if "down" in self.script:
            threading.Thread(target=self.restart, args=(listener, port), daemon=True).start()
        while True:
            try:
                connection, peer = listener.accept()
            except OSError:
                # Shut down: `restart` listens again.
                return
            threading.Thread(target=self.connection, args=(connection, peer), daemon=True).start()

    def restart(self, listener, port):
        self.first.wait()
        start, end = self.script.pop("down")
        time.sleep(start)
        for open_socket in [listener, *self.connections]:
            open_socket.shutdown(socket.SHUT_RDWR)
        listener.close()
        self.log.say(down=port)
        time.sleep(end - start)
        self.serve(listen(port), port)

    def connection(self, connection, peer):
        try:
            connection = self.wrap(connection)
            stream = connection.makefile("rb")
            self.connections.add(connection)
            self.log.say(connected=peer[0])
            while self.request(connection, stream, peer):
                pass
        except OSError:
            pass
        finally:
            self.connections.discard(connection)
            connection.close()

    def fault(self, path):
        with LOCK:
            for fault in self.faults:
                if fault.get("path", "") in path and fault.get("times", -1) != 0:
                    fault["times"] = fault.get("times", -1) - 1
                    return fault
        return None

    def limited(self):
        if "rate" not in self.script:
            return None
        most, seconds = self.script["rate"]
        with LOCK:
            now = time.monotonic()
            self.recent = [t for t in self.recent if now - t < seconds]
            if len(self.recent) >= most:
                return {"fault": "status", **self.script.get("shed", {"status": 429})}
            self.recent.append(now)
        return None

    def request(self, connection, stream, peer):
        line = stream.readline(8192).decode("latin-1").split()
        if len(line) < 3:
            return False
        method, path = line[:2]
        headers = {}
        while (header := stream.readline(8192).strip()):
            key, _, value = header.decode("latin-1").partition(":")
            headers[key.lower()] = value.strip()
        body = stream.read(int(headers.get("content-length", 0)))
        self.log.say(http=method, path=path, peer=peer[0], port=peer[1], headers=headers)
        self.first.set()
        fault = self.limited() or self.fault(path)
        if fault and fault["fault"] == "slow":
            time.sleep(fault["seconds"])
            fault = None
        if fault and not self.broken(connection, fault):
            return False
        status, answer, extra = (fault["status"], b"", fault.get("headers", {})) if fault else \
            self.document(method, path, headers)
        head = f"HTTP/1.1 {status} Whatever\r\nContent-Length: {len(answer)}\r\n"
        head += "".join(f"{k}: {v}\r\n" for k, v in extra.items())
        connection.sendall(head.encode() + b"\r\n" + answer)
        return True

    def broken(self, connection, fault):
        """Plays a fault; True if the connection is still good and an answer with the fault's status is due."""
        name = fault["fault"]
        if name == "status":
            return True
        if name == "silent":
            time.sleep(3600)
        elif name == "reset":
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        elif name == "half":
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{\"uuid\": ")
        elif name == "drip":
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
            for _ in range(100000):
                connection.sendall(b"x")
                time.sleep(0.2)
        elif name == "garbage":
            connection.sendall(b"\x16\x03\x01\x02\x00nonsense\r\n\r\n" * 10)
        elif name == "headers":
            for _ in range(100000):
                connection.sendall(b"HTTP/1.1 200 OK\r\n" + b"X-Long: " + b"y" * 4096 + b"\r\n")
        elif name == "huge":
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 10737418240\r\n\r\n")
            for _ in range(10240):
                connection.sendall(b"#" * (1 << 20))
        elif name == "endless":
            connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            chunk = b"100000\r\n" + b"#" * (1 << 20) + b"\r\n"
            for _ in range(10240):
                connection.sendall(chunk)
        return False

    def document(self, method, path, headers):
        if self.script.get("token"):
            if method == "PUT" and path == "/latest/api/token":
                if not headers.get("x-aws-ec2-metadata-token-ttl-seconds"):
                    return 400, b"", {}
                self.token = f"token-{time.monotonic_ns()}"
                return 200, self.token.encode(), {}
            if self.token is None or headers.get("x-aws-ec2-metadata-token") != self.token:
                return 401, b"", {}
        document = self.script.get("docs", {}).get(path)
        wanted = document.get("method", "GET") if isinstance(document, dict) else "GET"
        if document is None or method != wanted:
            return 404, b"no such thing", {}
        if isinstance(document, dict) and "base64" in document:
            return 200, base64.b64decode(document["base64"]), {}
        if isinstance(document, dict):
            return document["status"], document.get("body", "").encode(), document.get("headers", {})
        return 200, document.encode(), {"Content-Type": self.script.get("type", "text/plain")}


def listen(port):
    listener = socket.socket(socket.AF_INET6, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    listener.bind(("::", port))
    listener.listen(256)
    return listener


def main():
    config, log = json.loads(sys.stdin.readline()), Log(sys.argv[1])
    cable = config.get("cable", ())
    for link in cable:
        whole_frames(link)
    for link, script in config.get("dhcp", {}).items():
        Dhcp(link, script, log, link in cable).start()
    for link, script in config.get("ra", {}).items():
        Router(link, script, log).start()
    if config.get("dns"):
        Dns(config["dns"], log).start()
    if config.get("http") is not None:
        http = Http(config["http"], log)
        if config["http"].get("tls"):
            import ssl
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(config["http"]["tls"] + "/server.pem", config["http"]["tls"] + "/server.key")
            http.wrap = lambda connection: context.wrap_socket(connection, server_side=True)
        for port in config["http"].get("ports", [config["http"].get("port", 80)]):
            threading.Thread(target=http.serve, args=(listen(port), port), daemon=True).start()
    print("ready", flush=True)
    # Whoever started it ends it by closing its input.
    sys.stdin.read()


main()
