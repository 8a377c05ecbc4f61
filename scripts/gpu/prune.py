"""prune.py TREE: makes the installed vLLM and NIXL in TREE small.

vLLM's two kernel libraries have an image of each kernel for each GPU. Those that compute capability 9.0
does not pick become zeros, which compress to nothing; their headers stay, so that the driver still finds
its way. Of NIXL stays what its UCX backend loads.
"""
import glob
import os
import re
import struct
import subprocess
import sys

FATBIN = 0xBA55ED50  # the magic number of a container of images
MACHINE_CODE, SM_90 = 2, 90  # an image's kind, and the architecture of sm_90 and sm_90a


def sections(data):
    """Name, offset and size of each section of an ELF64 file."""
    table, = struct.unpack_from("<Q", data, 0x28)
    entry, count, names = struct.unpack_from("<HHH", data, 0x3A)
    heads = [struct.unpack_from("<IIQQQQ", data, table + i * entry) for i in range(count)]
    for h in heads:
        at = heads[names][4] + h[0]
        yield bytes(data[at:data.index(0, at)]), h[4], h[5]


def clear_images(data, at, end):
    """Zeroes the images between at and end, which is one container after the other; returns bytes kept and zeroed."""
    kept = zeroed = 0
    while at < end - 16:
        if struct.unpack_from("<I", data, at)[0] != FATBIN:
            at += 8
            continue
        head, length = struct.unpack_from("<HQ", data, at + 6)
        image, at = at + head, at + head + length
        while image < at:
            kind, _, head, n = struct.unpack_from("<HHIQ", data, image)
            arch, = struct.unpack_from("<I", data, image + 28)
            image += head
            if (kind, arch) == (MACHINE_CODE, SM_90):
                kept += n
            else:
                data[image:image + n] = bytes(n)
                zeroed += n
            image += n
        if image != at:
            raise SystemExit(f"prune: a container ends at {at:#x}, its images at {image:#x}")
    return kept, zeroed


def prune_kernels(path):
    with open(path, "rb") as f:
        data = bytearray(f.read())
    kept = zeroed = 0
    for name, at, size in sections(data):
        if name == b".nv_fatbin":
            k, z = clear_images(data, at, at + size)
            kept, zeroed = kept + k, zeroed + z
    if not kept:
        raise SystemExit(f"prune: {path} has no image for sm_90")
    with open(path, "wb") as f:
        f.write(data)
    print(f"prune: {os.path.basename(path)}: kept {kept / 1e6:.1f} MB, zeroed {zeroed / 1e6:.1f} MB")


def needed(path):
    out = subprocess.run(["readelf", "-d", path], capture_output=True, text=True, check=True).stdout
    return re.findall(r"NEEDED.*\[(.*)\]", out)


def prune_nixl():
    own, libs = ".nixl_cu13.mesonpy.libs", "nixl_cu13.libs"
    others = [p for d in (own + "/plugins", libs + "/nixl") for p in glob.glob(d + "/*") if not p.endswith("/libplugin_UCX.so")]
    for path in others + glob.glob(libs + "/ucx/libucx_perftest*"):
        os.remove(path)
    todo = [p for g in ("nixl_cu13/*.so", libs + "/nixl/*.so", own + "/plugins/*.so", libs + "/ucx/*.so.0") for p in glob.glob(g)]
    used = set()
    while todo:
        new = {p for n in needed(todo.pop()) for p in (f"{own}/{n}", f"{libs}/{n}") if os.path.isfile(p)} - used
        used |= new
        todo += new
    for path in glob.glob(own + "/*.so*") + glob.glob(libs + "/*.so*"):
        if os.path.isfile(path) and path not in used:
            os.remove(path)
    # Each module of UCX is there under three names.
    for path in glob.glob(libs + "/ucx/*.so.0"):
        for copy in (path[:-2], path + ".0.0"):
            if os.path.exists(copy):
                os.remove(copy)
                os.symlink(os.path.basename(path), copy)


os.chdir(sys.argv[1])
prune_kernels("vllm/_C_stable_libtorch.abi3.so")
prune_kernels("vllm/_moe_C_stable_libtorch.abi3.so")
prune_nixl()
