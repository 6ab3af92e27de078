"""The archive from which a virtual machine's kernel boots."""

from pathlib import Path

from devcluster.realnode import initramfs

_NEEDED = {
    "virtio_pci": "virtio",
    "virtio": "",
    "virtio_net": "virtio",
    "virtio-rng": "virtio",
    "9pnet": "",
    "9pnet_virtio": "virtio,9pnet",
    "9p": "9pnet",
    "overlay": "",
    "llc": "",
    "bridge": "llc",
    "veth": "",
    "loop": "",
    "crc32c_generic": "",
    "jbd2": "",
    "ext4": "jbd2",
}
"""Module -> the modules on which it depends."""


def unpacked(archive: bytes) -> dict[str, tuple[int, bytes]]:
    """Return the entries of an archive of the format newc: path -> mode, content."""
    entries: dict[str, tuple[int, bytes]] = {}
    place = 0
    while True:
        assert archive[place : place + 6] == b"070701"
        fields = [
            int(archive[place + 6 + 8 * field : place + 14 + 8 * field], 16) for field in range(13)
        ]
        mode, size, name_size = fields[1], fields[6], fields[11]
        name = archive[place + 110 : place + 110 + name_size - 1].decode()
        place += (110 + name_size + 3) // 4 * 4
        if name == "TRAILER!!!":
            return entries
        entries[name] = mode, archive[place : place + size]
        place += (size + 3) // 4 * 4


def test_modules_follow_the_modules_that_they_require(tmp_path: Path) -> None:
    modules = tmp_path / "kernel"
    modules.mkdir()
    for name, needed in _NEEDED.items():
        (modules / f"{name}.ko").write_bytes(b"elf\0depends=" + needed.encode() + b"\0name=x\0")
    busybox = tmp_path / "busybox"
    busybox.write_bytes(b"program")

    entries = unpacked(initramfs.make(busybox, modules, "/boot.sh '/a b'"))

    order = [path.partition("-")[2] for path in sorted(entries) if path.startswith("modules/")]
    places = {name.removesuffix(".ko"): place for place, name in enumerate(order)}
    assert places.keys() == _NEEDED.keys()
    for name, needed in _NEEDED.items():
        assert all(places[each] < places[name] for each in needed.split(",") if each)
    assert entries["bin/busybox"] == (0o100755, b"program")
    assert entries["bin/sh"] == (0o120777, b"busybox")
    mode, init = entries["init"]
    assert mode == 0o100755
    assert init.endswith(b"exec $b switch_root /root /bin/sh /boot.sh '/a b'\n")
