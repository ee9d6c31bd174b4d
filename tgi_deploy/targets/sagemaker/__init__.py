"""Amazon SageMaker: real-time endpoints in one or more regions."""
