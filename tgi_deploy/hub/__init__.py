"""Models on the hub, through huggingface_hub."""
