"""Links of some length: what comes in at one end leaves at the other after a delay.

    wire.py SECONDS END END [END END]…

Whole frames between each pair of interfaces, both ways, with their offload marks. Prints "ready"; ends with its input.
"""

import queue
import socket
import sys
import threading
import time

SOL_PACKET, PACKET_VNET_HDR, PACKET_IGNORE_OUTGOING = 263, 15, 23


def end(link):
    both = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    both.setsockopt(SOL_PACKET, PACKET_VNET_HDR, 1)
    both.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
    both.bind((link, 3))
    return both


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
            frame = source.recv(1 << 17)
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
