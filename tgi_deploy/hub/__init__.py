"""Models on the Hugging Face Hub, through huggingface_hub."""
