"""Files and folders: paths in a file system or bucket, atomic writes, locks, checksums.

Imports `infra.errors` alone; everything in `infra` may import it.
"""
