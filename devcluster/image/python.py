"""The Python in the files of an image: finds it, makes a virtual environment, compiles modules."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from devcluster.errors import BuildError

HOME: Final = "opt/bindery"
"""The virtual environment, relative to the root of the image."""
_PROGRAM: Final = re.compile(r"python(3\.\d+)")
_SCRIPT: Final = f"""#!/{HOME}/bin/python3
from bindery.cli.main import main

main()
"""


class Python:
    """The Python of an image whose files are below a directory."""

    def __init__(self, root: Path) -> None:
        """Find the Python below `root`.

        Raises:
            BuildError: there is none.
        """
        self._root = root
        found = [
            (path, name[1])
            for directory in ("usr/local/bin", "usr/bin")
            for path in sorted((root / directory).glob("python3.*"))
            if (name := _PROGRAM.fullmatch(path.name))
        ]
        if not found:
            raise BuildError("the base of the image has no Python 3 in /usr/bin or /usr/local/bin")
        program, self.version = found[0]
        self._prefix = program.parent.parent
        self._program = program
        self.library = f"{self._prefix.relative_to(root)}/lib/python{self.version}"
        """The standard library."""
        self.packages = f"{HOME}/lib/python{self.version}/site-packages"
        """The packages of the virtual environment."""

    def make_environment(self) -> None:
        """Make the virtual environment, without packages, and the command `bindery`."""
        home = self._root / HOME
        (home / "bin").mkdir(parents=True)
        program = self._program.relative_to(self._root)
        (home / "bin/python3").symlink_to(f"/{program}")
        (home / "bin/bindery").write_text(_SCRIPT, encoding="utf-8")
        (home / "bin/bindery").chmod(0o755)
        settings = f"home = /{program.parent}\ninclude-system-site-packages = false\n"
        (home / "pyvenv.cfg").write_text(settings, encoding="utf-8")
        (self._root / self.packages).mkdir(parents=True)

    def compile(self, directory: str, below: Path, besides: str = "") -> None:
        """Compile the modules of a directory, relative to the root of the image.

        `below`: where the directory is on this machine. `besides`: a regular expression of paths
        that are left out.

        The modules have unchecked hashes, so they are valid whatever the times of files are. One
        process compiles in the order of names, because the bytes depend on the modules compiled
        before.

        Raises:
            BuildError: a module cannot be compiled.
        """
        modes = ["-q", "-f", "--invalidation-mode=unchecked-hash", "-s", str(below), "-p", "/"]
        skipped = ["-x", besides] if besides else []
        result = subprocess.run(  # noqa: S603  the image's own Python
            [*self._command(), "-m", "compileall", *modes, *skipped, str(below / directory)],
            env={
                "PYTHONHOME": str(self._prefix),
                "PYTHONHASHSEED": "0",
                # The modules that the compiler imports are compiled like the others.
                "PYTHONDONTWRITEBYTECODE": "1",
                "LC_ALL": "C.UTF-8",
            },
            capture_output=True,
            text=True,
            check=False,
        )
        if result.returncode != 0:
            raise BuildError(f"{directory} cannot be compiled: {result.stdout}{result.stderr}")

    def _command(self) -> Iterator[str]:
        """Yield the program with the loader and the libraries of the image."""
        libraries = [
            str(self._root / name)
            for name in ("usr/local/lib", "usr/lib", "lib")
            if (self._root / name).is_dir()
        ]
        loaders = [
            path for top in libraries for path in sorted(Path(top).glob("*/ld-linux-*.so.*"))
        ]
        if not loaders:
            raise BuildError("the base of the image is not of Debian's kind: it has no loader")
        paths = [*libraries, str(loaders[0].parent)]
        yield from (str(loaders[0]), "--library-path", ":".join(paths), str(self._program), "-S")
