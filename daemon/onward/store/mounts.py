"""Which kind of file system a path lies on."""

from pathlib import Path

_NETWORK = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "ceph", "glusterfs", "lustre", "afs", "ocfs2", "gfs2"}
)


def network_file_system(path: Path, mountinfo: Path = Path("/proc/self/mountinfo")) -> str | None:
    """Return the name of the network or FUSE file system that `path` lies on, or None for a local one."""
    kind = kind_of(str(path.resolve()), mountinfo.read_text())
    return kind if kind in _NETWORK or kind.startswith("fuse") else None


def kind_of(path: str, mountinfo: str) -> str:
    """Return the file system type of an absolute path, by the text of /proc/self/mountinfo (proc(5)). Pure."""
    best, kind = -1, ""
    for line in mountinfo.splitlines():
        left, _, right = line.partition(" - ")
        point = left.split(" ")[4].encode().decode("unicode_escape")
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= best:
            best, kind = len(point), right.split(" ")[0]
    return kind
