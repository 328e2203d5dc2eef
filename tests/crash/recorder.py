"""A disk that records what is written to it: a file of FUSE (linux/fuse.h) below a loop device. A flush of the device is an fsync
of the file. Nothing is cached in between."""

import ctypes
import errno
import os
import struct
import subprocess
import threading

LIBC = ctypes.CDLL(None, use_errno=True)
GETATTR, SETATTR, OPEN, READ, WRITE, RELEASE, FSYNC, FLUSH, INIT, INTERRUPT, FORGET, BATCH_FORGET = 3, 4, 14, 15, 16, 18, 20, 25, 26, 36, 2, 42
HEADER = struct.Struct("<IIQQIIII")
LARGEST = 1 << 20
# What the file and its answers are good for: an hour, which is longer than any case.
VALID = 3600
DIRECT_IO = 1
BIG_WRITES, MAX_PAGES = 1 << 5, 1 << 22


class Recorder:
    """`content`: the disk's bytes. `log`: a pair of offset and bytes for each write, None for each flush."""

    def __init__(self, content, point):
        self.content, self.point, self.log = content, point, []
        with open(point, "w", encoding="utf-8"):
            pass
        self.fuse = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
        options = f"fd={self.fuse},rootmode=100600,user_id=0,group_id=0".encode()
        if LIBC.mount(b"recorder", point.encode(), b"fuse", 0, options) != 0:
            raise OSError(ctypes.get_errno(), "failed to mount FUSE")
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()
        made = subprocess.run(["losetup", "--show", "-f", point], capture_output=True, text=True, check=False)
        if made.returncode != 0:
            LIBC.umount2(point.encode(), 2)
            raise OSError(errno.EIO, f"losetup: {made.stderr.strip()}")
        self.device = made.stdout.strip()

    def close(self):
        subprocess.run(["losetup", "-d", self.device], check=True)
        LIBC.umount2(self.point.encode(), 2)
        self.thread.join(10)
        os.close(self.fuse)

    def attributes(self):
        size = len(self.content)
        return struct.pack("<QII", VALID, 0, 0) + struct.pack("<QQQQQQIIIIIIIIII", 1, size, size // 512, 0, 0, 0, 0, 0, 0,
                                                              0o100600, 1, 0, 0, 0, 4096, 0)

    def answer(self, opcode, body):
        """The answer to a request: bytes, or an error's number."""
        if opcode == INIT:
            major, minor = struct.unpack_from("<II", body)
            return struct.pack("<IIIIHHIIHH", 7, min(minor, 31), 65536, BIG_WRITES | MAX_PAGES, 16, 12, LARGEST, 1, LARGEST // 4096, 0) + bytes(32)
        if opcode in (GETATTR, SETATTR):
            return self.attributes()
        if opcode == OPEN:
            return struct.pack("<QII", 1, DIRECT_IO, 0)
        if opcode == READ:
            _, offset, size = struct.unpack_from("<QQI", body)
            return bytes(self.content[offset:offset + size])
        if opcode == WRITE:
            _, offset, size = struct.unpack_from("<QQI", body)
            data = body[40:40 + size]
            self.content[offset:offset + size] = data
            self.log.append((offset, data))
            return struct.pack("<II", size, 0)
        if opcode == FSYNC:
            self.log.append(None)
            return b""
        return b"" if opcode in (RELEASE, FLUSH) else errno.ENOSYS

    def serve(self):
        while True:
            try:
                request = os.read(self.fuse, LARGEST + 4096)
            except OSError as e:
                if e.errno in (errno.EINTR, errno.ENOENT, errno.EAGAIN):
                    continue
                return
            _, opcode, unique, *_ = HEADER.unpack_from(request)
            if opcode in (FORGET, BATCH_FORGET, INTERRUPT):
                continue
            answer = self.answer(opcode, request[HEADER.size:])
            error, payload = (-answer, b"") if isinstance(answer, int) else (0, answer)
            try:
                os.write(self.fuse, struct.pack("<IiQ", 16 + len(payload), error, unique) + payload)
            except OSError:
                pass
