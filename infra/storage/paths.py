"""Where tables lie: a folder of this machine, or a prefix in a bucket of an object store (S3 API).

Both answer to the methods of `pathlib`; what a bucket does in another way, or slowly, is here. A
store's address, region and credentials come from the environment, under the names that Amazon's
own tools read (`AWS_ENDPOINT_URL_S3`, `AWS_REGION`, `AWS_ACCESS_KEY_ID`, ...), or from the
machine's role: no setting of ours holds a secret.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING
from urllib.parse import urlsplit

from infra.errors import Fatal, Retryable

if TYPE_CHECKING:
    from upath import UPath

    Location = Path | UPath
else:
    Location = Path

SCHEME = "s3://"

HOME = "_home"
"""In a bucket and in its home: which home the lake's locks lie in."""
FRESH = "lost+found"
"""What a file system has that nothing was put on, for root's eyes only."""


def location(text: str | Path) -> Location:
    """A folder by its path, or a prefix in a bucket by its `s3://` address."""
    if isinstance(text, Path) or not text.startswith(SCHEME):
        return Path(text)
    # Imported late: it takes half a second, and most lakes are folders.
    from upath import UPath

    # Others write into the bucket too: a listing that was remembered would hide it.
    return UPath(text, use_listings_cache=False, endpoint_url=store_endpoint() or None)


def bucketed(where: Location | str) -> bool:
    """Whether something lies in a bucket."""
    return str(where).startswith(SCHEME)


def to_read(file: Location) -> str | IO[bytes]:
    """A file as pyarrow reads it; closing the reader closes it."""
    return str(file) if isinstance(file, Path) else file.open("rb")


def to_write(file: Location) -> str | IO[bytes]:
    """A file as pyarrow writes it: in a bucket it is there, whole, once it is closed."""
    return str(file) if isinstance(file, Path) else file.open("wb")


def list_folder(folder: Location) -> list[Location]:
    """What lies in a folder; nothing where there is none."""
    if isinstance(folder, Path):
        return list(folder.iterdir()) if folder.is_dir() else []
    with _named(folder), suppress(FileNotFoundError, NotADirectoryError):
        return list(folder.iterdir())
    return []


def there(root: Location) -> bool:
    """Whether there is a folder, or anything below a prefix.

    Raises `Fatal` where that cannot be told, as of a bucket that is not there.
    """
    if isinstance(root, Path):
        return root.is_dir()
    require(root)
    return bool(list_folder(root))


def require(root: Location) -> None:
    """Raises `Fatal`, in a sentence, unless a bucket is there and lets us in."""
    if isinstance(root, Path):
        return
    bucket = root.path.partition("/")[0]
    with _named(root):
        try:
            # The bucket itself: a listing of an empty prefix does not tell whether there is one.
            root.fs.call_s3("head_bucket", Bucket=bucket)
        except FileNotFoundError:
            raise Fatal(
                f"{root}: there is no bucket '{bucket}' at {store_endpoint() or 'Amazon S3'}; "
                "make it, "
                "or set 'lake'"
            ) from None


@contextmanager
def _named(where: Location) -> Iterator[None]:
    """What a store refuses, or that it does not answer, as a sentence.

    One that does not answer may do so later: a job that hears of it is started again.
    """
    if isinstance(where, Path):
        yield
        return
    from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError

    try:
        yield
    except NoCredentialsError:
        raise Fatal(f"{where}: {_NO_KEYS}") from None
    except PermissionError as error:
        raise Fatal(
            f"{where}: the store refuses these credentials ({error}); "
            "see docs/how-to/put-the-lake-in-a-bucket.md"
        ) from None
    except (BotoCoreError, ClientError, ConnectionError, TimeoutError) as error:
        lines = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise Retryable(
            f"{where}: the store at {store_endpoint() or 'Amazon S3'}: {lines}"
        ) from None


