"""Request and response models, by subject; `api.models` has those of what is looked up."""
