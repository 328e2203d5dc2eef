"""Links of some length: what comes in at one end leaves at the other after a delay.

    wire.py SECONDS END END [END END]…

An END is an interface, or socket:FD:VLAN, an inherited datagram socket that has a frame in each datagram, as a virtual
machine's NIC has; with a VLAN other than 0 its frames carry that tag, and it is taken off here. Whole frames both ways
between each two ends; between interfaces with their offload marks. Prints "ready"; ends with its input.
"""

import queue
import socket
import struct
import sys
import threading
import time

SOL_PACKET, PACKET_VNET_HDR, PACKET_IGNORE_OUTGOING = 263, 15, 23
#: The offload marks in front of an interface's frame (struct virtio_net_hdr): none.
NO_MARKS = bytes(10)


class Interface:
    def __init__(self, link):
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
        self.socket.setsockopt(SOL_PACKET, PACKET_VNET_HDR, 1)
        self.socket.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
        self.socket.bind((link, 3))

    def receive(self):
        return self.socket.recv(1 << 17)

    def send(self, frame):
        self.socket.send(frame)


class Nic:
    """A virtual machine's. What it does not take within a second is lost."""

    def __init__(self, fd, vlan):
        self.socket = socket.socket(fileno=fd)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", 1, 0))
        self.tag = struct.pack("!HH", 0x8100, vlan) if vlan else b""

    def receive(self):
        while True:
            frame = self.socket.recv(1 << 16)
            head, rest = frame[:12], frame[12:]
            if rest.startswith(self.tag):
                return NO_MARKS + head + rest[len(self.tag):]

    def send(self, frame):
        if frame[0] & 1:
            raise ValueError("a frame whose checksum is left to the wire: the sender has to compute it (server.py, cable)")
        frame = frame[len(NO_MARKS):]
        self.socket.send(frame[:12] + self.tag + frame[12:])


def end(name):
    if name.startswith("socket:"):
        _, fd, vlan = name.split(":")
        return Nic(int(fd), int(vlan))
    return Interface(name)


def carry(source, sink, delay):
    frames = queue.Queue()

    def deliver():
        while True:
            due, frame = frames.get()
            time.sleep(max(0, due - time.monotonic()))
            try:
                sink.send(frame)
            except OSError:
                pass  # The other end is down: the frame is lost, as on a wire.

    threading.Thread(target=deliver, daemon=True).start()
    while True:
        try:
            frame = source.receive()
        except OSError:
            time.sleep(0.01)
            continue
        frames.put((time.monotonic() + delay, frame))


def main():
    delay, ends = float(sys.argv[1]), sys.argv[2:]
    for one, other in zip(ends[::2], ends[1::2]):
        one, other = end(one), end(other)
        for pair in ((one, other), (other, one)):
            threading.Thread(target=carry, args=(*pair, delay), daemon=True).start()
    print("ready", flush=True)
    sys.stdin.read()


main()