_NO_KEYS = (
    "lies in a bucket, and no credentials were found: set AWS_ACCESS_KEY_ID and "
    "AWS_SECRET_ACCESS_KEY, or give the machine a role (docs/how-to/put-the-lake-in-a-bucket.md)"
)


def is_table(folder: Location) -> bool:
    """Whether a Delta table lies there."""
    return (folder / "_delta_log").is_dir()


def path_of(name: str) -> str:
    """Path of a table below the lake's root: `silver.event` lies in `silver/event`."""
    return name.replace(".", "/")


def tables_below(root: Location) -> list[Location]:
    """Every Delta table of a lake, also of one that this release does not know."""
    layers = [
        folder_entry
        for folder_entry in list_folder(root)
        # Locks, indexes and rules lie beside the tables, in folders that begin so.
        if not folder_entry.name.startswith("_") and folder_entry.name != FRESH
    ]
    return [table for layer in layers for table in list_folder(layer) if is_table(table)]


def make(folder: Location) -> None:
    """Make a folder, and those above it; in a bucket there are none to make."""
    if isinstance(folder, Path):
        folder.mkdir(parents=True, exist_ok=True)


def beginning(folder: Location, prefix: str) -> list[Location]:
    """The files of a folder whose names begin so."""
    if isinstance(folder, Path):
        return list(folder.glob(f"{prefix}*"))
    # The store looks for the beginning of names itself; a glob would list all of the folder.
    position = folder.fs.find(folder.path, prefix=prefix)
    return [folder / name.rpartition("/")[2] for name in position]


def since(folder: Location, name: str) -> list[tuple[str, float]]:
    """The files of a prefix in a bucket from a name on, in order, and when each was written.

    Names are as UTF-8 sorts them, times in seconds since 1970. What comes before costs nothing.
    """
    if isinstance(folder, Path):
        raise TypeError(f"{folder}: is a folder of this machine")
    bucket, _, prefix = folder.path.partition("/")
    prefix += "/" if prefix else ""
    request = {"Bucket": bucket, "Prefix": prefix, "Delimiter": "/"}
    # What is named comes with it: a list begins after the name that it is given.
    request["StartAfter"] = f"{prefix}{name[:-1]}"
    results: list[tuple[str, float]] = []
    with _named(folder):
        while True:
            reply = folder.fs.call_s3("list_objects_v2", **request)
            results += [
                (content["Key"].removeprefix(prefix), content["LastModified"].timestamp())
                for content in reply.get("Contents", ())
            ]
            if not reply.get("IsTruncated"):
                # The list begins after the name less its last letter: a few before it may come.
                return [content for content in results if content[0] >= name]
            request["ContinuationToken"] = reply["NextContinuationToken"]


def tree(root: Location) -> list[Location]:
    """All files below a folder or prefix, also where a link leads, in the order of their names."""
    if isinstance(root, Path):
        return sorted(_walk(root, frozenset()))
    position = root.fs.find(root.path)
    return [root / name.removeprefix(root.path).strip("/") for name in sorted(position)]


def _walk(folder: Path, above: frozenset[Path]) -> Iterator[Path]:
    real = folder.resolve()
    if real in above or not folder.is_dir():
        return  # a link to a folder it lies in
    for path in folder.iterdir():
        if path.name == FRESH:
            continue
        if path.is_dir():
            yield from _walk(path, above | {real})
        elif path.is_file():
            yield path


def below(root: Location, file: Location) -> str:
    """The name of a file of `tree`, as it is told below its root."""
    return str(file).removeprefix(str(root)).strip("/")


def file_sizes(folder: Location, suffix: str) -> dict[str, int]:
    """The files of a folder whose names end so, and their bytes."""
    if isinstance(folder, Path):
        return {file.name: file.stat().st_size for file in folder.glob(f"*{suffix}")}
    result = folder.fs.ls(folder.path, detail=True)
    return {
        entry["name"].rpartition("/")[2]: int(entry["size"])
        for entry in result
        if entry["type"] == "file" and entry["name"].endswith(suffix)
    }


