"""One module for each kind of object: where it is in force, its files, and how it is changed."""
