"""Command `completion`: what bash, zsh and fish complete of the commands."""