def move(pairs: Sequence[tuple[Location, Location]]) -> None:
    """Give files other names, in order; in a bucket all are copied before the first is deleted.

    A reader that looks under the old name and then the new one finds each at every moment.
    """
    for old, new in pairs:
        if isinstance(old, Path) and isinstance(new, Path):
            old.replace(new)
    far = [
        (old, new) for old, new in pairs if not isinstance(old, Path) and not isinstance(new, Path)
    ]
    if far:
        far[0][0].fs.copy([old.path for old, _ in far], [new.path for _, new in far])
        delete(old for old, _ in far)


def delete(files: Iterable[Location]) -> None:
    """Delete files; one that is not there is passed over."""
    far = []
    for file in files:
        if isinstance(file, Path):
            file.unlink(missing_ok=True)
        else:
            far.append(file)
    if far:
        # Up to a thousand with one request, and S3 says nothing of those that are not there.
        far[0].fs.rm([file.path for file in far])


def texts(files: Sequence[Location]) -> Iterator[str]:
    """The texts of files in order; in a bucket they are fetched side by side."""
    far = [file for file in files if not isinstance(file, Path)]
    if not far:
        yield from (file.read_text("utf-8") for file in files)
        return
    cat = far[0].fs.cat([file.path for file in far])
    yield from (cat[file.path].decode("utf-8") for file in far)


def claim_file(file: Location, text: str) -> str:
    """Leave a text in a bucket where there is none yet; what lies there then, ours or another's.

    Of two that do it at once one is first: the store is asked to write only what is not there.
    """
    if isinstance(file, Path):
        raise TypeError(f"{file}: is a file of this machine")
    with _named(file), suppress(FileExistsError):
        file.fs.pipe_file(file.path, text.encode("utf-8"), mode="create")
    return str(file.fs.cat_file(file.path).decode("utf-8"))


@dataclass(frozen=True)
class Store:
    """An object store as the environment names it."""

    endpoint: str
    """Host and port; empty for Amazon's own."""
    tls: bool
    region: str
    key: str
    secret: str
    token: str

    @property
    def own(self) -> bool:
        """Whether it is not Amazon's: buckets are then named in the path."""
        return bool(self.endpoint)

    def environment(self) -> dict[str, str]:
        """What a process of ours needs that gets no other environment."""
        scheme = "https" if self.tls else "http"
        lines = {
            "AWS_REGION": self.region,
            "AWS_ACCESS_KEY_ID": self.key,
            "AWS_SECRET_ACCESS_KEY": self.secret,
        }
        lines |= {"AWS_SESSION_TOKEN": self.token} if self.token else {}
        return lines | ({"AWS_ENDPOINT_URL_S3": f"{scheme}://{self.endpoint}"} if self.own else {})


def store() -> Store:
    """The store that the environment names. Raises `Fatal`, saying what is missing."""
    from botocore.exceptions import BotoCoreError
    from botocore.session import get_session

    session = get_session()
    try:
        credentials = session.get_credentials()
        keys = credentials.get_frozen_credentials() if credentials is not None else None
    except BotoCoreError as error:
        raise Fatal(f"the lake lies in a bucket, and its credentials cannot be had: {error}") from (
            None
        )
    if keys is None or keys.access_key is None or keys.secret_key is None:
        raise Fatal(f"the lake {_NO_KEYS}")
    address = urlsplit(store_endpoint())
    return Store(
        address.netloc,
        address.scheme != "http",
        region(),
        keys.access_key,
        keys.secret_key,
        keys.token or "",
    )


def store_endpoint() -> str:
    """The store's URL; empty for Amazon's own."""
    return os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL", "")


def region() -> str:
    """The store's region."""
    named = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    return named or "us-east-1"
