"""What is kept on disk between starts: the cache folder, small JSON files in it, checksums of large ones."""
